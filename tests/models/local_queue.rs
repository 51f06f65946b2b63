//! A model of a processor's local queue: one thread holds the seat, the others are thieves. Each job is a
//! thread's record, whose link the pusher writes and the taker reads.

use std::sync::{
    Arc,
    atomic::{AtomicU32 as Untracked, Ordering::Relaxed},
};

use loom::thread;

use crate::sched::Green;
use crate::policy::work_stealing::{HALF, LocalQueue};

struct World {
    queue: LocalQueue,
    thieves: [LocalQueue; 2],
    jobs: Vec<&'static Green>,
    pushed: Untracked,
    taken: Vec<Untracked>,
}

impl World {
    fn new(jobs: usize) -> Arc<World> {
        Arc::new(World {
            queue: LocalQueue::new(),
            thieves: [LocalQueue::new(), LocalQueue::new()],
            jobs: (0..jobs).map(|_| Green::new()).collect(),
            pushed: Untracked::new(0),
            taken: (0..jobs).map(|_| Untracked::new(0)).collect(),
        })
    }

    /// Pushes the next jobs, as far as there is space.
    fn push(&self, count: usize) {
        for _ in 0..count {
            if self.queue.space() != 0 {
                let job = self.jobs[self.pushed.fetch_add(1, Relaxed) as usize];
                job.next.set(None);
                self.queue.push(job);
            }
        }
    }

    /// Somebody has it.
    fn take(&self, green: &'static Green) {
        assert!(green.next.get().is_none());
        let place = self.jobs.iter().position(|job| std::ptr::eq(*job, green));
        self.taken[place.expect("no job")].fetch_add(1, Relaxed);
    }

    /// One look of a thief, who does all that it gets.
    fn steal(&self, thief: usize) {
        let own = &self.thieves[thief];
        if let Some(green) = self.queue.steal_half(own, HALF) {
            self.take(green);
        }
        while let Some(green) = own.pop() {
            self.take(green);
        }
    }

    /// All threads ended.
    fn check(&self) {
        while let Some(green) = self.queue.pop() {
            self.take(green);
        }
        let pushed = self.pushed.load(Relaxed) as usize;
        let once = |taken: &Untracked| taken.load(Relaxed) == 1;
        assert!(self.taken[..pushed].iter().all(once), "lost or doubled");
    }
}

/// One pushes four jobs, takes one, and pushes two more into the slots that are free again, while a thief
/// looks twice. At most 3 preemptions.
pub(crate) fn one_thief() {
    crate::check(Some(3), || {
        let world = World::new(6);
        let thief = thread::spawn({
            let world = world.clone();
            move || (0..2).for_each(|_| world.steal(0))
        });
        world.push(4);
        if let Some(green) = world.queue.pop() {
            world.take(green);
        }
        world.push(2);
        thief.join().unwrap();
        world.check();
    });
}

/// Four jobs, and two thieves, while the holder of the seat fills the slots that are free again. At most 2
/// preemptions.
pub(crate) fn two_thieves() {
    crate::check(Some(2), || {
        let world = World::new(8);
        world.push(4);
        let thieves = [0, 1].map(|thief| {
            let world = world.clone();
            thread::spawn(move || world.steal(thief))
        });
        world.push(4);
        for thief in thieves {
            thief.join().unwrap();
        }
        world.check();
    });
}

/// Half of a full queue goes elsewhere, and one job comes, while a thief looks. At most 3 preemptions.
pub(crate) fn half_is_taken() {
    crate::check(Some(3), || {
        let world = World::new(6);
        world.push(4);
        let thief = thread::spawn({
            let world = world.clone();
            move || world.steal(0)
        });
        world.queue.take_half(|green| world.take(green));
        world.push(1);
        thief.join().unwrap();
        assert_ne!(world.queue.space(), 0, "no slot is free again");
        world.push(1);
        world.check();
    });
}
