//! The reader-writer lock's protocol, without the data: a state word, and a wait queue whose lock
//! guards the way from the queue into the lock.
//!
//! ```text
//!   | since: 30 bits | readers: 31 bits | WOKEN | QUEUED | WRITER |
//! ```
//!
//! | part | meaning |
//! |---|---|
//! | `WRITER` | a writer holds the lock |
//! | `QUEUED` | the queue may not be empty; `since` tells when its first thread came |
//! | `WOKEN` | a writer was taken out of the queue and will try again |
//! | `readers` | the number of readers that hold the lock |
//!
//! A thread that comes by while others wait may overtake them ("barging"): it is running, they are
//! not. But once the first of them has waited for [`PATIENCE`], no thread overtakes it any more,
//! and the lock is handed to it. (A writer that was woken is no longer in the queue. While it is on
//! its way others overtake; if it is late it queues again in front of all, and writes into `since`
//! again the time at which its wait began.)
//!
//! | thread | finds | does |
//! |---|---|---|
//! | reader | no `WRITER`, and may overtake | `readers` + 1 |
//! | writer | no holder, and may overtake or is the woken one | sets `WRITER`, clears its `WOKEN` |
//! | both | else | pause a little, queue: set `QUEUED` in one step with seeing that; clear their `WOKEN` |
//! | leaving | it is the last; `QUEUED`, no `WOKEN` | gives its hold back, then [`RawRwLock::pass_on`] |
//! | leaving | else | gives its hold back, done |
//! | timed out, or downgraded | `QUEUED` | `pass_on`: others may be let in now |
//!
//! `pass_on` holds the list. It takes the lock as any thread would, in the name of the first in the
//! queue, and then takes the first out:
//!
//! | first in the queue | lock | it is given |
//! |---|---|---|
//! | reader | held by readers, or free and no `WOKEN` | a reader's hold; and again for the next |
//! | writer that waited long | free, no `WOKEN` | the writer's hold |
//! | writer | free, no `WOKEN` | `WOKEN`: it must try like any thread |
//! | none, or none of these | | `QUEUED` and `since` are set as the queue is |
//!
//! Invariants:
//! 1. While no thread holds the list: if a thread is in the queue, `QUEUED` is set. The thread that
//!    queues sets it and `pass_on` clears it, both with the list in hand.
//! 2. Free, `QUEUED` and no `WOKEN`: a thread is on the way into `pass_on` or in it. For this state
//!    begins only with a hold given back (its owner sees the two flags in the very step), and ends
//!    only with the last step of `pass_on`, a compare-and-swap that fails if it began again. A
//!    thread that queues in the meantime holds the list, so that `pass_on` finds it later.
//! 3. `WOKEN` has one owner, which clears it: by taking the lock, or in one step with seeing that it
//!    is held.
//!
//! So no wake-up is lost. A thread that queues has seen a holder, or the case of invariant 2. If it
//! has seen a holder, it has set `QUEUED` in the word that the last holder replaces when it leaves:
//! the last holder sees `QUEUED` and goes to `pass_on`, unless `WOKEN` is set. In that case the
//! woken writer takes the lock, and sees `QUEUED` when it leaves; or it clears `WOKEN` in a word
//! that shows the next holder, which then sees `QUEUED` alone when it leaves. A thread that cannot
//! be let in because another one is in front of it is let in when that thread leaves the lock or
//! the queue.
//!
//! Orderings: a hold is taken with Acquire and given back with Release. All changes of the state
//! are read-modify-writes, so a writer sees what every reader before it did. A hold that is handed
//! over is published by the wake-up.

use core::mem::offset_of;

use super::raw_mutex::noted;
use crate::atomic::Ordering::{self, Acquire, Relaxed, Release};
use crate::atomic::{AtomicU64, AtomicUsize, const_fn};
use crate::sys::{clock, perturb, shared::Backoff, word};
use crate::wait::queue::{Chain, Position, WaitQueue, Waited};
use crate::wait::{Facts, Locator, WaitKind, WaitReason};

// ==== the state word ====

const WRITER: u64 = 1;
const QUEUED: u64 = 1 << 1;
const WOKEN: u64 = 1 << 2;
const READER: u64 = 1 << 3;
const READERS: u64 = SINCE - READER;
const SINCE: u64 = 1 << 34;

/// Ticks of 2^16 ns, about 1 ms in all, after which no thread overtakes a waiter any more.
const PATIENCE: u32 = 16;
const TICK_SHIFT: u32 = 16;
const TICKS: u32 = (u64::MAX / SINCE) as u32;

#[derive(Clone, Copy)]
struct State(u64);

impl State {
    #[inline(always)]
    fn has(self, parts: u64) -> bool {
        self.0 & parts != 0
    }

    #[inline(always)]
    fn readers(self) -> u64 {
        (self.0 & READERS) / READER
    }

    #[inline(always)]
    fn is_free(self) -> bool {
        !self.has(WRITER | READERS)
    }

    #[inline(always)]
    fn may_overtake(self) -> bool {
        !self.has(QUEUED) || self.may_overtake_waiters()
    }

    #[cold]
    #[inline(never)]
    fn may_overtake_waiters(self) -> bool {
        self.has(WOKEN) || !is_late((self.0 / SINCE) as u32, now())
    }

    #[inline(always)]
    fn may_read(self) -> bool {
        !self.has(WRITER) && self.may_overtake()
    }

    #[inline(always)]
    fn may_write(self) -> bool {
        self.is_free() && self.may_overtake()
    }

    /// Returns the state with `QUEUED`, where the first in the queue has waited since `since`.
    #[inline]
    fn queued(self, since: u32) -> State {
        State(self.0 & (SINCE - 1) | (u64::from(since) * SINCE) | QUEUED)
    }
}

/// Returns the time in ticks, cut to the width of its field: it wraps after some hours.
#[inline]
fn now() -> u32 {
    (clock::now() >> TICK_SHIFT) as u32 & TICKS
}

/// Returns whether no thread may overtake a thread that has waited since `since`.
#[inline]
fn is_late(since: u32, now: u32) -> bool {
    now.wrapping_sub(since) & TICKS >= PATIENCE
}

// ==== the lock ====

/// The number of threads that may read at once: std's figure. Readers let in from the queue are not
/// counted against it, so the state has room for more.
const MAX_READERS: u64 = (1 << 30) - 2;

/// A waiter's wait ended because it should try again.
const TRY_AGAIN: usize = 0;
/// A waiter's wait ended because it holds the lock now.
const HANDED: usize = 1;

#[repr(C)]
pub(crate) struct RawRwLock {
    state: AtomicU64,
    /// Its only flag is `poison::POISONED`: a writer has panicked. The protocol ignores it.
    pub(super) queue: WaitQueue,
    /// For reports: the mark of the thread that took the lock for writing last.
    writer: AtomicUsize,
}

/// For reports.
static READ: WaitKind = kind("read lock");
static WRITE: WaitKind = kind("write lock");

const fn kind(name: &'static str) -> WaitKind {
    WaitKind::inside(name).with(HOLDER).with_numbers(readers)
}

const HOLDER: Locator = Locator::Holder {
    at: offset_of!(RawRwLock, writer),
    flags_at: offset_of!(RawRwLock, state),
    flags: WRITER as usize,
};

fn readers(address: usize, facts: &mut Facts) {
    let state = word::read(address + offset_of!(RawRwLock, state)).map(|state| State(state as u64));
    if let Some(state) = state.filter(|state| !state.has(WRITER)) {
        facts.number("readers", state.readers());
    }
}

/// The tag of a thread in the queue: whether it waits to write, and since when.
fn tag(to_write: bool, since: u32) -> usize {
    (since as usize) << 1 | usize::from(to_write)
}

/// Returns what a [`tag`] says.
fn wish(tag: usize) -> (bool, u32) {
    (tag & 1 != 0, (tag >> 1) as u32)
}

impl RawRwLock {
    const_fn! {
        pub(crate) const fn new() -> RawRwLock {
            RawRwLock {
                state: AtomicU64::new(0),
                queue: WaitQueue::new(0),
                writer: AtomicUsize::new(0),
            }
        }
    }

    #[inline(always)]
    fn state(&self) -> State {
        State(self.state.load(Relaxed))
    }

    #[inline(always)]
    fn change(&self, from: State, to: State, order: Ordering) -> bool {
        perturb::point("rwlock: changing");
        let changed = (self.state).compare_exchange_weak(from.0, to.0, order, Relaxed);
        changed.is_ok()
    }

    /// Changes the state to what `change` says; returns whether it said anything.
    #[inline(always)]
    fn update(&self, order: Ordering, change: impl Fn(State) -> Option<u64>) -> bool {
        let change = |state| {
            perturb::point("rwlock: changing");
            change(State(state))
        };
        self.state.fetch_update(order, Relaxed, change).is_ok()
    }

    #[inline]
    pub(crate) fn try_read(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_write` and `downgrade`.
        self.update(Acquire, |state| {
            (state.may_read() && state.readers() < MAX_READERS).then_some(state.0 + READER)
        })
    }

    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        // Acquire: pairs with the Release in `unlock_read` and `unlock_write`.
        let locked = self.update(Acquire, |state| {
            state.may_write().then_some(state.0 | WRITER)
        });
        noted(&self.writer, locked)
    }

    /// Blocks until the caller may read. Returns false if `deadline` (monotonic nanoseconds) passes
    /// first.
    ///
    /// # Panics
    /// Panics if too many threads read already.
    #[inline]
    pub(crate) fn read(&self, deadline: Option<u64>) -> bool {
        self.try_read() || self.lock_contended(false, deadline)
    }

    /// Blocks until the caller may write. Returns false if `deadline` (monotonic nanoseconds)
    /// passes first.
    #[inline]
    pub(crate) fn write(&self, deadline: Option<u64>) -> bool {
        self.try_write() || noted(&self.writer, self.lock_contended(true, deadline))
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, to_write: bool, deadline: Option<u64>) -> bool {
        let may_take = |state: State, woken: u64| match to_write {
            false => state.may_read(),
            true => state.may_write() || woken != 0 && state.is_free(),
        };
        let take = |woken: u64| match to_write {
            false => self.try_read(),
            // Acquire: as in `try_write`.
            true => self.update(Acquire, |state| {
                may_take(state, woken).then_some(state.0 & !woken | WRITER)
            }),
        };
        let mut backoff = Backoff::AS_IT_MAY_WAIT;
        while backoff.pause() {
            if take(0) {
                return true;
            }
        }
        let since = now();
        let mut position = Position::Back;
        // This is `WOKEN` while the flag stands for this thread. (Only a writer is woken to try again.)
        let mut woken = 0;
        loop {
            let reason = WaitReason::new(if to_write { &WRITE } else { &READ }, self);
            let waits = |flags| {
                let queued = self.update(Relaxed, |state| {
                    let queued = State(state.0 & !woken | QUEUED);
                    let is_first = position == Position::Front || !state.has(QUEUED);
                    let queued = match is_first {
                        true => queued.queued(since),
                        false => queued,
                    };
                    (!may_take(state, woken)).then_some(queued.0)
                });
                queued.then(|| {
                    woken = 0;
                    flags
                })
            };
            match (self.queue).wait(reason, position, tag(to_write, since), deadline, waits) {
                Waited::Woken(HANDED) => return true,
                Waited::Woken(_) => {
                    position = Position::Front;
                    woken = WOKEN;
                }
                Waited::TimedOut => {
                    // Threads behind this one, which could not overtake it, may be able to take the lock now.
                    self.pass_on();
                    return false;
                }
                Waited::Refused => {}
            }
            if take(woken) {
                return true;
            }
            let readers = self.state().readers();
            assert!(
                to_write || readers < MAX_READERS,
                "a RwLock has {readers} readers: too many for another"
            );
        }
    }

    /// Gives a reader's hold back.
    ///
    /// The caller must have one.
    #[inline]
    pub(crate) fn unlock_read(&self) {
        // Release: pairs with the Acquire of the next writer.
        let before = State(self.state.fetch_sub(READER, Release));
        if before.has(QUEUED) && before.readers() == 1 && !before.has(WOKEN) {
            self.pass_on();
        }
    }

    /// Gives the writer's hold back.
    ///
    /// The caller must have it.
    #[inline]
    pub(crate) fn unlock_write(&self) {
        self.writer.store(0, Relaxed);
        // Release: pairs with the Acquire of the thread that takes the lock next.
        let before = State(self.state.fetch_sub(WRITER, Release));
        if before.has(QUEUED) && !before.has(WOKEN) {
            self.pass_on();
        }
    }

    /// Makes a reader of the writer, and lets in the threads that wait to read.
    ///
    /// The caller must hold the lock as the writer.
    pub(crate) fn downgrade(&self) {
        self.writer.store(0, Relaxed);
        // Release: pairs with the Acquire of the readers that come now.
        let before = State(self.state.fetch_add(READER - WRITER, Release));
        if before.has(QUEUED) {
            self.pass_on();
        }
    }

    /// Lets in as many threads from the front of the queue as the lock admits. See the header.
    #[cold]
    #[inline(never)]
    fn pass_on(&self) {
        let mut entering = Chain::default();
        let mut locked = self.queue.lock();
        loop {
            let state = self.state();
            let first = locked.first_tag().map(wish);
            let free = state.is_free() && !state.has(WOKEN);
            let (hold, outcome) = match first {
                Some((false, _)) if free || state.has(READERS) => (READER, HANDED),
                Some((true, since)) if free && is_late(since, now()) => (WRITER, HANDED),
                Some((true, _)) if free => (WOKEN, TRY_AGAIN),
                _ => {
                    let to = match first {
                        Some((_, since)) => state.queued(since),
                        None => State(state.0 & !QUEUED),
                    };
                    if self.change(state, to, Relaxed) {
                        break;
                    }
                    continue;
                }
            };
            // Acquire: as in `try_read` and `try_write`, in the other's name.
            if !self.change(state, State(state.0 + hold), Acquire) {
                continue;
            }
            let to_write = hold != READER;
            match locked.pop_if(outcome, |tag| wish(tag).0 == to_write) {
                Some(first) => {
                    entering.push(first);
                    locked = self.queue.wake_long(locked, &mut entering);
                }
                // The first thread has just given up. Nothing was done under this hold, so Relaxed will do. The next
                // round lets in the threads that this hold kept out.
                None => {
                    self.state.fetch_sub(hold, Relaxed);
                }
            }
        }
        drop(locked);
        entering.wake();
    }

    /// Returns whether no thread holds the lock, waits for it or is about to wait.
    #[cfg(greenthread_model)]
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = self.state();
        state.is_free() && !state.has(QUEUED | WOKEN) && self.queue.is_at_rest(0)
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    #[test]
    fn too_many_readers() {
        let lock = RawRwLock::new();
        lock.state.store((MAX_READERS - 1) * READER, Relaxed);
        assert!(lock.try_read());
        assert!(!lock.try_read());
        assert!(!lock.try_write());
        let panic = std::panic::catch_unwind(|| lock.read(None)).unwrap_err();
        let message = panic.downcast::<String>().unwrap();
        assert!(message.contains("1073741822 readers"), "{message}");
        lock.unlock_read();
        assert!(lock.read(None));
    }

    #[test]
    fn no_thread_overtakes_one_that_has_waited_long() {
        let long_ago = now().wrapping_sub(PATIENCE) & TICKS;
        for readers in [0, READER] {
            // The clock may go on meanwhile: then the states are asked once more.
            let (may_read, may_write) = loop {
                let since = now();
                let fresh = State(readers).queued(since);
                let answers = (fresh.may_read(), fresh.may_write());
                if !is_late(since, now()) {
                    break answers;
                }
            };
            assert!(may_read);
            assert_eq!(may_write, readers == 0);
            let late = State(readers).queued(long_ago);
            assert!(!late.may_read() && !late.may_write());
            let woken = State(late.0 | WOKEN);
            assert!(woken.may_read());
        }
        assert!(State(0).queued(TICKS).has(QUEUED));
        assert!(!State(0).queued(TICKS).has(WRITER | READERS | WOKEN));
    }

    #[test]
    fn the_clock_wraps() {
        for since in [0, 1, TICKS - PATIENCE, TICKS - 1, TICKS] {
            for (passed, late) in [
                (0, false),
                (PATIENCE - 1, false),
                (PATIENCE, true),
                (TICKS, true),
            ] {
                assert_eq!(
                    is_late(since, since.wrapping_add(passed) & TICKS),
                    late,
                    "{since} {passed}"
                );
            }
        }
    }
}
