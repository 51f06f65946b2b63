//! A call on a watched descriptor, from its first wait to its end.
//!
//! Its seat is in the list `calls` of the descriptor's record all that time, also while its thread runs or
//! is about to run. So the one who closes the descriptor finds it, and gives it a duplicate. The call
//! looks up the number before each try ([`Call::fd`]).
//!
//! Invariant: `Seat::fd` and `Seat::moved` change under the locks of both records, the old number's and the new
//! one's. The record of a duplicate counts the calls that use it; the last one closes it.

use std::io;
use std::os::fd::RawFd;

use super::{Awoken, Interest, Purpose, Waiting, Watched, make_ready, refused, wait_in};
use crate::engine::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use crate::engine::green::current;
use crate::engine::green::fifo::Fifo;
use crate::engine::sys;
use crate::engine::wait::claim::{Node, Wait};

/// A call on a descriptor, which may have to wait. It takes something if the descriptor is ready, so
/// an event wakes one such call, and that passes the rest on when it ends.
pub(crate) struct Call {
    /// As the program names it.
    named: RawFd,
    /// Once it has waited.
    seat: Option<Box<Seat>>,
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
    pub(crate) fn new(fd: RawFd) -> Call {
        Call {
            named: fd,
            seat: None,
        }
    }

    /// The descriptor's number: another one if it was closed since the call has waited.
    pub(crate) fn fd(&self) -> RawFd {
        match &self.seat {
            None => self.named,
            Some(seat) => seat.fd.load(Relaxed),
        }
    }

    /// As [`wait_for_any`], for one descriptor.
    pub(crate) fn wait(&mut self, purpose: Purpose, deadline: Option<u64>) -> io::Result<bool> {
        let again = self.seat.is_some();
        let seat = self.sit_down()?;
        let wait = Wait::new();
        let fd = seat.fd.load(Relaxed);
        let place = [Some(Waiting::new(&wait, Interest { fd, purpose }))];
        match wait_in(&wait, &place, deadline, Some(seat), again) {
            // It has another number now.
            Err(_) if seat.fd.load(Relaxed) != fd => Ok(true),
            ended => Ok(ended? == Awoken::Ready),
        }
    }

    fn sit_down(&mut self) -> io::Result<&Seat> {
        if self.seat.is_none() {
            let watched = Watched::of(self.named)?;
            let seat = self.seat.insert(Box::new(Seat {
                node: Node::new(core::ptr::null()),
                fd: AtomicI32::new(self.named),
                moved: AtomicBool::new(false),
            }));
            let _off = current::preemption_off();
            let mut lists = watched.lists.lock();
            // SAFETY: the node is new, and is taken out before the seat is freed.
            unsafe { lists.calls.push_back(&seat.node) };
            watched.note(&lists);
        }
        self.seat.as_deref().ok_or_else(|| refused(libc::ENOMEM))
    }
}

impl Drop for Call {
    /// Arms the descriptor for the threads that wait for it; closes a duplicate that nobody else uses.
    fn drop(&mut self) {
        let Some(seat) = &self.seat else { return };
        let unused = loop {
            let fd = seat.fd.load(Relaxed);
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
            break is_unused.then_some(fd);
        };
        if let Some(fd) = unused {
            sys::close(fd);
        }
    }
}
