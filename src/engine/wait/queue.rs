//! The wait queue: a [`List`], its lock, and a few flags of its owner, all in one word.
//!
//! ```text
//!   | address of the first node | owner's flags: 5 bits | GUARDED |
//! ```
//!
//! Because it is one word, a primitive can look at its own flags and at "does a thread wait" with
//! one load, and change both with one compare-and-swap. A waiter therefore queues itself and
//! publishes its assumption ("it is held, and I wait") in one step; a thread that changes the flags
//! later sees that a thread waits. No wake-up can fall between.
//!
//! | thread | may change |
//! |---|---|
//! | any | the flags, keeping the rest ([`WaitQueue::change`]) |
//! | the holder of `GUARDED` | the address too |
//!
//! Invariants:
//! 1. `GUARDED` is held with preemption off and for a few instructions, so its holder is running,
//!    or its kernel thread will be soon.
//! 2. A node that is claimed under the guard is woken after it.
//!
//! Orderings: taking `GUARDED` is Acquire and releasing it Release, for the nodes' links. Flags
//! have the orderings that their owner chooses.

use core::ptr;

use super::WaitReason;
use super::claim::{Claimed, Crowd, Ended, List, Node, Wait};
use crate::engine::atomic::{AtomicUsize, Ordering, const_fn};
use crate::engine::sched::current;
use crate::engine::sched::current::PreemptionOff;
use crate::engine::sys;
use crate::engine::sys::perturb;

/// A thread is changing the list.
const GUARDED: usize = 1;
/// The owner's flags: bits 1 to 5.
const FLAGS: usize = 0b11_1110;
const FIRST: usize = !(FLAGS | GUARDED);

/// A queue of waiting threads with flags beside it.
pub(crate) struct WaitQueue {
    word: AtomicUsize,
}

/// The content of a queue's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(usize);

impl State {
    /// Whether any of `flags` is set.
    #[inline(always)]
    pub(crate) fn has(self, flags: usize) -> bool {
        self.0 & flags != 0
    }

    #[inline(always)]
    pub(crate) fn with(self, flags: usize) -> State {
        debug_assert!(flags & !FLAGS == 0);
        State(self.0 | flags)
    }

    #[inline(always)]
    pub(crate) fn without(self, flags: usize) -> State {
        debug_assert!(flags & !FLAGS == 0);
        State(self.0 & !flags)
    }

    /// Whether a thread waits.
    #[inline(always)]
    pub(crate) fn has_waiters(self) -> bool {
        self.0 & FIRST != 0
    }
}

/// The end at which a thread queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Front,
    Back,
}

/// How [`WaitQueue::wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waited {
    /// The thread needed no wait.
    Refused,
    /// A waker took the thread out and left this outcome.
    Woken(usize),
    /// The time is up; the thread is not in the queue any more.
    TimedOut,
}

impl WaitQueue {
    /// One of the owner's flags: `flag(0)` to `flag(4)`.
    pub(crate) const fn flag(number: u32) -> usize {
        assert!(number < 5);
        2 << number
    }

    const_fn! {
        /// An empty queue with these flags.
        pub(crate) const fn new(flags: usize) -> WaitQueue {
            WaitQueue {
                word: AtomicUsize::new(flags),
            }
        }
    }

    /// Whether nobody waits, nobody holds the lock, and just these flags are set.
    #[inline(always)]
    pub(crate) fn is_at_rest(&self, flags: usize) -> bool {
        self.word.load(Ordering::Relaxed) == flags
    }

    #[inline(always)]
    pub(crate) fn state(&self, order: Ordering) -> State {
        State(self.word.load(order))
    }

    /// Changes flags if the word is still `from`.
    #[inline(always)]
    pub(crate) fn change(&self, from: State, to: State, order: Ordering) -> Result<(), State> {
        perturb::point("queue: changing");
        self.word
            .compare_exchange_weak(from.0, to.0, order, Ordering::Relaxed)
            .map_or_else(|now| Err(State(now)), |_| Ok(()))
    }

    /// Clears a flag that the caller knows to be set; returns the state before.
    #[inline(always)]
    pub(crate) fn clear_known(&self, flag: usize, order: Ordering) -> State {
        State(self.word.fetch_sub(flag, order))
    }

    pub(crate) fn set(&self, flags: usize, order: Ordering) {
        self.word.fetch_or(flags, order);
    }

    pub(crate) fn clear(&self, flags: usize, order: Ordering) {
        self.word.fetch_and(!flags, order);
    }

    /// The address of the first node, if there is one. The node may be gone.
    pub(crate) fn first(&self) -> *const u8 {
        ptr::without_provenance(self.word.load(Ordering::Relaxed) & FIRST)
    }

    /// Forgets the threads that wait, and the one that has the lock, if there is one: in a forked child, where
    /// they do not exist.
    pub(crate) fn forget(&self) {
        if !self.is_at_rest(0) {
            self.word.store(0, Ordering::Relaxed);
        }
    }

    /// Locks the queue, and takes the list.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let preemption = current::preemption_off();
        let mut patience = sys::lock::Patience::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & GUARDED != 0 {
                patience.pause();
            // Acquire: pairs with the Release in `Locked::try_release`.
            } else if self
                .word
                .compare_exchange_weak(word, word | GUARDED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                perturb::point("queue: guarded");
                return Locked {
                    queue: self,
                    list: List::from_head(ptr::with_exposed_provenance(word & FIRST)),
                    held: true,
                    _preemption: preemption,
                };
            }
        }
    }

    /// Queues the calling thread and blocks it until it is taken and woken, or until `deadline`
    /// (monotonic nanoseconds).
    ///
    /// `decide` returns the flags for the time of the wait, or `None` if the thread need not wait.
    /// Its answer and the longer queue are published in one step, and only if the flags are still
    /// those that `decide` was given: otherwise it is asked again. It runs with preemption off.
    ///
    /// Reports say that the thread waits for what `about` names.
    pub(crate) fn wait(
        &self,
        reason: WaitReason,
        position: Position,
        tag: usize,
        deadline: Option<u64>,
        decide: impl FnMut(State) -> Option<State>,
    ) -> Waited {
        self.lock()
            .wait(reason, position, tag, deadline, decide, || ())
    }
}

/// The list of a locked queue. It goes back when this is dropped.
pub(crate) struct Locked<'a> {
    queue: &'a WaitQueue,
    pub(crate) list: List,
    held: bool,
    _preemption: PreemptionOff,
}

impl Locked<'_> {
    /// The owner's flags now; they may change at any time.
    pub(crate) fn state(&self, order: Ordering) -> State {
        self.queue.state(order)
    }

    /// The tag of the first node: the event that it waits for.
    pub(crate) fn first_tag(&self) -> Option<usize> {
        self.list.first().map(|node| node.tag.get())
    }

    /// Takes the first node; its wait ends with `outcome` when it is woken.
    pub(crate) fn pop(&mut self, outcome: usize) -> Option<Claimed> {
        self.pop_if(outcome, |_| true)
    }

    /// [`Locked::pop`], but only as long as the tags at the front fit. After `None` the first node,
    /// if there is one, may still fit: nodes whose threads leave by themselves are passed over.
    pub(crate) fn pop_if(
        &mut self,
        outcome: usize,
        fits: impl Fn(usize) -> bool,
    ) -> Option<Claimed> {
        self.list
            .pop_if(|node| fits(node.tag.get()))
            .inspect(|claimed| claimed.node().outcome.set(outcome))
    }

    /// Gives the list back with the flags that `decide` computes from the present ones, and then
    /// wakes all threads that waited. Their waits end with outcome 0.
    pub(crate) fn wake_all(mut self, decide: impl FnMut(State) -> State) {
        let queue = self.queue;
        let crowd = Crowd::new();
        // SAFETY: the crowd is woken below.
        let any = unsafe { self.list.move_all(&crowd) };
        self.release(decide);
        if any {
            crowd.wake(|| queue.lock());
        }
    }

    /// [`WaitQueue::wait`] for a caller that has the list already. `then` runs while the thread is queued, before it blocks, with preemption as
    /// it was before the list was taken; it must not panic.
    pub(crate) fn wait(
        mut self,
        reason: WaitReason,
        position: Position,
        tag: usize,
        deadline: Option<u64>,
        decide: impl FnMut(State) -> Option<State>,
        then: impl FnOnce(),
    ) -> Waited {
        let queue = self.queue;
        let wait = Wait::new(reason);
        let node = Node::new(&wait);
        node.tag.set(tag);
        // SAFETY: `wait` and `node` stay where they are until the node was taken or removed.
        unsafe {
            match position {
                Position::Front => self.list.push_front(&node),
                Position::Back => self.list.push_back(&node),
            }
        }
        if !self.try_release(decide) {
            // SAFETY: the node was queued above, in this list.
            unsafe { self.list.remove(&node) };
            return Waited::Refused;
        }
        self.held = false;
        drop(self);
        then();
        match wait.wait(deadline) {
            Ended::Taken(_) => Waited::Woken(node.outcome.get()),
            Ended::TimedOut => {
                let mut locked = queue.lock();
                // SAFETY: the node is in this list, or the thread that lost the claim took it out.
                unsafe { locked.list.remove(&node) };
                Waited::TimedOut
            }
        }
    }

    /// Gives the list back together with the flags that `change` computes from the present ones, in
    /// one step. [`State::has_waiters`] tells `change` whether a thread is left.
    pub(crate) fn release(mut self, mut change: impl FnMut(State) -> State) {
        self.held = !self.try_release(|state| Some(change(state)));
    }

    /// The same, unless `decide` returns `None`: then the caller keeps the list.
    fn try_release(&self, mut decide: impl FnMut(State) -> Option<State>) -> bool {
        let first = self.list.head().expose_provenance();
        let mut word = self.queue.word.load(Ordering::Relaxed);
        loop {
            let Some(State(flags)) = decide(State(word & FLAGS | first)) else {
                return false;
            };
            perturb::point("queue: releasing");
            // Release: pairs with the Acquire in `WaitQueue::lock`, and with that of a thread that
            // looks at the flags.
            match self.queue.word.compare_exchange_weak(
                word,
                flags & FLAGS | first,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.held {
            self.try_release(Some);
        }
    }
}
