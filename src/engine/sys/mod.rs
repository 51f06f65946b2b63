//! System calls, each behind a function that returns `io::Result` or a plain value.
//!
//! Everything here may run under any thread pointer and with preemption off: no call goes through
//! libc where libc would write `errno`, nothing allocates, and the only lock is [`lock::Lock`]
//! itself. (But for the growing of a [`statics::Table`]: only ordinary threads do that.)

pub(crate) mod backoff;
pub(crate) mod calls;
pub(crate) mod clock;
pub(crate) mod elf;
pub(crate) mod epoll;
pub(crate) mod futex;
pub(crate) mod handler;
pub(crate) mod kernel_thread;
pub(crate) mod libraries;
pub(crate) mod lock;
pub(crate) mod mm;
pub(crate) mod observer;
pub(crate) mod perturb;
pub(crate) mod sanitizer;
pub(crate) mod signal;
pub(crate) mod statics;
pub(crate) mod syscalls;
pub(crate) mod topology;
pub(crate) mod unwinding;
pub(crate) mod variable;
pub(crate) mod word;

use std::os::fd::RawFd;

use crate::engine::arch;

/// A system call by number; `Err(errno)` on failure.
///
/// # Safety
/// As the system call demands.
#[inline]
pub(crate) unsafe fn call(number: libc::c_long, arguments: &[usize]) -> Result<usize, i32> {
    let mut registers = [0; 6];
    registers[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the arguments are as this call demands, the caller says.
    let result = unsafe { arch::syscall(number, registers) };
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as usize)
    }
}

/// A system call that takes numbers alone: it neither reads nor writes the process's memory.
pub(crate) struct Plain(libc::c_long);

impl Plain {
    pub(crate) const SCHED_YIELD: Plain = Plain(libc::SYS_sched_yield);
    pub(crate) const GETPID: Plain = Plain(libc::SYS_getpid);
    pub(crate) const GETTID: Plain = Plain(libc::SYS_gettid);
    pub(crate) const TGKILL: Plain = Plain(libc::SYS_tgkill);
    pub(crate) const EXIT_GROUP: Plain = Plain(libc::SYS_exit_group);
    pub(crate) const MEMBARRIER: Plain = Plain(libc::SYS_membarrier);
    const CLOSE: Plain = Plain(libc::SYS_close);
    const EPOLL_CREATE: Plain = Plain(libc::SYS_epoll_create1);
    const EVENTFD: Plain = Plain(libc::SYS_eventfd2);
}

/// Makes such a call; `Err(errno)` on failure.
#[inline]
pub(crate) fn plain(Plain(number): Plain, arguments: &[usize]) -> Result<usize, i32> {
    // SAFETY: the calls listed above have no effect on memory, whatever the numbers.
    unsafe { call(number, arguments) }
}

/// Closes `descriptor`. A failure cannot be reported anywhere.
pub(crate) fn close(descriptor: RawFd) {
    let _ = plain(Plain::CLOSE, &[descriptor as usize]);
}

/// Makes a duplicate of `descriptor`: its number is the lowest free one from `lowest` on.
pub(crate) fn duplicate(descriptor: RawFd, lowest: RawFd) -> Result<RawFd, i32> {
    let make = libc::F_DUPFD_CLOEXEC as usize;
    let arguments = [descriptor as usize, make, lowest as usize];
    // SAFETY: the call makes a descriptor, and touches no memory.
    let made = unsafe { call(libc::SYS_fcntl, &arguments) };
    made.map(|fd| fd as RawFd)
}

/// The events of `poll(2)` that are there at this moment, of `events` and the errors.
pub(crate) fn poll_now(descriptor: RawFd, events: i16) -> Result<i16, i32> {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events,
        revents: 0,
    };
    let at_once = [0_u64; 2];
    let (entry, time) = (&raw mut poll as usize, at_once.as_ptr() as usize);
    // SAFETY: one valid entry, which the kernel fills in, and a time, which it reads.
    unsafe { call(libc::SYS_ppoll, &[entry, 1, time, 0, 0]) }?;
    Ok(poll.revents)
}

/// Writes `bytes`, or a part of them, to `descriptor`; returns how many.
pub(crate) fn write(descriptor: RawFd, bytes: &[u8]) -> Result<usize, i32> {
    let arguments = [descriptor as usize, bytes.as_ptr() as usize, bytes.len()];
    // SAFETY: the kernel reads the bytes, which are valid.
    unsafe { call(libc::SYS_write, &arguments) }
}

/// Writes `text` to standard error. A failure cannot be reported anywhere.
pub(crate) fn print(text: &[u8]) {
    let _ = write(libc::STDERR_FILENO, text);
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    for part in ["greenthread: internal invariant broken: ", message, "\n"] {
        print(part.as_bytes());
    }
    std::process::abort()
}
