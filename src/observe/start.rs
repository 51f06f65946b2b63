//! How observers start: with a runtime, as its builder and the environment ask.
//!
//! The engine calls this where it starts a runtime. It is the only name of a front module's that the engine knows;
//! without the feature `observe` it has a stand-in (`engine::runtime::unobserved`).

use std::io;
#[cfg(green)]
use std::path::PathBuf;
use std::time::Duration;

use super::trace::environment as trace;
#[cfg(green)]
use super::{
    gdb,
    reporter::{self, Wishes},
    socket::LONGEST_PATH,
    warn,
};
use super::{measure, schedtrace};
use crate::engine::facade::{Backend, read_variable as read};
use crate::engine::public::OnDeadlock;

/// What is asked for.
pub(crate) struct Plan {
    trace: Option<String>,
    measures: bool,
    schedtrace: Option<Duration>,
    #[cfg(green)]
    wishes: Wishes,
    #[cfg(green)]
    warnings: Option<warn::Limits>,
}

impl Plan {
    /// What a builder and the environment ask for. A value that is not accepted is an error.
    #[cfg_attr(not(green), allow(unused_variables, reason = "nobody looks there"))]
    pub(crate) fn read(on_deadlock: Option<OnDeadlock>) -> io::Result<Plan> {
        #[cfg(not(green))]
        say_unobserved();
        Ok(Plan {
            trace: read(
                "GREENTHREAD_TRACE",
                "a path that ends in .html or .json",
                |path| trace::is_accepted(path).then(|| path.to_string()),
            )?,
            measures: on_or_off("GREENTHREAD_METRICS")?.unwrap_or(false),
            schedtrace: schedtrace()?,
            #[cfg(green)]
            wishes: Wishes {
                on_signal: on_or_off("GREENTHREAD_SIGQUIT")?.unwrap_or(true),
                by_builder: on_deadlock,
                by_environment: deadlock()?,
                socket: socket()?,
            },
            #[cfg(green)]
            warnings: warnings()?,
        })
    }

    /// Starts what sees the runtime's first thread, too.
    pub(crate) fn begin(&self) -> io::Result<()> {
        if let Some(path) = &self.trace {
            trace::begin(path)?;
        }
        if self.measures {
            measure::measure(true);
        }
        Ok(())
    }

    /// The runtime is there, and runs no thread yet.
    #[cfg_attr(not(green), allow(unused_variables, reason = "nobody looks there"))]
    pub(crate) fn watch(self, backend: Backend) -> io::Result<()> {
        #[cfg(green)]
        {
            backend
                .preemption_signal()
                .into_iter()
                .for_each(gdb::prepare);
            reporter::start(&self.wishes, self.warnings);
        }
        match self.schedtrace {
            Some(interval) => schedtrace::begin(interval),
            None => Ok(()),
        }
    }
}

fn on_or_off(name: &str) -> io::Result<Option<bool>> {
    read(name, "on or off", |text| match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    })
}

/// How often to say what the scheduler does.
fn schedtrace() -> io::Result<Option<Duration>> {
    let accepted = "a number of milliseconds from 1 to 3600000 (an hour)";
    read("GREENTHREAD_SCHEDTRACE", accepted, |text| {
        let millis = text.parse().ok().filter(|n| (1..=3_600_000).contains(n));
        millis.map(Duration::from_millis)
    })
}

/// What to do about a deadlock.
#[cfg(green)]
fn deadlock() -> io::Result<Option<OnDeadlock>> {
    let accepted = "report, abort or off";
    read("GREENTHREAD_DEADLOCK", accepted, |text| match text {
        "report" => Some(OnDeadlock::Report),
        "abort" => Some(OnDeadlock::Abort),
        "off" => Some(OnDeadlock::Ignore),
        _ => None,
    })
}

/// What the program is to be warned of.
#[cfg(green)]
fn warnings() -> io::Result<Option<warn::Limits>> {
    const LEAK: u64 = 120;
    let seconds = |text: &str| {
        text.parse()
            .ok()
            .filter(|seconds| (1..=86_400).contains(seconds))
    };
    let leak = read("GREENTHREAD_WARN_LEAK", "seconds, from 1 to 86400", seconds)?;
    let wanted = read("GREENTHREAD_WARN", "0 or 1", |text| match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })?;
    let limits = warn::Limits {
        leak: Duration::from_secs(leak.unwrap_or(LEAK)),
    };
    Ok(wanted.unwrap_or(false).then_some(limits))
}

/// The path of the socket on which the process is to answer questions about its threads.
#[cfg(green)]
fn socket() -> io::Result<Option<PathBuf>> {
    let accepted = format!("unix: and the path of a socket, of 1 to {LONGEST_PATH} bytes");
    read("GREENTHREAD_OBSERVE", &accepted, |text| {
        let path = text.strip_prefix("unix:")?;
        (1..=LONGEST_PATH)
            .contains(&path.len())
            .then(|| path.into())
    })
}

/// Says, once, that there is no such socket here.
#[cfg(not(green))]
fn say_unobserved() {
    static SAID: std::sync::Once = std::sync::Once::new();
    if crate::sys::variable::read("GREENTHREAD_OBSERVE").is_some() {
        SAID.call_once(|| {
            eprintln!("greenthread: GREENTHREAD_OBSERVE needs Linux on x86-64 or aarch64")
        });
    }
}
