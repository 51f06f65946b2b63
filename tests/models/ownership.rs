//! Models of ownership. One kernel thread that owns the one processor, and the monitor that takes
//! it; where a third kernel thread is needed to receive it, the monitor plays it.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};
use crate::sched::processor::Ownership;
use crate::sys::shared::entry_fence;

/// What only the owner may touch: a run queue, say.
struct Processor {
    queue: UnsafeCell<u64>,
}

/// A kernel thread, as the monitor sees it.
struct Worker {
    owns: Ownership<Processor>,
    /// Which green thread it runs; 0 in the scheduler.
    current: AtomicUsize,
    tick: AtomicU32,
}

struct World {
    processor: &'static Processor,
    first: Worker,
    second: Worker,
    /// Of the one green thread, number 1: preemption off.
    off: AtomicU32,
    /// The green thread lies ready for the other kernel thread (1), or again for the first (2).
    ready: AtomicU32,
}

const GREEN: usize = 1;

impl World {
    /// The first kernel thread owns the processor and runs the green thread.
    fn new() -> Arc<World> {
        let worker = || Worker {
            owns: Ownership::new(),
            current: AtomicUsize::new(0),
            tick: AtomicU32::new(0),
        };
        let world = Arc::new(World {
            processor: Box::leak(Box::new(Processor {
                queue: UnsafeCell::new(0),
            })),
            first: worker(),
            second: worker(),
            off: AtomicU32::new(0),
            ready: AtomicU32::new(0),
        });
        world.first.owns.assign(world.processor);
        world.first.current.store(GREEN, Relaxed);
        world
    }

    /// The processor's owner uses it. A race here is two owners, or one that does not see what the
    /// last one did.
    fn work(&self) {
        // SAFETY: what the model checks.
        self.processor
            .queue
            .with_mut(|queue| unsafe { *queue += 1 });
    }

    /// The green thread enters the runtime on the first kernel thread. False: the processor is
    /// lost.
    fn enter(&self) -> bool {
        self.off.store(1, Relaxed);
        entry_fence();
        self.first
            .owns
            .get()
            .or_else(|| self.first.owns.settle())
            .is_some()
    }

    fn exit(&self) {
        self.off.store(0, Release); // partner: Acquire in `unchanged`
    }

    /// The monitor looks at the first kernel thread and takes its processor if it can. True: it has
    /// it, and used it.
    fn monitor(&self) -> bool {
        let tick = self.first.tick.load(Relaxed); // the barrier makes it an Acquire
        if self.first.current.load(Acquire) != GREEN || self.off.load(Relaxed) != 0 {
            return false;
        }
        let unchanged = || {
            let off = self.off.load(Acquire);
            let current = self.first.current.load(Acquire);
            let now = self.first.tick.load(Relaxed);
            off == 0 && current == GREEN && now == tick
        };
        let taken = self
            .first
            .owns
            .retake(self.processor, || fence(SeqCst), unchanged);
        if taken {
            self.work();
        }
        taken
    }
}

/// The green thread uses the runtime twice, and may lose the processor before either. At most 4
/// preemptions.
pub(crate) fn enter_twice() {
    crate::check(Some(4), || {
        let world = World::new();
        let monitor = thread::spawn({
            let world = world.clone();
            move || world.monitor()
        });
        let mut owner = true;
        for _ in 0..2 {
            owner = world.enter();
            if !owner {
                break;
            }
            world.work();
            world.exit();
        }
        let taken = monitor.join().unwrap();
        // It has noticed, or will at its next entry.
        assert_eq!(world.enter(), !taken, "lost or doubled");
        assert!(owner || taken, "lost or doubled");
    });
}

/// The owner gives the processor up by itself, from the scheduler. At most 4 preemptions.
pub(crate) fn surrender() {
    crate::check(Some(4), || {
        let world = World::new();
        let monitor = thread::spawn({
            let world = world.clone();
            move || world.monitor()
        });
        let mut kept = world.enter();
        if kept {
            world.work();
            world.first.current.store(0, Release);
            kept = world.first.owns.surrender().is_some();
            if kept {
                world.work();
            }
        }
        let taken = monitor.join().unwrap();
        assert!(kept != taken, "lost or doubled");
        assert!(world.first.owns.settle().is_none(), "lost or doubled");
    });
}

/// The green thread yields and goes on elsewhere, outside the runtime (off = 0); its old kernel
/// thread is in the scheduler and uses the processor on the strength of the look at the entry. At
/// most 3 preemptions.
pub(crate) fn migrate_away() {
    crate::check(Some(3), || {
        let world = World::new();
        let monitor = thread::spawn({
            let world = world.clone();
            move || world.monitor()
        });
        let other = thread::spawn({
            let world = world.clone();
            move || {
                if world.ready.load(Acquire) == 1 {
                    world.exit();
                }
            }
        });
        if world.enter() {
            world.first.current.store(0, Release); // partner: Acquire in `unchanged`
            world.ready.store(1, Release);
            world.work();
        }
        monitor.join().unwrap();
        other.join().unwrap();
    });
}

/// As before, but the green thread comes back to the first kernel thread, which uses the processor
/// until the very end of the switch. At most 3 preemptions.
pub(crate) fn migrate_and_return() {
    crate::check(Some(3), || {
        let world = World::new();
        let monitor = thread::spawn({
            let world = world.clone();
            move || world.monitor()
        });
        let other = thread::spawn({
            let world = world.clone();
            move || {
                if world.ready.load(Acquire) == 1 {
                    world.exit();
                    world.off.store(1, Relaxed);
                    world.ready.store(2, Release);
                }
            }
        });
        if world.enter() {
            world.first.current.store(0, Release);
            world.ready.store(1, Release);
            if world.ready.load(Acquire) == 2 {
                world.first.tick.store(1, Release); // partner: the barrier in `monitor`
                world.first.current.store(GREEN, Release); // partner: Acquire in `unchanged`
                world.work();
                world.exit();
            }
        }
        monitor.join().unwrap();
        other.join().unwrap();
    });
}

/// A processor is given to a kernel thread that looks without any other wake-up. Full exploration.
pub(crate) fn assigned() {
    crate::check(None, || {
        let world = World::new();
        let giver = thread::spawn({
            let world = world.clone();
            move || {
                let processor = world.first.owns.surrender().unwrap();
                world.work();
                world.second.owns.assign(processor);
            }
        });
        if world.second.owns.settle().is_some() {
            world.work();
        }
        giver.join().unwrap();
    });
}
