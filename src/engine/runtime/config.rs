//! What the environment asks of those that watch a runtime: `GREENTHREAD_*`.

use std::io;
#[cfg(green)]
use std::path::PathBuf;
use std::time::Duration;

use super::options::{read, word};
#[cfg(green)]
use crate::engine::report::{
    reporter::{self, OnDeadlock},
    socket::LONGEST_PATH,
    warn,
};
#[cfg(not(green))]
use crate::engine::sys::variable;
use crate::observe::trace::environment;

fn on_or_off(text: &str) -> Option<bool> {
    word(text, [("on", true), ("off", false)])
}

/// Whether times are to be measured.
pub(super) fn metrics() -> io::Result<Option<bool>> {
    read("GREENTHREAD_METRICS", "on or off", on_or_off)
}

/// How often to say what the scheduler does.
pub(super) fn schedtrace() -> io::Result<Option<Duration>> {
    let accepted = "a number of milliseconds from 1 to 3600000 (an hour)";
    read("GREENTHREAD_SCHEDTRACE", accepted, |text| {
        let millis = text.parse().ok().filter(|n| (1..=3_600_000).contains(n));
        millis.map(Duration::from_millis)
    })
}

/// What the environment asks the reporter for.
#[cfg(green)]
pub(super) fn reporter() -> io::Result<reporter::Wishes> {
    let on_signal = read("GREENTHREAD_SIGQUIT", "on or off", on_or_off)?;
    let on_deadlock = read(
        "GREENTHREAD_DEADLOCK",
        "report, abort or off",
        |text| match text {
            "report" => Some(OnDeadlock::Report),
            "abort" => Some(OnDeadlock::Abort),
            "off" => Some(OnDeadlock::Ignore),
            _ => None,
        },
    )?;
    Ok(reporter::Wishes {
        on_signal: on_signal.unwrap_or(true),
        on_deadlock,
        socket: observe()?,
    })
}

/// What the program is warned of, if the environment asks for warnings.
#[cfg(green)]
pub(super) fn warnings() -> io::Result<Option<warn::Limits>> {
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

/// The file for the trace of the process.
pub(super) fn trace() -> io::Result<Option<String>> {
    let accepted = "a path that ends in .html or .json";
    read("GREENTHREAD_TRACE", accepted, |path| {
        environment::is_accepted(path).then(|| path.to_string())
    })
}

/// The path of the socket on which the process is to answer questions about its threads.
#[cfg(green)]
fn observe() -> io::Result<Option<PathBuf>> {
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
pub(super) fn say_unobserved() {
    static SAID: std::sync::Once = std::sync::Once::new();
    if variable::read("GREENTHREAD_OBSERVE").is_some() {
        SAID.call_once(|| {
            eprintln!("greenthread: GREENTHREAD_OBSERVE needs Linux on x86-64 or aarch64")
        });
    }
}
