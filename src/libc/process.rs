//! `waitpid`, `wait`, `wait4`, `wait3`, `waitid`: the thread asks without waiting, and parks until there is something
//! to ask for.
//!
//! What it waits for is what the kernel would report, with the same children and options: ends, stops, continuations.
//! A child's pidfd tells of its end only, and any child may stop: once it is traced, which it may ask for itself at
//! any moment, its tracer hears of its stops whatever the options are. So the ring makes the kernel's own wait, which
//! takes nothing (`WNOWAIT`), and then the thread looks again: another one may have come first.
//!
//! Announced instead: where there is no ring, or none that waits for children (before Linux 6.7); and `__WNOTHREAD`,
//! which is about the kernel thread that calls.

use core::ffi::c_int;

use super::descriptor::{can_be_written, is_nonblocking};
use super::{count_parked, errno, exported, fail, hooked, set_errno};
use crate::engine::facade::blocking;
use crate::engine::hooks::{Operation, operate};

/// Makes `look`, which does not wait, until it has an answer. In between it waits for those that `kind` and `id` name;
/// `real` makes the call that waits.
fn until(
    (kind, id): (libc::idtype_t, libc::id_t),
    options: c_int,
    mut look: impl FnMut() -> Option<c_int>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let before = errno();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        let told = options & libc::__WNOTHREAD == 0 && {
            count_parked();
            let options = options | libc::WNOWAIT;
            let answer = operate(Operation::WaitForChild(kind, id, options));
            matches!(answer, Some(Ok(_)))
        };
        set_errno(before);
        if !told {
            return blocking(real);
        }
    }
}

/// `wait4` and its kin; `real` makes libc's call with these options.
fn wait_for(
    child: libc::pid_t,
    options: c_int,
    real: impl Fn(c_int) -> libc::pid_t,
) -> libc::pid_t {
    if options & libc::WNOHANG != 0 {
        return real(options);
    }
    let whom = match child {
        1.. => (libc::P_PID, child as libc::id_t),
        -1 => (libc::P_ALL, 0),
        // 0: the caller's own.
        group => (libc::P_PGID, group.unsigned_abs()),
    };
    let look = || match real(options | libc::WNOHANG) {
        0 => None,
        answer => Some(answer),
    };
    until(whom, options | libc::WEXITED, look, || real(options))
}

hooked! {
    fn waitpid(child: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t {
        // SAFETY: the caller's arguments.
        wait_for(child, options, |options| unsafe { waitpid::real(child, status, options) })
    }

    fn wait4(
        child: libc::pid_t,
        status: *mut c_int,
        options: c_int,
        usage: *mut libc::rusage,
    ) -> libc::pid_t {
        // SAFETY: the caller's arguments.
        wait_for(child, options, |options| unsafe { wait4::real(child, status, options, usage) })
    }

    fn wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> libc::pid_t {
        // SAFETY: the caller's arguments.
        wait_for(-1, options, |options| unsafe { wait3::real(status, options, usage) })
    }

    fn waitid(
        kind: libc::idtype_t,
        id: libc::id_t,
        info: *mut libc::siginfo_t,
        options: c_int,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        let real = |info: *mut libc::siginfo_t, options| unsafe { waitid::real(kind, id, info, options) };
        if options & libc::WNOHANG != 0 || kind == libc::P_PIDFD && is_nonblocking(id as c_int) {
            return real(info, options);
        }
        // As the kernel's call keeps the file, whatever becomes of the number.
        let kept = match kind {
            // SAFETY: numbers.
            libc::P_PIDFD => unsafe { libc::fcntl(id as c_int, libc::F_DUPFD_CLOEXEC, 0) },
            _ => -1,
        };
        let id = if kept == -1 { id } else { kept as libc::id_t };
        // SAFETY: the caller's arguments.
        let real = |info: *mut libc::siginfo_t, options| unsafe { waitid::real(kind, id, info, options) };
        let look = || {
            // SAFETY: a zeroed record is valid; the caller's place may be null, or can be written.
            unsafe {
                let mut seen: libc::siginfo_t = core::mem::zeroed();
                match real(&mut seen, options | libc::WNOHANG) {
                    0 if seen.si_pid() == 0 => return None,
                    0 if info.is_null() => {}
                    // The kernel, too, has taken what it reports by then.
                    0 if !can_be_written(info, 1) => return Some(fail(libc::EFAULT)),
                    0 => *info = seen,
                    failed => return Some(failed),
                }
                Some(0)
            }
        };
        let answer = until((kind, id), options, look, || real(info, options));
        if kept != -1 {
            let errno = errno();
            // SAFETY: ours.
            unsafe { libc::close(kept) };
            set_errno(errno);
        }
        answer
    }
}

exported! {
    // For any child.
    fn wait(status: *mut c_int) -> libc::pid_t {
        // SAFETY: the caller's argument.
        unsafe { waitpid(-1, status, 0) }
    }
}
