//! What a thread notes for observers: what it is called, and why it waits; and the read sections in which that stays.
//!
//! # Identities
//!
//! A thread's [`Identity`] is its name and number, and the place where it was spawned. The public handle to a thread begins
//! with it.
//!
//! # Wait reasons
//!
//! A thread that parks leaves a [`WaitReason`] in its [`Parking`](crate::engine::sched::park::Parking): that is two
//! words on the thread's own stack, written once a wait. Each primitive declares its own [`WaitKind`], so this file
//! knows none of them.
//!
//! An observer reads the thing behind the address while the program runs on. The thread that waits keeps
//! the thing alive for as long as it waits, so the observer looks whether the thread still waits
//! *after* it has read (`inspect::threads`), and otherwise forgets what it saw. Until then the memory may be
//! anything: so it is read by `sys::word` only, which never faults.
//!
//! # Read sections
//!
//! An observer reads threads' names while the threads run on and end, and no name is freed meanwhile.
//!
//! A thread owns its identity until the thread ends, and its record leads to the identity. A thread that ends clears the
//! record's pointer, and then asks whether a read section is open. If one is, the thread leaves its share of the identity
//! behind instead of dropping it, for the end of the section.
//!
//! ```text
//!   ending thread                         observer
//!   record's pointer = null               OPEN += 1
//!   cheap fence                           barrier
//!   read OPEN                             read the record's pointer
//! ```
//!
//! Either the observer finds null, or the thread finds the section: the barrier makes the cheap fence a full
//! one. So a thread that ends pays a plain load. A kernel thread makes a real fence, since there may be no barrier.
//!
//! In the same way stacks stay that a section has seen: before a stack is taken apart, the word that leads to it is cleared,
//! and then the same question is asked ([`no_section_is_open`]).

use core::{cell::Cell, num::NonZeroU64, panic::Location};
use std::any::Any;
use std::sync::{Mutex, PoisonError};

use crate::engine::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::*, fence};
#[cfg(hooks)]
use crate::engine::sys::signal::{LIBCS, Mask};
use crate::engine::sys::{die, kernel_thread, shared::entry_fence, word};

// ==== identities ====

/// The name and the number of one thread, green or kernel.
#[repr(C)]
pub(crate) struct Identity {
    /// The identifier; 0 until a caller first asks for it, which rarely happens.
    pub(crate) id: AtomicU64,
    /// Boxed twice, a name takes one word: most threads have none.
    pub(crate) name: Option<Box<Box<str>>>,
    /// The place in the program that spawned the thread; none if that was not this crate's doing.
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    /// Where the thread was cancelled, if it was (`sched::cancel`).
    pub(crate) cancelled: Reason,
}

thread_local! {
    /// Of a kernel thread: see [`Identity::own`]. It has no destructor: the destructors of other thread-locals may ask.
    static OWN: Cell<*const Identity> = const { Cell::new(core::ptr::null()) };
}

impl Identity {
    /// The identity of the calling kernel thread, which owns a share of what begins with it
    /// (`runtime::handle`); null until a caller first asks for the thread's handle.
    pub(crate) fn own() -> *const Identity {
        OWN.get()
    }

    /// Async-signal-safe.
    pub(crate) fn set_own(identity: *const Identity) {
        OWN.set(identity);
    }

    #[inline]
    pub(crate) fn new(
        name: Option<Box<str>>,
        spawned_at: Option<&'static Location<'static>>,
    ) -> Identity {
        Identity {
            id: AtomicU64::new(0),
            name: name.map(Box::new),
            spawned_at,
            cancelled: Reason::default(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_ref().map(|name| &***name)
    }

    /// The identifier, if a caller has asked for it.
    pub(crate) fn known_id(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.id.load(Relaxed))
    }

    pub(crate) fn id(&self) -> NonZeroU64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.known_id().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Relaxed);
            // If two callers ask at once, the number that is stored first stays.
            let found = self.id.compare_exchange(0, new, Relaxed, Relaxed);
            let id = NonZeroU64::new(found.map_or_else(|first| first, |_| new));
            id.unwrap_or_else(|| die("2^64 threads were asked for their number"))
        })
    }
}

/// Whether something was cancelled, and where the program said so first.
#[derive(Default)]
pub(crate) struct Reason(AtomicPtr<Location<'static>>);

impl Reason {
    pub(crate) fn give(&self, at: &'static Location<'static>) {
        let at = core::ptr::from_ref(at).cast_mut();
        let none = core::ptr::null_mut();
        // Release: what the canceller did before; partner: Acquire in `get`.
        let _ = self.0.compare_exchange(none, at, Release, Relaxed);
    }

    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        // SAFETY: `give` has stored a reference for good. Acquire: partner: Release in `give`.
        unsafe { self.0.load(Acquire).as_ref() }
    }
}

// ==== wait reasons ====

/// A kind of thing that threads wait for.
#[repr(C)]
pub(crate) struct WaitKind {
    /// The word for it in reports, such as `mutex`.
    pub(crate) name: &'static str,
    /// The threads of this process are all that can end the wait, apart from the clock.
    pub(crate) is_inside: bool,
    /// What becomes of the wait when a frame of its thread has ended (`sched::frames`).
    pub(crate) when_ended: WhenEnded,
    /// What is to be read of the thing at an address.
    pub(crate) locator: Locator,
    /// Tells numbers of the thing; a debugger, which calls no functions, does without.
    numbers: fn(usize, &mut Facts),
}

/// What a wait does if a frame of its thread has ended, or ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenEnded {
    /// It waits on.
    Waits,
    /// It waits on. But a signal for the thread ends it, so that a handler can run (`sched::directed`).
    Handles,
    /// The same, and so does C's cancellation, as with those that fail.
    Returns,
    /// It fails, or returns early.
    Fails,
    /// It unwinds.
    Unwinds,
    /// It ends, and its caller tells others, for whom it then waits on.
    PassesOn,
    /// It waits on, since another thread runs in its place. The thing is an `AtomicPtr<Interrupts>`, which leads to that one.
    Leads,
}

impl WhenEnded {
    /// Which signals for the thread end the wait.
    #[cfg(hooks)]
    pub(crate) fn heeds(self) -> Mask {
        match self {
            WhenEnded::Handles => !LIBCS,
            WhenEnded::Returns | WhenEnded::Fails => !0,
            _ => 0,
        }
    }

    /// Whether it ends the wait, or may: those who would end it look at the thread then.
    #[inline(always)]
    pub(crate) fn ends(self) -> bool {
        !matches!(self, WhenEnded::Waits | WhenEnded::Leads)
    }
}

/// Where observers find the thread that a thing leads to. The debugger's script reads these words, so a change here is a
/// change there (`observe::gdb`).
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Locator {
    /// The thing leads to none.
    Nothing = 0,
    /// The mark of the thread that holds the thing lies `at` bytes behind the thing's address, while the word at `flags_at`
    /// has one of the `flags`.
    Holder {
        at: usize,
        flags_at: usize,
        flags: usize,
    } = Locator::HOLDER,
    /// The identity of the thread that is waited for lies `at` bytes behind the thing's address: before it, as a rule.
    Target { at: usize } = Locator::TARGET,
    /// A file descriptor, of four bytes, lies `at` bytes behind the thing's address.
    Descriptor { at: usize } = Locator::DESCRIPTOR,
}

impl Locator {
    pub(crate) const HOLDER: usize = 1;
    pub(crate) const TARGET: usize = 2;
    pub(crate) const DESCRIPTOR: usize = 3;
}

impl WaitKind {
    /// A kind whose waits other threads end.
    pub(crate) const fn inside(name: &'static str) -> WaitKind {
        WaitKind {
            name,
            is_inside: true,
            when_ended: WhenEnded::Waits,
            locator: Locator::Nothing,
            numbers: |_, _| (),
        }
    }

    /// A kind whose waits may be ended from outside: by the kernel, or another process.
    pub(crate) const fn outside(name: &'static str) -> WaitKind {
        WaitKind {
            is_inside: false,
            ..WaitKind::inside(name)
        }
    }

    /// A kind whose waits other threads end, or a frame that ends: then they unwind.
    pub(crate) const fn unwinding(name: &'static str) -> WaitKind {
        WaitKind::inside(name).unwinds()
    }

    /// The same kind, whose waits fail when a frame of their thread has ended.
    pub(crate) const fn fails(self) -> WaitKind {
        self.when_ended(WhenEnded::Fails)
    }

    /// The same kind, whose waits return early when there is a signal for their thread.
    pub(crate) const fn handles(self) -> WaitKind {
        self.when_ended(WhenEnded::Handles)
    }

    /// The same, and when C has cancelled their thread.
    pub(crate) const fn returns(self) -> WaitKind {
        self.when_ended(WhenEnded::Returns)
    }

    /// The same kind, whose waits unwind when a frame of their thread has ended.
    pub(crate) const fn unwinds(self) -> WaitKind {
        self.when_ended(WhenEnded::Unwinds)
    }

    /// The same kind, whose waits do that.
    pub(crate) const fn when_ended(mut self, when_ended: WhenEnded) -> WaitKind {
        self.when_ended = when_ended;
        self
    }

    /// The same kind, of which this is to be read.
    pub(crate) const fn with(self, locator: Locator) -> WaitKind {
        WaitKind { locator, ..self }
    }

    /// The same kind, of which this function tells numbers.
    pub(crate) const fn with_numbers(self, numbers: fn(usize, &mut Facts)) -> WaitKind {
        WaitKind { numbers, ..self }
    }

    /// What can be read of the thing at `address`.
    pub(crate) fn facts(&self, address: usize) -> Facts {
        let mut facts = Facts::default();
        let place = |at: usize| address.wrapping_add(at);
        match self.locator {
            Locator::Nothing => {}
            Locator::Holder {
                at,
                flags_at,
                flags,
            } => {
                let is_held = word::read(place(flags_at)).is_some_and(|state| state & flags != 0);
                let mark = is_held.then(|| word::read(place(at))).flatten();
                facts.holder = mark.filter(|&mark| mark != 0);
            }
            Locator::Target { at } => facts.target = Some(place(at)),
            Locator::Descriptor { at } => {
                facts.descriptor = word::look(place(at)).map(|fd| fd as i32);
            }
        }
        (self.numbers)(address, &mut facts);
        facts
    }
}

/// What a thread waits for: a kind of thing, and the address of the thing.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WaitReason {
    pub(crate) kind: &'static WaitKind,
    pub(crate) of: *const (),
}

impl WaitReason {
    #[inline(always)]
    pub(crate) const fn new<T>(kind: &'static WaitKind, of: *const T) -> WaitReason {
        WaitReason {
            kind,
            of: of.cast(),
        }
    }

    /// A wait for nothing that has an address.
    #[inline(always)]
    pub(crate) const fn only(kind: &'static WaitKind) -> WaitReason {
        WaitReason::new(kind, core::ptr::null::<()>())
    }
}

/// What a report tells of a thing that a thread waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The mark of the thread that holds the thing (`sched::current::mark`).
    pub(crate) holder: Option<usize>,
    /// The identity of the thread that is waited for: its address.
    pub(crate) target: Option<usize>,
    /// A file descriptor.
    pub(crate) descriptor: Option<i32>,
    /// Such as a channel's length.
    pub(crate) numbers: Vec<(&'static str, u64)>,
}

impl Facts {
    /// The words by which other threads are known.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> {
        [self.holder, self.target].into_iter().flatten()
    }

    pub(crate) fn number(&mut self, name: &'static str, value: u64) {
        self.numbers.push((name, value));
    }

    /// Notes the number in the word at `place`, if the word can be read.
    pub(crate) fn word(&mut self, name: &'static str, place: usize) {
        if let Some(value) = word::read(place) {
            self.number(name, value as u64);
        }
    }
}

// ==== read sections ====

static OPEN: AtomicUsize = AtomicUsize::new(0);
/// This process was forked.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// What threads have left behind.
static LEFT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

/// While this value lives, the section is open: identities that were seen in the section stay.
pub(crate) struct ReadSection(());

impl ReadSection {
    pub(crate) fn begin() -> ReadSection {
        // SeqCst: partner: the fence in `leave_behind`.
        OPEN.fetch_add(1, SeqCst);
        // Where there is no barrier, there are no green threads, and kernel threads make their own fence.
        if kernel_thread::register_barrier() {
            kernel_thread::barrier();
        }
        ReadSection(())
    }

    /// Ends the section for a caller that must not free memory: the next section drops what threads have left behind.
    pub(crate) fn end_without_dropping(self) {
        core::mem::forget(self);
        // AcqRel: as in `drop`.
        OPEN.fetch_sub(1, AcqRel);
    }
}

impl Drop for ReadSection {
    fn drop(&mut self) {
        // AcqRel: the reads of all sections come before the dropping by the last.
        if OPEN.fetch_sub(1, AcqRel) == 1
            // A thread that does not run on may hold the lock: then the next section drops what was left. (No thread
            // panics while it holds the lock.)
            && let Ok(mut kept) = LEFT.try_lock()
            // Another section may have begun, and may have seen the shares that were left here. A section that
            // begins after this look finds no record that leads to them: each thread has cleared its record's
            // pointer before it left its share.
            // SeqCst, and a write, which the next `begin` reads: what comes before this comes before that section.
            && OPEN.fetch_add(0, SeqCst) == 0
        {
            let left = core::mem::take(&mut *kept);
            drop(kept);
            drop(left);
        }
    }
}

/// Drops a thread's share of its identity, to which the thread's record does not lead any more.
#[inline]
pub(crate) fn leave_behind<T: Send + 'static>(share: T, is_green: bool) {
    match is_green {
        true => entry_fence(),
        // SeqCst: partner: in `ReadSection::begin`.
        false => fence(SeqCst),
    }
    // Acquire: a section that is over has read for the last time; partner: its end's Release.
    if OPEN.load(Acquire) != 0 {
        keep(Box::new(share));
    }
}

/// Whether no observer can be reading what the caller has made unreachable before.
pub(crate) fn no_section_is_open() -> bool {
    // SeqCst: partner: in `ReadSection::begin`. A section that begins later finds nothing.
    fence(SeqCst);
    // Acquire: a section that is over has read for the last time; partner: its end's Release.
    OPEN.load(Acquire) == 0
}

/// In a forked child: sections were open in the parent only.
pub(crate) fn forget_sections() {
    OPEN.store(0, Relaxed);
    IS_CHILD.store(true, Relaxed);
}

#[cold]
fn keep(share: Box<dyn Any + Send>) {
    // In a forked child a thread of the parent's may hold the lock for ever: then the share is never dropped.
    let left = match IS_CHILD.load(Relaxed) {
        true => LEFT.try_lock().ok(),
        false => Some(LEFT.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    match left {
        Some(mut left) => left.push(share),
        None => core::mem::forget(share),
    }
}
