//! The record of a kernel thread that parks as green threads do, for observers: a thread of a runtime of
//! kernel threads, or one of the program's own that has parked once. (Workers have other records, `sched::processor`.)
//!
//! The records lie in a static table and are used again (*places*). A thread takes a record without a lock and without the
//! allocator, since the thread may park inside the allocator. A thread of ours gives its record back. The end of a thread of
//! the program's own is not announced to the runtime, so another thread takes the record once the system no longer knows the
//! first one. If the table is full, a thread goes without a record, and observers do not know what the thread waits for.
//!
//! # Places
//!
//! A record is a place of a table, for threads of whose end nobody hears. A thread takes one without a lock and without the
//! allocator.
//!
//! A place says whose it is ([`Place`]). A thread that wants one looks at the places in turn ([`Places`]), from where the
//! last thread has stopped, and takes the first that is free, or whose thread is gone. If the thread meets none on its way round
//! half of the places in use, twice as many are in use from then on. So the table has about four places at most for each thread
//! that has ever lived at the same time; and while it does not grow, a thread finds a place after a few looks on the average,
//! unless the table is nearly full.
//!
//! | a place's word | |
//! |---|---|
//! | turn, thread | the thread has the place, which has had so many threads |
//! | turn, 0 | it is free |
//!
//! # Invariants
//!
//! 1. Only the record's thread writes it while it lives. A record whose `mark` (`current::mark`) is 0 belongs to nobody, or
//!    to a thread that has just taken it.
//! 2. *A place has one owner.* A thread takes it by a change of the word from the very turn in which the thread saw that
//!    the place is free, or that its owner is gone. If the place was given back and taken meanwhile, by a thread with the
//!    same number even, the turn is another.
//!
//! # Memory orderings
//!
//! A place is given back with Release and taken with Acquire, so the writes of its threads do not mix. Those of a thread
//! that is gone come before the answer that it is gone.
//! `parking` is stored with Release and loaded with Acquire: it leads to the thread's stack. That may be
//! gone when it is read (`sys::word`), and what was read counts only if `turns` is still the same (`inspect::threads`).
//! So `turns` changes before `parking` leads to a new wait, and after it leads away from an old one (Release): a reader
//! that finds a wait, and the same count before and after, has read while the wait lasted.
//!
//! # The reporter's word
//! [`quiet`] tells the reporter when threads have become quiet, so that it looks for a deadlock.
//!
//! | word | the reporter |
//! |---|---|
//! | `UNINTERESTED` | is at work, or no new wait can make a deadlock, or no deadlock is looked for |
//! | `INTERESTED` | sleeps on the word |
//! | `TOLD` | is to look |
//!
//! No deadlock is overlooked: the reporter looks once more after it has become interested. A thread that waits later
//! finds the word so.

use crate::engine::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*, const_fn, fence,
};
use crate::engine::sched::park::{Interrupts, Parking, Waiter};
use crate::engine::sched::{Identity, current};
use crate::engine::sys::shared::{Zero, Zeros};
use crate::engine::sys::{clock, kernel_thread, perturb, sanitizer};
use core::{cell::Cell, ptr};
use std::{io, thread::JoinHandle};

// ==== the records ====

/// How many threads can have a record.
const MOST: usize = 1 << 16;

/// The roles of kernel threads: the program's own.
const FOREIGN: u8 = 0;
/// A thread of a runtime of kernel threads.
const RUNTIME: u8 = 1;
/// A thread that keeps a runtime going: it runs no code of the program's but green threads.
const HELPER: u8 = 2;

#[repr(C, align(64))]
pub(crate) struct KernelThread {
    mark: AtomicUsize,
    place: Place,
    role: AtomicU8,
    identity: AtomicPtr<Identity>,
    pub(super) interrupts: Interrupts,
    /// How often the thread has begun and ended a wait.
    turns: AtomicU32,
    /// When the thread last did so, in milliseconds of the monotonic clock.
    at: AtomicU32,
}

// SAFETY: numbers, and addresses of nothing: a free record.
unsafe impl Zero for KernelThread {}

static TABLE: Zeros<KernelThread, MOST> = Zeros::new();
static PLACES: Places = Places::new();

thread_local! {
    static OWN: Cell<Option<&'static KernelThread>> = const { Cell::new(None) };
}

/// Every record in use.
pub(crate) fn all() -> impl Iterator<Item = &'static KernelThread> {
    let used = TABLE[..PLACES.used()].iter();
    used.filter(|thread| thread.mark() != 0)
}

/// Whether this kernel thread keeps a runtime going.
#[cfg(hooks)]
pub(crate) fn is_helper(thread: i32) -> bool {
    all().any(|record| record.thread() == thread && record.is_helper())
}

impl KernelThread {
    /// The record of the calling kernel thread.
    fn own() -> Option<&'static KernelThread> {
        if OWN.get().is_none() {
            let thread = kernel_thread::id();
            let takes =
                |record: &KernelThread| record.place.take(thread, |other| record.is_gone(other));
            let record = &TABLE[PLACES.find(MOST, |i| takes(&TABLE[i]))?];
            record.clear();
            record.note_time();
            record.mark.store(current::mark(), Relaxed);
            OWN.set(Some(record));
        }
        OWN.get()
    }

    /// Whether `thread`, which has had the record, is gone without giving it back. The system is asked, but for
    /// threads of ours, which give their records back.
    pub(crate) fn is_gone(&self, thread: i32) -> bool {
        self.role.load(Relaxed) == FOREIGN && !kernel_thread::exists(thread)
    }

    fn clear(&self) {
        self.role.store(FOREIGN, Relaxed);
        self.identity.store(ptr::null_mut(), Relaxed);
        self.interrupts.parking.store(ptr::null_mut(), Relaxed);
        self.interrupts.forget_frames();
        self.next_turn();
        self.mark.store(0, Relaxed);
    }

    fn give_back(&self) {
        self.clear();
        self.place.give_back();
    }

    /// The calling kernel thread is one of a runtime, and has just begun; or it keeps a runtime going.
    pub(crate) fn begin(is_helper: bool) {
        if let Some(own) = KernelThread::own() {
            let role = if is_helper { HELPER } else { RUNTIME };
            own.role.store(role, Relaxed);
            if is_helper {
                sanitizer::hide();
            }
        }
    }

    /// The calling kernel thread, which has called [`begin`](KernelThread::begin), ends.
    pub(crate) fn end() {
        if let Some(own) = OWN.take() {
            if own.is_helper() {
                sanitizer::see_again();
            }
            own.give_back();
        }
    }

    /// The name and number of the calling kernel thread, which stay as long as the thread, or until they are replaced by null.
    pub(crate) fn note_own_identity(identity: *const Identity) {
        Identity::set_own(identity);
        // A thread that gives its identity up needs no record for that.
        let own = match identity.is_null() {
            true => OWN.get(),
            false => KernelThread::own(),
        };
        if let Some(own) = own {
            // Release: the identity; partner: Acquire in `identity`.
            own.identity.store(identity.cast_mut(), Release);
        }
    }

    /// By what others end the calling kernel thread's waits.
    pub(crate) fn interrupts() -> Option<&'static Interrupts> {
        KernelThread::own().map(|own| &own.interrupts)
    }

    /// Runs `wait`, in which the calling kernel thread waits. True: a frame may have ended.
    pub(crate) fn while_waiting<R>(parking: &Parking, wait: impl FnOnce(bool) -> R) -> R {
        let Some(own) = KernelThread::own() else {
            return wait(false);
        };
        let point_to = |parking: *const Parking| {
            // Release: the new count, and the wait; partner: Acquire in `parking`.
            own.interrupts.parking.store(parking.cast_mut(), Release);
            // SeqCst: partner: the fence in `Pinned::interrupt`.
            fence(SeqCst);
        };
        // This may be a signal handler's wait, which has interrupted another wait of this thread.
        let outer = own.interrupts.parking.load(Relaxed);
        own.next_turn();
        own.note_time();
        point_to(parking);
        quiet::tell();
        let result = wait(own.interrupts.is_pending());
        point_to(outer);
        own.interrupts.settle();
        // SAFETY: the outer wait lies on this thread's stack.
        if let Some(outer) = unsafe { outer.as_ref() }
            && outer.reason.kind.when_ended.ends()
        {
            // A canceller has found this wait, and not the outer one, which may be about to sleep.
            // SAFETY: as above.
            let _ = unsafe { Waiter::expire_at(outer.waiter) };
        }
        own.note_time();
        own.next_turn();
        // Release: an observer that sees what the thread writes next sees the new count; partner: the Acquire
        // fence in `ThreadSnapshot::holds`.
        fence(Release);
        result
    }

    fn next_turn(&self) {
        // Release: a reader that sees the count sees the end of the wait before; partner: Acquire in `inspect::threads`.
        self.turns
            .store(self.turns.load(Relaxed).wrapping_add(1), Release);
    }

    fn note_time(&self) {
        self.at.store((clock::now() / 1_000_000) as u32, Relaxed);
    }

    pub(crate) fn mark(&self) -> usize {
        self.mark.load(Relaxed)
    }

    pub(crate) fn thread(&self) -> i32 {
        self.place.thread()
    }

    /// Whether it is a thread of a runtime of kernel threads.
    pub(crate) fn is_ours(&self) -> bool {
        self.role.load(Relaxed) == RUNTIME
    }

    /// Whether it is one of the kernel threads that keep runtimes going.
    pub(crate) fn is_helper(&self) -> bool {
        self.role.load(Relaxed) == HELPER
    }

    pub(crate) fn identity(&self) -> *const Identity {
        // Acquire: partner: Release in `note_identity`.
        self.identity.load(Acquire)
    }

    pub(crate) fn parking(&self) -> *const Parking {
        // Acquire: partner: Release in `while_waiting`.
        self.interrupts.parking.load(Acquire)
    }

    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Relaxed)
    }

    /// For how many milliseconds the thread has waited, or has not.
    pub(crate) fn millis(&self) -> u32 {
        ((clock::now() / 1_000_000) as u32).wrapping_sub(self.at.load(Relaxed))
    }
}

/// Starts a helper that does `work`, by std's means alone.
pub(crate) fn spawn_helper(
    name: &str,
    stack_size: usize,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<JoinHandle<()>> {
    let builder = std::thread::Builder::new()
        .name(name.into())
        .stack_size(stack_size);
    let work = move || {
        KernelThread::begin(true);
        // A search for a deadlock may have found this kernel thread before it was known as a helper, and given up.
        quiet::tell();
        work();
        KernelThread::end();
    };
    kernel_thread::making(|| builder.spawn(work))
}

/// In a forked child: the other threads are the parent's.
pub(crate) fn forget_others() {
    let own = OWN.get();
    if let Some(own) = own {
        own.place.renumber(kernel_thread::id());
    }
    for record in &TABLE[..PLACES.used()] {
        if record.thread() != 0 && !own.is_some_and(|own| ptr::eq(own, record)) {
            record.give_back();
        }
    }
}

// ==== places ====

/// Whose a record is.
#[derive(Default)]
pub(crate) struct Place {
    /// | 32 bits: turn | 32: thread |
    word: AtomicU64,
}

/// How threads look at the places of a table.
pub(crate) struct Places {
    /// The number of looks so far: the next one is at this place, counted round the places in use.
    looks: AtomicUsize,
    /// How many places at the front of the table are in use: [`LEAST`] times a power of two.
    used: AtomicUsize,
}

/// How many places are in use at first.
const LEAST: usize = if cfg!(greenthread_model) { 2 } else { 64 };

/// How many places of a full table a thread looks at before it goes without.
const LOOKS: usize = 1024;

const THREAD: u64 = 0xffff_ffff;
const TURN: u64 = THREAD + 1;

impl Place {
    /// The thread that has it; 0: none.
    pub(crate) fn thread(&self) -> i32 {
        self.word.load(Relaxed) as i32
    }

    /// The thread that has it has another number now: it has forked.
    pub(crate) fn renumber(&self, thread: i32) {
        let turn = self.word.load(Relaxed) & !THREAD;
        self.word.store(turn | u64::from(thread as u32), Relaxed);
    }

    /// Takes it for `thread`, if it is free, or its thread is gone.
    pub(crate) fn take(&self, thread: i32, is_gone: impl Fn(i32) -> bool) -> bool {
        let seen = self.word.load(Relaxed);
        if seen & THREAD != 0 && !is_gone(seen as i32) {
            return false;
        }
        perturb::point("places: taking");
        let taken = (seen & !THREAD).wrapping_add(TURN) | u64::from(thread as u32);
        // Acquire: what the last thread has written; partner: Release in `give_back`.
        let word = &self.word;
        word.compare_exchange(seen, taken, Acquire, Relaxed).is_ok()
    }

    /// The calling thread, which has it, gives it back.
    pub(crate) fn give_back(&self) {
        // Release: what this thread has written; partner: Acquire in `take`.
        self.word.fetch_and(!THREAD, Release);
    }
}

impl Places {
    const_fn! {
        pub(crate) const fn new() -> Places {
            Places {
                looks: AtomicUsize::new(0),
                used: AtomicUsize::new(LEAST),
            }
        }
    }

    /// How many places at the front of the table are in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// The first place that `take` takes, of a table with `most` places. `None`: the table seems to be full.
    pub(crate) fn find(&self, most: usize, take: impl Fn(usize) -> bool) -> Option<usize> {
        loop {
            let used = self.used();
            let looks = if used < most { used / 2 } else { LOOKS };
            let mut places = (0..looks).map(|_| self.looks.fetch_add(1, Relaxed) % used.min(most));
            if let Some(place) = places.find(|&place| take(place)) {
                return Some(place);
            } else if used >= most {
                return None;
            }
            // Another thread may have found no place either, and doubled the number first.
            let _ = self.used.compare_exchange(used, 2 * used, Relaxed, Relaxed);
        }
    }
}

// ==== the reporter's word ====

/// A word on which the reporter sleeps: see the file's header.
pub(crate) mod quiet {
    use crate::engine::atomic::{AtomicU32, Ordering::*};
    use crate::engine::sys::{clock, futex};

    const UNINTERESTED: u32 = 0;
    const INTERESTED: u32 = 1;
    const TOLD: u32 = 2;

    static WORD: AtomicU32 = AtomicU32::new(UNINTERESTED);

    /// A kernel thread begins to wait, or a cluster has come to rest.
    #[inline]
    pub(crate) fn tell() {
        if WORD.load(Relaxed) == INTERESTED {
            tell_now();
        }
    }

    /// The reporter is to look at its other duties. The caller may be a signal handler.
    #[cold]
    pub(crate) fn tell_now() {
        // Release: what the caller has done before; partner: Acquire in `wait`.
        WORD.store(TOLD, Release);
        futex::wake(&WORD, 1);
    }

    /// The reporter is interested from now on.
    pub(crate) fn be_interested() {
        // SeqCst: the look that follows comes after it. A waiter's record is written before `tell`, whose load
        // may be older; the reporter then looks again when the next thread waits, or the cluster rests.
        let _ = WORD.compare_exchange(UNINTERESTED, INTERESTED, SeqCst, Relaxed);
    }

    /// The reporter sleeps until it is told something, or until `deadline` (monotonic nanoseconds), and is not
    /// interested any more. Returns whether it was told.
    pub(crate) fn wait(deadline: Option<u64>) -> bool {
        loop {
            let seen = WORD.load(Relaxed);
            if seen == TOLD || deadline.is_some_and(|at| clock::now() >= at) {
                break;
            }
            futex::wait(&WORD, seen, deadline);
        }
        // Acquire: partner: Release in `tell_now`.
        WORD.swap(UNINTERESTED, Acquire) == TOLD
    }
}

#[cfg(all(test, green))]
mod tests {
    use super::*;

    /// Threads that come and go beside each other find the records of those that went.
    #[test]
    fn a_million_threads_come_and_go() {
        const THREADS: usize = 8;
        let all: Vec<_> = (0..THREADS)
            .map(|_| {
                std::thread::spawn(|| {
                    for _ in 0..1_000_000 / THREADS {
                        KernelThread::begin(false);
                        KernelThread::end();
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        // Threads of other tests may have records, too.
        assert!(PLACES.used() < 1_000, "{}", PLACES.used());
    }

    fn table(size: usize) -> Vec<Place> {
        (0..size).map(|_| Place::default()).collect()
    }

    /// Threads with even numbers are gone.
    fn take(places: &Places, table: &[Place], thread: i32) -> Option<usize> {
        places.find(table.len(), |i| {
            table[i].take(thread, |other| other % 2 == 0)
        })
    }

    #[test]
    fn a_million_threads_come_and_go_unheard() {
        let (places, table) = (Places::new(), table(1 << 16));
        for thread in 1..=100 {
            assert!(take(&places, &table, 2 * thread + 1).is_some());
        }
        for thread in 1..=1_000_000 {
            assert!(take(&places, &table, 2 * thread).is_some());
        }
        assert!(places.used() <= 400, "{}", places.used());
    }

    #[test]
    fn a_full_table_has_no_place() {
        let (places, table) = (Places::new(), table(3));
        let taken: Vec<_> = (0..4).map(|_| take(&places, &table, 1)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2), None]);
        table[1].give_back();
        assert_eq!(table[1].thread(), 0);
        assert_eq!(take(&places, &table, 3), Some(1));
        assert_eq!(table[1].thread(), 3);
        assert_eq!(take(&places, &table, 5), None);
    }
}
