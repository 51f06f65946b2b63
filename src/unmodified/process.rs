//! `waitpid`, `wait4`, `waitid`, for one child and its end: the thread waits for the child's pidfd.
//!
//! A wait for any child, or for one of a group, or for a stop, has no descriptor: it is libc's, and announced.

use core::ffi::c_int;
use core::pin::pin;
use std::os::fd::AsRawFd;

use super::descriptor::is_nonblocking;
use super::{can_watch, errno, hooked, set_errno};
use crate::engine::door::watch::{Call, Purpose};
use crate::engine::door::{blocking, calls};

/// Options under which the end of the child is all that is waited for.
const PLAIN: c_int = libc::WNOHANG | libc::WEXITED | libc::WNOWAIT;

/// Waits until `child` has ended. False: it cannot be waited for in this way.
fn has_ended(child: libc::pid_t) -> bool {
    calls::pidfd(child as u32).is_ok_and(|pidfd| waits_for(pidfd.as_raw_fd()))
}

fn waits_for(pidfd: c_int) -> bool {
    let call = pin!(Call::new(pidfd));
    matches!(call.as_ref().wait(Purpose::Read, None), Ok(true))
}

/// Makes `look`, which does not wait and answers 0 as long as the child runs, until it has ended.
fn until_ended(
    ended: impl Fn() -> bool,
    mut look: impl FnMut() -> Option<c_int>,
    block: impl FnOnce() -> c_int,
) -> c_int {
    let before = errno();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        if !can_watch() || !ended() {
            set_errno(before);
            return blocking(block);
        }
        set_errno(before);
    }
}

/// `waitpid` or `wait4`; `real` makes libc's call with these options.
fn wait_for(
    child: libc::pid_t,
    options: c_int,
    real: impl Fn(c_int) -> libc::pid_t,
) -> libc::pid_t {
    if options & libc::WNOHANG != 0 {
        return real(options);
    }
    if child <= 0 || options & !PLAIN != 0 {
        return blocking(|| real(options));
    }
    let look = || match real(options | libc::WNOHANG) {
        0 => None,
        answer => Some(answer),
    };
    until_ended(|| has_ended(child), look, || real(options))
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

    fn waitid(
        kind: libc::idtype_t,
        id: libc::id_t,
        info: *mut libc::siginfo_t,
        options: c_int,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        let real = |info: *mut libc::siginfo_t, options| unsafe { waitid::real(kind, id, info, options) };
        if options & libc::WNOHANG != 0 {
            return real(info, options);
        }
        let is_known = matches!(kind, libc::P_PID | libc::P_PIDFD) && options & !PLAIN == 0;
        if !is_known {
            return blocking(|| real(info, options));
        }
        let look = || {
            // SAFETY: a zeroed record is valid; the caller's place may be null.
            unsafe {
                let mut seen: libc::siginfo_t = core::mem::zeroed();
                match real(&mut seen, options | libc::WNOHANG) {
                    0 if seen.si_pid() == 0 => None,
                    0 => {
                        if !info.is_null() {
                            *info = seen;
                        }
                        Some(0)
                    }
                    failed => Some(failed),
                }
            }
        };
        if kind == libc::P_PIDFD && is_nonblocking(id as c_int) {
            return real(info, options);
        }
        let ended = || match kind {
            libc::P_PIDFD => waits_for(id as c_int),
            _ => has_ended(id as libc::pid_t),
        };
        until_ended(ended, look, || real(info, options))
    }
}
