//! Threads that wait at addresses: futexes, and the locks of C.
//!
//! An address is a name here; only the caller looks at the memory there. A table of buckets, by the hash of the
//! address, has a list in each, in which the threads stand in the order in which they came. A search passes over the
//! threads of other addresses one by one, as in the kernel's table of futexes: there are so many buckets that few
//! addresses share one.
//!
//! A thread may wait at several addresses: it has a place in the list of each, and what takes it out of one ends the
//! wait (`claim`). So it comes out of the others itself.
//!
//! A thread that waits looks at its condition (the futex's word, a lock) under the bucket's lock. A thread that wakes
//! others changes the condition first, and then looks into the bucket. If the bucket is empty it need not take the
//! lock.
//!
//! Invariants:
//! 1. *No wake-up is lost.* The waiter: takes the bucket's lock, which makes the bucket's word other than 0; fence;
//!    looks at the condition; queues itself; gives the lock back. The waker: changes the condition; fence; looks at
//!    the bucket's word. The fences are in one order. If the waiter's is first, the waker sees the word other than 0,
//!    takes the lock after the waiter, and finds it. If the waker's is first, the waiter sees the changed condition.
//! 2. A thread is in the bucket of its address: `address` changes under the locks of both buckets. The thread itself,
//!    which holds neither when its time is up, takes the lock of the bucket where it was and looks again.
//! 3. One call wakes only threads that were there when it began: later ones have a higher stamp.
//!
//! A signal's handler that has interrupted its own thread in here leaves its wake-ups to that thread (`inside`).
//!
//! Orderings: the two fences of invariant 1 are SeqCst, and are partners. All else is under the
//! buckets' locks.

use core::{ffi::c_int, ptr};

use super::inside::{self, Inside};
use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::atomic::{AtomicUsize, Cell, const_fn, fence};
#[cfg(not(greenthread_model))]
use crate::sys::shared::{Zero, Zeros};
use crate::sys::{clock, perturb};
use crate::wait::queue::{Chain, Ended, Locked, Node, Position, Wait, WaitQueue};
use crate::wait::{WaitKind, WaitReason};

/// Each has two words, and memory that no thread has touched yet costs nothing.
const BUCKETS: usize = if cfg!(greenthread_model) { 2 } else { 1 << 16 };

/// The events that a thread waits for: a waker names some, and wakes those that wait for any of them.
pub(crate) type Events = u32;
/// All of them.
pub(crate) const ANY: Events = !0;

/// The threads that wait at addresses. A table is a static.
pub(crate) struct Addresses {
    /// For reports: the kind of thing at these addresses.
    kind: &'static WaitKind,
    /// The same kind, in a wait that [cancellation ends](How::Listen).
    listening: &'static WaitKind,
    buckets: &'static Buckets,
}

/// A table's buckets, a static of their own: as nothing in them is but zeros, a program's file does not have the
/// megabyte.
#[cfg(not(greenthread_model))]
pub(crate) type Buckets = Zeros<Bucket, BUCKETS>;
#[cfg(greenthread_model)]
pub(crate) type Buckets = [Bucket; BUCKETS];

// SAFETY: a queue in which no thread waits, and a number.
#[cfg(not(greenthread_model))]
unsafe impl Zero for Bucket {}

pub(crate) struct Bucket {
    queue: WaitQueue,
    /// How many threads have come. Its lock guards it.
    stamp: Cell<u64>,
}

// SAFETY: the stamp belongs to the lock.
unsafe impl Sync for Bucket {}

/// A thread's place at an address. It belongs to the thread, and stays where it is while the thread waits.
#[repr(C)] // the node first: a pointer to it is one to this
pub(crate) struct Waiting {
    node: Node,
    address: AtomicUsize,
    events: Events,
    stamp: Cell<u64>,
}

/// The threads that wait at an address already, for one that is about to.
pub(crate) struct Beside<'a>(&'a Locked<'a>, usize);

impl Beside<'_> {
    /// Whether one of them waits for any of `events`.
    pub(crate) fn has(&self, events: Events) -> bool {
        let is_one = |node| waits(node, self.1, events, u64::MAX);
        self.0.list.iter().any(is_one)
    }
}

impl Waiting {
    /// A place for a thread that will wait at `address` for one of `events`.
    pub(crate) fn new(address: usize, events: Events) -> Waiting {
        Waiting {
            node: Node::default(),
            address: AtomicUsize::new(address),
            events,
            stamp: Cell::new(0),
        }
    }

    pub(crate) fn address(&self) -> usize {
        self.address.load(Relaxed)
    }
}

/// Whether the thread of this node in a bucket's list waits at `address` for one of `events`, and has a stamp up to `until`.
fn waits(node: &Node, address: usize, events: Events, until: u64) -> bool {
    // SAFETY: a node in a bucket's list is the first part of a living `Waiting` (`wait::queue`, invariant 2).
    let waiting = unsafe { &*ptr::from_ref(node).cast::<Waiting>() };
    waiting.address.load(Relaxed) == address
        && waiting.events & events != 0
        && waiting.stamp.get() <= until
}

/// How a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A green thread leaves its kernel thread to others.
    Park,
    /// The same; C's cancellation ends the wait, too.
    Listen,
    /// The kernel thread is blocked. A signal's handler ends the wait.
    Block,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waited {
    /// At the place of this number.
    Woken(usize),
    TimedOut,
    /// A signal's handler has run on the kernel thread, or there is a signal for the thread.
    Interrupted,
}

impl Addresses {
    const_fn! {
        pub(crate) const fn new(
            [kind, listening]: [&'static WaitKind; 2],
            buckets: &'static Buckets,
        ) -> Addresses {
            Addresses { kind, listening, buckets }
        }
    }

    fn bucket(&self, address: usize) -> &Bucket {
        let hash = (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.buckets[(hash >> 40) as usize % BUCKETS]
    }

    /// Blocks the calling thread at `places`, one at least, until the thread is woken at one of them, or until `deadline`
    /// (monotonic nanoseconds).
    ///
    /// `refuse` looks at the condition of the place of this number, and may ask who else waits there. If it returns an
    /// error, the thread does not wait. It runs with preemption off, and must not touch the table. `then` runs while the
    /// thread is queued, before it is parked, with preemption on.
    pub(crate) fn wait(
        &self,
        places: &[Waiting],
        how: How,
        position: Position,
        deadline: Option<u64>,
        refuse: &mut dyn FnMut(usize, Beside<'_>) -> Result<(), ()>,
        then: &dyn Fn(),
    ) -> Result<Waited, ()> {
        let name = places[0].address();
        let kind = match how {
            How::Listen => self.listening,
            _ => self.kind,
        };
        let wait = Wait::new(WaitReason::new(kind, name as *const ()));
        let leave = || places.iter().for_each(|place| self.leave(place));
        let mut is_refused = false;
        {
            let Some(_inside) = Inside::enter() else {
                return Ok(Waited::Interrupted);
            };
            for (number, place) in places.iter().enumerate() {
                place.node.wait.set(&wait);
                let address = place.address.load(Relaxed);
                let bucket = self.bucket(address);
                let mut locked = bucket.queue.lock();
                perturb::point("addresses: locked");
                // SeqCst: invariant 1; partner: in `may_have`.
                fence(SeqCst);
                if refuse(number, Beside(&locked, address)).is_err() {
                    is_refused = true;
                    break;
                }
                // SAFETY: `places` stay here until they were taken out, below or by a waker.
                unsafe { bucket.push(&mut locked, place, position) };
            }
        }
        // A single place that was refused is in no list. Of several, a waker may have taken one already.
        if is_refused && (places.len() == 1 || wait.give_up()) {
            if places.len() > 1 {
                leave();
            }
            return Err(());
        }
        perturb::point("addresses: queued");
        then();
        let ended = match how {
            How::Park | How::Listen => Some(wait.wait(deadline)),
            How::Block => wait.block(deadline),
        };
        let woken = match ended {
            Some(Ended::Taken(node)) => places.iter().position(|place| ptr::eq(&place.node, node)),
            _ => None,
        };
        // The waker has taken its own place out of the list already; the others are still queued.
        if woken.is_none() || places.len() > 1 {
            leave();
        }
        let is_over = || deadline.is_some_and(|deadline| deadline <= clock::now());
        Ok(match woken {
            Some(number) => Waited::Woken(number),
            None if ended.is_some() && is_over() => Waited::TimedOut,
            None => Waited::Interrupted,
        })
    }

    /// Takes a place out, if it is in a list still.
    fn leave(&self, waiting: &Waiting) {
        // The thread itself was blocked, and a handler that has interrupted a thread in here does not wait: so this
        // thread is not inside yet.
        let _inside = Inside::enter();
        loop {
            let address = waiting.address.load(Relaxed);
            let mut locked = self.bucket(address).queue.lock();
            // If the address has changed meanwhile, the place is in another bucket, and the loop begins anew.
            if waiting.address.load(Relaxed) == address {
                // SAFETY: the place is in this bucket's list, or in none.
                return unsafe { locked.list.remove(&waiting.node) };
            }
        }
    }

    /// Whether threads may wait at `address`, for a caller that has changed what they would wait for.
    #[inline]
    fn may_have(&self, address: usize) -> bool {
        // SeqCst: invariant 1; partner: in `wait`.
        fence(SeqCst);
        perturb::point("addresses: looking");
        !self.bucket(address).queue.is_at_rest(0)
    }

    /// [`Addresses::may_have`] for a caller whose change was an instruction that orders all memory accesses around it,
    /// where the processor has such instructions.
    ///
    /// x86-64: a locked instruction changed the condition. No later load is done before it, so it is the
    /// waker's fence of invariant 1.
    #[inline]
    pub(crate) fn may_have_after_locked(&self, address: usize) -> bool {
        if cfg!(not(all(target_arch = "x86_64", not(greenthread_model)))) {
            return self.may_have(address);
        }
        // SeqCst: for the compiler, as the fence in `may_have`.
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        !self.bucket(address).queue.is_at_rest(0)
    }

    /// Wakes threads that wait at `address` for one of `events`, `most` at most; returns how many. The caller has
    /// changed the condition that they wait for.
    #[inline]
    pub(crate) fn wake(&self, address: usize, events: Events, most: usize) -> usize {
        if !self.may_have(address) {
            return 0;
        }
        let done = self.requeue([address; 2], events, [most, 0], None);
        done.map_or(0, |[woken, _]| woken)
    }

    /// Wakes threads that wait at `from` for one of `events`, `most` at most, and moves `moved` at most of the others to
    /// `to`. Returns how many it has woken, and how many it has moved.
    ///
    /// `refuse` looks at the condition under the lock of `from`, as in [`Addresses::wait`].
    #[cold]
    #[inline(never)]
    pub(crate) fn requeue(
        &self,
        [from, to]: [usize; 2],
        events: Events,
        [most, moved]: [usize; 2],
        mut refuse: Option<&dyn Fn() -> Result<(), c_int>>,
    ) -> Result<[usize; 2], c_int> {
        let Some(_inside) = Inside::enter() else {
            // All threads at the address are woken later. Those that have to wait on queue again.
            refuse.map_or(Ok(()), |refuse| refuse())?;
            inside::wake_later(self, from);
            return Ok([0; 2]);
        };
        let (source, target) = (self.bucket(from), self.bucket(to));
        let mut done = [0; 2];
        let mut until = None;
        loop {
            let mut chain = Chain::default();
            let mut steps = 0;
            // Two locks are taken in the order of their addresses, so that no two threads wait for each other.
            let is_first = ptr::from_ref(source) <= ptr::from_ref(target);
            let other = (!ptr::eq(source, target)).then_some(target);
            let mut early = other.filter(|_| !is_first).map(|b| b.queue.lock());
            let mut locked = source.queue.lock();
            let mut late = other.filter(|_| is_first).map(|b| b.queue.lock());
            if let Some(refuse) = refuse.take() {
                // SeqCst: as in `wait`; the caller may be a waker, and the condition the waiters'.
                fence(SeqCst);
                refuse()?;
            }
            let until = *until.get_or_insert_with(|| source.stamp.get());
            let is_meant = |node: &Node| waits(node, from, events, until);
            while done[0] < most
                && !chain.is_long()
                && let Some(claimed) = locked.list.pop_any(is_meant)
            {
                chain.push(claimed);
                done[0] += 1;
            }
            while !chain.is_long() && done[1] < moved && steps < STEPS {
                let is_movable = |node: &&Node| waits(node, from, ANY, until);
                let first = locked.list.iter().find(is_movable);
                let Some(first) = first.map(|node| ptr::from_ref(node).cast::<Waiting>()) else {
                    break;
                };
                // SAFETY: it is in the source's list, so it is alive; both locks are held.
                unsafe {
                    locked.list.remove(&raw const (*first).node);
                    (*first).address.store(to, Relaxed);
                    let locked = early.as_mut().or(late.as_mut()).unwrap_or(&mut locked);
                    target.push(locked, &*first, Position::Back);
                }
                done[1] += 1;
                steps += 1;
            }
            drop((early, locked, late));
            let is_more = (chain.is_long() || steps == STEPS) && done != [most, moved];
            chain.wake();
            if !is_more {
                return Ok(done);
            }
        }
    }
}

/// How many threads are moved under one lock.
const STEPS: usize = if cfg!(greenthread_model) { 1 } else { 64 };

impl Bucket {
    #[cfg(greenthread_model)]
    pub(crate) fn new() -> Bucket {
        Bucket {
            queue: WaitQueue::new(0),
            stamp: Cell::new(0),
        }
    }

    /// Queues a thread.
    ///
    /// # Safety
    /// The thread is in no list, and lives until it is out of this one.
    unsafe fn push(&self, locked: &mut Locked<'_>, waiting: &Waiting, position: Position) {
        self.stamp.set(self.stamp.get() + 1);
        waiting.stamp.set(self.stamp.get());
        // SAFETY: the caller promises the same of the thread's node.
        unsafe {
            match position {
                Position::Back => locked.list.push_back(&waiting.node),
                Position::Front => locked.list.push_front(&waiting.node),
            }
        }
    }
}
