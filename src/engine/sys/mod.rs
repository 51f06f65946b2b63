//! System calls, each behind a function that returns `io::Result` or a plain value.
//!
//! Everything here may run under any thread pointer and with preemption off: no call goes through
//! libc where libc would write `errno`, nothing allocates, and the only lock is [`lock::Lock`]
//! itself. (But for [`calls`], [`cgroup`] and the growing of a [`table`]: only ordinary threads do
//! that.)

pub(crate) mod batch;
pub(crate) mod calls;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod epoll;
pub(crate) mod fence;
pub(crate) mod futex;
pub(crate) mod handler;
pub(crate) mod kernel_thread;
pub(crate) mod lock;
pub(crate) mod mm;
pub(crate) mod observer;
mod patience;
pub(crate) mod perturb;
pub(crate) mod signal;
pub(crate) mod table;
pub(crate) mod topology;

pub(crate) use self::patience::Patience;

use crate::engine::arch;

/// A system call by number; `Err(errno)` on failure.
///
/// # Safety
/// As the system call demands.
#[inline]
pub(crate) unsafe fn call(number: libc::c_long, arguments: &[usize]) -> Result<usize, i32> {
    let mut registers = [0; 6];
    registers[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: the caller's promise.
    let result = unsafe { arch::syscall(number, registers) };
    if (-4095..0).contains(&result) {
        Err(-result as i32)
    } else {
        Ok(result as usize)
    }
}

/// Prints `message` and aborts: an invariant of the runtime itself is broken, going on would
/// corrupt memory.
#[cold]
#[inline(never)]
pub(crate) fn die(message: &str) -> ! {
    for part in ["greenthread: internal invariant broken: ", message, "\n"] {
        // SAFETY: writes a valid buffer to standard error; a failure cannot be reported anywhere.
        let _ = unsafe { call(libc::SYS_write, &[2, part.as_ptr() as usize, part.len()]) };
    }
    // SAFETY: abort has no preconditions.
    unsafe { libc::abort() }
}
