//! Knobs from the environment: `GREENTHREAD_*`. A value that is not accepted is an error; it is
//! never ignored.

use std::io;
#[cfg(green)]
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::{Driver, Mode, choice};
#[cfg(green)]
use crate::engine::report::{
    reporter::{self, OnDeadlock},
    socket::LONGEST_PATH,
    warn,
};
use crate::engine::sched::resize::MAX as MAX_PROCESSORS;
use crate::engine::stack;
use crate::engine::sys::variable;
use crate::observe::trace::environment;

/// Returns the value of variable `name`, converted by `read`. An error names the variable, the value,
/// and the `accepted` values.
pub(super) fn read<T>(
    name: &str,
    accepted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let Some(value) = variable::read(name) else {
        return Ok(None);
    };
    match value.to_str().and_then(read) {
        Some(result) => Ok(Some(result)),
        None => Err(invalid(format!("{name}={value:?}: accepted is {accepted}"))),
    }
}

pub(super) fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

pub(super) fn processors() -> io::Result<Option<usize>> {
    let accepted = format!("a number from 1 to {MAX_PROCESSORS}");
    read("GREENTHREAD_PROCS", &accepted, |text| {
        text.parse()
            .ok()
            .filter(|n| (1..=MAX_PROCESSORS).contains(n))
    })
}

pub(super) fn stack_size() -> io::Result<Option<usize>> {
    let accepted = "a number of bytes up to 68719476736 (64 GiB)";
    read("GREENTHREAD_STACK_SIZE", accepted, |text| {
        text.parse()
            .ok()
            .filter(|&size| check_stack_size(size).is_ok())
    })
}

/// Returns the stack size if neither the program nor a variable of ours asks for one: std's.
pub(super) fn std_stack_size() -> io::Result<usize> {
    let size = default_stack_size();
    check_stack_size(size)
        .map(|()| size)
        .map_err(|error| invalid(format!("RUST_MIN_STACK asks for {error}")))
}

pub(super) fn mode() -> io::Result<Option<Mode>> {
    read("GREENTHREAD_MODE", "green or kernel", |text| match text {
        "green" => Some(Mode::Green),
        "kernel" => Some(Mode::Kernel),
        _ => None,
    })
}

/// Checks the variable that the hooked calls of libc read by themselves.
pub(super) fn check_unmodified() -> io::Result<()> {
    let known = |text: &str| matches!(text, "on" | "off").then_some(());
    read("GREENTHREAD_UNMODIFIED", "on or off", known).map(drop)
}

fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
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

pub(super) fn driver() -> io::Result<Option<Driver>> {
    read(
        "GREENTHREAD_DRIVER",
        "epoll or io_uring",
        |text| match text {
            "epoll" => Some(Driver::Epoll),
            "io_uring" => Some(Driver::IoUring),
            _ => None,
        },
    )
}

pub(super) fn policy() -> io::Result<choice::Asked> {
    let asked = read("GREENTHREAD_POLICY", choice::ACCEPTED, choice::parse)?;
    Ok(asked.unwrap_or_default())
}

/// Checks whether a stack of `size` bytes is accepted; a small size is rounded up later. The error
/// names the sizes that are accepted.
pub(crate) fn check_stack_size(size: usize) -> io::Result<()> {
    let max = stack::MAX_SIZE;
    if size <= max {
        return Ok(());
    }
    let message = format!(
        "a stack of {size} bytes: accepted are {max} ({} GiB) at most",
        max >> 30
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Returns the stack size where the program asks for none: std's, with std's variable. The variable
/// is read as std reads it: once, and a value that is not a number is ignored.
pub(crate) fn default_stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = variable::read("RUST_MIN_STACK");
        let size = asked.and_then(|size| size.to_str()?.parse().ok());
        size.unwrap_or(2 << 20)
    })
}
