//! Models of the end of a cluster's last thread, with a closer that waits for it.
//!
//! Each green thread has a thread of the checker's, which plays its run loop too, on a processor of its own.
//! When the closer goes on all must have ended, and what they did must come before: each has a cell for
//! its life. If the closer is not woken, that is a deadlock.
//!
//! The membarrier is modelled as the kernel makes it: it interrupts each processor in one place, and the models go
//! through the places that differ. If the compiler fence were a full one, as in the other models, that would hide
//! that the sums need a fence of their own.

use std::{cell::Cell, sync::Arc};

use loom::{
    cell::UnsafeCell,
    thread::{self, JoinHandle},
};

use crate::sched::{processor::Counts, start::LiveCount};
use crate::sys::kernel_thread;
use crate::wait::{Waiter, wait_reason};

/// Where the barrier interrupts a processor: before its thread runs.
const BEFORE: usize = 0;
/// Before the thread ends. This differs from the first for one that spawns.
const RUNNING: usize = 1;
/// Between the count and the question.
const COUNTED: usize = 2;
/// Behind the question: before the ends are summed, and before the spawns are.
const ASKED: usize = COUNTED + 1;
const SUMMED: usize = COUNTED + 2;
/// When the thread is buried.
const DONE: usize = COUNTED + 3;
const PLACES: [usize; 5] = [BEFORE, COUNTED, ASKED, SUMMED, DONE];

struct World {
    live_count: LiveCount,
    processors: [Counts; 2],
    drained: Waiter,
    /// Whether each green thread lives.
    lives: [UnsafeCell<bool>; 2],
    /// Where the barrier interrupts each.
    places: [usize; 2],
}

impl World {
    fn new(places: [usize; 2]) -> Arc<World> {
        kernel_thread::interrupts(places.iter().filter(|&&place| place != BEFORE).count());
        Arc::new(World {
            live_count: LiveCount::default(),
            processors: [Counts::default(), Counts::default()],
            drained: Waiter::new(),
            lives: [UnsafeCell::new(false), UnsafeCell::new(false)],
            places,
        })
    }

    fn set_life(&self, of: usize, lives: bool) {
        // SAFETY: what the model checks.
        self.lives[of].with_mut(|life| unsafe { *life = lives });
    }

    /// As in `runtime::spawn`, from outside.
    fn spawn_from_outside(&self, thread: usize) {
        self.set_life(thread, true);
        self.live_count.outside.spawned.add_shared(1);
    }

    /// The same, by a green thread on a processor.
    fn spawn(&self, by: usize, thread: usize) {
        self.set_life(thread, true);
        self.processors[by].spawned.add(1);
    }

    /// `processor` has come to `place`.
    fn interrupt(&self, processor: usize, place: usize) {
        kernel_thread::is_interruptible();
        if self.places[processor] == place {
            // Nothing comes before the first place.
            kernel_thread::interrupted(place != BEFORE);
        }
    }

    /// As in `sched::start`, with the processor or without.
    fn end(&self, thread: usize, has_processor: bool) {
        self.interrupt(thread, RUNNING);
        self.set_life(thread, false);
        match has_processor {
            true => self.processors[thread].ended.add(1),
            false => self.live_count.outside.ended.add_shared(1),
        }
        self.interrupt(thread, COUNTED);
        let place = Cell::new(COUNTED);
        let inside = |count| {
            place.set(place.get() + 1);
            self.interrupt(thread, place.get());
            self.processors.iter().map(count).sum()
        };
        if self.live_count.was_last(inside) {
            // SAFETY: it is alive as long as the model.
            unsafe { Waiter::wake_at(&self.drained) };
        }
        // Without sums it is done at once.
        if self.places[thread] > place.get() {
            kernel_thread::interrupted(true);
        }
    }

    fn close(&self) {
        let inside = |count| {
            kernel_thread::is_past_the_barrier();
            self.processors.iter().map(count).sum()
        };
        let wait = || {
            self.drained.wait(wait_reason(), None);
        };
        self.live_count.close(inside, wait);
        for life in &self.lives {
            // SAFETY: what the model checks.
            assert!(!life.with(|life| unsafe { *life }), "a thread lives");
        }
    }
}

/// Every place of one with every place of another.
fn pairs(ones: &[usize]) -> impl Iterator<Item = [usize; 2]> {
    ones.iter().flat_map(|&one| PLACES.map(|other| [one, other]))
}

/// In a thread of its own.
fn close(world: &Arc<World>) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || world.close())
}

/// A thread from its first instruction to its last, and its run loop.
fn run(world: &Arc<World>, thread: usize, has_processor: bool, life: impl FnOnce()) {
    world.interrupt(thread, BEFORE);
    life();
    world.end(thread, has_processor);
}

/// The same, elsewhere.
fn start(world: &Arc<World>, thread: usize, has_processor: bool) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || run(&world, thread, has_processor, || ()))
}

fn two_that_end(have_processors: [bool; 2]) {
    let are_alike = have_processors[0] == have_processors[1];
    for places in pairs(&PLACES).filter(|places| !are_alike || places[0] <= places[1]) {
        crate::check(Some(2), move || {
            let world = World::new(places);
            (0..2).for_each(|thread| world.spawn_from_outside(thread));
            let closer = close(&world);
            let other = start(&world, 1, have_processors[1]);
            run(&world, 0, have_processors[0], || ());
            other.join().unwrap();
            closer.join().unwrap();
        });
    }
}

/// Two threads, spawned from outside, end at once. At most 2 preemptions, here and below.
pub(crate) fn two_end() {
    two_that_end([true, true]);
}

/// One of them has lost its processor.
pub(crate) fn one_ends_outside() {
    two_that_end([true, false]);
}

/// Both have.
pub(crate) fn two_end_outside() {
    two_that_end([false, false]);
}

/// The closer spawns another one before it closes. The first may see that the cluster closes, and not the
/// spawn: it wakes the closer too early.
pub(crate) fn one_is_spawned_late() {
    for places in pairs(&PLACES) {
        crate::check(Some(2), move || {
            let world = World::new(places);
            world.spawn_from_outside(0);
            let closer = thread::spawn({
                let world = world.clone();
                move || {
                    world.spawn_from_outside(1);
                    let other = start(&world, 1, true);
                    world.close();
                    other
                }
            });
            run(&world, 0, true, || ());
            closer.join().unwrap().join().unwrap();
        });
    }
}

/// Thread 0 spawns thread 1 and ends.
fn spawns_and_ends(world: &Arc<World>) {
    let mut other = None;
    run(world, 0, true, || {
        world.spawn(0, 1);
        other = Some(start(world, 1, true));
    });
    other.unwrap().join().unwrap();
}

/// A thread spawns another and ends.
pub(crate) fn one_spawns_and_ends() {
    for places in pairs(&[PLACES.as_slice(), &[RUNNING]].concat()) {
        crate::check(Some(2), move || {
            let world = World::new(places);
            world.spawn_from_outside(0);
            let closer = close(&world);
            spawns_and_ends(&world);
            closer.join().unwrap();
        });
    }
}

/// One thread ends. The compiler fence and the barrier are full fences here, as in the other models: without the
/// compiler fence the question may come before the count. At most 3 preemptions.
pub(crate) fn one_ends() {
    crate::check(Some(3), || {
        let world = World::new([BEFORE; 2]);
        kernel_thread::has_barrier(true);
        world.spawn_from_outside(0);
        let closer = close(&world);
        run(&world, 0, true, || ());
        closer.join().unwrap();
    });
}

/// Somebody asks how many live while a thread is spawned, spawns another and ends. At most 3 preemptions.
pub(crate) fn asked() {
    fn live(world: &World) -> usize {
        let sum = |count| world.processors.iter().map(count).sum();
        world.live_count.live(sum)
    }

    crate::check(Some(3), || {
        let world = World::new([BEFORE; 2]);
        kernel_thread::has_barrier(true);
        let asks = thread::spawn({
            let world = world.clone();
            move || assert!(live(&world) <= 2, "miscounted")
        });
        world.spawn_from_outside(0);
        spawns_and_ends(&world);
        asks.join().unwrap();
        assert_eq!(live(&world), 0, "miscounted");
    });
}
