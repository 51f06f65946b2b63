//! A call on a watched descriptor, from its first wait to its end.
//!
//! Its seat is in the list `calls` of the descriptor's record all that time, also while its thread runs or
//! is about to run. So the one who closes the descriptor finds it, and gives it a duplicate. The call
//! looks up the number before each try ([`Call::fd`]).
//!
//! Invariant: `Seat::fd` and `Seat::moved` change under the locks of both records, the old number's and the new
//! one's. The record of a duplicate counts the calls that use it; the last one closes it.

use core::cell::Cell;
use core::marker::PhantomPinned;
use core::pin::Pin;
use std::io;
use std::os::fd::RawFd;

use super::closing::close_duplicate;
use super::{Awoken, Interest, Purpose, Waiting, Watched, make_ready, wait_in};
use crate::engine::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use crate::engine::green::current;
use crate::engine::green::fifo::Fifo;
use crate::engine::sys::word;
use crate::engine::wait::claim::{Node, Wait};
use crate::engine::wait::{Locator, WaitKind, WaitReason};

/// For reports.
static DESCRIPTOR: WaitKind = WaitKind::outside("descriptor", |address, facts| {
    facts.descriptor = word::look(address).ok().map(|fd| fd as i32);
})
.with(Locator::descriptor(0));

/// A call on a descriptor, which may have to wait. It takes something if the descriptor is ready, so
/// an event wakes one such call, and that passes the rest on when it ends.
pub(crate) struct Call {
    seat: Seat,
    /// Since it has waited.
    is_seated: Cell<bool>,
    /// The list has the seat's address.
    _pinned: PhantomPinned,
}

/// A call in the list of its descriptor. It changes the list together with the threads that wait.
#[repr(C)] // the node first: a pointer to it is one to this
pub(super) struct Seat {
    pub(super) node: Node,
    pub(super) fd: AtomicI32,
    /// `fd` is a duplicate of ours.
    pub(super) moved: AtomicBool,
}

impl Call {
    /// A call on the descriptor that the program names `fd`.
    pub(crate) fn new(fd: RawFd) -> Call {
        Call {
            seat: Seat {
                node: Node::new(core::ptr::null()),
                fd: AtomicI32::new(fd),
                moved: AtomicBool::new(false),
            },
            is_seated: Cell::new(false),
            _pinned: PhantomPinned,
        }
    }

    /// The descriptor's number: another one if it was closed since the call has waited.
    pub(crate) fn fd(&self) -> RawFd {
        let fd = self.seat.fd.load(Relaxed);
        if self.is_seated.get() {
            settle(fd);
        }
        self.seat.fd.load(Relaxed)
    }

    /// As [`wait_for_any`](super::wait_for_any), for one descriptor.
    pub(crate) fn wait(
        self: Pin<&Self>,
        purpose: Purpose,
        deadline: Option<u64>,
    ) -> io::Result<bool> {
        let again = self.is_seated.get();
        if !again {
            self.sit_down()?;
        }
        let seat = &self.get_ref().seat;
        let wait = Wait::new(WaitReason::new(&DESCRIPTOR, &raw const seat.fd));
        let fd = self.fd();
        let place = [Some(Waiting::new(&wait, Interest { fd, purpose }))];
        match wait_in(&wait, &place, deadline, Some(seat), again) {
            // It has another number now.
            Err(_) if self.fd() != fd => Ok(true),
            ended => Ok(ended? == Awoken::Ready),
        }
    }

    fn sit_down(self: Pin<&Self>) -> io::Result<()> {
        let watched = Watched::of(self.fd())?;
        watched.settle(self.fd());
        let _off = current::preemption_off();
        let mut lists = watched.lists.lock();
        // SAFETY: the node is in no list. The call is pinned, and takes it out when it is dropped.
        unsafe { lists.calls.push_back(&self.get_ref().seat.node) };
        watched.note(&lists);
        self.is_seated.set(true);
        Ok(())
    }
}

/// The calls that have waited for `fd` get what a signal handler has kept for them.
fn settle(fd: RawFd) {
    if let Ok(watched) = Watched::of(fd) {
        watched.settle(fd);
    }
}

impl Drop for Call {
    /// Arms the descriptor for the threads that wait for it; closes a duplicate that nobody else uses.
    fn drop(&mut self) {
        if !self.is_seated.get() {
            return;
        }
        let seat = &self.seat;
        let unused = loop {
            let fd = self.fd();
            let Ok(watched) = Watched::of(fd) else { return };
            let mut ready = Fifo::new();
            let _off = current::preemption_off();
            let mut lists = watched.lists.lock();
            if seat.fd.load(Relaxed) != fd {
                continue; // it was moved meanwhile
            }
            // SAFETY: it is in this list.
            unsafe { lists.calls.remove(&seat.node) };
            watched.arm_for_others(fd, &mut lists, 0, &mut ready);
            watched.note(&lists);
            let moved = seat.moved.load(Relaxed);
            let is_unused = moved && watched.users.fetch_sub(1, Relaxed) == 1;
            drop(lists);
            make_ready(ready);
            watched.forget_kept();
            break is_unused.then_some(fd);
        };
        if let Some(fd) = unused {
            close_duplicate(fd);
        }
    }
}
