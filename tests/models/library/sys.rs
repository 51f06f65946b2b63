//! Stands in for the library's `sys`: waiting for another's next few instructions, futexes, a clock
//! that the models set, tables, descriptors, and the barrier.

use std::cell::Cell;

use crate::engine::atomic;

/// So many pauses in one execution are explored. A pause changes nothing, so that an execution with
/// more of them differs from one with fewer in nothing that matters; and two threads could pause for
/// each other for ever while the third, for which they wait, does not run.
const PAUSES: u32 = 1;

// One model runs on one kernel thread, all its threads included.
std::thread_local! {
    static PAUSED: Cell<u32> = const { Cell::new(0) };
}

/// For the beginning of an execution.
pub(crate) fn begin() {
    PAUSED.set(0);
    atomic::stores_come_in_order(false);
    clock::each_look_takes(0);
    futex::begin();
    kernel_thread::has_barrier(true);
    table::begin();
}

/// Lets the checker run another thread.
pub(crate) struct Patience(());

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience(())
    }

    pub(crate) fn pause(&mut self) {
        PAUSED.set(PAUSED.get() + 1);
        if PAUSED.get() > PAUSES {
            // The rest of the execution goes one way only.
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
}

/// Nobody is perturbed: the checker tries every interleaving.
pub(crate) mod perturb {
    pub(crate) fn point(_: &str) {}
}

/// An invariant does not hold.
pub(crate) fn die(message: &str) -> ! {
    panic!("{message}");
}

#[path = "../../../src/engine/sys/atomic_static.rs"]
pub(crate) mod atomic_static;
#[path = "../../../src/engine/sys/fence.rs"]
pub(crate) mod fence;
#[path = "../../../src/engine/sys/lock.rs"]
pub(crate) mod lock;

#[path = "kernel.rs"]
pub(crate) mod kernel;
pub(crate) use self::kernel::{close, duplicate, epoll};

/// Reports read one word here, if a model has one.
pub(crate) mod word {
    use std::{cell::Cell, ptr};

    use crate::engine::atomic::{AtomicUsize, Ordering::Relaxed};

    std::thread_local! {
        static WORD: Cell<*const AtomicUsize> = const { Cell::new(ptr::null()) };
    }

    /// In this execution it is this one, which is leaked.
    pub(crate) fn lies_at(word: &'static AtomicUsize) {
        WORD.set(word);
    }

    pub(crate) fn read(address: usize) -> Option<usize> {
        let word = WORD.get();
        // SAFETY: it is leaked.
        (word.addr() == address).then(|| unsafe { (*word).load(Relaxed) })
    }

    pub(crate) fn look(_: usize) -> Result<u32, ()> {
        Err(())
    }
}

pub(crate) mod futex {
    use std::{cell::RefCell, ptr};

    use loom::thread::{self, Thread};

    use crate::engine::atomic::{self, AtomicU32, Ordering::Relaxed};

    // In order; on a kernel thread that runs one model.
    std::thread_local! {
        static SLEEPERS: RefCell<Vec<(*const AtomicU32, Thread)>> = const { RefCell::new(Vec::new()) };
    }

    /// It may return early, as the real one does.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, _deadline: Option<u64>) {
        let this = thread::current();
        let id = this.id();
        SLEEPERS.with_borrow_mut(|all| all.push((word, this)));
        // The kernel compares under the lock that wakers take: it sees the last store.
        let now = match atomic::do_stores_come_in_order() {
            true => word.fetch_or(0, Relaxed),
            false => word.load(Relaxed),
        };
        if now == expected {
            thread::park();
        }
        SLEEPERS.with_borrow_mut(|all| all.retain(|(_, thread)| thread.id() != id));
    }

    pub(crate) fn wake(word: *const AtomicU32, count: u32) {
        for _ in 0..count {
            let sleeper = SLEEPERS.with_borrow_mut(|all| {
                let position = all.iter().position(|(at, _)| ptr::eq(*at, word))?;
                Some(all.remove(position))
            });
            if let Some((_, thread)) = sleeper {
                thread.unpark();
            }
        }
    }

    /// After an execution that was cut short some may be left.
    pub(super) fn begin() {
        SLEEPERS.with_borrow_mut(Vec::clear);
    }
}

pub(crate) mod clock {
    use std::{
        cell::Cell,
        time::{Duration, Instant},
    };

    /// A deadline that never comes.
    pub(crate) const NEVER: u64 = u64::MAX;
    /// No deadline, but a signal's handler that runs.
    pub(crate) const SIGNAL: u64 = 2;

    std::thread_local! {
        static TIME: Cell<u64> = const { Cell::new(0) };
        static STEP: Cell<u64> = const { Cell::new(0) };
        static EARLY: Cell<bool> = const { Cell::new(false) };
    }

    /// From now on each look at the clock finds it `step` nanoseconds later than the one before.
    pub(crate) fn each_look_takes(step: u64) {
        TIME.set(0);
        STEP.set(step);
        EARLY.set(false);
    }

    pub(crate) fn coarse() -> u32 {
        0
    }

    pub(crate) fn now() -> u64 {
        TIME.set(TIME.get() + STEP.get());
        TIME.get()
    }

    /// Now, or when nobody else can go on.
    pub(crate) fn after(duration: Duration) -> u64 {
        duration.as_nanos().min(1) as u64
    }

    /// The first time in an execution this is a deadline as any other, which comes too early. So a
    /// select, which looks at the clock itself, goes round again; and then waits for good.
    pub(crate) fn at(_: Instant) -> u64 {
        if EARLY.replace(true) { NEVER } else { 0 }
    }
}

pub(crate) mod table {
    use std::{any::Any, cell::RefCell, collections::HashMap, ptr, sync::OnceLock};

    /// It grows before the threads begin.
    pub(crate) struct Table<T, const SEGMENTS: usize = 13>(OnceLock<Vec<T>>);

    // On a kernel thread that runs one model: the entries of static tables, by their addresses.
    std::thread_local! {
        static ENTRIES: RefCell<HashMap<usize, Box<dyn Any>>> = RefCell::new(HashMap::new());
    }

    /// Each execution has its own entries.
    pub(super) fn begin() {
        ENTRIES.with_borrow_mut(HashMap::clear);
    }

    /// Tables of this size are static, and live for one execution. They have their full length at once.
    const STATIC: usize = 24;
    const LEN: usize = 8;

    // SAFETY: it holds nothing.
    unsafe impl<T> Sync for Table<T, STATIC> {}

    impl<T: 'static> Table<T, STATIC> {
        pub(crate) const fn with_segments() -> Self {
            Self(OnceLock::new())
        }

        fn entries(&self) -> Option<&[T]> {
            ENTRIES.with_borrow(|all| {
                let entries = all.get(&ptr::from_ref(self).addr())?;
                let entries = ptr::from_ref(entries.downcast_ref::<Vec<T>>()?);
                // SAFETY: they stay where they are until the execution ends.
                Some(unsafe { &**entries })
            })
        }

        pub(crate) fn find(&self, index: usize) -> Option<&T> {
            self.entries()?.get(index)
        }

        pub(crate) fn len(&self) -> usize {
            self.entries().map_or(0, <[T]>::len)
        }

        pub(crate) fn grow_to(&self, len: usize, make: impl FnMut(usize) -> T) {
            assert!(len <= LEN, "a larger number than the models use");
            if self.entries().is_none() {
                let entries = (0..LEN).map(make).collect::<Vec<_>>();
                let address = ptr::from_ref(self).addr();
                ENTRIES.with_borrow_mut(|all| all.insert(address, Box::new(entries)));
            }
        }
    }

    impl<T> Table<T> {
        pub(crate) fn new() -> Self {
            Self(OnceLock::new())
        }

        pub(crate) fn grow_to(&self, len: usize, make: impl FnMut(usize) -> T) {
            self.0.get_or_init(|| (0..len).map(make).collect());
        }

        pub(crate) fn get(&self, index: usize) -> &T {
            &self.0.get().unwrap()[index]
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
            self.0.get().into_iter().flatten()
        }
    }
}

pub(crate) mod signal {
    pub(crate) type Mask = u64;

    pub(crate) fn set_mask(mask: Mask) -> Mask {
        mask
    }
}

pub(crate) mod kernel_thread {
    use std::cell::Cell;

    std::thread_local! {
        static HAS_BARRIER: Cell<bool> = const { Cell::new(true) };
    }

    /// Whether there is one in this execution; if nothing is said, there is.
    pub(crate) fn has_barrier(has: bool) {
        HAS_BARRIER.set(has);
    }

    pub(crate) fn register_barrier() -> bool {
        HAS_BARRIER.get()
    }

    pub(crate) fn barrier() {
        crate::engine::atomic::fence(crate::engine::atomic::Ordering::SeqCst);
    }
}
