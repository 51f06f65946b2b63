//! Knobs from the environment: `GREENTHREAD_*`. A value that is not accepted is an error; it is
//! never ignored. (What asks for observers is read by these themselves.)

use std::io;
use std::sync::OnceLock;

use super::{Driver, Mode, choice};
use crate::engine::sched::resize::MAX as MAX_PROCESSORS;
use crate::engine::stack;
use crate::engine::sys::variable;

/// Returns the value of variable `name`, converted by `read`. An error names the variable, the value,
/// and the `accepted` values.
pub(crate) fn read<T>(
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
