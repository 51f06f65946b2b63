//! How observers start: with a runtime, as its builder and the environment ask.
//!
//! The engine calls this where it starts a runtime. This is the only name of a front module's that the engine knows;
//! without the feature `observe` there is a stand-in (`engine::runtime::unobserved`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{export, trace};
use crate::engine::facade::{Backend, one_of, read_variable as read};
use crate::engine::public::OnDeadlock;

/// What is asked for.
#[cfg_attr(not(green), allow(dead_code, reason = "nobody looks there"))]
pub(crate) struct Plan {
    trace: Option<String>,
    measures: bool,
    schedtrace: Option<Duration>,
    pub(super) on_signal: bool,
    /// What to do about a deadlock of all threads.
    pub(super) by_builder: Option<OnDeadlock>,
    pub(super) by_environment: Option<OnDeadlock>,
    /// The path of a socket on which to answer questions (`socket`).
    pub(super) socket: Option<PathBuf>,
    /// Warnings are wanted; and a thread that nobody can wake is warned of when the thread has waited for so long.
    pub(super) warnings: Option<Duration>,
}

/// One of these words.
fn choice<T: Copy>(name: &str, accepted: &str, words: &[(&str, T)]) -> io::Result<Option<T>> {
    read(name, accepted, |text| one_of(text, words))
}

/// A number from 1 to `most`.
fn up_to(most: u64) -> impl Fn(&str) -> Option<u64> {
    move |text| text.parse().ok().filter(|n| (1..=most).contains(n))
}

const ON_OR_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];

impl Plan {
    /// What a builder and the environment ask for. A value that is not accepted is an error.
    pub(crate) fn read(by_builder: Option<OnDeadlock>) -> io::Result<Plan> {
        let path = |path: &str| trace::writer(Path::new(path)).map(|_| path.to_string());
        let millis = "a number of milliseconds from 1 to 3600000 (an hour)";
        let millis = read("GREENTHREAD_SCHEDTRACE", millis, up_to(3_600_000))?;
        use OnDeadlock::{Abort, Ignore, Report};
        let actions = [("report", Report), ("abort", Abort), ("off", Ignore)];
        // The system's address has room for so many bytes and a zero behind them.
        let accepted = "unix: and the path of a socket, of 1 to 107 bytes";
        let socket = |text: &str| {
            let path = text.strip_prefix("unix:")?;
            (1..=107).contains(&path.len()).then(|| path.into())
        };
        let socket = read("GREENTHREAD_OBSERVE", accepted, socket)?;
        let seconds = "seconds, from 1 to 86400";
        let leak = read("GREENTHREAD_WARN_LEAK", seconds, up_to(86_400))?.unwrap_or(120);
        let warns = [("0", None), ("1", Some(Duration::from_secs(leak)))];
        let pages = "a path that ends in .html or .json";
        let trace = read("GREENTHREAD_TRACE", pages, path)?;
        Ok(Plan {
            trace,
            measures: choice("GREENTHREAD_METRICS", "on or off", &ON_OR_OFF)?.unwrap_or(false),
            schedtrace: millis.map(Duration::from_millis),
            on_signal: choice("GREENTHREAD_SIGQUIT", "on or off", &ON_OR_OFF)?.unwrap_or(true),
            by_builder,
            by_environment: choice("GREENTHREAD_DEADLOCK", "report, abort or off", &actions)?,
            socket,
            warnings: choice("GREENTHREAD_WARN", "0 or 1", &warns)?.flatten(),
        })
    }

    /// Starts what sees the runtime's first thread, too.
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.trace.as_deref().map_or(Ok(()), trace::begin)?;
        if self.measures {
            export::measure(true);
        }
        Ok(())
    }

    /// The runtime is there, and runs no thread yet.
    #[cfg_attr(not(green), allow(unused_variables, reason = "nobody looks there"))]
    pub(crate) fn watch(self, backend: Backend) -> io::Result<()> {
        #[cfg(green)]
        {
            let signal = backend.preemption_signal();
            signal.into_iter().for_each(super::gdb::prepare);
            super::reporter::start(&self);
        }
        #[cfg(not(green))]
        if self.socket.is_some() {
            static SAID: std::sync::Once = std::sync::Once::new();
            SAID.call_once(|| {
                eprintln!("greenthread: GREENTHREAD_OBSERVE needs Linux on x86-64 or aarch64")
            });
        }
        self.schedtrace.map_or(Ok(()), export::begin_schedtrace)
    }
}
