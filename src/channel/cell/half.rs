//! The references by which senders and receivers share a channel.
//!
//! Invariants:
//! 1. A channel exists as long as a [`Half`] of it does: each is counted on its side.
//! 2. The last half of a side disconnects. Of the two last halves the later frees the channel: the
//!    half that finds `one_side_gone` set.
//!
//! Orderings: giving a reference up is AcqRel, so that all accesses through any handle come before
//! the disconnection and the freeing. Cloning is Relaxed: the cloning thread has a reference.

use core::mem::offset_of;
use core::ops::Deref;
use core::ptr::NonNull;

use super::buffer::Buffer;
use super::wake_all;
use crate::atomic::Ordering::{AcqRel, Relaxed};
use crate::atomic::{AtomicBool, AtomicUsize};
use crate::channel::shared::Shared;
use crate::channel::state::State;
use crate::sys::perturb;

struct Counted<T> {
    shared: Shared<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    one_side_gone: AtomicBool,
}

/// A sender's reference to its channel, or a receiver's.
pub(in crate::channel) struct Half<T, const SENDS: bool>(NonNull<Counted<T>>);

// SAFETY: messages go from thread to thread, which their type allows; the state is under a lock.
unsafe impl<T: Send, const SENDS: bool> Send for Half<T, SENDS> {}
// SAFETY: as above.
unsafe impl<T: Send, const SENDS: bool> Sync for Half<T, SENDS> {}

/// Makes the first two halves of a channel.
pub(in crate::channel) fn halves<T>(shared: Shared<T>) -> (Half<T, true>, Half<T, false>) {
    let counted = NonNull::from(Box::leak(Box::new(Counted {
        shared,
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
        one_side_gone: AtomicBool::new(false),
    })));
    (Half(counted), Half(counted))
}

/// For reports: where the numbers of handles of the channel at this address are counted.
pub(in crate::channel) fn counts<T>(shared: usize) -> [(&'static str, usize); 2] {
    let counted = shared.wrapping_sub(offset_of!(Counted<T>, shared));
    let place = |offset| counted.wrapping_add(offset);
    [
        ("senders", place(offset_of!(Counted<T>, senders))),
        ("receivers", place(offset_of!(Counted<T>, receivers))),
    ]
}

impl<T, const SENDS: bool> Half<T, SENDS> {
    #[inline(always)]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }

    fn count(&self) -> &AtomicUsize {
        match SENDS {
            true => &self.counted().senders,
            false => &self.counted().receivers,
        }
    }

    /// Returns whether both halves are of one channel.
    pub(in crate::channel) fn is_of_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T, const SENDS: bool> Deref for Half<T, SENDS> {
    type Target = Shared<T>;

    #[inline(always)]
    fn deref(&self) -> &Shared<T> {
        &self.counted().shared
    }
}

impl<T, const SENDS: bool> Clone for Half<T, SENDS> {
    fn clone(&self) -> Self {
        // As with `Arc`: so many clones were forgotten that the count is about to overflow, and no
        // code can deal with that.
        if self.count().fetch_add(1, Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
        Half(self.0)
    }
}

impl<T, const SENDS: bool> Drop for Half<T, SENDS> {
    fn drop(&mut self) {
        // AcqRel: see the header.
        if self.count().fetch_sub(1, AcqRel) != 1 {
            return;
        }
        perturb::point("channel: last of a side");
        let mut messages = Buffer::blocks();
        match SENDS {
            true => wake_all(self, State::disconnect_senders),
            false => wake_all(self, |state| state.disconnect_receivers(&mut messages)),
        }
        perturb::point("channel: side gone");
        // AcqRel: see the header.
        if self.counted().one_side_gone.swap(true, AcqRel) {
            // SAFETY: `Box::leak` made the box, and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
        // The messages are dropped last, because that may panic.
        drop(messages);
    }
}
