//! How a thread waits, and how another one wakes it: [`Waiter::wait`] and [`Waiter::wake`]; and the stack
//! in which records lie.
//!
//! Every primitive that blocks is built on these two. They work alike for green threads, which leave
//! their stack, and for kernel threads, which wait on the park state as on a futex. A waiter is a
//! [`ParkState`] and the green thread behind it. While a thread waits, its record points at its
//! [`Parking`], on the thread's own stack: the waiter, the deadline, and for reports what it waits for.
//!
//! The park state is one word that decides which thread resumes the one that waits. A waiter *commits* to
//! waiting only after its context is saved; wakers and a timer race it and each other for the same
//! word. The thread that moves the word out of `PARKED` resumes the waiter, and no other does.
//!
//! | from \ verb | `consume` | `commit(to)` | `notify` | `expire` | `resumed` |
//! |---|---|---|---|---|---|
//! | `EMPTY`    | no           | `to`: `PARKED` or `ASLEEP` | `NOTIFIED`         | `EXPIRED`             | (never) |
//! | `NOTIFIED` | `EMPTY`, yes | stays, refused      | stays                           | stays                 | `EMPTY`, notified |
//! | `EXPIRED`  | `EMPTY`, no  | stays, refused      | `NOTIFIED`                      | stays                 | `EMPTY`, expired |
//! | `PARKED`   | (never)      | (never)             | `NOTIFIED`, **resume**          | `EXPIRED`, **resume** | (never) |
//! | `ASLEEP`   | (never)      | (never)             | `NOTIFIED`, **futex wake**      | `EXPIRED`, **futex wake** | (never) |
//!
//! `is_notified` looks and changes nothing, but is a read-modify-write all the same: if two threads
//! each write something, change the word, and look at the other's write, one of them sees it
//! (`runtime::handle`).
//!
//! `consume`, `commit`, `is_notified` and `resumed` belong to the waiter (`commit`, for a green
//! thread, to the scheduler that has just left its stack). A waiter whose commit was refused goes on as one that was
//! resumed. Any thread may call `notify`; `expire` is for timers, cancellers that have pinned the waiter's thread
//! (below), and a kernel thread whose time is up. `begin_again`, the waiter's, turns `EXPIRED` into `EMPTY`.
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
//! 4. Once `commit` has parked the waiter, its caller touches nothing of the waiter, which may already
//!    run elsewhere.
//! 5. An expiry has no generation. Before the waiter waits again its timer must be cancelled, or be
//!    known to have fired; otherwise a late expiry ends the next wait early, as a spurious wake-up.
//! 6. `notify` is the notifier's last look at the park state and the data beside it, unless it left
//!    `PARKED`: only then does the waiter wait for the notifier.
//! 7. One thread waits on a waiter at a time; any number of threads wake it.
//! 8. A waiter may be gone as soon as it was notified: a waker then looks at nothing of it, unless
//!    it found a parked green thread, which cannot go on before the waker makes it ready.
//! 9. A record is in one stack at most: its link belongs to the owner of the stack. (A thread that is in no heap lends its
//!    link there.)
//!
//! A kernel thread's state is `ASLEEP`, which it leaves at any notification or by itself: it waits
//! in `futex_wait(as_futex(), ASLEEP)` while the word has that value, then calls `resumed`. The
//! notifier's `futex_wake` uses the word's address only. The park state may be gone by then, and the
//! call wakes no thread, or another one spuriously: every futex wait must be a loop.
//!
//! # Cancellers
//!
//! A waker knows the waiter: the waiter has queued itself. A canceller knows the thread only, and finds out whether the
//! thread waits. The park lies on the thread's stack and is over at any moment, so a canceller first *pins* the thread.
//! A thread leaves no wait while it is pinned.
//!
//! ```text
//!   waiter                                   canceller
//!                                            the frame has ended (its flag, or the clock)
//!   parking = its park                       word += PIN, |= PENDING
//!   cheap fence                              barrier, one for up to BATCH threads
//!   read word: PENDING? look at the frames   read parking: a park that can be interrupted? expire it
//!   wait                                     word -= PIN
//!   parking = null                           make the threads ready
//!   cheap fence
//!   read word: pinned? spin
//! ```
//!
//! The barrier makes each cheap fence a full one. So of the first two lines on both sides one thread sees the other's: the
//! waiter finds `PENDING`, or the canceller finds the park. And of the waiter's last lines: the canceller finds null, or
//! the waiter finds the pin. A kernel thread makes real fences.
//!
//! | word | |
//! |---|---|
//! | bit 0: `PENDING` | a frame may have ended: the thread looks before it waits |
//! | the rest: `PIN` each | so many cancellers look at the thread's park |
//!
//! Invariants of these words:
//!
//! 1. What ends a frame is written before `PENDING`: a thread that has cleared `PENDING` and finds no frame ended is told
//!    again of each that ends later.
//! 2. Only the thread clears `PENDING`, and looks again after that.
//! 3. A canceller reads a park only while the thread is pinned, with preemption off, and touches nothing of the thread after
//!    it has unpinned it, unless it has taken the thread out of `PARKED`.
//! 4. A record is used again only after its thread has seen it without pins ([`Interrupts::settle`]).
//!
//! # Memory orderings
//!
//! - context → resumer: Release in `commit`, Acquire in `notify` and `expire` where they leave
//!   `PARKED`.
//! - the notifier's writes → waiter: Release in `notify`, Acquire in `consume`, `is_over`,
//!   `is_notified` and `resumed`. Every change is a read-modify-write, so a later
//!   notification or expiry does not hide an earlier one (they continue its release sequence).
//! - the timer's accesses to its entry → waiter: Release in `expire`, the same Acquires.
//! - what ends a frame → the thread: Release where `PENDING` is set, Acquire in [`Interrupts::is_pending`] and
//!   [`Interrupts::clear`].
//! - the park → a canceller: Release where `parking` is stored, Acquire where it is read.
//! - a canceller's accesses → the thread that goes on: Release in `unpin`, Acquire in `settle`.

use core::panic::{RefUnwindSafe, UnwindSafe};

use crate::engine::atomic::{AtomicPtr, AtomicU32, Cell, Ordering::*, const_fn};
use crate::engine::inspect::{kernel::KernelThread, notes::WaitReason};
use crate::engine::probe::{self, Kernel};
use crate::engine::sched::current::{self, Entered, enter};
use crate::engine::sched::frames::{self, Frame};
use crate::engine::sched::{Green, events, ready, switch::Action};
use crate::engine::sys::shared::{AtomicStatic, Patience, entry_fence};
use crate::engine::sys::{clock, futex, perturb, sanitizer};

// ==== the waiter ====

/// A place where one thread waits to be woken.
#[derive(Default)]
pub(crate) struct Waiter {
    pub(crate) state: ParkState,
    /// The parked green thread. The park state publishes it.
    green: AtomicStatic<Green>,
}

/// A park under way. A thread's record points at it from before the thread leaves its stack until the
/// thread goes on; it lies on that stack, which is never unmapped, so a report can read it whenever.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Parking {
    /// Null: another thread of a pair has the turn, and nobody else knows of this one (`wait::side`).
    pub(crate) waiter: *const Waiter,
    /// `clock::NEVER`: there is none.
    pub(crate) deadline: u64,
    pub(crate) reason: WaitReason,
}

// SAFETY: it is read only; the waiter belongs to the thread that owns the parked one.
unsafe impl Sync for Parking {}

impl Parking {
    pub(crate) const WORDS: usize = size_of::<Parking>() / size_of::<usize>();

    /// # Safety
    /// The words were copied out of a park while it was one.
    pub(crate) unsafe fn from_words(words: [usize; Parking::WORDS]) -> Parking {
        // SAFETY: a park consists of words without gaps, and these are the words of one.
        unsafe { core::mem::transmute(words) }
    }

    /// The park of threads that wait without a waiter.
    pub(crate) const fn without_waiter(reason: WaitReason) -> Parking {
        Parking {
            waiter: core::ptr::null(),
            deadline: clock::NEVER,
            reason,
        }
    }
}

impl Waiter {
    /// Where the park state lies, for reports.
    pub(crate) const STATE: usize = core::mem::offset_of!(Waiter, state);

    pub(crate) const fn new() -> Waiter {
        Waiter {
            state: ParkState::new(),
            green: AtomicStatic::none(),
        }
    }

    /// Blocks the calling thread until [`Waiter::wake`], or until `deadline` (monotonic
    /// nanoseconds). Reports say that it waits for what `reason` names.
    pub(crate) fn wait(&self, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        if self.state.consume() {
            return Outcome::Notified;
        }
        perturb::point("wait: no token");
        match enter() {
            Some(entered) => self.wait_inside(entered, reason, deadline),
            None => self.wait_on_kernel_thread(reason, deadline),
        }
    }

    /// [`Waiter::wait`] for a token that stays once it is there: it is not waited for again.
    #[inline(always)]
    pub(crate) fn wait_for_good(&self, reason: WaitReason, deadline: Option<u64>) -> Outcome {
        if self.state.is_over() {
            return Outcome::Notified;
        }
        perturb::point("wait: no token");
        let Some(entered) = enter() else {
            return self.wait_on_kernel_thread(reason, deadline);
        };
        self.leave_stack(entered, reason, deadline);
        match self.state.is_over() {
            true => Outcome::Notified,
            false => self.state.resumed(),
        }
    }

    /// [`Waiter::wait`] by a green thread that has entered the runtime to name its waker.
    // Inlined always: otherwise the compiler inlines it or not depending on the other functions
    // that there are, and without it a wake-up costs a seventh more.
    #[inline(always)]
    pub(crate) fn wait_inside(
        &self,
        entered: Entered,
        reason: WaitReason,
        deadline: Option<u64>,
    ) -> Outcome {
        self.leave_stack(entered, reason, deadline);
        self.state.resumed()
    }

    /// Parks the calling green thread until it is resumed.
    #[inline(always)]
    fn leave_stack(&self, entered: Entered, reason: WaitReason, deadline: Option<u64>) {
        let green = entered.green;
        // Relaxed: the commit, which is a Release, publishes it.
        self.green.store(Some(green), Relaxed);
        let deadline = deadline.unwrap_or(clock::NEVER);
        let mut parking = Parking {
            waiter: self,
            deadline,
            reason,
        };
        green.expect(&parking);
        // The kind is looked at last: it lies in memory that nothing else here needs.
        if green.interrupts().asks() && parking.reason.kind.when_ended.ends() {
            return self.leave_stack_in_frames(Some(entered), &mut parking);
        }
        if deadline != clock::NEVER {
            // There is one timer, and it may be kept for frames, which do not end this wait.
            events::take_timer_back(green);
        }
        perturb::point("wait: leaving");
        entered.suspend(Action::Park);
        sanitizer::observe(green);
        if deadline != clock::NEVER {
            events::disarm_timer(green);
        }
        // The record leads to the park until the timer is disarmed: a timer that fires late reads the park.
        if green.park_is_over() {
            self.leave_stack_in_frames(None, &mut parking);
        }
    }

    /// Whether the wait is over, by a notification or its own limit. Otherwise it begins again, after an expiry.
    fn is_over(&self, own: u64) -> bool {
        self.state.is_over()
            || !self.state.begin_again()
            || own != clock::NEVER && own <= clock::now()
    }

    /// [`Waiter::leave_stack`] by a thread that is to look at its frames first: the wait ends with them, too. `None`: it was told
    /// of them while it waited, and goes on.
    #[cold]
    #[inline(never)]
    fn leave_stack_in_frames(&self, entered: Option<Entered>, parking: &mut Parking) {
        let own = parking.deadline;
        if let Some(entered) = entered {
            entered.green.park_is_over();
            entered.leave();
        } else if !parking.reason.kind.when_ended.ends() || self.is_over(own) {
            return;
        }
        loop {
            let look = frames::look(parking.reason.kind);
            let Some(mut entered) = enter() else { return };
            let green = entered.green;
            if look.refuses {
                entered.count_refused_wait();
            }
            if look.limit == 0 {
                return;
            }
            parking.deadline = own.min(look.limit);
            // There is one timer. Kept for the frames' limit, it stays armed after the wait, for the next one.
            if !look.is_told || look.limit != green.kept() || own < look.limit {
                events::take_timer_back(green);
                if look.limit < own && look.is_told {
                    events::keep_timer(&mut entered, look.limit);
                }
            }
            green.expect(parking);
            // What comes after the look is seen here, or ends the park.
            let is_called = look.is_told && green.interrupts().is_pending()
                || frames::is_signalled(parking.reason.kind);
            if !is_called {
                perturb::point("wait: leaving in frames");
                entered.suspend(Action::Park);
                sanitizer::observe(green);
                if green.kept() == clock::NEVER {
                    events::disarm_timer(green);
                }
            }
            let is_over = self.is_over(own) || look.refuses;
            green.park_is_over();
            if is_over {
                return;
            }
        }
    }

    #[cold]
    fn wait_on_kernel_thread(&self, reason: WaitReason, own: Option<u64>) -> Outcome {
        probe::kernel(None, Kernel::Waits);
        let own = own.unwrap_or(clock::NEVER);
        let outcome = loop {
            let look = frames::look(reason.kind);
            if look.limit == 0 {
                break self.state.resumed();
            }
            match self.block_in_frames(reason, Some(own.min(look.limit)), look.is_told) {
                Some(Outcome::Expired) if !look.refuses && own > clock::now() => {}
                Some(outcome) => break outcome,
                None => {}
            }
        };
        probe::kernel(None, Kernel::GoesOn);
        outcome
    }

    /// [`Waiter::wait`], but the kernel thread is blocked. `None`: a signal's handler has run on it.
    pub(crate) fn block(&self, reason: WaitReason, deadline: Option<u64>) -> Option<Outcome> {
        self.block_in_frames(reason, deadline, false)
    }

    /// [`Waiter::block`]; `None` says also that a frame may have ended, if the thread is to see that.
    fn block_in_frames(
        &self,
        reason: WaitReason,
        deadline: Option<u64>,
        sees_frames: bool,
    ) -> Option<Outcome> {
        if !self.state.commit(ParkState::ASLEEP) {
            return Some(self.state.resumed());
        }
        let parking = Parking {
            waiter: self,
            deadline: deadline.unwrap_or(clock::NEVER),
            reason,
        };
        let interrupted = match current::green() {
            None => KernelThread::while_waiting(&parking, |may_have_ended| {
                if may_have_ended && sees_frames {
                    let _ = self.state.expire();
                }
                self.sleep(deadline)
            }),
            Some(green) => {
                green.expect_on_stack(&parking);
                let interrupted = self.sleep(deadline);
                green.expect_on_stack(core::ptr::null());
                interrupted
            }
        };
        match self.state.resumed() {
            Outcome::Expired if interrupted => None,
            outcome => Some(outcome),
        }
    }

    /// Ends the wait because a frame of its thread has ended. The caller makes a green thread that waits ready.
    ///
    /// # Safety
    /// The thread has the waiter in its park, and is pinned.
    pub(crate) unsafe fn expire_at(waiter: *const Waiter) -> Option<&'static Green> {
        // SAFETY: the waiter is alive as long as the thread is pinned.
        unsafe { Waiter::end_at(waiter, ParkState::expire) }
    }

    /// Blocks the kernel thread on the park state. Returns whether a signal's handler has run on it.
    fn sleep(&self, deadline: Option<u64>) -> bool {
        let deadline = deadline.filter(|&deadline| deadline != clock::NEVER);
        let word = self.state.as_futex();
        let mut interrupted = false;
        while word.load(Relaxed) == ParkState::ASLEEP {
            interrupted = futex::wait(word, ParkState::ASLEEP, deadline);
            if interrupted || deadline.is_some_and(|deadline| clock::now() >= deadline) {
                // The caller is the waiter: no thread is to be resumed.
                let _ = self.state.expire();
            }
        }
        interrupted
    }

    /// Ends the wait, or the next wait if nobody waits now.
    #[inline]
    pub(crate) fn wake(&self) {
        // SAFETY: the reference keeps the waiter alive.
        unsafe { Waiter::wake_at(self) }
    }

    /// [`Waiter::wake`] for a waiter that may be gone as soon as its thread goes on.
    ///
    /// # Safety
    /// It is alive at least until it is notified.
    #[inline]
    pub(crate) unsafe fn wake_at(waiter: *const Waiter) {
        // SAFETY: it is alive until `notify_at` notifies it, and is not touched afterwards.
        if let Some(green) = unsafe { Waiter::notify_at(waiter) } {
            ready(green);
        }
    }

    /// Like [`Waiter::wake_at`], but the caller has to make a green thread that waits ready.
    ///
    /// # Safety
    /// It is alive at least until it is notified.
    #[inline]
    #[must_use = "the thread waits for ever if it is not made ready"]
    pub(crate) unsafe fn notify_at(waiter: *const Waiter) -> Option<&'static Green> {
        // SAFETY: the caller's promise.
        let found = unsafe { Waiter::end_at(waiter, ParkState::notify) };
        perturb::point("wake: notified");
        found
    }

    /// Ends the wait by `end`. The caller makes a green thread that waits ready.
    ///
    /// # Safety
    /// The waiter is alive at least until the end of `end`.
    #[inline(always)]
    unsafe fn end_at(
        waiter: *const Waiter,
        end: impl FnOnce(&ParkState) -> Found,
    ) -> Option<&'static Green> {
        // SAFETY: the waiter is alive until `end` is over, the last access of this block to it.
        let (found, futex) = unsafe {
            let state = &(*waiter).state;
            let futex: *const _ = state.as_futex();
            (end(state), futex)
        };
        match found {
            Found::Nobody => None,
            // SAFETY: the thread was parked, so it waits for the caller, and the waiter is alive (invariant 8).
            // Relaxed: `notify` acquired what `commit` released.
            Found::Green => match unsafe { (*waiter).green.load(Relaxed) } {
                None => crate::engine::sys::die("a parked green thread has left no name"),
                green => green,
            },
            Found::Kernel => {
                // The waiter may be gone: the kernel uses the address of the word only.
                futex::wake(futex, 1);
                None
            }
        }
    }
}

// ==== the park state ====

/// There is no token, and no thread is parked.
const EMPTY: u32 = 0;
/// A token is there for the waiter to find.
const NOTIFIED: u32 = 1;
/// The timer came first.
const EXPIRED: u32 = 3;

/// The word that decides which thread resumes one waiting thread. See the file's header.
#[derive(Debug, Default)]
pub(crate) struct ParkState(AtomicU32);

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

/// The reason why a parked waiter was resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was notified, possibly after the timer resumed it.
    Notified,
    /// The timer resumed it, and nobody notified it since.
    Expired,
}

impl ParkState {
    /// The waiter is a green thread, whose context is saved; the thread that leaves this state resumes the waiter.
    pub(crate) const PARKED: u32 = 2;
    /// The waiter is a kernel thread, which blocks on this word.
    pub(crate) const ASLEEP: u32 = 4;

    const_fn! {
        /// Makes a park state without a token.
        pub(crate) const fn new() -> Self {
            Self(AtomicU32::new(EMPTY))
        }
    }

    /// Takes a token that is already there, for the waiter. An expiry left over from an earlier
    /// wait is dropped.
    pub(crate) fn consume(&self) -> bool {
        // A stale EMPTY is harmless: `commit` will find the token.
        self.0.load(Relaxed) != EMPTY && self.resumed() == Outcome::Notified
    }

    /// Tells the waiter whether there is a token, and leaves it. If there is none, a thread that
    /// leaves one later sees the waiter's earlier writes.
    pub(crate) fn is_notified(&self) -> bool {
        // Acquire: the notifier's writes; partner: Release in `notify`.
        // Release: the waiter's writes; partner: Acquire in `notify`.
        self.0.fetch_or(0, AcqRel) == NOTIFIED
    }

    /// Whether there is a token that nobody takes: the thread waits once, and one other ends the wait.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: the notifier's writes; partner: Release in `notify`.
        self.0.load(Acquire) == NOTIFIED
    }

    /// Parks the waiter, as `PARKED` or `ASLEEP`. False: a notification or the timer came first. If the answer is true,
    /// the waiter may already be running again: the caller must not touch it.
    #[inline]
    #[must_use]
    pub(crate) fn commit(&self, to: u32) -> bool {
        // Release: the saved context; partners: Acquire in `notify` and `expire`.
        let result = self.0.compare_exchange(EMPTY, to, Release, Relaxed);
        result.is_ok()
    }

    /// Leaves a token, and says which waiter the caller must now resume.
    #[inline]
    pub(crate) fn notify(&self) -> Found {
        // Acquire: the saved context; partner: Release in `commit`. Or the waiter's writes before
        // it looked; partner: Release in `is_notified`. Release: what the caller wrote for the
        // waiter; partners: Acquire in `is_over`, `is_notified`, `resumed`.
        match self.0.swap(NOTIFIED, AcqRel) {
            ParkState::PARKED => Found::Green,
            ParkState::ASLEEP => Found::Kernel,
            _ => Found::Nobody,
        }
    }

    /// Ends the wait because its time is up, or a frame has ended. Says which waiter the caller must now resume.
    pub(crate) fn expire(&self) -> Found {
        let mut seen = self.0.load(Relaxed);
        while seen != NOTIFIED && seen != EXPIRED {
            perturb::point("park state: expiring");
            // Acquire: the saved context; partner: Release in `commit`.
            // Release: the timer's writes; partner: Acquire in `resumed`.
            match self.0.compare_exchange(seen, EXPIRED, AcqRel, Relaxed) {
                Ok(ParkState::PARKED) => return Found::Green,
                Ok(ParkState::ASLEEP) => return Found::Kernel,
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        Found::Nobody
    }

    /// The wait goes on after an expiry that did not end it. False: there is a token.
    pub(crate) fn begin_again(&self) -> bool {
        // Acquire: as in `resumed`.
        let result = self.0.compare_exchange(EXPIRED, EMPTY, Acquire, Relaxed);
        matches!(result, Ok(_) | Err(EMPTY))
    }

    /// Tells the waiter, which goes on, the reason, and takes the token.
    pub(crate) fn resumed(&self) -> Outcome {
        // Acquire: the writes of the notifier or timer; partners: Release in `notify` and `expire`.
        match self.0.swap(EMPTY, Acquire) {
            NOTIFIED => Outcome::Notified,
            _ => Outcome::Expired,
        }
    }

    /// The word on which a kernel thread waits while it is [`ParkState::ASLEEP`].
    pub(crate) fn as_futex(&self) -> &AtomicU32 {
        &self.0
    }
}

// ==== the words ====

/// The words by which others end a thread's waits.
#[derive(Default)]
pub(crate) struct Interrupts {
    word: AtomicU32,
    /// How many waits in a row were refused. Only the thread uses this.
    pub(super) refusals: AtomicU32,
    /// The park under way; null: there is none.
    pub(crate) parking: AtomicPtr<Parking>,
    /// The innermost frame, and a bit: [`LIMITED`]. The thread writes it, and reports read it.
    pub(super) top: AtomicPtr<Frame>,
}

const PENDING: u32 = 1;
const PIN: u32 = 2;

impl Interrupts {
    /// The thread is about to begin a park; null: its park is over.
    #[inline(always)]
    pub(crate) fn note_park(&self, parking: *const Parking) {
        // Release: the park, for a canceller; partner: Acquire in `park`.
        self.parking.store(parking.cast_mut(), Release);
        // The fence pairs with a canceller's barrier.
        entry_fence();
    }

    /// The park under way. The thread is pinned, and there was a barrier since.
    pub(crate) fn park(&self) -> *const Parking {
        // Acquire: partner: Release in `note_park` and in `KernelThread::while_waiting`.
        self.parking.load(Acquire)
    }

    /// Whether a frame may have ended.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        // Acquire: partner: Release in `pin` and `set`.
        self.word.load(Acquire) & PENDING != 0
    }

    /// The thread has found that a frame has ended, or comes back to frames that it has not seen for a while.
    pub(crate) fn set(&self) {
        // Release: as in `pin`. The thread tells itself.
        self.word.fetch_or(PENDING, Release);
    }

    /// The thread is about to look at its frames once more.
    pub(crate) fn clear(&self) {
        // Acquire: partner: Release in `pin`.
        self.word.fetch_and(!PENDING, Acquire);
    }

    /// The thread, whose park is over, or which leaves a frame, waits until no canceller looks at it. True: it is to look at
    /// its frames.
    #[inline(always)]
    pub(crate) fn settle(&self) -> bool {
        // Acquire: what the canceller has done; partner: Release in `unpin`.
        self.word.load(Acquire) != 0 && self.wait_for_cancellers()
    }

    #[cold]
    #[inline(never)]
    fn wait_for_cancellers(&self) -> bool {
        let mut patience = Patience::new();
        loop {
            // Acquire: as in `settle`.
            match self.word.load(Acquire) {
                word if word < PIN => return word & PENDING != 0,
                _ => patience.pause(),
            }
        }
    }

    /// Tells the thread to look at its frames, and keeps it from leaving a wait. The caller makes a barrier before it looks
    /// for the park.
    pub(crate) fn pin(&self) {
        perturb::point("interrupt: pinning");
        // Release: what has ended the frame; partner: Acquire in `is_pending` and `clear`.
        self.word.fetch_add(PIN, Relaxed);
        self.word.fetch_or(PENDING, Release);
    }

    pub(crate) fn unpin(&self) {
        perturb::point("interrupt: unpinning");
        // Release: partner: Acquire in `settle`.
        self.word.fetch_sub(PIN, Release);
    }
}

// ==== frames ====

/// The frames have a limit, or one of them is a shield.
const LIMITED: usize = 1;
impl Interrupts {
    /// Whether the thread is to look at its frames before it waits.
    #[inline(always)]
    pub(crate) fn asks(&self) -> bool {
        // Relaxed: a thread that is told looks again, with `is_pending`.
        self.top.load(Relaxed).addr() & LIMITED | self.word.load(Relaxed) as usize != 0
    }

    /// The innermost frame; null: the thread is in none.
    pub(crate) fn innermost(&self) -> *const Frame {
        // Acquire: the frame, for cancellers, which have pinned the thread; partner: Release in `enter`.
        self.top.load(Acquire).map_addr(|at| at & !LIMITED)
    }

    /// The thread enters a frame. If the frame is limited, or one around it, it is looked at before each wait.
    pub(crate) fn enter(&self, frame: *const Frame, is_limited: bool) {
        let flag = self.top.load(Relaxed).addr() & LIMITED | usize::from(is_limited);
        let frame = frame.cast_mut().map_addr(|at| at | flag);
        // Release: the frame, for a canceller; partner: Acquire in `innermost`.
        self.top.store(frame, Release);
    }

    pub(crate) fn forget_refusals(&self) {
        self.refusals.store(0, Relaxed);
    }

    /// The thread ends, and another one has the record next.
    pub(crate) fn forget_frames(&self) {
        self.forget_refusals();
        self.top.store(core::ptr::null_mut(), Relaxed);
        // Under a seed a thread begins in the same way, whether its record is new or not.
        #[cfg(sim)]
        self.clear();
    }
}

// ==== a place in a list ====

/// A thread's place in a list.
#[derive(Default)]
pub(crate) struct Node {
    pub(super) next: Cell<*const Node>,
    pub(super) previous: Cell<*const Node>,
    /// The thread's words; null: it has not begun, or this is a mark.
    pub(crate) thread: AtomicPtr<Interrupts>,
}

// SAFETY: the links belong to the holder of the list's lock.
unsafe impl Sync for Node {}
// SAFETY: as above.
unsafe impl Send for Node {}

// No panic interrupts a change of the links.
impl UnwindSafe for Node {}
impl RefUnwindSafe for Node {}
