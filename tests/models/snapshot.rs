//! Models of a report that looks at a green thread while kernel threads switch to it and go on.
//!
//! Each time the thread runs it writes the number of that run into two places, with Relaxed: one is its park,
//! which a look reads, the other its stack, which a report reads after the look. If the thread was suspended, and
//! the look holds, both must say how often the thread has run: what its last run left behind, nothing older,
//! and nothing of the next run. That is enough: all that a report reads of a thread was written in some run,
//! and the first run that has not ended may write anything.
//!
//! Here nobody takes processors, so a compiler fence is no fence.

use std::ptr;

use loom::{cell::UnsafeCell, thread};

use crate::atomic::Ordering::{Relaxed, Release};
use crate::atomic::{AtomicUsize, fence};
use crate::engine::inspect::threads::{Doing, AnyThread};
use crate::engine::sched::switch::Since;
use crate::sched::thread::Turns;
use crate::sched::{Green, Identity, Worker, RunLoop, switch};
use crate::sys::{kernel_thread, word};

impl Turns for Since {
    fn note_time(&self) {
        self.note_time();
    }

    fn left(&self) {
        self.left();
    }

    fn turns(&self) -> u32 {
        self.turns()
    }

    fn millis(&self) -> u32 {
        self.millis()
    }
}

/// As in `runtime::spawn`.
fn begin(green: &'static Green, name: usize) {
    let identity = Box::leak(Box::new(Identity(UnsafeCell::new(name))));
    // Release: the name; partner: Acquire in `inspect::threads`.
    green.identity.store(identity, Release);
}

fn look_while_it_runs(runs: &'static [usize]) {
    kernel_thread::has_barrier(false);
    let stack: &'static [_; 2] = Box::leak(Box::new([0; 2].map(AtomicUsize::new)));
    word::lies_at(&stack[0]);
    let green = Green::new();
    green
        .parked
        .store(ptr::from_ref(&stack[0]).cast_mut().cast(), Relaxed);
    green.since.begin(Since::default());
    begin(green, 0);
    let mut run = 0;
    green.context.prepare(move || {
        run += 1;
        stack.iter().for_each(|place| place.store(run, Relaxed));
    });
    let workers = [(); 2].map(|()| Worker::new());
    // One thread plays all workers: a thread comes from one to another by way of a queue, which
    // orders its runs.
    let runner = thread::spawn(move || {
        for &worker in runs {
            // SAFETY: the thread is nobody else's.
            unsafe { switch::to(&mut RunLoop(workers[worker]), green, false) };
        }
    });
    if let Some(snapshot) = AnyThread::Green(green).look() {
        let of_stack = stack[1].load(Relaxed) as u64;
        if snapshot.doing == Doing::Parked && snapshot.holds() {
            let of_park = snapshot.waiting.map(|parking| parking.deadline);
            let turns = u64::from(snapshot.turns);
            assert_eq!((of_park, of_stack), (Some(turns), turns), "torn");
        }
    }
    runner.join().unwrap();
}

/// It runs twice on one worker. At most 2 preemptions.
pub(crate) fn looked_at() {
    crate::check(Some(2), || look_while_it_runs(&[0, 0]));
}

/// It runs on one worker, and then on another. At most 2 preemptions.
pub(crate) fn looked_at_elsewhere() {
    crate::check(Some(2), || look_while_it_runs(&[0, 1]));
}

/// It runs, and waits once on its kernel thread. A wait is seen while the count is odd, and not before or after. At
/// most 3 preemptions.
pub(crate) fn looked_at_while_it_blocks() {
    crate::check(Some(3), || {
        let place: &'static _ = Box::leak(Box::new(AtomicUsize::new(1)));
        word::lies_at(place);
        let (green, worker) = (Green::new(), Worker::new());
        green.since.begin(Since::default());
        begin(green, 0);
        green.set_worker(worker);
        worker.current.store(Some(green), Relaxed);
        let runner = thread::spawn(move || {
            // As in `Green::expect_on_stack`.
            let count = || {
                green.since.left();
                green.since.note_time();
                // Release: the count comes before the wait; partner: Acquire in `inspect::threads`.
                fence(Release);
            };
            count();
            let parking = ptr::from_ref(place).wrapping_byte_add(Green::ON_STACK);
            green.parked.store(parking.cast_mut().cast(), Relaxed);
            green.parked.store(ptr::null_mut(), Relaxed);
            count();
        });
        let snapshot = AnyThread::Green(green).look().unwrap();
        if snapshot.holds() && snapshot.waiting.is_some() {
            assert_eq!(snapshot.turns, 1, "torn");
        }
        runner.join().unwrap();
    });
}

/// A thread begins, and a report reads its name. Full exploration.
pub(crate) fn named() {
    crate::check(None, || {
        let green = Green::new();
        let starter = thread::spawn(move || begin(green, 1));
        let identity = AnyThread::Green(green).identity();
        if !identity.is_null() {
            // SAFETY: it is leaked; the rest is what the model checks.
            let name = unsafe { (*identity).0.with(|name| *name) };
            assert_eq!(name, 1, "torn");
        }
        starter.join().unwrap();
    });
}
