//! A select's wait: it stands in several queues at once, with a [`Spot`] in each.
//!
//! The invariants are those of [`cell`](super): a [`Waiting`] does not end before its spots are out.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;

use super::{AnyPlain, Kind, Outcome, SELECT};
use crate::channel::rights::{Handle, Right};
use crate::sys::die;
use crate::wait::WaitReason;
use crate::wait::claim::{self, Claimed, Node, Wait};

/// The place of a select, in one queue at a time.
pub(in crate::channel) struct Spot {
    pub(super) node: Node,
    /// The queue that the spot has come into, unless its own thread has taken it out; or null.
    queue: Cell<*const ()>,
}

// SAFETY: a thread that owns the spot can move it only while it is in no queue: otherwise its
// `Waiting` has it borrowed.
unsafe impl Send for Spot {}

impl Spot {
    pub(in crate::channel) fn new() -> Spot {
        Spot {
            node: Node::new(ptr::null()),
            queue: Cell::new(ptr::null()),
        }
    }
}

/// One wait, in the queues where its spots stand. The spots live for `'o`, longer than the wait.
pub(in crate::channel) struct Waiting<'o> {
    wait: Wait,
    kind: Kind,
    /// The number of spots that came into a queue and that their own thread has not taken out.
    queued: Cell<usize>,
    /// The claim was ours, or the thread that had it has woken us.
    is_over: Cell<bool>,
    spots: PhantomData<Cell<&'o Spot>>,
}

/// A [`Spot`] as part of a [`Waiting`].
pub(in crate::channel) struct Entry<'w, 'o> {
    waiting: &'w Waiting<'o>,
    pub(super) spot: &'o Spot,
}

/// The spot that another thread took, and the answer it gave.
pub(in crate::channel) struct Taken {
    node: *const Node,
    pub(in crate::channel) granted: Option<Right>,
}

impl<'o> Waiting<'o> {
    /// Runs `body`, which may queue, wait and leave.
    pub(in crate::channel) fn scope<R>(kind: Kind, body: impl FnOnce(&Waiting<'o>) -> R) -> R {
        body(&Waiting {
            wait: Wait::new(WaitReason::only(&SELECT)),
            kind,
            queued: Cell::new(0),
            is_over: Cell::new(false),
            spots: PhantomData,
        })
    }

    /// Makes a spot, which is in no queue, part of this wait.
    pub(in crate::channel) fn enter(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        if !spot.queue.get().is_null() {
            die("a select's spot is in a queue already");
        }
        spot.node.wait.set(&self.wait);
        spot.node.tag.set(self.kind as usize);
        Outcome::TryAgain.tell(&spot.node);
        self.entry(spot)
    }

    /// Returns the entry of a spot that is part of this wait.
    pub(in crate::channel) fn entry(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        Entry {
            waiting: self,
            spot,
        }
    }

    /// Ends the wait. Returns false if another thread has ended it; [`Waiting::wait`] then tells
    /// which.
    pub(in crate::channel) fn give_up(&self) -> bool {
        let given_up = self.wait.give_up();
        self.is_over.set(self.is_over.get() || given_up);
        given_up
    }

    /// Waits until `deadline`. Returns `None` if the time is up.
    pub(in crate::channel) fn wait(&self, deadline: Option<u64>) -> Option<Taken> {
        let ended = self.wait.wait(deadline);
        self.is_over.set(true);
        let claim::Ended::Taken(node) = ended else {
            return None;
        };
        // SAFETY: the claim names the node of one of our spots, which live as long as this wait;
        // the thread that took it has written its answer before it woke us.
        let told = unsafe { &*node };
        let granted = match Outcome::of(told) {
            Outcome::Granted => Some(Right::Counted(told.place.get().addr())),
            Outcome::Paired => {
                // SAFETY: the node is that of a receiver that waits for us only. We are told once.
                let receiver = unsafe { Claimed::from_raw(told.place.get().cast()) };
                Some(Right::Plain(AnyPlain(receiver)))
            }
            Outcome::TryAgain | Outcome::Done => None,
        };
        Some(Taken { node, granted })
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.queued.get() != 0 {
            die("a select ends while it is in a queue");
        }
        // The thread that has claimed it may still be about to wake it.
        if !self.is_over.get() && !self.give_up() {
            let _ = self.wait.wait(None);
        }
    }
}

impl Entry<'_, '_> {
    pub(in crate::channel) fn kind(&self) -> Kind {
        self.waiting.kind
    }

    /// See [`Waiting::give_up`].
    pub(in crate::channel) fn give_up(&self) -> bool {
        self.waiting.give_up()
    }

    pub(super) fn wait(&self) -> *const Wait {
        &raw const self.waiting.wait
    }

    pub(super) fn come_in(&self, queue: *const ()) {
        if !self.spot.queue.get().is_null() || !ptr::eq(self.spot.node.wait.get(), self.wait()) {
            die("a select's spot is queued twice");
        }
        self.spot.queue.set(queue);
        self.waiting.queued.update(|queued| queued + 1);
    }

    /// Returns whether the spot was in `queue`; from now on it counts as taken out.
    pub(super) fn come_out(&self, queue: *const ()) -> bool {
        let was_in = ptr::eq(self.spot.queue.get(), queue)
            && ptr::eq(self.spot.node.wait.get(), self.wait());
        if was_in {
            self.spot.queue.set(ptr::null());
            self.waiting.queued.update(|queued| queued - 1);
        }
        was_in
    }
}

impl Taken {
    pub(in crate::channel) fn is_at(&self, spot: &Spot) -> bool {
        ptr::eq(self.node, &spot.node)
    }
}

/// A sender or receiver in the form that a select sees.
#[derive(Clone, Copy)]
pub(in crate::channel) struct AnyHandle<'a>(&'a dyn Handle);

// SAFETY: any thread may look for peers and queue through it, under the channel's lock, whatever
// the messages are: they are moved from place to place as bytes, and no code of their type runs.
// Only the handle itself moves a message out, and the caller passes it when the operation is
// completed.
unsafe impl Send for AnyHandle<'_> {}
// SAFETY: as above.
unsafe impl Sync for AnyHandle<'_> {}

impl<'a> AnyHandle<'a> {
    pub(in crate::channel) fn new(handle: &'a dyn Handle) -> AnyHandle<'a> {
        AnyHandle(handle)
    }

    pub(in crate::channel) fn get(self) -> &'a dyn Handle {
        self.0
    }
}
