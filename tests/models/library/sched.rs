//! Stands in for the library's `sched`: its protocol files.

pub(crate) mod start {
    include!(concat!(env!("OUT_DIR"), "/parts/start.rs"));
}
#[path = "context.rs"]
pub(crate) mod context;
#[path = "current.rs"]
pub(crate) mod current;
pub(crate) mod idle {
    include!(concat!(env!("OUT_DIR"), "/parts/idle.rs"));
}
#[path = "../../../src/engine/sched/joinable.rs"]
pub(crate) mod joinable;
pub(crate) mod cancel {
    include!(concat!(env!("OUT_DIR"), "/parts/cancel.rs"));
}
/// The park state, and the waiter that stands in.
pub(crate) mod park {
    include!(concat!(env!("OUT_DIR"), "/parts/park.rs"));
}
pub(crate) mod processor {
    include!(concat!(env!("OUT_DIR"), "/parts/processor.rs"));
}
pub(crate) mod switch {
    include!(concat!(env!("OUT_DIR"), "/parts/switch.rs"));
}
#[path = "thread.rs"]
pub(crate) mod thread;

use std::{cell::Cell, sync::atomic::AtomicU32};

use self::idle::Watched;
use self::switch::Action;
pub(crate) use self::thread::{Green, Identity, ThreadFlags};

use crate::engine::atomic::Ordering::Acquire;
use crate::engine::sys::shared::AtomicStatic;
use crate::engine::sys::signal::Mask;

/// No timer is armed.
pub(crate) struct Cluster {
    pub(crate) watched: Watched,
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        Cluster {
            watched: Watched::new(),
        }
    }

    pub(crate) fn watch_deadline(&self) -> Option<u64> {
        None
    }
}

/// A kernel thread that switches to green threads. Only `current` is read by others here.
pub(crate) struct Worker {
    pub(crate) current: AtomicStatic<Green>,
    pub(crate) tick: AtomicU32,
    pub(crate) slice: AtomicU32,
    pub(crate) kernel_thread: AtomicU32,
    pub(crate) base_mask: Cell<Mask>,
    pub(crate) has_native_tls: Cell<bool>,
}

// SAFETY: the checker runs all threads on one.
unsafe impl Sync for Worker {}

impl Worker {
    pub(crate) fn new() -> &'static Worker {
        Box::leak(Box::new(Worker {
            current: AtomicStatic::none(),
            tick: AtomicU32::new(0),
            slice: AtomicU32::new(0),
            kernel_thread: AtomicU32::new(0),
            base_mask: Cell::new(0),
            has_native_tls: Cell::new(true),
        }))
    }

    pub(crate) fn is_running(&self, green: &Green) -> bool {
        self.current.is(green, Acquire)
    }

    pub(crate) fn use_native_tls(&self) {}

    pub(crate) fn expect_no_signal(&self) {}
}

pub(crate) struct RunLoop(pub(crate) &'static Worker);

impl RunLoop {
    pub(crate) fn worker(&self) -> &'static Worker {
        self.0
    }
}

/// There is no malloc.
pub(crate) fn lend_cache(_: &Worker, _: &Green) {}

pub(crate) fn take_cache(_: &Worker, _: &Green) {}

/// Threads in a row: none is green where that is used.
pub(crate) struct Fifo(());

impl Fifo {
    pub(crate) fn new() -> Fifo {
        Fifo(())
    }

    pub(crate) fn push(&mut self, _: &'static Green) {
        unreachable!("kernel threads only");
    }

    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        None
    }
}

/// Nobody asks for CPU times.
pub(crate) mod cpu_time {
    use crate::engine::sched::Green;

    pub(crate) fn begins(_: &Green) {}

    pub(crate) fn ends(_: &Green) {}
}

/// No signal comes. The models say when the monitor does what was left to it.
pub(crate) mod signals {
    use std::sync::OnceLock;

    static CHORE: OnceLock<fn()> = OnceLock::new();

    pub(crate) fn register_chore(chore: fn()) {
        CHORE.get_or_init(|| chore);
    }

    pub(crate) fn leave_chore() {}

    pub(crate) fn do_chore() {
        CHORE.get().unwrap()();
    }
}

/// Nobody is locked.
pub(crate) mod locked {
    use super::Worker;
    use crate::engine::sched::Green;

    pub(crate) fn keeps_mask(_: &Worker, _: &Green) -> bool {
        false
    }
}

pub(crate) fn ready(green: &'static Green) {
    green.resume();
}

pub(crate) struct Entered {
    pub(crate) green: &'static Green,
}

pub(crate) fn enter() -> Option<Entered> {
    crate::engine::sched::current::green().map(|green| Entered { green })
}

impl Entered {
    pub(crate) fn suspend(self, action: Action) {
        self.green.leave_stack();
        // This is the run loop now.
        match action {
            // SAFETY: it lives until its thread goes on, which nobody can make it do yet.
            Action::Park(waiter) => match unsafe { (*waiter).commit() } {
                true => {}
                false => self.green.resume(),
            },
            Action::HandOver => {
                if let Some(next) = self.green.next.take() {
                    next.resume();
                }
            }
            Action::Preempt => unreachable!("nobody is preempted"),
        }
        self.green.until_resumed();
    }
}

/// The turn at collecting events, and its bell.
pub(crate) mod events {
    use std::{
        cell::{Cell, RefCell},
        sync::Arc,
    };

    use crate::atomic::Ordering::Relaxed;
    use crate::atomic::{AtomicBool, AtomicU32};
    use crate::sched::Fifo;
    use crate::sys::futex;

    /// As many as wait in a model at most.
    pub(crate) const BATCH: usize = 4;

    /// All Relaxed: the bell orders nothing for who hears it.
    struct Events {
        taken: AtomicBool,
        /// 1: it was rung, and nobody has heard it.
        bell: AtomicU32,
        sources: Cell<usize>,
    }

    // On a kernel thread that runs one model.
    std::thread_local! {
        static EVENTS: RefCell<Option<Arc<Events>>> = const { RefCell::new(None) };
    }

    /// For the beginning of an execution in which events are collected.
    pub(crate) fn begin() {
        EVENTS.set(Some(Arc::new(Events {
            taken: AtomicBool::new(false),
            bell: AtomicU32::new(0),
            sources: Cell::new(0),
        })));
    }

    fn events() -> Arc<Events> {
        EVENTS.with_borrow(|events| events.clone().expect("it has begun"))
    }

    pub(crate) fn add_source<T>(_driver: &'static T) {
        let sources = &events().sources;
        sources.set(sources.get() + 1);
    }

    pub(crate) fn remove_source() {
        let sources = &events().sources;
        sources.set(sources.get() - 1);
    }

    pub(crate) fn is_in_use() -> bool {
        events().sources.get() != 0
    }

    pub(crate) fn turn() -> Option<Turn> {
        let events = events();
        (!events.taken.swap(true, Relaxed)).then(|| Turn(events))
    }

    /// Ends the wait of the thread that has the turn, or of the next one that has it.
    pub(crate) fn ring() {
        let events = events();
        events.bell.swap(1, Relaxed);
        futex::wake(&events.bell, 1);
    }

    pub(crate) struct Turn(Arc<Events>);

    /// A turn that is none: for a mutant.
    pub(crate) fn for_all() -> Turn {
        Turn(events())
    }

    impl Turn {
        /// Nothing comes but rings. It may return early, as the real one does.
        pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
            if self.0.bell.swap(0, Relaxed) == 0 && nanos != Some(0) {
                futex::wait(&self.0.bell, 0, None);
                self.0.bell.swap(0, Relaxed);
            }
            Fifo::new()
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            self.0.taken.swap(false, Relaxed);
        }
    }
}
