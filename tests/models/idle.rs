//! Models of the idle word, with the list of sleepers and a park state for each, as the scheduler uses
//! them.
//!
//! Jobs never end. So a kernel thread whose processor got a job may play another that it has just
//! woken, and one whose processor sleeps may end: what is left over when all ended is what would
//! stay so for ever.
//!
//! Each processor sees both queues. It looks once before it counts as a searcher, as the scheduler does.
//!
//! A processor that is surplus retires where it would look for work, or sleep; it may have work by
//! then, which is in the queue that all look into. (`sched/cluster.rs`)

use std::sync::Arc;

use loom::{sync::Mutex, thread};

use crate::{
    atomic::{
        AtomicU32, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
    sched::idle::IdleWord,
    sched::park::{Found, ParkState},
};

/// Processors, and at most so many jobs.
const PROCESSORS: usize = 2;
/// At most half of them search.
const LIMIT: u32 = 1;

struct World {
    idle: IdleWord,
    sleepers: Mutex<Vec<usize>>,
    /// How many processors there are to be; changed under the lock of `sleepers`.
    active: AtomicUsize,
    states: [ParkState; PROCESSORS],
    /// One queue for each processor, and each job: 1 is ready. All Relaxed: only the protocol's fences order them.
    queues: [AtomicU32; 2],
}

impl World {
    /// The first so many processors are active, and awake; the others have retired.
    fn new(active: usize) -> Arc<World> {
        Arc::new(World {
            idle: IdleWord::new(active as u32),
            sleepers: Mutex::new(Vec::new()),
            active: AtomicUsize::new(active),
            states: [ParkState::new(), ParkState::new()],
            queues: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    /// The readier. Afterwards the kernel thread plays the processor it woke.
    fn ready(&self, queue: usize) {
        self.queues[queue].store(1, Relaxed);
        if self.idle.claim_wake() {
            self.wake();
        }
    }

    /// After a claim: wakes one sleeper, and plays it if it has blocked.
    fn wake(&self) {
        let sleeper = self
            .sleepers
            .lock()
            .unwrap()
            .pop()
            .expect("a claim without a sleeper");
        if self.states[sleeper].notify() != Found::Nobody {
            self.states[sleeper].resumed();
            self.processor(sleeper, true);
        }
    }

    fn is_work(&self) -> bool {
        self.queues.iter().any(|queue| queue.load(Relaxed) == 1)
    }

    fn take(&self, queue: usize) -> bool {
        let queue = &self.queues[queue];
        queue.load(Relaxed) == 1 && queue.compare_exchange(1, 0, Relaxed, Relaxed).is_ok()
    }

    /// A searcher, whose own queue is empty, looks for a job as long as there is one to be seen.
    fn search(&self, me: usize) -> bool {
        loop {
            if self.take(1 - me) {
                return true;
            }
            if !self.is_work() {
                return false;
            }
            thread::yield_now();
            if self.take(me) {
                return true;
            }
        }
    }

    fn stop_searching(&self) {
        if self.idle.found() {
            fence(SeqCst); // partner: in `claim_wake`
            if self.is_work() && self.idle.claim_wake() {
                self.wake();
            }
        }
    }

    /// A processor without work, until it has got a job or sleeps.
    fn processor(&self, me: usize, mut searcher: bool) {
        loop {
            if me < self.active.load(Relaxed) {
                let found = self.take(me) || !searcher && self.take(1 - me);
                searcher = searcher || !found && self.idle.start_search(LIMIT);
                if found || searcher && self.search(me) {
                    if searcher {
                        self.stop_searching();
                    }
                    return;
                }
            }
            let mut sleepers = self.sleepers.lock().unwrap();
            if me >= self.active.load(Relaxed) {
                self.idle.retire(searcher);
                drop(sleepers);
                self.look_for_others();
                return;
            }
            sleepers.push(me);
            self.idle.announce_sleep(searcher);
            drop(sleepers);
            if self.is_work() && self.get_up(me) {
                searcher = true;
                continue;
            }
            // Block.
            if self.states[me].commit(ParkState::ASLEEP) {
                return;
            }
            self.states[me].resumed();
            searcher = true;
        }
    }

    /// The last look of a processor that retires, and the first one for a processor that appears.
    fn look_for_others(&self) {
        if self.is_work() && self.idle.claim_wake() {
            self.wake();
        }
    }

    /// Makes processor 1, which is awake or asleep, surplus.
    fn shrink(&self) {
        let sleepers = self.sleepers.lock().unwrap();
        self.active.store(1, Relaxed);
        drop(sleepers);
        loop {
            let mut sleepers = self.sleepers.lock().unwrap();
            let Some(at) = sleepers.iter().position(|&sleeper| sleeper == 1) else {
                return;
            };
            if self.idle.withdraw() {
                sleepers.remove(at);
                return;
            }
            drop(sleepers);
            // It is being woken.
            thread::yield_now();
        }
    }

    /// Makes processor 1, which has retired, an idle one; its kernel thread has parked.
    fn grow(&self) {
        let mut sleepers = self.sleepers.lock().unwrap();
        self.active.store(2, Relaxed);
        let _ = self.states[1].commit(ParkState::ASLEEP);
        sleepers.push(1);
        self.idle.appear();
        drop(sleepers);
        self.look_for_others();
    }

    /// Tries to stop sleeping. False: a waker is on its way, block.
    fn get_up(&self, me: usize) -> bool {
        let mut sleepers = self.sleepers.lock().unwrap();
        match sleepers.iter().position(|&sleeper| sleeper == me) {
            // Chosen: blocking returns as soon as the waker has left its token.
            None => false,
            Some(at) => {
                let up = self.idle.cancel_sleep();
                if up {
                    sleepers.remove(at);
                }
                up
            }
        }
    }

    /// All threads ended: everybody works or sleeps for good.
    fn check(&self) {
        let sleepers = self.sleepers.lock().unwrap();
        let (asleep, active) = (sleepers.len() as u32, self.active.load(Relaxed));
        assert!(sleepers.iter().all(|&me| me < active), "a surplus processor is idle");
        assert_eq!(self.idle.sleeping(), asleep, "miscounted");
        assert_eq!(self.idle.searching(), 0, "miscounted");
        assert!(
            asleep == 0 || !self.is_work(),
            "a job waits while a processor sleeps"
        );
    }
}

/// Two processors fall asleep while one thread readies two jobs. At most 2 preemptions.
pub(crate) fn one_readier() {
    crate::check(Some(2), || {
        let world = World::new(2);
        let processors = [0, 1].map(|me| {
            let world = world.clone();
            thread::spawn(move || world.processor(me, false))
        });
        world.ready(0);
        world.ready(1);
        for processor in processors {
            processor.join().unwrap();
        }
        world.check();
    });
}

/// The same with a thread for each job. At most 2 preemptions.
pub(crate) fn two_readiers() {
    crate::check(Some(2), || {
        let world = World::new(2);
        let processors = [0, 1].map(|me| {
            let world = world.clone();
            thread::spawn(move || world.processor(me, false))
        });
        let readier = thread::spawn({
            let world = world.clone();
            move || world.ready(0)
        });
        world.ready(1);
        for processor in processors {
            processor.join().unwrap();
        }
        readier.join().unwrap();
        world.check();
    });
}

/// Of two processors that fall asleep one is to retire, while one thread readies a job. At most 2
/// preemptions.
pub(crate) fn one_retires() {
    crate::check(Some(2), || {
        let world = World::new(2);
        let processors = [0, 1].map(|me| {
            let world = world.clone();
            thread::spawn(move || world.processor(me, false))
        });
        let resizer = thread::spawn({
            let world = world.clone();
            move || world.shrink()
        });
        world.ready(0);
        for processor in processors {
            processor.join().unwrap();
        }
        resizer.join().unwrap();
        world.check();
    });
}

/// A second processor appears, while one falls asleep and one thread readies two jobs. At most 2
/// preemptions.
pub(crate) fn one_appears() {
    crate::check(Some(2), || {
        let world = World::new(1);
        let processor = thread::spawn({
            let world = world.clone();
            move || world.processor(0, false)
        });
        let resizer = thread::spawn({
            let world = world.clone();
            move || world.grow()
        });
        world.ready(0);
        world.ready(1);
        processor.join().unwrap();
        resizer.join().unwrap();
        world.check();
    });
}
