//! A processor's next slot: the thread that runs next there, and whether it will wait there for long.
//!
//! The thread in the slot was woken or spawned by the running one, which most often waits itself a moment
//! later: to wake another processor for it would take longer. But a thread that *lingers* computes on after
//! it has woken another one, and keeps that one waiting. So the slot's holder learns which threads linger: it
//! times one of [`GLOBAL_INTERVAL`] fills, and all by threads that linger. If it is the holder who takes the
//! thread, after [`LONG`] or more, the one that filled the slot lingers; it lingers no more if it did not twice
//! in a row. When such a thread fills the slot, the slot is *slow*: the thread in it is work for others, and
//! thieves do not leave it to its processor. A thief teaches nothing, for it may have come by chance.
//!
//! | `is_slow` becomes | when |
//! |---|---|
//! | yes | a thread that lingers fills the slot |
//! | no | the thread is taken |
//!
//! A thread is known by its record's address, which may be that of a thread that has ended, and whoever runs
//! need not be the thread that came out of the queue last: it is a guess, and a wrong one costs a wake-up.
//!
//! Orderings: the thread's record is published by a Release, for the Acquire of the one who takes it. The rest
//! is Relaxed: hints.

use core::cell::Cell;
use core::ptr;

use crate::engine::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::engine::policy::Ready;
use crate::engine::policy::tuning::{GLOBAL_INTERVAL, LONG};
use crate::engine::sched::Green;
use crate::engine::sys::perturb;
use crate::engine::sys::statics::AtomicStatic;

/// The number of threads that are remembered, at most.
const REMEMBERED: usize = 8;
/// [`NextSlot::filled_at`] of a fill that is not timed.
const NOT_TIMED: u64 = 0;
/// [`NextSlot::running`] before the first thread; no record's address, nor that of an empty place.
const NOBODY: usize = 2;
/// In a place: the thread did not linger the last time. Records have even addresses.
const DOUBTED: usize = 1;

#[repr(C)]
pub(super) struct NextSlot {
    thread: AtomicStatic<Green>,
    /// The address of the running thread's record.
    running: Cell<usize>,
    filled_at: AtomicU64,
    filled_by: Cell<usize>,
    fills_to_timed: Cell<u32>,
    /// The threads that linger, each in the place that its address names.
    lingering: [Cell<usize>; REMEMBERED],
    is_slow: Line,
}

/// A flag alone on its cache line: others look at it, and it hardly ever changes. Not aligned, for then all
/// would be that has it inside.
#[repr(C)]
struct Line {
    before: [u8; 64],
    flag: AtomicBool,
    behind: [u8; 63],
}

/// How a thread has come into the slot.
pub(super) enum Filled {
    /// Its processor is about to take it.
    Quick,
    /// The running thread lingers.
    Slow,
    /// It has displaced this one.
    Displaced(Ready),
}

impl NextSlot {
    pub(super) fn new() -> NextSlot {
        NextSlot {
            thread: AtomicStatic::none(),
            running: Cell::new(NOBODY),
            filled_at: AtomicU64::new(NOT_TIMED),
            filled_by: Cell::new(NOBODY),
            fills_to_timed: Cell::new(GLOBAL_INTERVAL),
            lingering: [const { Cell::new(0) }; REMEMBERED],
            is_slow: Line {
                before: [0; 64],
                flag: AtomicBool::new(false),
                behind: [0; 63],
            },
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.thread.is_none(Ordering::Relaxed)
    }

    // ---- for all ----

    #[inline(always)]
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.flag.load(Ordering::Relaxed)
    }

    /// Takes the thread, unless another caller was faster.
    #[inline]
    pub(super) fn steal(&self) -> Option<Ready> {
        // Not after the exchange: the slot may have been filled again by then.
        self.end_timing();
        perturb::point("next_slot: stealing");
        self.exchange(None)
    }

    /// Takes the thread if the slot is slow.
    #[inline]
    pub(super) fn relieve(&self) -> Option<Ready> {
        (self.is_slow() && !self.is_empty()).then(|| self.steal())?
    }

    #[inline(always)]
    fn exchange(&self, new: Option<&'static Green>) -> Option<Ready> {
        // Release: publishes the record that is put there; partner: Acquire here and in a thief.
        self.thread.swap(new, Ordering::AcqRel).map(Ready::new)
    }

    /// Returns when the slot was filled, if that was timed.
    fn end_timing(&self) -> u64 {
        if self.is_slow() {
            self.is_slow.flag.store(false, Ordering::Relaxed);
        }
        let filled_at = self.filled_at.load(Ordering::Relaxed);
        self.filled_at.store(NOT_TIMED, Ordering::Relaxed);
        filled_at
    }

    // ---- for the holder of the seat ----

    /// Notes that `thread` runs from now on.
    #[inline(always)]
    pub(super) fn set_running(&self, thread: &Green) {
        self.running.set(ptr::from_ref(thread).addr());
    }

    /// Takes the thread, unless a thief was faster.
    #[inline(always)]
    pub(super) fn take(&self, clock: impl FnOnce() -> u64) -> Option<Ready> {
        let thread = self.exchange(None)?;
        if self.filled_at.load(Ordering::Relaxed) != NOT_TIMED {
            self.learn(clock);
        }
        Some(thread)
    }

    /// Puts `thread` into the slot.
    #[inline]
    pub(super) fn fill(&self, thread: Ready, clock: impl FnOnce() -> u64) -> Filled {
        let green = thread.into_green();
        if !self.is_empty() {
            perturb::point("next_slot: displacing");
            return match self.exchange(Some(green)) {
                Some(displaced) => Filled::Displaced(displaced),
                None => Filled::Quick,
            };
        }
        let by = self.running.get();
        let lingers = self.place(by).get() & !DOUBTED == by;
        let left = self.fills_to_timed.get() - 1;
        self.fills_to_timed.set(left);
        if lingers || left == 0 {
            self.begin_timing(by, lingers, clock);
        }
        // Only the holder of the seat fills the slot. Release: publishes the record to a
        // thief, whose swap is an Acquire.
        self.thread.store(Some(green), Ordering::Release);
        match lingers {
            true => Filled::Slow,
            false => Filled::Quick,
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_timing(&self, by: usize, lingers: bool, clock: impl FnOnce() -> u64) {
        if self.fills_to_timed.get() == 0 {
            self.fills_to_timed.set(GLOBAL_INTERVAL);
        }
        self.filled_at.store(clock(), Ordering::Relaxed);
        self.filled_by.set(by);
        if lingers {
            self.is_slow.flag.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn(&self, clock: impl FnOnce() -> u64) {
        let by = self.filled_by.get();
        let filled_at = self.end_timing();
        if filled_at == NOT_TIMED {
            return; // a thief, who came too late for the thread
        }
        let place = self.place(by);
        if clock().saturating_sub(filled_at) >= LONG {
            place.set(by);
        } else if place.get() == by {
            place.set(by | DOUBTED);
        } else if place.get() == by | DOUBTED {
            place.set(0);
        }
    }

    /// The place, among the threads that linger, of the one whose record has this address.
    #[inline(always)]
    fn place(&self, record: usize) -> &Cell<usize> {
        &self.lingering[record / size_of::<Green>() % REMEMBERED]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::stand_ins::{dismiss, stand_ins};

    /// Wakes another thread, which its processor takes so long after unless it is relieved. Returns how
    /// often it was relieved.
    fn turns(
        slot: &NextSlot,
        (waker, waits): (&Green, u64),
        woken: &mut Option<Ready>,
        count: u32,
    ) -> u32 {
        let mut relieved = 0;
        for turn in 1..=count {
            let filled = u64::from(turn) << 32;
            slot.set_running(waker);
            let _ = slot.fill(woken.take().unwrap(), || filled);
            *woken = slot.relieve();
            relieved += u32::from(woken.is_some());
            *woken = woken.take().or_else(|| slot.take(|| filled + waits));
            assert!(slot.is_empty() && !slot.is_slow());
        }
        relieved
    }

    /// A thread that lingers, one that does not, and one that they wake in turn.
    #[test]
    fn others_relieve_a_slot_of_threads_that_linger() {
        let mut threads = stand_ins(3);
        let mut woken = threads.pop();
        let [slow, quick] = &threads[..] else { return };
        let (slow, quick) = ((slow.green(), LONG), (quick.green(), LONG - 1));
        let slot = NextSlot::new();
        let mut relieved = [0; 2];
        for _ in 0..1000 {
            for (waker, relieved) in [slow, quick].into_iter().zip(&mut relieved) {
                *relieved += turns(&slot, waker, &mut woken, 1);
            }
        }
        // It is learnt at the first or second fill that is noted.
        assert!(
            relieved[0] >= 1000 - GLOBAL_INTERVAL && relieved[1] == 0,
            "{relieved:?}"
        );
        // A thread that does not linger any more is found out where its processor is the first to come,
        // twice in a row.
        slot.set_running(slow.0);
        for waits in [LONG - 1, LONG, LONG - 1, LONG - 1] {
            let filled = slot.fill(woken.take().unwrap(), || 1);
            assert!(matches!(filled, Filled::Slow) && slot.is_slow());
            woken = slot.take(|| 1 + waits);
        }
        assert_eq!(turns(&slot, (slow.0, 0), &mut woken, 1000), 0);
        dismiss(threads.into_iter().chain(woken));
    }

    /// Two that linger, and then do so no more, in turn.
    #[test]
    fn each_is_forgotten_by_itself() {
        let mut threads = stand_ins(3);
        let mut woken = threads.pop();
        let [first, second] = &threads[..] else {
            return;
        };
        let slot = NextSlot::new();
        for _ in 0..100 {
            for waker in [first, second] {
                turns(&slot, (waker.green(), LONG), &mut woken, 1);
            }
        }
        for (waker, is_slow) in [(first, true), (second, true)]
            .repeat(2)
            .into_iter()
            .chain([(first, false), (second, false)])
        {
            slot.set_running(waker.green());
            let filled = slot.fill(woken.take().unwrap(), || 1);
            assert_eq!(matches!(filled, Filled::Slow), is_slow);
            woken = slot.take(|| 2);
        }
        dismiss(threads.into_iter().chain(woken));
    }

    /// A thread that a thief has taken says nothing, and the next one is not taken for it.
    #[test]
    fn thieves_teach_nothing() {
        let mut threads = stand_ins(3).into_iter();
        let (Some(waker), Some(mut stolen), Some(mut taken)) =
            (threads.next(), threads.next(), threads.next())
        else {
            return;
        };
        let slot = NextSlot::new();
        slot.set_running(waker.green());
        for turn in 0..10 * u64::from(GLOBAL_INTERVAL) {
            assert!(matches!(slot.fill(stolen, || turn), Filled::Quick));
            stolen = slot.steal().unwrap();
            let filled = slot.fill(taken, || turn + 10 * LONG);
            assert!(matches!(filled, Filled::Quick) && !slot.is_slow());
            taken = slot.take(|| turn + 10 * LONG).unwrap();
        }
        dismiss([waker, stolen, taken]);
    }
}
