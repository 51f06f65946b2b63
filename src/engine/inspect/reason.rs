//! Why a thread waits: the kind of thing that it waits for, and which one, for observers.
//!
//! A thread that parks leaves a [`WaitReason`] in its [`Parking`](crate::engine::sched::park::Parking): that is two
//! words on the thread's own stack, written once a wait. Each primitive declares its own [`WaitKind`], so this file
//! knows none of them.
//!
//! An observer reads the thing behind the address while the program runs on. The thread that waits keeps
//! the thing alive for as long as it waits, so the observer looks whether the thread still waits
//! *after* it has read (`inspect::threads`), and otherwise forgets what it saw. Until then the memory may be
//! anything: the `look` of a kind reads by `sys::word` only, which never faults.

/// A kind of thing that threads wait for.
#[repr(C)]
pub(crate) struct WaitKind {
    /// The word for it in reports, such as `mutex`.
    pub(crate) name: &'static str,
    /// The threads of this process are all that can end the wait, apart from the clock.
    pub(crate) is_inside: bool,
    /// Tells what can be read of the thing at an address.
    pub(crate) look: fn(usize, &mut Facts),
    /// The same for a debugger, which calls no functions.
    pub(crate) locator: Locator,
}

/// Where a debugger finds the thread that a thing leads to: a part of what [`WaitKind::look`] tells. The
/// debugger's script reads these words, so a change here is a change there (`observe::gdb`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Locator {
    kind: usize,
    /// Where to read, from the thing's address on; it may lie before that.
    at: usize,
    /// The locator counts only if the word at `flags_at` has one of these bits.
    flags_at: usize,
    flags: usize,
}

impl Locator {
    /// At `at` is the mark of the thread that holds the thing.
    pub(crate) const HOLDER: usize = 1;
    /// `at` itself is the address of the identity of the thread that is waited for.
    pub(crate) const TARGET: usize = 2;
    /// At `at` is a file descriptor, of four bytes.
    pub(crate) const DESCRIPTOR: usize = 3;

    /// The debugger is told nothing.
    const NOTHING: Locator = Locator {
        kind: 0,
        at: 0,
        flags_at: 0,
        flags: 0,
    };

    /// The mark of the holder lies at `at` while the word at `flags_at` has one of the `flags`.
    pub(crate) const fn holder(at: usize, flags_at: usize, flags: usize) -> Locator {
        Locator {
            kind: Locator::HOLDER,
            at,
            flags_at,
            flags,
        }
    }

    /// The thing lies `behind` bytes behind the identity of the thread that is waited for.
    pub(crate) const fn target(behind: usize) -> Locator {
        Locator {
            kind: Locator::TARGET,
            at: behind.wrapping_neg(),
            ..Locator::NOTHING
        }
    }

    /// A file descriptor lies at `at`.
    pub(crate) const fn descriptor(at: usize) -> Locator {
        Locator {
            kind: Locator::DESCRIPTOR,
            at,
            ..Locator::NOTHING
        }
    }
}

impl WaitKind {
    /// A kind whose waits other threads end.
    pub(crate) const fn inside(name: &'static str, look: fn(usize, &mut Facts)) -> WaitKind {
        WaitKind {
            name,
            is_inside: true,
            look,
            locator: Locator::NOTHING,
        }
    }

    /// A kind whose waits may be ended from outside: by the kernel, or another process.
    pub(crate) const fn outside(name: &'static str, look: fn(usize, &mut Facts)) -> WaitKind {
        WaitKind {
            is_inside: false,
            ..WaitKind::inside(name, look)
        }
    }

    /// The same kind with a locator for debuggers.
    pub(crate) const fn with(self, locator: Locator) -> WaitKind {
        WaitKind { locator, ..self }
    }
}

/// For kinds of which nothing more is to be told.
pub(crate) fn nothing(_: usize, _: &mut Facts) {}

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
}
