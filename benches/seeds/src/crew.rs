//! Threads that all do the same until time is up: the frame of Cforall's suite.
//!
//! Invariants:
//! 1. No member begins before all have arrived.
//! 2. The clock is a kernel thread of its own, so that a starved runtime cannot stop it. When time
//!    is up it says so and unparks every member once.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::report::{Report, Stopwatch, Took};
use crate::runtime::{Parker, Runtime};

pub struct Crew<R: Runtime> {
    arrived: AtomicUsize,
    started: AtomicBool,
    stopped: AtomicBool,
    members: Box<[Member<R>]>,
    clock: OnceLock<Thread>,
}

/// A member, on cache lines of its own.
#[repr(align(128))]
struct Member<R: Runtime> {
    parker: OnceLock<R::Parker>,
    ops: AtomicU64,
}

impl<R: Runtime> Crew<R> {
    /// The calling member is there. True: it is the last.
    pub fn arrive(&self, me: usize) -> bool {
        assert!(self.members[me].parker.set(R::Parker::mine()).is_ok());
        // Release and Acquire: the last sees everybody's parker.
        let last = self.arrived.fetch_add(1, AcqRel) + 1 == self.members.len();
        if last {
            self.clock.get().expect("there is a clock").unpark();
        }
        last
    }

    /// Waits until all have arrived.
    pub async fn line_up(&self, me: usize) {
        if self.arrive(me) {
            self.started.store(true, Release);
            self.wake_others(me);
        } else {
            while !self.started.load(Acquire) {
                self.parker(me).park().await;
            }
        }
    }

    /// Everybody has arrived.
    pub fn wake_others(&self, me: usize) {
        let others = (0..self.members.len()).filter(|&i| i != me);
        others.for_each(|i| self.parker(i).unpark());
    }

    pub fn parker(&self, member: usize) -> &R::Parker {
        let parker = self.members[member].parker.get();
        parker.expect("it has not arrived")
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether time is up.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// The clock, which the last member starts.
    fn keep_time(&self, time: Duration) -> Took {
        // Acquire: see `arrive`; from here on all parkers are there.
        while self.arrived.load(Acquire) < self.len() {
            thread::park();
        }
        let watch = Stopwatch::start();
        thread::sleep(time);
        self.stopped.store(true, Relaxed);
        let took = watch.read();
        (0..self.len()).for_each(|i| self.parker(i).unpark());
        took
    }
}

/// So many threads run `member`, which says in the end how many operations it did.
pub async fn run<R: Runtime, F>(
    threads: usize,
    time: Duration,
    member: impl Fn(Arc<Crew<R>>, usize) -> F,
) -> Report
where
    F: Future<Output = u64> + Send + 'static,
{
    let crew = Arc::new(Crew {
        arrived: AtomicUsize::new(0),
        started: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        members: (0..threads).map(|_| Member::new()).collect(),
        clock: OnceLock::new(),
    });
    let clock = {
        let crew = crew.clone();
        thread::spawn(move || crew.keep_time(time))
    };
    assert!(crew.clock.set(clock.thread().clone()).is_ok());
    let joins: Vec<R::Join<()>> = (0..threads)
        .map(|me| {
            let (work, crew) = (member(crew.clone(), me), crew.clone());
            R::spawn(async move {
                let ops = work.await;
                crew.members[me].ops.store(ops, Relaxed);
            })
        })
        .collect();
    for join in joins {
        join.await;
    }
    let ops = crew.members.iter().map(|member| member.ops.load(Relaxed));
    let shares: Vec<u64> = ops.collect();
    Report {
        ops: shares.iter().sum(),
        took: clock.join().expect("the clock panicked"),
        shares,
    }
}

impl<R: Runtime> Member<R> {
    fn new() -> Member<R> {
        Member {
            parker: OnceLock::new(),
            ops: AtomicU64::new(0),
        }
    }
}
