//! Limits around blocking code: frames, which lie on the stack.
//!
//! A *frame* is the time of one call of a closure within which waits end early: when the frame's limit has passed, or when
//! its token is cancelled. Then the frame has *ended*, and stays so. Frames nest, and a word of the thread's record
//! ([`Interrupts::top`]) leads to the innermost one.
//!
//! ```text
//!   top ─► frame ─► frame ─► shield ┄► frame ─► null
//!          limit    token    limit
//! ```
//!
//! A *shield* is a frame that hides those around it: a thread looks at its frames up to the first shield, whose own limit
//! counts. A wait looks only if the thread is told to (`PENDING`), or if one of the frames has a limit. Of several frames that
//! have ended the outermost one is named, and unwinding goes on to that one.
//!
//! # What a wait does
//!
//! | | no frame | frames, none ended | a frame has ended |
//! |---|---|---|---|
//! | [`WhenEnded::Waits`] | waits | waits | waits |
//! | [`WhenEnded::Fails`] | waits | waits until the frames' limit | expires; its caller returns an error ([`refusal`]) |
//! | [`WhenEnded::Unwinds`] | waits | waits until the frames' limit | expires; its caller raises [`Cancelled`] ([`raise`]) |
//! | [`WhenEnded::PassesOn`] | waits | waits until the frames' limit | expires; its caller tells others, and waits on for them |
//!
//! A wait that would unwind waits on where nothing may unwind: while the thread panics already, with preemption off, in a
//! program that aborts when it panics, and in a forked child. What such a thread waits for, a scope's threads or a coroutine, waits
//! on, too: `END` lies between. The wait expires first, and the primitive takes its nodes out of
//! its queues; so the raise is the last thing that it does.
//!
//! # Invariants
//!
//! 1. A frame outlives all that lead to it: the thread's word, and the frames inside it. Those of other threads belong to
//!    threads for which this one waits (a scope).
//! 2. What a closure returns counts, whatever has ended: only a payload that names the frame ends in an error.
//! 3. While the thread's timer is kept for a limit (`events`), it is that of the innermost frame when it was armed; a thread
//!    that leaves a frame with that limit takes the timer back.

use core::{cell::Cell, iter::successors, mem::offset_of, panic::Location, ptr};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{fmt, sync::Arc};

use crate::engine::atomic::{AtomicPtr, Ordering::*, fence};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::inspect::notes::{Identity, Reason, WaitKind, WhenEnded};
use crate::engine::sched::cancel::{Threads, Token};
#[cfg(hooks)]
use crate::engine::sched::directed;
use crate::engine::sched::park::{Interrupts, Node};
use crate::engine::sched::{Green, current, events};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{die, say, shared::entry_fence, word};

/// A call within which waits end early.
#[repr(C)]
pub(crate) struct Frame {
    parent: Cell<*const Frame>,
    /// Its own limit (monotonic nanoseconds).
    own: u64,
    what: What,
}

/// What a frame is beside its limit. Reports know the numbers of two of them.
#[repr(usize)]
pub(crate) enum What {
    /// No more than that.
    Limit,
    Shield = SHIELD,
    /// It ends with the token, which is in an `Arc`. Its node is in the token's list.
    Token(*const Token, Node) = TOKEN,
    /// A scope: cancellers find its threads here. It ends with the token.
    Scope(*const Token),
    /// The outermost frame of a thread of a scope. The frames around it are those of the scope's owner, whose identity this is.
    Base(*const Identity),
    /// The outermost frame of a coroutine. Around it are those of the thread that has resumed it, whose identity and runtime these
    /// are, as long as the coroutine has its turn: only the coroutine itself may go on to them.
    Coroutine(Cell<*const Identity>, Cell<Option<&'static Reason>>),
    /// Nothing unwinds out of it. See [`END`].
    End,
}

const SHIELD: usize = 1;
const TOKEN: usize = 2;

impl What {
    pub(crate) fn token(token: &Arc<Token>) -> What {
        What::Token(Arc::as_ptr(token), Node::default())
    }
}

/// The panic payload, and the error, of code that was ended from outside.
#[derive(Debug)]
pub struct Cancelled {
    /// The frame's address; 0: the thread ends as a whole.
    frame: usize,
    /// Where it was cancelled; none: its limit has passed.
    at: Option<&'static Location<'static>>,
}

/// What a thread that is about to wait learns of its frames.
pub(crate) struct Look {
    /// The wait lasts so long at most (monotonic nanoseconds); 0: it does not begin.
    pub(crate) limit: u64,
    /// A frame has ended, and the wait is refused after that time.
    pub(crate) refuses: bool,
    /// Cancellers end the wait.
    pub(crate) is_told: bool,
}

// SAFETY: a frame is changed by its thread alone, and before others can find it.
unsafe impl Sync for Frame {}

/// The frames of a thread whose closure has returned: destructors of thread-locals must not unwind.
pub(super) static END: Frame = Frame::inside(ptr::null(), NEVER, What::End);

/// From the ninth refusal in a row on a wait lasts so long before it is refused, and twice as long each time, up to
/// [`LONGEST_PAUSE`]: a loop that overlooks its errors would take a whole CPU (`tests/cancel`).
const FIRST_PAUSE: u64 = 1_000_000;
const LONGEST_PAUSE: u64 = 100_000_000;
const REFUSALS: u32 = 8;

thread_local! {
    /// Of a kernel thread of a runtime. It has no destructor.
    static RUNTIME: Cell<Option<&'static Reason>> = const { Cell::new(None) };
}

/// The words of the calling thread.
fn here() -> Option<&'static Interrupts> {
    current::green().map_or_else(KernelThread::interrupts, |green| Some(green.interrupts()))
}

/// The identity of the calling thread; null: nobody has asked for it.
pub(crate) fn own_identity() -> *const Identity {
    // Relaxed: the spawner has written it.
    current::green().map_or_else(Identity::own, |green| green.identity.load(Relaxed))
}

/// Whether all of the calling thread's runtime were cancelled.
fn own_runtime() -> Option<&'static Reason> {
    current::green().map_or_else(|| RUNTIME.get(), |green| Some(&green.cluster().cancelled))
}

impl Frame {
    /// A frame around which are the calling thread's.
    pub(crate) fn new(limit: u64, what: What) -> Frame {
        let parent = here().map_or(ptr::null(), Interrupts::innermost);
        Frame::inside(parent, limit, what)
    }

    /// A frame around which is that one, which outlives it.
    pub(crate) const fn inside(parent: *const Frame, own: u64, what: What) -> Frame {
        Frame {
            parent: Cell::new(parent),
            own,
            what,
        }
    }

    /// The outermost frame of a thread, around which are another one's.
    fn is_outermost(&self) -> bool {
        matches!(self.what, What::Base(_) | What::Coroutine(..))
    }

    /// Whether a thread in it has to look at its frames before each wait.
    fn is_limited(&self) -> bool {
        self.own != NEVER
    }

    /// The calling thread is in the frame until the answer is dropped.
    pub(crate) fn enter(&self) -> Inside<'_> {
        // A forked child has no frames: the lists' locks may be held for ever there.
        let thread = here().filter(|_| !current::is_forked_child());
        let before = thread.map_or(ptr::null_mut(), |thread| thread.top.load(Relaxed));
        if let Some(thread) = thread {
            thread.enter(self, self.is_limited());
            match &self.what {
                What::Token(token, node) => {
                    node.thread.store(ptr::from_ref(thread).cast_mut(), Relaxed);
                    // SAFETY: the token outlives the frame, which does not move while the thread is inside.
                    unsafe { (**token).threads.add(node) };
                    if self.reason().is_some() {
                        thread.set();
                    }
                }
                What::Base(_) | What::Coroutine(..) => thread.see_anew(),
                // Either a canceller finds the scope, or its threads, which begin after this, find the reason.
                What::Scope(_) => meet_cancellers(current::green()),
                _ => {}
            }
        }
        Inside {
            frame: self,
            thread,
            green: current::green(),
            before,
        }
    }

    /// The scopes that a thread has opened.
    ///
    /// # Safety
    /// The thread is pinned, and there was a barrier since.
    pub(crate) unsafe fn scopes<'a>(thread: &Interrupts) -> impl Iterator<Item = &'a Threads> {
        let around = |frame: *const Frame| {
            // SAFETY: the frames of a pinned thread are alive, and so are their scopes.
            unsafe { frame.as_ref::<'a>() }
        };
        let own = successors(around(thread.innermost()), move |frame| {
            (!frame.is_outermost()).then(|| around(frame.parent.get()))?
        });
        own.filter_map(|frame| match frame.what {
            // SAFETY: as above.
            What::Scope(token) => Some(unsafe { &(*token).threads }),
            _ => None,
        })
    }

    /// Where its token was cancelled.
    fn reason(&self) -> Option<&'static Location<'static>> {
        match self.what {
            // SAFETY: the token outlives the frame.
            What::Token(token, _) | What::Scope(token) => unsafe { (*token).reason.get() },
            _ => None,
        }
    }
}

/// Between a store by the calling thread and its next load. It pairs with a canceller's barrier.
fn meet_cancellers(green: Option<&Green>) {
    match green {
        Some(_) => entry_fence(),
        // SeqCst: partner: the fence in `Pinned::barrier`.
        None => fence(SeqCst),
    }
}

/// The calling thread is in a frame until this is dropped.
pub(crate) struct Inside<'f> {
    frame: &'f Frame,
    thread: Option<&'static Interrupts>,
    green: Option<&'static Green>,
    before: *mut Frame,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let (Some(thread), frame) = (self.thread, self.frame) else {
            return;
        };
        if current::is_forked_child() {
            return thread.forget_frames();
        }
        if !ptr::eq(thread.innermost(), frame) {
            die("a frame was left before one inside it: other code has changed the stack");
        }
        if let What::Token(token, node) = &frame.what {
            // SAFETY: the token outlives the frame, whose node is in the list.
            unsafe { (**token).threads.remove(node) };
        }
        // Release: as in `Interrupts::enter`.
        thread.top.store(self.before, Release);
        // The frames outside may have the same limit. Then the next wait arms the timer again.
        if let Some(green) = self.green
            && (frame.own == green.kept() || frame.is_outermost())
        {
            events::take_timer_back(green);
        }
        meet_cancellers(self.green);
        // A canceller may be looking at this frame.
        thread.settle();
        // A look inside may have cleared what told of the frames outside.
        if matches!(frame.what, What::Shield | What::End) {
            thread.set();
        }
        if thread.refusals.load(Relaxed) != 0 && thread.ended(clock::now(), false).is_none() {
            thread.forget_refusals();
        }
        if !self.before.is_null() && !frame.is_outermost() {
            // A coroutine that was resumed in the frame may be in others now.
            thread.enter(thread.innermost(), thread.frames().any(Frame::is_limited));
        }
    }
}

impl Interrupts {
    /// The calling thread's frames up to the first shield, from the innermost on.
    fn frames(&self) -> impl Iterator<Item = &Frame> {
        // SAFETY: invariant 1; the caller is the thread.
        let around = |frame: *const Frame| unsafe { frame.as_ref() };
        let mut is_own = true;
        successors(around(self.innermost()), move |frame| {
            is_own &= !matches!(frame.what, What::Base(_));
            match frame.what {
                What::Shield => None,
                // A coroutine that is not the thread's own may be suspended, and then there are none around it.
                _ => around(frame.parent.get())
                    .filter(|outer| is_own || !matches!(outer.what, What::Coroutine(..))),
            }
        })
    }

    /// The earliest limit; of those frames to which the thread may unwind, if it `unwinds`.
    fn limit(&self, unwinds: bool) -> u64 {
        let is_seen = |frame: &&Frame| !(unwinds && matches!(frame.what, What::End));
        let limits = self.frames().take_while(is_seen).map(|frame| frame.own);
        limits.min().unwrap_or(NEVER)
    }

    /// The frames around the thread's outermost one are others now.
    fn see_anew(&self) {
        self.enter(self.innermost(), self.frames().any(Frame::is_limited));
        if self.ended(0, false).is_some() {
            self.set();
        }
    }

    /// The outermost frame of the calling thread that has ended by `now`; of those to which it may unwind, if it `unwinds`.
    fn ended(&self, now: u64, unwinds: bool) -> Option<Cancelled> {
        let (mut found, mut owner, mut is_hidden) = (None, own_identity(), false);
        let mut runtime = own_runtime();
        for frame in self.frames() {
            let at = frame.reason().filter(|_| now < frame.own);
            if frame.own <= now || at.is_some() {
                let frame = ptr::from_ref(frame).addr();
                found = Some(Cancelled { frame, at });
            }
            match &frame.what {
                What::Shield => is_hidden = true,
                What::End if unwinds => return found,
                What::Base(outer) => owner = *outer,
                What::Coroutine(outer, others) => (owner, runtime) = (outer.get(), others.get()),
                _ => {}
            }
        }
        if is_hidden {
            return found;
        }
        // SAFETY: the owner of frames lives.
        let whole = unsafe { owner.as_ref() }.and_then(|owner| owner.cancelled.get());
        let whole = whole.or_else(|| runtime?.get());
        whole.map(Cancelled::of_all).or(found)
    }

    /// Counts a wait that is refused. Returns for how long it is to last before that.
    fn count_refusal(&self) -> u64 {
        let refusals = self.refusals.load(Relaxed);
        self.refusals.store(refusals.saturating_add(1), Relaxed);
        match refusals.checked_sub(REFUSALS) {
            None => 0,
            Some(more) => (FIRST_PAUSE << more.min(16)).min(LONGEST_PAUSE),
        }
    }
}

/// Whether a wait of the calling thread may unwind.
fn may_unwind() -> bool {
    !cfg!(panic = "abort")
        && !std::thread::panicking()
        && !current::is_forked_child()
        && current::green().is_none_or(|green| green.off.load(Relaxed) == 0)
}

/// The calling kernel thread begins: cancellers find it by `node`, and `runtime` says whether all of its runtime were cancelled.
pub(crate) fn begin(node: &Node, runtime: &'static Reason) {
    RUNTIME.set(Some(runtime));
    if let Some(thread) = here() {
        node.thread.store(ptr::from_ref(thread).cast_mut(), Relaxed);
        // SeqCst: either a canceller finds the thread, or the thread looks after this and sees the reason; partner: the
        // fence in `Pinned::barrier`.
        fence(SeqCst);
        thread.set();
    }
}

/// The closure of the calling thread has returned, and destructors of thread-locals are to run.
pub(crate) fn end() {
    here().inspect(|thread| thread.enter(&END, true));
}

/// What a report sees of a thread's frames.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// In how many milliseconds the first of them ends; not positive: it has ended.
    pub(crate) left: Option<i64>,
    /// One of them was cancelled, or the thread.
    pub(crate) is_cancelled: bool,
}

impl Seen {
    /// Looks at the frames of any thread, word by word: they may be gone meanwhile, and then the answer is anything.
    pub(crate) fn of(thread: &Interrupts, identity: Option<&Identity>) -> Option<Seen> {
        /// More are not looked at: what is read may be no frames.
        const MOST: usize = 100;
        let mut limit = NEVER;
        let mut is_cancelled = identity.is_some_and(|identity| identity.cancelled.get().is_some());
        let what = offset_of!(Frame, what);
        let mut next = thread.innermost().addr();
        for _ in 0..MOST {
            if next == 0 {
                break;
            }
            let at = |offset: usize| word::read(next.wrapping_add(offset));
            limit = limit.min(at(offset_of!(Frame, own))? as u64);
            match at(what)? {
                SHIELD => break,
                TOKEN => {
                    let token = at(what + size_of::<usize>())?;
                    let reason = word::read(token.wrapping_add(offset_of!(Token, reason)))?;
                    is_cancelled |= reason != 0;
                }
                _ => {}
            }
            next = at(offset_of!(Frame, parent))?;
        }
        let millis = || (limit.wrapping_sub(clock::now()) as i64).div_euclid(1_000_000);
        let left = (limit != NEVER).then(millis);
        (left.is_some() || is_cancelled).then_some(Seen { left, is_cancelled })
    }

    pub(crate) fn have_ended(self) -> bool {
        self.is_cancelled || self.left.is_some_and(|left| left <= 0)
    }
}

/// Says, once, that the calling thread seems to overlook that its waits are refused. It is about to wait for this kind of thing.
fn complain(kind: &WaitKind) {
    // SAFETY: the thread's own.
    let own = unsafe { own_identity().as_ref() };
    let name = own.and_then(Identity::name).unwrap_or("without a name");
    let place = own.and_then(|own| own.spawned_at);
    let place = place.map_or("a place that is not known".into(), Location::to_string);
    say(format_args!(
        "a frame has ended, and thread {name:?}, spawned at {place}, has had {REFUSALS} waits refused in a row, the next one \
         for {}: from now on each lasts for a while before it is refused",
        kind.name,
    ));
}

/// Whether there is a signal for the calling thread that ends waits of this kind.
#[inline]
pub(crate) fn is_signalled(kind: &WaitKind) -> bool {
    #[cfg(hooks)]
    return directed::ends_waits(kind.when_ended.heeds());
    #[cfg(not(hooks))]
    {
        let _ = kind;
        false
    }
}

/// What the calling thread learns that is about to wait for this kind of thing.
pub(crate) fn look(kind: &WaitKind) -> Look {
    let may_end = match kind.when_ended {
        WhenEnded::Waits | WhenEnded::Handles | WhenEnded::Returns | WhenEnded::Leads => false,
        WhenEnded::Fails => !current::is_forked_child(),
        WhenEnded::Unwinds | WhenEnded::PassesOn => may_unwind(),
    };
    let until = |limit, is_told| Look {
        limit,
        refuses: false,
        is_told,
    };
    let refused_until = |limit| Look {
        limit,
        refuses: true,
        is_told: false,
    };
    if is_signalled(kind) {
        return refused_until(0);
    }
    let Some(thread) = here().filter(|_| may_end) else {
        return until(NEVER, false);
    };
    let limit = thread.limit(false);
    let is_known = limit == NEVER || current::green().is_some_and(|green| limit == green.kept());
    if !thread.is_pending() && is_known {
        return until(limit, true);
    }
    let none_has_ended = || !is_signalled(kind) && thread.ended(clock::now(), false).is_none();
    if none_has_ended() {
        thread.clear();
        // With another look at the clock: what a timer has told meanwhile is cleared, too.
        if none_has_ended() {
            thread.forget_refusals();
            return until(limit, true);
        }
    }
    // A wait in other frames looks, too, and begins to count anew.
    thread.set();
    if is_signalled(kind) {
        return refused_until(0);
    }
    let now = clock::now();
    if kind.when_ended != WhenEnded::Fails && thread.ended(now, true).is_none() {
        // It is pending all the time, and does not see who cancels a frame inside `END`: so it looks now and then.
        let limit = thread.limit(true).min(now + LONGEST_PAUSE);
        return until(limit, false);
    }
    let pause = match kind.when_ended {
        WhenEnded::PassesOn => 0,
        _ => thread.count_refusal(),
    };
    if pause == FIRST_PAUSE {
        complain(kind);
    }
    refused_until(if pause == 0 { 0 } else { now + pause })
}

/// Calls `f` in a frame that ends at `limit` (monotonic nanoseconds). The error says that the frame has ended, and that `f`
/// has unwound for that.
pub(crate) fn run<T>(limit: u64, what: What, f: impl FnOnce() -> T) -> Result<T, Cancelled> {
    let frame = Frame::new(limit, what);
    let inside = frame.enter();
    let result = catch_unwind(AssertUnwindSafe(f));
    drop(inside);
    result.map_err(|payload| match payload.downcast::<Cancelled>() {
        Ok(cancelled) if cancelled.is_of(&frame) => *cancelled,
        Ok(others) => resume_unwind(others),
        Err(payload) => resume_unwind(payload),
    })
}

/// The outermost frame of a coroutine. It lies in those of the thread that resumes the coroutine, which waits meanwhile.
pub(crate) struct Adopted {
    frame: Frame,
    /// Around it while the caller unwinds.
    end: Frame,
    /// The coroutine's thread, for cancellers; null: it has not begun.
    pub(crate) thread: AtomicPtr<Interrupts>,
}

// SAFETY: whoever has the turn uses the frame, and what it leads to is there for that one.
unsafe impl Send for Adopted {}

impl Adopted {
    pub(crate) fn new() -> Adopted {
        let what = What::Coroutine(Cell::new(ptr::null()), Cell::new(None));
        Adopted {
            frame: Frame::inside(ptr::null(), NEVER, what),
            end: Frame::inside(ptr::null(), NEVER, What::End),
            thread: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The calling thread is about to resume the coroutine.
    #[inline(always)]
    pub(crate) fn adopt(&self) {
        let caller = here();
        let mut parent = caller.map_or(ptr::null(), Interrupts::innermost);
        if std::thread::panicking() {
            self.end.parent.set(parent);
            parent = &raw const self.end;
        }
        let before = self.frame.parent.replace(parent);
        if let What::Coroutine(owner, runtime) = &self.frame.what {
            owner.set(own_identity());
            runtime.set(own_runtime());
        }
        let is_pending = caller.is_some_and(Interrupts::is_pending);
        if !before.is_null() || !parent.is_null() || is_pending {
            self.tell(is_pending);
        }
    }

    /// Tells the coroutine that other frames are around it.
    fn tell(&self, is_pending: bool) {
        // SAFETY: records are never freed.
        if let Some(thread) = unsafe { self.thread.load(Relaxed).as_ref() } {
            thread.see_anew();
            if is_pending {
                thread.set();
            }
        }
    }

    /// Calls `f`, the coroutine's body, on its thread.
    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        let thread = here().map_or(ptr::null(), ptr::from_ref);
        self.thread.store(thread.cast_mut(), Relaxed);
        // SeqCst: either a canceller of the caller's finds this thread, or this thread finds the reason, in `enter`;
        // partner: the fence in `Pinned::barrier`.
        fence(SeqCst);
        let _inside = self.frame.enter();
        f()
    }
}

/// The limit and the tokens round a call, for work that outlives it.
pub(crate) struct Surroundings {
    limit: u64,
    tokens: Vec<Arc<Token>>,
}

impl Surroundings {
    /// Those of the calling thread.
    pub(crate) fn here() -> Surroundings {
        let mut tokens = Vec::new();
        for frame in here().into_iter().flat_map(Interrupts::frames) {
            if let What::Token(token, _) = frame.what
                // A call in a call has them from both, and so on.
                && !tokens.iter().any(|known| ptr::eq(Arc::as_ptr(known), token))
            {
                // SAFETY: the frame's token is in an `Arc`, of which somebody round the frame has a share.
                tokens.push(unsafe {
                    Arc::increment_strong_count(token);
                    Arc::from_raw(token)
                });
            }
        }
        Surroundings {
            limit: ends_at(),
            tokens,
        }
    }

    /// Calls `f` in frames like these.
    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        within_all(&self.tokens, self.limit, f)
    }
}

fn within_all<T, F: FnOnce() -> T>(tokens: &[Arc<Token>], limit: u64, f: F) -> T {
    match tokens.split_first() {
        None => within(limit, What::Limit, f),
        Some((token, rest)) => within(NEVER, What::token(token), || within_all(rest, limit, f)),
    }
}

/// Calls `f` in such a frame, and unwinds on if `f` does.
pub(crate) fn within<T>(limit: u64, what: What, f: impl FnOnce() -> T) -> T {
    let frame = Frame::new(limit, what);
    let _inside = frame.enter();
    f()
}

/// Calls `f` such that no frame round the call ends its waits.
pub(crate) fn shielded<T>(f: impl FnOnce() -> T) -> T {
    within(NEVER, What::Shield, f)
}

/// After a wait with this limit of its own has expired: unwinds if that was because a frame has ended. The wait's own
/// limit comes first.
#[cold]
pub(crate) fn raise(own: Option<u64>) {
    if !is_over(own)
        && may_unwind()
        && let Some(cancelled) = here().and_then(|thread| thread.ended(clock::now(), true))
    {
        resume_unwind(Box::new(cancelled));
    }
}

/// A thread of a scope was ended, and the scope's owner ends, too: for the same reason, or because the result of its scope is not
/// whole.
#[track_caller]
pub(crate) fn raise_again() -> ! {
    raise(None);
    resume_unwind(Box::new(Cancelled::of_all(Location::caller())))
}

/// After a call with this limit of its own had to wait too long: ETIMEDOUT or ECANCELED, if that was because a
/// frame has ended; EINTR, if there is a signal for the thread.
#[cfg(green)]
#[cold]
pub(crate) fn refusal(own: Option<u64>) -> Option<i32> {
    #[cfg(hooks)]
    if directed::ends_waits(!0) && !is_over(own) {
        return Some(libc::EINTR);
    }
    let cancelled = cancelled().filter(|_| !is_over(own))?;
    let by_somebody = cancelled.at.map(|_| libc::ECANCELED);
    by_somebody.or(Some(libc::ETIMEDOUT))
}

fn is_over(own: Option<u64>) -> bool {
    own.is_some_and(|own| own <= clock::now())
}

/// Why the calling thread's code is to end, if it is.
pub(crate) fn cancelled() -> Option<Cancelled> {
    let thread = here().filter(|_| !current::is_forked_child());
    thread?.ended(clock::now(), false)
}

/// Whether the calling thread is in a frame.
pub(crate) fn is_in_frame() -> bool {
    // A simulated process has no other kernel thread that could go on: so the calls that a frame is to end, which else
    // block, park their threads there, too.
    #[cfg(sim)]
    if crate::engine::sys::simulated::is_on() {
        return current::green().is_some();
    }
    here().is_some_and(|thread| thread.asks() || !thread.innermost().is_null())
}

/// The earliest limit of the calling thread's frames (monotonic nanoseconds).
pub(crate) fn ends_at() -> u64 {
    let thread = here().filter(|_| !current::is_forked_child());
    thread.map_or(NEVER, |thread| thread.limit(false))
}

impl Cancelled {
    /// The payload of a thread that ends as a whole.
    pub(crate) fn of_all(at: &'static Location<'static>) -> Cancelled {
        Cancelled {
            frame: 0,
            at: Some(at),
        }
    }

    /// Whether it names the frame, and not an earlier one that lay there.
    fn is_of(&self, frame: &Frame) -> bool {
        let has_ended = || match self.at {
            None => frame.own <= clock::now(),
            at => frame.reason() == at,
        };
        self.frame == ptr::from_ref(frame).addr() && has_ended()
    }

    /// Returns where the program cancelled the code; `None` if a time was up.
    pub fn location(&self) -> Option<&'static Location<'static>> {
        self.at
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            None => f.write_str("the time was up"),
            Some(at) => write!(f, "cancelled at {at}"),
        }
    }
}

impl std::error::Error for Cancelled {}
