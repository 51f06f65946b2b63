//! How observers start: with a runtime, as its builder and the environment ask.
//!
//! The engine calls this where it starts a runtime. It is the only name of a front module's that the engine knows;
//! without the feature `observe` it has a stand-in (`engine::runtime::unobserved`).

use std::io;
use std::path::Path;
#[cfg(green)]
use std::path::PathBuf;
use std::time::Duration;

use super::trace::session as trace;
use super::{export, measure};
#[cfg(green)]
use super::{
    gdb,
    reporter::{self, Wishes},
    socket::LONGEST_PATH,
    warn,
};
use crate::engine::facade::{Backend, OnDeadlock, one_of, read_variable as read};

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
        let on_or_off = |name| {
            let known = [("on", true), ("off", false)];
            read(name, "on or off", |text| one_of(text, known))
        };
        let up_to = |most| move |text: &str| text.parse().ok().filter(|n| (1..=most).contains(n));
        let path = |path: &str| trace::writer(Path::new(path)).map(|_| path.to_string());
        let millis = "a number of milliseconds from 1 to 3600000 (an hour)";
        let millis = read("GREENTHREAD_SCHEDTRACE", millis, up_to(3_600_000))?;
        Ok(Plan {
            trace: read(
                "GREENTHREAD_TRACE",
                "a path that ends in .html or .json",
                path,
            )?,
            measures: on_or_off("GREENTHREAD_METRICS")?.unwrap_or(false),
            schedtrace: millis.map(Duration::from_millis),
            #[cfg(green)]
            wishes: Wishes {
                on_signal: on_or_off("GREENTHREAD_SIGQUIT")?.unwrap_or(true),
                by_builder: on_deadlock,
                by_environment: deadlock()?,
                socket: socket()?,
            },
            #[cfg(green)]
            warnings: {
                let leak = read(
                    "GREENTHREAD_WARN_LEAK",
                    "seconds, from 1 to 86400",
                    up_to(86_400),
                )?;
                let leak = Duration::from_secs(leak.unwrap_or(120));
                let known = |text: &str| one_of(text, [("0", false), ("1", true)]);
                let are_wanted = read("GREENTHREAD_WARN", "0 or 1", known)?.unwrap_or(false);
                are_wanted.then_some(warn::Limits { leak })
            },
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
        self.schedtrace.map_or(Ok(()), export::begin_schedtrace)
    }
}

/// What to do about a deadlock.
#[cfg(green)]
fn deadlock() -> io::Result<Option<OnDeadlock>> {
    let known = [
        ("report", OnDeadlock::Report),
        ("abort", OnDeadlock::Abort),
        ("off", OnDeadlock::Ignore),
    ];
    let accepted = "report, abort or off";
    read("GREENTHREAD_DEADLOCK", accepted, |text| one_of(text, known))
}

/// The path of the socket on which the process is to answer questions about its threads.
#[cfg(green)]
fn socket() -> io::Result<Option<PathBuf>> {
    let accepted = format!("unix: and the path of a socket, of 1 to {LONGEST_PATH} bytes");
    read("GREENTHREAD_OBSERVE", &accepted, |text| {
        let path = text.strip_prefix("unix:")?;
        let fits = (1..=LONGEST_PATH).contains(&path.len());
        fits.then(|| path.into())
    })
}

/// Says, once, that there is no such socket here.
#[cfg(not(green))]
fn say_unobserved() {
    static SAID: std::sync::Once = std::sync::Once::new();
    if crate::engine::facade::variable::read("GREENTHREAD_OBSERVE").is_some() {
        SAID.call_once(|| {
            eprintln!("greenthread: GREENTHREAD_OBSERVE needs Linux on x86-64 or aarch64")
        });
    }
}
