//! What the threads do. A thread is a state machine: each step runs until it leaves its stack.
//!
//! | workload | its threads | an operation |
//! |---|---|---|
//! | [`Chains`] | as many chains as processors; each thread spawns the next of its chain and ends: Go's `CreateGoroutinesParallel`, the talk's experiment | a thread |
//! | [`Burst`] | a spawner per processor makes all its threads in a row | a thread |
//! | [`Yields`] | ten per processor that do nothing but yield | a yield |
//! | [`Turns`] | some threads yield, until they have yielded so many times all together; how often did each? | a yield |
//! | [`Tree`] | each spawns ten and waits for them, down to the leaves: skynet | a thread |
//! | [`Churn`] | eight per processor; each puts itself into a random slot, wakes whom it finds there, and parks: Cforall's Churn | a wake-up |

use core::cell::{Cell, RefCell};
use core::ptr;

use crate::atomic::{AtomicPtr, Ordering::Relaxed};
use crate::machine::{Action, Processor};
use crate::sched::Green;

pub trait Workload {
    /// How many threads there are at the beginning.
    fn first_threads(&self, processors: usize) -> usize;

    fn operations(&self, processors: usize) -> u64;

    /// `thread` is the first threads' `number`th.
    fn begin(&self, thread: &'static Green, number: usize);

    /// `thread` runs until it leaves its stack.
    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action;
}

/// See the file's header.
pub struct Chains {
    /// Chains for each processor.
    pub chains: usize,
    /// Threads in each chain.
    pub length: u64,
    /// What each thread does besides, in nanoseconds.
    pub work: f64,
}

impl Workload for Chains {
    fn first_threads(&self, processors: usize) -> usize {
        self.chains * processors
    }

    fn operations(&self, processors: usize) -> u64 {
        self.length * (self.chains * processors) as u64
    }

    fn begin(&self, thread: &'static Green, _: usize) {
        thread.state.set([self.length - 1, 0, 0]);
    }

    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action {
        processor.work(self.work);
        let [left, ..] = thread.state.get();
        if left != 0 {
            processor.spawn(|next| next.state.set([left - 1, 0, 0]));
        }
        Action::Exit
    }
}

/// See the file's header.
pub struct Burst {
    /// Threads that each spawner makes.
    pub size: u64,
}

impl Workload for Burst {
    fn first_threads(&self, processors: usize) -> usize {
        processors
    }

    fn operations(&self, processors: usize) -> u64 {
        self.size * processors as u64
    }

    fn begin(&self, thread: &'static Green, _: usize) {
        thread.state.set([self.size, 0, 0]);
    }

    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action {
        for _ in 0..thread.state.get()[0] {
            processor.spawn(|new| new.state.set([0; 3]));
        }
        Action::Exit
    }
}

/// See the file's header.
pub struct Yields {
    pub threads: usize,
    /// How often each thread yields.
    pub each: u64,
}

impl Workload for Yields {
    fn first_threads(&self, processors: usize) -> usize {
        self.threads * processors
    }

    fn operations(&self, processors: usize) -> u64 {
        self.each * (self.threads * processors) as u64
    }

    fn begin(&self, thread: &'static Green, _: usize) {
        thread.state.set([self.each, 0, 0]);
    }

    fn step(&self, _: &Processor<'_>, thread: &'static Green) -> Action {
        let [left, ..] = thread.state.get();
        if left == 0 {
            return Action::Exit;
        }
        thread.state.set([left - 1, 0, 0]);
        Action::Yield
    }
}

/// See the file's header.
pub struct Turns {
    left: Cell<u64>,
    all: u64,
    turns: RefCell<Vec<u64>>,
}

impl Turns {
    /// So many threads, which yield `each` times on average.
    #[must_use]
    pub fn new(threads: usize, each: u64) -> Turns {
        let all = each * threads as u64;
        Turns {
            left: Cell::new(all),
            all,
            turns: RefCell::new(vec![0; threads]),
        }
    }

    /// The least, the median and the most turns that a thread has had, in shares of the average.
    #[must_use]
    pub fn shares(&self) -> [f64; 3] {
        let mut turns = self.turns.borrow().clone();
        turns.sort_unstable();
        let average = self.all as f64 / turns.len() as f64;
        [0, turns.len() / 2, turns.len() - 1].map(|place| turns[place] as f64 / average)
    }
}

impl Workload for Turns {
    fn first_threads(&self, _: usize) -> usize {
        self.turns.borrow().len()
    }

    fn operations(&self, _: usize) -> u64 {
        self.all
    }

    fn begin(&self, thread: &'static Green, number: usize) {
        thread.state.set([number as u64, 0, 0]);
    }

    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action {
        let left = self.left.get();
        if left == 0 {
            return Action::Exit;
        }
        self.left.set(left - 1);
        if left == 1 {
            processor.is_done();
        }
        let [number, ..] = thread.state.get();
        self.turns.borrow_mut()[number as usize] += 1;
        Action::Yield
    }
}

/// See the file's header.
pub struct Tree {
    /// Levels below the root.
    pub depth: u32,
}

const CHILDREN: u32 = 10;

impl Workload for Tree {
    fn first_threads(&self, _: usize) -> usize {
        1
    }

    fn operations(&self, _: usize) -> u64 {
        (0..=self.depth)
            .map(|level| u64::from(CHILDREN).pow(level))
            .sum()
    }

    fn begin(&self, thread: &'static Green, _: usize) {
        thread.state.set([u64::from(self.depth), 0, 0]);
        thread.parent.set(None);
    }

    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action {
        let [levels, has_spawned, _] = thread.state.get();
        if levels != 0 && has_spawned == 0 {
            thread.state.set([levels, 1, 0]);
            // One is its own.
            thread.children.store(CHILDREN + 1, Relaxed);
            for _ in 0..CHILDREN {
                processor.spawn(|child| {
                    child.state.set([levels - 1, 0, 0]);
                    child.parent.set(Some(thread));
                });
            }
            if thread.children.fetch_sub(1, Relaxed) != 1 {
                return Action::Park;
            }
        }
        if let Some(parent) = thread.parent.take()
            && parent.children.fetch_sub(1, Relaxed) == 1
        {
            processor.wake(parent);
        }
        Action::Exit
    }
}

/// See the file's header.
pub struct Churn {
    wake_ups: u64,
    left: Cell<u64>,
    slots: Box<[Slot]>,
}

#[repr(align(64))]
struct Slot(AtomicPtr<Green>);

impl Churn {
    const THREADS: usize = 8;
    const SLOTS: usize = 4;

    /// `each`: wake-ups per processor.
    #[must_use]
    pub fn new(processors: usize, each: u64) -> Churn {
        let wake_ups = each * processors as u64;
        Churn {
            wake_ups,
            left: Cell::new(wake_ups),
            slots: (0..Churn::SLOTS * processors)
                .map(|_| Slot(AtomicPtr::new(ptr::null_mut())))
                .collect(),
        }
    }

    fn put(&self, slot: usize, thread: *mut Green, processor: &Processor<'_>) -> bool {
        let found = self.slots[slot].0.swap(thread, Relaxed);
        // SAFETY: null or a thread's record, which is there as long as the simulation is.
        let found = unsafe { found.as_ref() };
        found.inspect(|other| processor.wake(other)).is_some()
    }
}

impl Workload for Churn {
    fn first_threads(&self, processors: usize) -> usize {
        Churn::THREADS * processors
    }

    fn operations(&self, _: usize) -> u64 {
        self.wake_ups
    }

    fn begin(&self, _: &'static Green, _: usize) {}

    fn step(&self, processor: &Processor<'_>, thread: &'static Green) -> Action {
        if self.left.get() == 0 {
            return Action::Exit;
        }
        let slot = processor.random() as usize % self.slots.len();
        let me = ptr::from_ref(thread).cast_mut();
        let was_last = self.put(slot, me, processor)
            && self.left.replace(self.left.get().saturating_sub(1)) == 1;
        if was_last {
            processor.is_done();
            // The end: whoever is in a slot is woken, and ends too.
            for slot in 0..self.slots.len() {
                self.put(slot, ptr::null_mut(), processor);
            }
        } else if self.left.get() != 0 {
            return Action::Park;
        } else {
            // Perhaps nobody looks into that slot any more.
            self.put(slot, ptr::null_mut(), processor);
        }
        Action::Exit
    }
}
