//! A processor's local run queue: a ring of fixed size, of which a thief takes half at once. The
//! scheme is that of Go's and tokio's local queues; the orderings are those of the model.
//!
//! Threads have numbers in the order in which they come, and number `n` lies in slot
//! `n % SLOTS`. Three numbers say what the slots hold; the first two are one word, [`Front`]:
//!
//! | from | to | the slots hold |
//! |---|---|---|
//! | `kept` | `first` | threads that a thief has claimed and is copying |
//! | `first` | `end` | the threads that wait |
//! | `end` | `kept + SLOTS` | nothing |
//!
//! | caller | step |
//! |---|---|
//! | holder of the seat | *push*: writes slots from `end` on, then raises `end` |
//! | | *take*: raises `first`, and `kept` with it unless a thief copies; reads the slots |
//! | thief | *claim*, if no thief copies: raises `first` by half of the threads |
//! | | copies the slots, then *release*: raises `kept` to `first` |
//!
//! # Invariants
//!
//! 1. `kept` ≤ `first` ≤ `end` ≤ `kept + SLOTS`. The numbers wrap around, so they are compared by
//!    their distances.
//! 2. Only the holder of the seat writes slots and `end`, and it writes only slots that hold
//!    nothing.
//! 3. `first` passes each number once, by a compare-exchange. The caller that has made it owns the
//!    thread, and reads the slot only then.
//!    The holder may look at those that still wait ([`LocalQueue::first_two`]), to prefetch what they lead to:
//!    a thief may take them meanwhile.
//! 4. One thief copies at a time. Another one finds the queue *busy*, and does not wait.
//!
//! A claim that comes after the word has changed and come back to the same value is as good as any
//! other: the word says everything about who owns which slots. Only the number of threads that the
//! thief wants would be out of date, and for that 2³² threads would have to pass between two of its
//! instructions.
//!
//! # Memory orderings
//!
//! - `end`: the store is a Release, and a thief's load an Acquire: the slots are written before.
//! - The front: a thief's release is a Release, and the load before a push an Acquire: the slots
//!   were read before they are written again. Changes in between are read-modify-writes, and carry
//!   that on.
//! - All else is Relaxed. A thief may see an `end` that is older than the front; it takes the
//!   distance for nothing then ([`Front::waiting`]).

use crate::engine::atomic::{AtomicU32, AtomicU64, Cell, Ordering};
use crate::engine::sched::Green;
use crate::engine::sys::perturb;

/// The number of threads that fit.
pub(crate) const SLOTS: usize = if cfg!(greenthread_model) { 4 } else { 256 };
/// The greatest number of threads that move at once.
pub(crate) const HALF: usize = SLOTS / 2;

/// A run queue. The holder of the processor's seat, one at a time, pushes and takes
/// ([`Held`](super::seats::Held)); others steal and ask for its length.
#[repr(C)]
pub(crate) struct LocalQueue {
    front: AtomicU64,
    end: AtomicU32,
    slots: [Cell<Option<&'static Green>>; SLOTS],
}

// SAFETY: slots are read by the one caller to whom the front gives their threads (invariant 3), and
// written by the holder of the seat, of whom there is one at a time, after they were read
// (invariant 2, and the orderings). A seat changes hands with a Release and an Acquire
// (`sched::processor`).
unsafe impl Sync for LocalQueue {}
// SAFETY: as above; the threads are `Green`s, which are Sync.
unsafe impl Send for LocalQueue {}

/// The numbers before which slots hold nothing (`kept`), and before which no thread waits
/// (`first`).
#[derive(Clone, Copy)]
pub(crate) struct Front {
    kept: u32,
    pub(crate) first: u32,
}

impl Front {
    fn of(word: u64) -> Front {
        Front {
            kept: (word >> 32) as u32,
            first: word as u32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.kept) << 32 | u64::from(self.first)
    }

    /// Returns whether a thief copies.
    fn is_busy(self) -> bool {
        self.kept != self.first
    }

    /// Returns how many threads wait, or 0 if `end` is older than the front.
    fn waiting(self, end: u32) -> u32 {
        match end.wrapping_sub(self.first) {
            waiting if waiting <= SLOTS as u32 => waiting,
            _ => 0,
        }
    }

    /// The holder of the seat takes `count` threads.
    fn taken(self, count: u32) -> Front {
        let first = self.first.wrapping_add(count);
        let kept = if self.is_busy() { self.kept } else { first };
        Front { kept, first }
    }

    /// A thief claims `count` threads.
    fn claimed(self, count: u32) -> Front {
        Front {
            first: self.first.wrapping_add(count),
            ..self
        }
    }

    /// The thief has copied the threads.
    fn released(self, claim: Front) -> Front {
        // The holder of the seat may have taken more; those are not kept for the thief.
        debug_assert_eq!(self.kept, claim.kept);
        Front {
            kept: self.first,
            ..self
        }
    }
}

impl LocalQueue {
    pub(crate) fn new() -> LocalQueue {
        LocalQueue {
            front: AtomicU64::new(0),
            end: AtomicU32::new(0),
            slots: core::array::from_fn(|_| Cell::new(None)),
        }
    }

    pub(crate) fn slot(&self, number: u32) -> &Cell<Option<&'static Green>> {
        &self.slots[number as usize % SLOTS]
    }

    /// Changes the front by `change`, until that comes between nobody's changes.
    #[inline(always)]
    fn change(
        &self,
        success: Ordering,
        mut change: impl FnMut(Front) -> Option<Front>,
    ) -> Option<Front> {
        let change = |word| change(Front::of(word)).map(Front::word);
        let changed = self.front.fetch_update(success, Ordering::Relaxed, change);
        changed.ok().map(Front::of)
    }

    // ---- for the holder of the seat ----

    /// Returns the number of threads that may be pushed. While a thief copies, the slots of all that
    /// was taken after its claim stay with it: for a thief that the system does not run, an empty
    /// queue has no space.
    #[inline]
    pub(crate) fn space(&self) -> usize {
        // Acquire: pairs with a thief's release.
        let front = Front::of(self.front.load(Ordering::Acquire));
        let end = self.end.load(Ordering::Relaxed);
        SLOTS - end.wrapping_sub(front.kept) as usize
    }

    /// Puts `thread` at the end, where the caller has found [space](LocalQueue::space) for it.
    #[inline]
    pub(crate) fn push(&self, thread: &'static Green) {
        let end = self.end.load(Ordering::Relaxed);
        self.slot(end).set(Some(thread));
        // Release: pairs with the Acquire in `claim`.
        self.end.store(end.wrapping_add(1), Ordering::Release);
    }

    /// Takes the first thread.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&'static Green> {
        let end = self.end.load(Ordering::Relaxed);
        let before = self.change(Ordering::Relaxed, |front| {
            (front.first != end).then(|| front.taken(1))
        })?;
        self.slot(before.first).get()
    }

    /// Returns the first two threads, in their order. They may be a thief's at any time.
    #[inline(always)]
    pub(crate) fn first_two(&self) -> Option<(&'static Green, &'static Green)> {
        let first = Front::of(self.front.load(Ordering::Relaxed)).first;
        let slot = |number| self.slot(number).get();
        Some((slot(first)?, slot(first.wrapping_add(1))?))
    }

    /// Takes [`HALF`] of the threads, the first ones, and passes them to `put`.
    pub(crate) fn take_half(&self, put: impl FnMut(&'static Green)) {
        let end = self.end.load(Ordering::Relaxed);
        let mut count = 0;
        let before = self.change(Ordering::Relaxed, |front| {
            count = front.waiting(end).min(HALF as u32);
            (count != 0).then(|| front.taken(count))
        });
        if let Some(before) = before {
            let numbers = (0..count).map(|i| before.first.wrapping_add(i));
            numbers.filter_map(|n| self.slot(n).get()).for_each(put);
        }
    }

    // ---- for all ----

    /// Moves half of the threads, but `most` at most, to the caller's own queue, except for one, which
    /// is returned. `None`: there are none, or another thief is there.
    pub(crate) fn steal_half(&self, own: &LocalQueue, most: usize) -> Option<&'static Green> {
        let (before, count) = self.claim(most.min(own.space() + 1))?;
        perturb::point("local_queue: claimed");
        let end = own.end.load(Ordering::Relaxed);
        for i in 1..count {
            let thread = self.slot(before.first.wrapping_add(i)).get();
            own.slot(end.wrapping_add(i - 1)).set(thread);
        }
        let first = self.slot(before.first).get();
        // Release: pairs with the Acquire in a thief's `claim`.
        own.end
            .store(end.wrapping_add(count - 1), Ordering::Release);
        perturb::point("local_queue: copied");
        self.release(before);
        first
    }

    /// Claims half of the threads, but at most so many. Returns the front before, and how many.
    pub(crate) fn claim(&self, most: usize) -> Option<(Front, u32)> {
        let mut count = 0;
        let before = self.change(Ordering::Relaxed, |front| {
            // Acquire: pairs with the Release in `push`.
            let waiting = front.waiting(self.end.load(Ordering::Acquire));
            perturb::point("local_queue: about to claim");
            count = waiting.div_ceil(2).min(most as u32);
            (count != 0 && !front.is_busy()).then(|| front.claimed(count))
        })?;
        Some((before, count))
    }

    /// Ends the claim that was made at this front.
    pub(crate) fn release(&self, before: Front) {
        // Release: pairs with the Acquire in `space`.
        self.change(Ordering::Release, |front| Some(front.released(before)));
    }

    /// Returns the number of threads that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let front = Front::of(self.front.load(Ordering::Relaxed));
        front.waiting(self.end.load(Ordering::Relaxed)) as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
