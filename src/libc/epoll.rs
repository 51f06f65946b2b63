//! `epoll_wait`, `epoll_pwait`, `epoll_pwait2`: an epoll instance is a descriptor that can be waited for.
//!
//! Of the threads that wait for one instance an event wakes one, as the kernel does it; if there are
//! more events than that takes, the next one is woken when its call is over.

use core::ffi::c_int;
use core::pin::pin;

use super::poll::{after_millis, block, changes_mask, deadline_of, millis_of, with_time};
use super::{errno, hooked, set_errno, uninterrupted};
use crate::engine::door::clock;
use crate::engine::door::watch::{Call, Purpose};

/// Collects events until there are some, or until `deadline`. `None`: the caller is to make the call that
/// blocks.
///
/// # Safety
/// There is room for `room` events.
unsafe fn wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    room: c_int,
    deadline: Option<u64>,
) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let look = |fd| uninterrupted(|| unsafe { epoll_wait::real(fd, events, room, 0) });
    let first = look(epoll);
    if first != 0 || deadline.is_some_and(|deadline| deadline <= clock::now()) {
        return Some(first);
    }
    let before = errno();
    let call = pin!(Call::new(epoll));
    loop {
        let has_come = call.as_ref().wait(Purpose::Read, deadline).ok()?;
        let answer = look(call.fd());
        if answer != 0 || !has_come {
            if answer >= 0 {
                set_errno(before);
            }
            return Some(answer);
        }
    }
}

hooked! {
    fn epoll_wait(
        epoll: c_int,
        events: *mut libc::epoll_event,
        room: c_int,
        millis: c_int,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let deadline = after_millis(millis);
            let real = |left| epoll_wait::real(epoll, events, room, millis_of(left));
            wait(epoll, events, room, deadline).unwrap_or_else(|| block(deadline, real))
        }
    }

    fn epoll_pwait(
        epoll: c_int,
        events: *mut libc::epoll_event,
        room: c_int,
        millis: c_int,
        mask: *const libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let deadline = after_millis(millis);
            let real = |left| epoll_pwait::real(epoll, events, room, millis_of(left), mask);
            match changes_mask(mask) {
                true => None,
                false => wait(epoll, events, room, deadline),
            }
            .unwrap_or_else(|| block(deadline, real))
        }
    }

    fn epoll_pwait2(
        epoll: c_int,
        events: *mut libc::epoll_event,
        room: c_int,
        time: *const libc::timespec,
        mask: *const libc::sigset_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let real = |time| epoll_pwait2::real(epoll, events, room, time, mask);
            let Ok(deadline) = deadline_of(time) else {
                return real(time); // which refuses it
            };
            match changes_mask(mask) {
                true => None,
                false => wait(epoll, events, room, deadline),
            }
            .unwrap_or_else(|| block(deadline, |left| with_time(left, real)))
        }
    }
}
