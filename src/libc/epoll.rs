//! `epoll_wait`, `epoll_pwait`, `epoll_pwait2`: an epoll instance is a descriptor that can be waited for.
//!
//! Of the threads that wait for one instance an event wakes one, as the kernel does it; if there are
//! more events than that takes, the next one is woken when its call is over.

use core::ffi::c_int;
use core::pin::pin;
use core::ptr::null;

use super::poll::{for_millis, for_time, until};
use super::{hooked, uninterrupted};
use crate::engine::hooks::watch::{Call, Purpose};

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
    let call = pin!(Call::new(epoll));
    let call = call.as_ref();
    // SAFETY: the caller's promise.
    let look = || uninterrupted(|| unsafe { epoll_wait::real(call.fd(), events, room, 0) });
    until(deadline, look, |_| call.wait(Purpose::Read, deadline))
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
            let wait = |deadline| wait(epoll, events, room, deadline);
            for_millis(millis, null(), wait, |left| epoll_wait::real(epoll, events, room, left))
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
            let wait = |deadline| wait(epoll, events, room, deadline);
            let real = |left| epoll_pwait::real(epoll, events, room, left, mask);
            for_millis(millis, mask, wait, real)
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
            let wait = |deadline| wait(epoll, events, room, deadline);
            let real = |left| epoll_pwait2::real(epoll, events, room, left, mask);
            for_time(time, mask, wait, real)
        }
    }
}
