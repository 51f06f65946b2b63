//! The ticket: one word that decides which thread resumes one waiting thread.
//!
//! A waiter *commits* to waiting only after its context is saved; wakers and a timer race it and
//! each other for the same word. The thread that moves the word out of `PARKED` resumes the waiter,
//! and no other does.
//!
//! | from \ verb | `consume` | `commit(by)` | `notify` | `expire` | `resumed` |
//! |---|---|---|---|---|---|
//! | `EMPTY`    | no          | `PARKED` or `ASLEEP`, is parked | `NOTIFIED`         | `EXPIRED`             | (never) |
//! | `NOTIFIED` | `EMPTY`, yes | `EMPTY`, notified  | stays                           | stays                 | `EMPTY`, notified |
//! | `EXPIRED`  | `EMPTY`, no | `EMPTY`, expired    | `NOTIFIED`                      | stays                 | `EMPTY`, expired |
//! | `PARKED`   | (never)     | (never)             | `NOTIFIED`, **resume**          | `EXPIRED`, **resume** | (never) |
//! | `ASLEEP`   | (never)     | (never)             | `NOTIFIED`, **futex wake**      | `EXPIRED`             | (never) |
//!
//! `is_notified` looks and changes nothing, but is a read-modify-write all the same: if two threads
//! each write something, change the word, and look at the other's write, one of them sees it
//! (`runtime::handle::end`).
//!
//! `consume`, `commit`, `is_notified` and `resumed` belong to the waiter (`commit`, for a green
//! thread, to the scheduler that has just left its stack). Any thread may call `notify` and
//! `expire`, but only a kernel thread itself expires its own sleep.
//!
//! # Invariants
//!
//! 1. A park is resumed exactly once: only the transition out of `PARKED` resumes, and it happens
//!    once.
//! 2. A waiter is never resumed before its context is saved: no thread can see `PARKED` before
//!    `commit`, whose caller saved the context.
//! 3. A notification is never lost: only the waiter leaves `NOTIFIED`, and it is then told. That
//!    holds even if the timer was first: the waiter then sees `Notified`. Notifications between two
//!    looks of the waiter merge into one.
//! 4. Once `commit` said `Parked`, its caller touches nothing of the waiter: the waiter may already
//!    run elsewhere.
//! 5. An expiry has no generation. Before the waiter waits again its timer must be cancelled, or be
//!    known to have fired; otherwise a late expiry ends the next wait early, as a spurious wake-up.
//! 6. `notify` is the notifier's last look at the ticket and the data beside it, unless it left
//!    `PARKED`: only then does the waiter wait for the notifier.
//!
//! A kernel thread's state is `ASLEEP`, which it leaves at any notification or by itself: it waits
//! in `futex_wait(as_futex(), ASLEEP)` while the word has that value, then calls `resumed`. The
//! notifier's `futex_wake` uses the word's address only. The ticket may be gone by then, and the
//! call wakes no thread, or another one spuriously: every futex wait must be a loop.
//!
//! # Memory orderings
//!
//! - context → resumer: Release in `commit`, Acquire in `notify` and `expire` where they leave
//!   `PARKED`.
//! - the notifier's writes → waiter: Release in `notify`, Acquire in `consume`, `commit` (when it
//!   fails), `is_notified` and `resumed`. Every change is a read-modify-write, so a later
//!   notification or expiry does not hide an earlier one (they continue its release sequence).
//! - the timer's accesses to its entry → waiter: Release in `expire`, the same Acquires.

use crate::engine::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// There is no token, and no thread is parked.
const EMPTY: u32 = 0;
/// A token is there for the waiter to find.
const NOTIFIED: u32 = 1;
/// The waiter's context is saved; the thread that leaves this state resumes the waiter.
const PARKED: u32 = 2;
/// The timer came first.
const EXPIRED: u32 = 3;
/// The waiter is a kernel thread, which blocks on this word.
const ASLEEP: u32 = 4;

/// The word that decides which thread resumes one waiting thread. See the file's header.
#[derive(Debug)]
pub(crate) struct Ticket {
    word: AtomicU32,
}

/// The kind of a thread that parks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A green thread, whose context is saved.
    Green,
    /// A kernel thread, which is about to block.
    Kernel,
}

/// The waiter that a notification found, and so the notifier's duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    /// There is no waiter, or it goes on by itself.
    Nobody,
    /// A green thread was parked: the notifier, and no other thread, must resume it.
    Green,
    /// A kernel thread sleeps: the notifier must wake the futex, and look at nothing else.
    Kernel,
}

/// The result of an attempt to park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Commit {
    /// The waiter is parked and may already be running again: do not touch it.
    Parked,
    /// A notification was there first: the waiter goes on.
    Notified,
    /// The timer was there first: the waiter goes on.
    Expired,
}

/// The reason why a parked waiter was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was notified, possibly after the timer resumed it.
    Notified,
    /// The timer resumed it, and nobody notified it since.
    Expired,
}

impl Ticket {
    /// The word's value while a kernel thread waits on it.
    pub(crate) const ASLEEP: u32 = ASLEEP;

    const_fn! {
        /// Makes a ticket without a token.
        pub(crate) const fn new() -> Self {
            Self {
                word: AtomicU32::new(EMPTY),
            }
        }
    }

    /// Takes a token that is already there, for the waiter. An expiry left over from an earlier
    /// wait is dropped.
    pub(crate) fn consume(&self) -> bool {
        // A stale EMPTY is harmless: `commit` will find the token.
        self.word.load(Relaxed) != EMPTY
            // Acquire: the notifier's writes; partner: Release in `notify`.
            && self.word.swap(EMPTY, Acquire) == NOTIFIED
    }

    /// Tells the waiter whether there is a token, and leaves it. If there is none, a thread that
    /// leaves one later sees the waiter's earlier writes.
    pub(crate) fn is_notified(&self) -> bool {
        // Acquire: the notifier's writes; partner: Release in `notify`.
        // Release: the waiter's writes; partner: Acquire in `notify`.
        self.word.fetch_or(0, AcqRel) == NOTIFIED
    }

    /// Whether there is a token that nobody takes: the thread waits once, and one other ends the wait.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: the notifier's writes; partner: Release in `notify`.
        self.word.load(Acquire) == NOTIFIED
    }

    /// Parks the waiter, whose context is saved, unless a notification or the timer came first.
    #[inline]
    pub(crate) fn commit(&self, by: By) -> Commit {
        let parked = match by {
            By::Green => PARKED,
            By::Kernel => ASLEEP,
        };
        // Release: the saved context; partners: Acquire in `notify` and `expire`.
        if self
            .word
            .compare_exchange(EMPTY, parked, Release, Relaxed)
            .is_ok()
        {
            return Commit::Parked;
        }
        perturb::point("ticket: refused");
        // Acquire: the writes of the notifier or timer; partners: Release in `notify` and `expire`.
        // The swap may find NOTIFIED where the line above found EXPIRED: the swap decides.
        match self.word.swap(EMPTY, Acquire) {
            NOTIFIED => Commit::Notified,
            _ => Commit::Expired,
        }
    }

    /// Leaves a token, and says which waiter the caller must now resume.
    #[inline]
    pub(crate) fn notify(&self) -> Found {
        // Acquire: the saved context; partner: Release in `commit`. Or the waiter's writes before
        // it looked; partner: Release in `is_notified`. Release: what the caller wrote for the
        // waiter; partners: Acquire in `consume`, `commit`, `is_notified`, `resumed`.
        match self.word.swap(NOTIFIED, AcqRel) {
            PARKED => Found::Green,
            ASLEEP => Found::Kernel,
            _ => Found::Nobody,
        }
    }

    /// Ends the wait because its time is up. If the answer is true the waiter is a parked green
    /// thread, and the caller, no other thread, must resume it.
    #[must_use = "true means that the caller must resume the waiter"]
    pub(crate) fn expire(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen != NOTIFIED && seen != EXPIRED {
            perturb::point("ticket: expiring");
            // Acquire: the saved context; partner: Release in `commit`.
            // Release: the timer's writes; partners: Acquire in `commit`, `consume`, `resumed`.
            match self.word.compare_exchange(seen, EXPIRED, AcqRel, Relaxed) {
                Ok(_) => return seen == PARKED,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Tells the waiter, which is resumed, the reason, and takes the token.
    pub(crate) fn resumed(&self) -> Outcome {
        // Acquire: the writes of the notifier or timer; partners: Release in `notify` and `expire`.
        match self.word.swap(EMPTY, Acquire) {
            NOTIFIED => Outcome::Notified,
            _ => Outcome::Expired,
        }
    }

    /// For debuggers.
    pub(crate) const WORD_OF_PARKED: u32 = PARKED;

    /// Whether a ticket's word says that a green thread is parked; for reports, which read it from outside.
    pub(crate) fn says_parked(word: u32) -> bool {
        word == PARKED
    }

    /// The same of a kernel thread that sleeps.
    pub(crate) fn says_asleep(word: u32) -> bool {
        word == Ticket::ASLEEP
    }

    /// The word on which a kernel thread waits while it is [`Ticket::ASLEEP`].
    pub(crate) fn as_futex(&self) -> &AtomicU32 {
        &self.word
    }
}
