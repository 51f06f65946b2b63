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

pub(crate) mod pauses {
    /// Lets the checker run another thread.
    pub(crate) struct Patience(());

    impl Patience {
        pub(crate) fn new() -> Patience {
            Patience(())
        }

        pub(crate) fn pause(&mut self) {
            super::PAUSED.set(super::PAUSED.get() + 1);
            if super::PAUSED.get() > super::PAUSES {
                // The rest of the execution goes one way only.
                loom::skip_branch();
            }
            loom::thread::yield_now();
        }
    }

    /// Whoever finds a lock held blocks at once: a look more changes nothing.
    pub(crate) struct Backoff(());

    impl Backoff {
        pub(crate) const WHILE_IT_RUNS: Backoff = Backoff(());
        pub(crate) const AS_IT_MAY_WAIT: Backoff = Backoff(());

        pub(crate) fn pause(&mut self) -> bool {
            false
        }
    }
}

/// Nobody is perturbed: the checker tries every interleaving.
pub(crate) mod perturb {
    pub(crate) fn point(_: &str) {}
}

/// There is none.
pub(crate) mod sanitizer {

    pub(crate) fn publish<T>(_: &T) {}

    pub(crate) fn observe<T>(_: &T) {}

    /// What a thread has for a sanitizer.
    pub(crate) struct Fiber;

    impl Fiber {
        pub(crate) fn enter(&self) {}

        pub(crate) fn leave(&self) {}
    }
}

/// An invariant does not hold.
pub(crate) fn die(message: &str) -> ! {
    panic!("{message}");
}

pub(crate) mod shared {
    include!(concat!(env!("OUT_DIR"), "/parts/shared.rs"));
}

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

    pub(crate) fn look(_: usize) -> Option<u32> {
        None
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

    impl<T, const SEGMENTS: usize> Table<T, SEGMENTS> {
        pub(crate) const fn new() -> Self {
            Self(OnceLock::new())
        }
    }

    impl<T: 'static> Table<T, STATIC> {
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
    use std::{
        cell::{Cell, RefCell},
        rc::Rc,
    };

    use loom::{
        sync::atomic::AtomicUsize,
        thread::{self, Thread},
    };

    use crate::engine::atomic::{
        Ordering::{Relaxed, SeqCst},
        fence,
    };

    /// What is left of a barrier.
    #[derive(Clone, Copy, PartialEq)]
    enum Barrier {
        ToCome,
        Begun,
        /// A mutant's.
        Never,
    }

    /// A barrier as the kernel makes it: it interrupts each thread in one place, and nothing else keeps the
    /// thread's accesses in order.
    struct Interrupts {
        barrier: Barrier,
        /// Touched before the barrier, and wherever it could come: the checker takes fences for the ends of
        /// what comes before them, and would let nobody come between.
        moment: Rc<AtomicUsize>,
        /// How many threads are still to be interrupted before it ends.
        awaited: usize,
        /// They wait for it to begin.
        threads: Vec<Thread>,
        /// It waits for it to end.
        caller: Option<Thread>,
    }

    std::thread_local! {
        static HAS_BARRIER: Cell<bool> = const { Cell::new(true) };
        static INTERRUPTS: RefCell<Option<Interrupts>> = const { RefCell::new(None) };
    }

    /// Whether there is one in this execution; if nothing is said, there is.
    pub(crate) fn has_barrier(has: bool) {
        HAS_BARRIER.set(has);
        INTERRUPTS.set(None);
    }

    pub(crate) fn register_barrier() -> bool {
        HAS_BARRIER.get()
    }

    /// For the beginning of an execution in which a barrier interrupts threads where they call [`interrupted`], and
    /// compiler fences are nothing. It ends when so many were interrupted.
    pub(crate) fn interrupts(awaited: usize) {
        has_barrier(false);
        INTERRUPTS.set(Some(Interrupts {
            barrier: Barrier::ToCome,
            moment: Rc::new(AtomicUsize::new(0)),
            awaited,
            threads: Vec::new(),
            caller: None,
        }));
    }

    /// The state, if there is one. Nobody comes between an answer and a park.
    fn of_interrupts<R>(ask: impl FnOnce(&mut Interrupts) -> R) -> Option<R> {
        INTERRUPTS.with_borrow_mut(|all| all.as_mut().map(ask))
    }

    /// The barrier could come here.
    pub(crate) fn is_interruptible() {
        if let Some(moment) = of_interrupts(|all| all.moment.clone()) {
            moment.fetch_add(1, Relaxed);
        }
    }

    fn end_waits() {
        let waiting = of_interrupts(|all| std::mem::take(&mut all.threads));
        for thread in waiting.into_iter().flatten() {
            thread.unpark();
        }
    }

    /// The barrier interrupts the calling thread here. `is_awaited`: the barrier does not end before. (If nothing of
    /// the thread comes before this, it makes no difference.)
    pub(crate) fn interrupted(is_awaited: bool) {
        let this = thread::current();
        let state = of_interrupts(|all| {
            let state = all.barrier;
            if state == Barrier::ToCome {
                all.threads.push(this);
            }
            state
        });
        if state == Some(Barrier::ToCome) {
            thread::park();
        }
        if of_interrupts(|all| all.barrier) != Some(Barrier::Begun) {
            return;
        }
        fence(SeqCst);
        let caller = of_interrupts(|all| {
            all.awaited -= usize::from(is_awaited);
            all.caller.take_if(|_| all.awaited == 0)
        });
        if let Some(caller) = caller.flatten() {
            caller.unpark();
        }
    }

    /// For who makes the barrier: if it has made none by now, nobody waits for one.
    pub(crate) fn is_past_the_barrier() {
        of_interrupts(|all| {
            if all.barrier == Barrier::ToCome {
                all.barrier = Barrier::Never;
            }
        });
        end_waits();
    }

    pub(crate) fn barrier() {
        is_interruptible();
        fence(SeqCst);
        of_interrupts(|all| all.barrier = Barrier::Begun);
        end_waits();
        let this = thread::current();
        let waits = of_interrupts(|all| {
            all.caller = (all.awaited > 0).then_some(this);
            all.caller.is_some()
        });
        if waits == Some(true) {
            thread::park();
            fence(SeqCst);
        }
    }
}
