//! Models of the idle word, with the list of sleepers and a ticket for each, as the scheduler uses
//! them.
//!
//! Jobs never end. So a kernel thread whose processor got a job may play another that it has just
//! woken, and one whose processor sleeps may end: what is left over when all ended is what would
//! stay so for ever.

use std::sync::Arc;

use loom::{sync::Mutex, thread};

use crate::{
    atomic::{
        AtomicU32,
        Ordering::{Relaxed, SeqCst},
        fence,
    },
    sched::idle::IdleWord,
    wait::ticket::{By, Commit, Found, Ticket},
};

/// Processors, and at most so many jobs.
const PROCESSORS: usize = 2;
/// At most half of them search.
const LIMIT: u32 = 1;

struct World {
    idle: IdleWord,
    sleepers: Mutex<Vec<usize>>,
    tickets: [Ticket; PROCESSORS],
    /// One queue for each job: 1 is ready. All Relaxed: only the protocol's fences order them.
    queues: [AtomicU32; 2],
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            idle: IdleWord::new(),
            sleepers: Mutex::new(Vec::new()),
            tickets: [Ticket::new(), Ticket::new()],
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
        if self.tickets[sleeper].notify() != Found::Nobody {
            self.tickets[sleeper].resumed();
            self.processor(sleeper, true);
        }
    }

    fn is_work(&self) -> bool {
        self.queues.iter().any(|queue| queue.load(Relaxed) == 1)
    }

    fn take(&self) -> bool {
        self.queues.iter().any(|queue| {
            queue.load(Relaxed) == 1 && queue.compare_exchange(1, 0, Relaxed, Relaxed).is_ok()
        })
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
            searcher = searcher || self.idle.start_search(LIMIT);
            if self.take() {
                if searcher {
                    self.stop_searching();
                }
                return;
            }
            let mut sleepers = self.sleepers.lock().unwrap();
            sleepers.push(me);
            self.idle.announce_sleep(searcher);
            drop(sleepers);
            if self.is_work() && self.get_up(me) {
                searcher = true;
                continue;
            }
            // Block.
            if self.tickets[me].commit(By::Kernel) == Commit::Parked {
                return;
            }
            searcher = true;
        }
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
        let asleep = self.sleepers.lock().unwrap().len() as u32;
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
        let world = World::new();
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
        let world = World::new();
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
