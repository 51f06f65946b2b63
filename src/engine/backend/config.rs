//! Knobs from the environment: `GREENTHREAD_*`. A value that is not accepted is an error, never
//! ignored.

use std::io;
use std::sync::OnceLock;

use super::{Driver, Mode, choice};
use crate::engine::sched::resize::MAX as MAX_PROCESSORS;
use crate::engine::stack;

/// The value of `variable`, read by `read`; an error names both and what is `accepted`.
pub(super) fn read<T>(
    variable: &str,
    accepted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> io::Result<Option<T>> {
    let Some(value) = std::env::var_os(variable) else {
        return Ok(None);
    };
    match value.to_str().and_then(read) {
        Some(result) => Ok(Some(result)),
        None => Err(invalid(format!(
            "{variable}={value:?}: accepted is {accepted}"
        ))),
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

/// The size of who has asked for none.
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

/// Whether a stack of `size` bytes can be asked for, which is rounded up to the least that there is;
/// if not, the error names what can.
pub(crate) fn check_stack_size(size: usize) -> io::Result<()> {
    let max = stack::MAX_SIZE;
    if size <= max {
        return Ok(());
    }
    let message = format!("a stack of {size} bytes: accepted are {max} (64 GiB) at most");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// The stack size where nobody has asked for one: std's, with std's variable. As std reads it: once,
/// and what is no number counts for nothing.
pub(crate) fn default_stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = std::env::var("RUST_MIN_STACK").ok();
        asked.and_then(|size| size.parse().ok()).unwrap_or(2 << 20)
    })
}
