//! One wait and the claim that ends it.
//!
//! A [`Wait`] lies on the stack of the thread that waits, with a [`Node`] for each queue the wait
//! stands in: one for a lock or a channel, several for a select. A thread that would end the wait
//! (a waker, or the waiting thread itself when its time is up) first *claims* it: one word, changed
//! once.
//!
//! | claim | the wait was ended by |
//! |---|---|
//! | null | no thread yet |
//! | a node | the thread that took that node: it hands over, and then wakes the waiter |
//! | the `Wait` itself | its own thread: at a time-out, or because it no longer needs to wait |
//!
//! Invariants:
//! 1. The claim changes once. So a wait is ended once, and the waker hands over to one thread,
//!    which takes what it gets: a time-out that loses the claim waits for the winner.
//! 2. A node is in a list, or its claimer or its own thread has taken it out, always under the
//!    list's lock. A thread does not leave its wait before all its nodes are out.
//! 3. The waiter sees the claimer's writes to the node (`outcome`, and the memory at `place`): they
//!    happen before `wake`, and the waiter reads after it.
//! 4. After `wake` nothing of the wait or its nodes may be touched.
//!
//! Ordering: all accesses are Relaxed. Lists are under locks, and a wake-up publishes
//! (`sched::park`).

use core::ptr;

use super::{Outcome, WaitReason, Waiter};
use crate::engine::atomic::{AtomicPtr, Cell, Ordering::Relaxed};
use crate::engine::sched::Fifo;
use crate::engine::sys::perturb;

/// A thread that waits, and how its wait ended.
pub(crate) struct Wait {
    waiter: Waiter,
    reason: WaitReason,
    claim: AtomicPtr<()>,
}

/// Why [`Wait::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// A waker took this node.
    Taken(*const Node),
    /// The time is up and the claim is ours: no waker will hand anything over.
    TimedOut,
}

impl Wait {
    pub(crate) fn new(reason: WaitReason) -> Wait {
        Wait {
            waiter: Waiter::new(),
            reason,
            claim: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn claim_as(&self, name: *mut ()) -> bool {
        perturb::point("claim");
        self.claim
            .compare_exchange(ptr::null_mut(), name, Relaxed, Relaxed)
            .is_ok()
    }

    /// Ends the wait on the waiting thread itself. False: a waker has claimed it, and the caller
    /// must call [`Wait::wait`] to receive what the waker hands over.
    pub(crate) fn give_up(&self) -> bool {
        self.claim_as(ptr::from_ref(self).cast_mut().cast())
    }

    /// Blocks the thread, whose nodes are queued, until a waker takes one of them and wakes the
    /// thread, or until `deadline` (monotonic nanoseconds).
    pub(crate) fn wait(&self, mut deadline: Option<u64>) -> Ended {
        loop {
            match self.waiter.wait(self.reason, deadline) {
                Outcome::Notified => return Ended::Taken(self.claim.load(Relaxed).cast()),
                Outcome::Expired if self.give_up() => return Ended::TimedOut,
                // Claimed: the wake-up is on its way.
                Outcome::Expired => deadline = None,
            }
        }
    }

    /// [`Wait::wait`], but the kernel thread is blocked. `None`: a signal's handler has run on it, and
    /// the claim is ours.
    pub(crate) fn block(&self, mut deadline: Option<u64>) -> Option<Ended> {
        loop {
            match self.waiter.block(self.reason, deadline) {
                Some(Outcome::Notified) => {
                    return Some(Ended::Taken(self.claim.load(Relaxed).cast()));
                }
                ended if self.give_up() => return ended.map(|_| Ended::TimedOut),
                // Claimed, as above.
                _ => deadline = None,
            }
        }
    }
}

/// A place in a queue, aligned so that a pointer to it has bits for flags.
#[repr(align(64))]
pub(crate) struct Node {
    /// Neighbours in a circular list; null while it is in none.
    pub(crate) next: Cell<*const Node>,
    pub(crate) prev: Cell<*const Node>,
    pub(crate) wait: Cell<*const Wait>,
    /// The event that the node waits for; the primitive gives it a meaning.
    pub(crate) tag: Cell<usize>,
    /// How the node's wait ended; the primitive gives it a meaning.
    pub(crate) outcome: Cell<usize>,
    /// The address of a message, or the place for one; the primitive gives it a meaning.
    pub(crate) place: Cell<*mut ()>,
}

impl Node {
    /// Makes a node for `wait`, which the caller keeps alive as long as the node is used.
    pub(crate) fn new(wait: *const Wait) -> Node {
        Node {
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            wait: Cell::new(wait),
            tag: Cell::new(0),
            outcome: Cell::new(0),
            place: Cell::new(ptr::null_mut()),
        }
    }

    /// Whether it is in a list. The caller holds the lock of any list that it may be in.
    pub(crate) fn is_queued(&self) -> bool {
        !self.next.get().is_null()
    }

    /// Ends the wait in the name of this node. True: the caller must hand over, then wake.
    ///
    /// # Safety
    /// The node's wait is alive: the caller holds the lock of the list that the node is in.
    pub(crate) unsafe fn claim(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { &*self.wait.get() }.claim_as(ptr::from_ref(self).cast_mut().cast())
    }
}

/// A node that was claimed and taken out of its list: its thread waits for [`Claimed::wake`].
#[must_use = "its thread waits for ever if it is not woken"]
pub(crate) struct Claimed(pub(super) *const Node);

impl Claimed {
    pub(crate) fn node(&self) -> &Node {
        // SAFETY: the node's thread waits for us (invariant 1).
        unsafe { &*self.0 }
    }

    /// Lets the thread go on. Call it without a lock that others may want.
    #[inline]
    pub(crate) fn wake(self) {
        // SAFETY: the waiter is alive, and not touched any more after this.
        unsafe { Waiter::wake_at(self.waiter()) };
    }

    /// Lets the thread go on; a green thread goes into `ready`, and the caller makes it ready.
    pub(crate) fn notify(self, ready: &mut Fifo) {
        // SAFETY: as in `wake`.
        if let Some(green) = unsafe { Waiter::notify_at(self.waiter()) } {
            ready.push(green);
        }
    }

    /// The place where the thread waits, which is alive until the thread is notified.
    fn waiter(&self) -> *const Waiter {
        // SAFETY: the node's thread waits for us (invariant 1), so its wait is alive.
        unsafe { &raw const (*(*self.0).wait.get()).waiter }
    }

    /// # Safety
    /// The caller has claimed `node`, which is in no list, or has taken it out of a `Claimed`. It is used once.
    pub(crate) unsafe fn from_raw(node: *const Node) -> Claimed {
        Claimed(node)
    }
}
