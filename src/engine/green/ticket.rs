//! The ticket: one word that decides who resumes one waiting thread.
//!
//! A waiter *commits* to waiting only after its context is saved; wakers and a timer race it and
//! each other for the same word. Whoever moves it out of `PARKED` resumes the waiter, and nobody
//! else does.
//!
//! | from \ verb | `consume` | `commit(by)` | `notify` | `expire` | `resumed` |
//! |---|---|---|---|---|---|
//! | `EMPTY`    | no          | `PARKED` or `ASLEEP`, is parked | `NOTIFIED`         | `EXPIRED`             | (never) |
//! | `NOTIFIED` | `EMPTY`, yes | `EMPTY`, notified  | stays                           | stays                 | `EMPTY`, notified |
//! | `EXPIRED`  | `EMPTY`, no | `EMPTY`, expired    | `NOTIFIED`                      | stays                 | `EMPTY`, expired |
//! | `PARKED`   | (never)     | (never)             | `NOTIFIED`, **resume**          | `EXPIRED`, **resume** | (never) |
//! | `ASLEEP`   | (never)     | (never)             | `NOTIFIED`, **futex wake**      | `EXPIRED`             | (never) |
//!
//! `is_notified` looks, changes nothing, and is a read-modify-write all the same: of two that write
//! something, change the word, and look at what the other wrote, one sees it (`thread::end`).
//!
//! `consume`, `commit`, `is_notified` and `resumed` belong to the waiter (`commit`, for a green
//! thread, to the scheduler that has just left its stack); `notify` and `expire` to anybody, but
//! only a kernel thread itself expires its own sleep.
//!
//! # Invariants
//!
//! 1. A park is resumed exactly once: only the transition out of `PARKED` resumes, and it happens
//!    once.
//! 2. Never before the context is saved: nobody can see `PARKED` before `commit`, whose caller
//!    saved it.
//! 3. A notification is never lost: `NOTIFIED` is left only by the waiter, which is then told. Even
//!    if the timer was first: the waiter then sees `Notified`. Notifications between two looks of
//!    the waiter merge into one.
//! 4. Once `commit` said `Parked`, its caller touches nothing of the waiter: it may already run
//!    elsewhere.
//! 5. An expiry has no generation. Before the waiter waits again its timer must be cancelled, or be
//!    known to have fired; otherwise a late one ends the next wait early, as a spurious wake-up.
//! 6. `notify` is the notifier's last look at the ticket and all that lies beside it, unless it
//!    left
//!    `PARKED`: only then does the waiter wait for the notifier.
//!
//! A kernel thread's state is `ASLEEP`, which it leaves at any notification or by itself: it waits
//! in
//! `futex_wait(as_futex(), ASLEEP)` while the word is that, then says `resumed`. The notifier's
//! `futex_wake` uses the word's address only; the ticket may be gone by then, and the wake wakes
//! nobody, or somebody spuriously: every futex wait must be a loop.
//!
//! # Memory orderings
//!
//! - context → resumer: Release in `commit`, Acquire in `notify` and `expire` where they leave
//!   `PARKED`.
//! - what the notifier wrote → waiter: Release in `notify`, Acquire in `consume`, `commit` (when it
//!   fails), `is_notified` and `resumed`. Every change is a read-modify-write, so a later
//!   notification or expiry does not hide an earlier one (they continue its release sequence).
//! - what the timer did with its entry → waiter: Release in `expire`, the same Acquires.

use crate::engine::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sys::perturb;

/// No token, nobody parked.
const EMPTY: u32 = 0;
/// A token is there for the waiter to find.
const NOTIFIED: u32 = 1;
/// The waiter's context is saved; whoever leaves this state resumes it.
const PARKED: u32 = 2;
/// The timer came first.
const EXPIRED: u32 = 3;
/// The waiter is a kernel thread, which blocks on this word.
const ASLEEP: u32 = 4;

/// Who resumes one waiting thread. See the file's header.
#[derive(Debug)]
pub(crate) struct Ticket {
    word: AtomicU32,
}

/// What kind of thread parks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A green thread, whose context is saved.
    Green,
    /// A kernel thread, which is about to block.
    Kernel,
}

/// Whom a notification found, and what the notifier must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    /// No waiter, or one that goes on by itself.
    Nobody,
    /// A parked green thread: the notifier, nobody else, must resume it.
    Green,
    /// A kernel thread: the notifier must wake the futex, and look at nothing else.
    Kernel,
}

/// What became of an attempt to park.
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

/// Why a parked waiter was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was notified, possibly after the timer resumed it.
    Notified,
    /// The timer resumed it, and nobody notified it since.
    Expired,
}

impl Ticket {
    /// The value to futex-wait on.
    pub(crate) const ASLEEP: u32 = ASLEEP;

    const_fn! {
        /// Without a token.
        pub(crate) const fn new() -> Self {
            Self {
                word: AtomicU32::new(EMPTY),
            }
        }
    }

    /// The waiter takes a token that is already there. An expiry left over from an earlier wait is
    /// dropped.
    pub(crate) fn consume(&self) -> bool {
        // A stale EMPTY is harmless: `commit` will find the token.
        self.word.load(Relaxed) != EMPTY
            // Acquire: what the notifier wrote; partner: Release in `notify`.
            && self.word.swap(EMPTY, Acquire) == NOTIFIED
    }

    /// The waiter looks whether there is a token, and leaves it. If there is none, whoever leaves
    /// one later sees what the waiter did before.
    pub(crate) fn is_notified(&self) -> bool {
        // Acquire: what the notifier wrote; partner: Release in `notify`.
        // Release: what the waiter did; partner: Acquire in `notify`.
        self.word.fetch_or(0, AcqRel) == NOTIFIED
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
        // Acquire: what the notifier or timer wrote; partners: Release in `notify` and `expire`.
        // The swap may find NOTIFIED where the line above found EXPIRED: it decides.
        match self.word.swap(EMPTY, Acquire) {
            NOTIFIED => Commit::Notified,
            _ => Commit::Expired,
        }
    }

    /// Leaves a token, and says whom the caller must now resume.
    #[inline]
    pub(crate) fn notify(&self) -> Found {
        // Acquire: the saved context; partner: Release in `commit`. Or what the waiter did before
        // it looked; partner: Release in `is_notified`. Release: what the caller wrote for the
        // waiter; partners: Acquire in `consume`, `commit`,
        // `is_notified`, `resumed`.
        match self.word.swap(NOTIFIED, AcqRel) {
            PARKED => Found::Green,
            ASLEEP => Found::Kernel,
            _ => Found::Nobody,
        }
    }

    /// The waiter's time is up. If the answer is true it was a parked green thread, and the caller,
    /// nobody else, must resume it.
    #[must_use = "true means that the caller must resume the waiter"]
    pub(crate) fn expire(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen != NOTIFIED && seen != EXPIRED {
            perturb::point("ticket: expiring");
            // Acquire: the saved context; partner: Release in `commit`.
            // Release: what the timer did; partners: Acquire in `commit`, `consume`, `resumed`.
            match self.word.compare_exchange(seen, EXPIRED, AcqRel, Relaxed) {
                Ok(_) => return seen == PARKED,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// The waiter, resumed, takes what resumed it.
    pub(crate) fn resumed(&self) -> Outcome {
        // Acquire: what the notifier or timer wrote; partners: Release in `notify` and `expire`.
        match self.word.swap(EMPTY, Acquire) {
            NOTIFIED => Outcome::Notified,
            _ => Outcome::Expired,
        }
    }

    /// The word a kernel thread waits on, while it is [`Ticket::ASLEEP`].
    pub(crate) fn as_futex(&self) -> &AtomicU32 {
        &self.word
    }
}
