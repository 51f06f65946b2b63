//! Stands in for the library's `thread`. Each green thread has a thread of the checker's, which
//! plays its stack and, when that has been left, the run loop that goes on: what that does comes
//! after, and before the thread waits. Kernel threads there are enough: who is made ready runs.

use std::{cell, ptr, sync::OnceLock};

use loom::{
    cell::UnsafeCell,
    thread::{self, JoinHandle, Thread},
};

use crate::engine::arch::FloatControl;
use crate::engine::atomic::{
    AtomicPtr, Cell,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::sched::context::{Bounds, Context};
use crate::engine::sched::park::Interrupts;
use crate::engine::sched::{Worker, current};
use crate::engine::sys::sanitizer::Fiber;
use crate::engine::sys::shared::AtomicStatic;
use crate::engine::sys::signal::Mask;

use self::waiter::Parking;

pub(crate) struct Green {
    /// What a switch and a report touch.
    pub(crate) identity: AtomicPtr<Identity>,
    pub(crate) worker: AtomicStatic<Worker>,
    pub(crate) parked: AtomicPtr<Parking>,
    interrupts: OnceLock<Interrupts>,
    pub(crate) since: Since,
    pub(crate) context: Context,
    pub(crate) flags: ThreadFlags,
    pub(crate) thread_pointer: cell::Cell<*mut u8>,
    pub(crate) mask: cell::Cell<Mask>,
    pub(crate) floats: cell::Cell<u32>,

    pub(crate) next: Cell<Option<&'static Green>>,
    /// Its context is saved. Touched by who leaves the stack, and by who resumes it.
    saved: Cell<bool>,
    stack: OnceLock<Thread>,
}

/// As `loom::thread::spawn`, but it is a green thread.
pub(crate) fn spawn<T: 'static>(main: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let green = Green::new();
    thread::spawn(move || {
        let _ = green.stack.set(thread::current());
        current::begin(green);
        main()
    })
}

/// A park is one word: its deadline.
pub(crate) mod waiter {
    use crate::engine::inspect::notes::{WaitKind, WaitReason};
    use crate::engine::sys::clock;

    pub(crate) struct Waiter;

    impl Waiter {
        pub(crate) const STATE: usize = 0;
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Parking {
        pub(crate) waiter: *const Waiter,
        pub(crate) deadline: u64,
        pub(crate) reason: WaitReason,
    }

    // SAFETY: it is read only.
    unsafe impl Sync for Parking {}

    impl Parking {
        pub(crate) const WORDS: usize = 1;

        pub(crate) const fn without_waiter(reason: WaitReason) -> Parking {
            Parking {
                waiter: std::ptr::null(),
                deadline: clock::NEVER,
                reason,
            }
        }

        /// # Safety
        /// None is needed.
        pub(crate) unsafe fn from_words([deadline]: [usize; Parking::WORDS]) -> Parking {
            static SOMETHING: WaitKind = WaitKind::inside("something");
            Parking {
                deadline: deadline as u64,
                ..Parking::without_waiter(WaitReason::only(&SOMETHING))
            }
        }
    }
}

/// A thread's name.
pub(crate) struct Identity(pub(crate) UnsafeCell<usize>);

/// Nobody has a stack.
pub(crate) struct ThreadStack {
    pub(crate) thread_pointer: *mut u8,
}

/// There is nothing unusual about a thread.
pub(crate) struct ThreadFlags(cell::Cell<u32>);

impl ThreadFlags {
    pub(crate) const HIDDEN: u32 = 64;

    pub(crate) const MASK: u32 = 1;
    pub(crate) const LOCKED: u32 = 4;
    pub(crate) const CACHE: u32 = 2;
    pub(crate) const NEW: u32 = 8;
    pub(crate) const CLOCKED: u32 = 128;
    pub(crate) const FLOATS: u32 = 256;

    pub(crate) fn any(&self) -> bool {
        false
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.0.get() & flag != 0
    }

    /// Nobody asks for the others.
    pub(crate) fn add(&self, flag: u32) {
        self.0.set(self.0.get() | flag & ThreadFlags::HIDDEN);
    }

    pub(crate) fn remove(&self, flag: u32) {
        self.0.set(self.0.get() & !flag);
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.0.get() != 0
    }
}

/// The place of the real one, which a model puts there: a mutant's is of another type.
pub(crate) struct Since(OnceLock<Box<dyn Turns>>);

pub(crate) trait Turns {
    fn note_time(&self);
    fn left(&self);
    fn turns(&self) -> u32;
    fn millis(&self) -> u32;
}

impl Since {
    pub(crate) fn begin(&self, turns: impl Turns + 'static) {
        let _ = self.0.set(Box::new(turns));
    }
}

impl std::ops::Deref for Since {
    type Target = dyn Turns + 'static;

    fn deref(&self) -> &Self::Target {
        &**self.0.get().expect("it has begun")
    }
}

// SAFETY: the checker runs all threads on one.
unsafe impl Sync for Green {}

impl Green {
    /// Leaked, as the library's are; and an execution's are few.
    pub(crate) fn new() -> &'static Green {
        Box::leak(Box::new(Green {
            identity: AtomicPtr::new(ptr::null_mut()),
            worker: AtomicStatic::none(),
            parked: AtomicPtr::new(ptr::null_mut()),
            interrupts: OnceLock::new(),
            since: Since(OnceLock::new()),
            context: Context::new(),
            flags: ThreadFlags(cell::Cell::new(0)),
            thread_pointer: cell::Cell::new(ptr::null_mut()),
            mask: cell::Cell::new(0),
            floats: cell::Cell::new(0),
            next: Cell::new(None),
            saved: Cell::new(false),
            stack: OnceLock::new(),
        }))
    }

    pub(crate) fn keep_floats(&self, _: FloatControl) {}

    pub(crate) fn set_worker(&self, worker: &'static Worker) {
        self.worker.store(Some(worker), Release);
    }

    pub(crate) fn last_worker(&self) -> Option<&'static Worker> {
        self.worker.load(Acquire)
    }

    pub(crate) fn stack(&self) -> Option<&'static ThreadStack> {
        None
    }

    pub(crate) fn bounds(&self) -> Option<Bounds> {
        None
    }

    pub(crate) fn fiber(&self) -> Option<&'static Fiber> {
        None
    }

    /// As in the library.
    pub(crate) const ON_STACK: usize = 1;

    pub(crate) fn parking(&self) -> *const Parking {
        ptr::null()
    }

    /// As in the library.
    pub(crate) fn seen_parking(&self, runs: bool) -> *const Parking {
        let parking = self.parked.load(Relaxed);
        match parking.addr() & Green::ON_STACK {
            0 if runs => ptr::null(),
            mark => parking.wrapping_byte_sub(mark),
        }
    }

    pub(crate) fn expect(&self, _: *const Parking) {}

    pub(crate) fn park_is_over(&self) {}

    /// Made when it is asked for: few models do.
    pub(crate) fn interrupts(&self) -> &Interrupts {
        self.interrupts.get_or_init(Interrupts::default)
    }

    pub(crate) fn leave_stack(&self) {
        assert!(!self.saved.replace(true), "it is left twice");
    }

    /// Its owner lets it go on.
    pub(crate) fn resume(&self) {
        assert!(self.saved.replace(false), "it is on its stack");
        self.stack.get().expect("it has begun").unpark();
    }

    /// Its stack is resumed exactly once each time, so there is no loop.
    pub(crate) fn until_resumed(&self) {
        thread::park();
    }
}
