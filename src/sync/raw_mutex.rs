//! The mutex's protocol, without the data: a wait queue and four flags.
//!
//! | flag | meaning |
//! |---|---|
//! | `HELD` | a thread holds the mutex |
//! | `WOKEN` | a waiter was woken and will try again: no need to wake another |
//! | `STARVING` | a waiter waited too long: no thread barges, each unlock hands the lock over |
//! | `poison::POISONED` | a holder panicked; the protocol ignores it |
//!
//! As in Go's `sync.Mutex`, a thread that comes by takes a free mutex at once ("barging"), though
//! others wait: it is running, they are not. The first waiter, once woken, must try again like any
//! other thread, and queues at the front if it is late. Once it has waited for [`PATIENCE`], the
//! mutex is handed from holder to waiter, until one comes that has not waited so long, or none is
//! left.
//!
//! | thread | finds | does |
//! |---|---|---|
//! | locker | not `HELD`, not `STARVING` | sets `HELD`; clears `WOKEN` if that meant itself |
//! | locker | else | pauses a little, queues (in one step with seeing `HELD` or `STARVING`) |
//! | unlocker | no waiters, or `WOKEN`; not `STARVING` | clears `HELD`, done |
//! | unlocker | waiters, not `WOKEN` | clears `HELD`; then takes the first out, sets `WOKEN`, wakes it |
//! | unlocker | `STARVING` | clears `HELD`; then takes the first out, sets `HELD` for it, wakes it |
//!
//! Invariants:
//! 1. Not `HELD` and `STARVING`: the unlocker is about to hand over. No other thread sets `HELD`,
//!    and `STARVING` stays; so the state that it sees with the list in hand stays true.
//! 2. Waiters and not `HELD` and not `WOKEN`: a thread is in `unlock_contended`. So no wake-up is
//!    lost: a thread that queues has seen `HELD` in the word that it replaced, hence that holder's
//!    unlock sees the waiter; and a thread that leaves with `WOKEN` either takes the mutex or gives
//!    `WOKEN` back in one step with seeing that the mutex is held.
//!
//! Orderings: setting `HELD` is Acquire and clearing it Release. When the mutex is handed over, the
//! unlocker acquires it in the waiter's name, and the wake-up publishes it.

use core::mem::offset_of;

use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::atomic::{AtomicUsize, const_fn};
use crate::engine::facade;
use crate::sys::{clock, shared::Backoff};
use crate::wait::queue::{Position, State, WaitQueue, Waited};
use crate::wait::{Locator, WaitKind, WaitReason};

const HELD: usize = WaitQueue::flag(0);
const WOKEN: usize = WaitQueue::flag(1);
const STARVING: usize = WaitQueue::flag(2);

/// Nanoseconds after which a waiter is handed the mutex: Go's figure.
const PATIENCE: u64 = 1_000_000;

/// A waiter's wait ended because it should try again.
const TRY_AGAIN: usize = 0;
/// A waiter's wait ended because it holds the mutex now.
const HANDED: usize = 1;

#[repr(C)]
pub(crate) struct RawMutex {
    pub(super) queue: WaitQueue,
    /// For reports: the mark of the thread that took the mutex last; it holds it if `HELD` is set.
    holder: AtomicUsize,
}

/// For reports.
static MUTEX: WaitKind = WaitKind::inside("mutex").with(Locator::Holder {
    at: offset_of!(RawMutex, holder),
    flags_at: offset_of!(RawMutex, queue),
    flags: HELD,
});

impl RawMutex {
    const_fn! {
        pub(crate) const fn new() -> RawMutex {
            RawMutex {
                queue: WaitQueue::new(0),
                holder: AtomicUsize::new(0),
            }
        }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        let mut state = self.queue.state(Relaxed);
        while is_free(state) {
            // Acquire: pairs with the Release in `unlock`.
            match self.queue.change(state, state.with(HELD), Acquire) {
                Ok(()) => return noted(&self.holder, true),
                Err(now) => state = now,
            }
        }
        false
    }

    /// Blocks until the caller has the mutex. Returns false if `deadline` (monotonic nanoseconds)
    /// passes first.
    #[inline]
    pub(crate) fn lock(&self, deadline: Option<u64>) -> bool {
        self.try_lock() || noted(&self.holder, self.lock_contended(deadline))
    }

    #[cold]
    #[inline(never)]
    fn lock_contended(&self, deadline: Option<u64>) -> bool {
        let mut backoff = Backoff::AS_IT_MAY_WAIT;
        let mut since = None;
        let mut position = Position::Back;
        // `WOKEN` from the moment in which this thread is woken until it queues again: the flag stands for this thread then.
        let mut woken = 0;
        let mut starving = 0;
        loop {
            let state = self.queue.state(Relaxed);
            if is_free(state) {
                // Acquire: as in `try_lock`.
                let mine = state.with(HELD).without(woken);
                if self.queue.change(state, mine, Acquire).is_ok() {
                    return true;
                }
                continue;
            }
            if !state.has(STARVING) && backoff.pause() {
                continue;
            }
            let since = *since.get_or_insert_with(clock::now);
            let reason = WaitReason::new(&MUTEX, self);
            let waits =
                |state: State| (!is_free(state)).then(|| state.without(woken).with(starving));
            match self.queue.wait(reason, position, 0, deadline, waits) {
                Waited::Refused => continue,
                Waited::TimedOut => return false,
                Waited::Woken(outcome) => {
                    let late = clock::now() - since >= PATIENCE;
                    if outcome == HANDED {
                        if !late || !self.queue.state(Relaxed).has_waiters() {
                            self.queue.clear(STARVING, Relaxed);
                        }
                        return true;
                    }
                    position = Position::Front;
                    woken = WOKEN;
                    starving = if late { STARVING } else { 0 };
                }
            }
        }
    }

    /// Unlocks the mutex.
    ///
    /// The caller must hold it.
    #[inline]
    pub(crate) fn unlock(&self) {
        // The field is cleared first: the next holder writes it only after it has locked, and until then a report must not
        // take this thread for the holder.
        self.holder.store(0, Relaxed);
        // Release: pairs with the Acquire in `try_lock` and `lock_contended`.
        let before = self.queue.clear_known(HELD, Release);
        if before.has(STARVING) || before.has_waiters() && !before.has(WOKEN) {
            self.unlock_contended();
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_contended(&self) {
        let mut locked = self.queue.lock();
        // Acquire: pairs with the Release in `unlock`, perhaps in a thread that has held the mutex
        // since the caller did and has still to come here: its writes are handed over too.
        let state = locked.state(Acquire);
        let starving = state.has(STARVING);
        if state.has(HELD) || !starving && state.has(WOKEN) {
            // Another thread holds the mutex by now, or was woken to take it, and will wake the next one.
            return;
        }
        let first = locked.pop(if starving { HANDED } else { TRY_AGAIN });
        let sign = if starving { HELD } else { WOKEN };
        locked.release(|state| match first {
            Some(_) => state.with(sign),
            None => state.without(STARVING),
        });
        if let Some(first) = first {
            first.wake();
        }
    }

    /// Returns whether no thread holds the mutex, waits for it or is about to wait.
    #[cfg(greenthread_model)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.queue.is_at_rest(0)
    }
}

#[inline(always)]
fn is_free(state: State) -> bool {
    !state.has(HELD | STARVING)
}

/// Notes the caller as the holder of a lock, if it has `locked` it; returns whether it has.
#[inline(always)]
pub(crate) fn noted(holder: &AtomicUsize, locked: bool) -> bool {
    if locked {
        holder.store(facade::mark(), Relaxed);
    }
    locked
}
