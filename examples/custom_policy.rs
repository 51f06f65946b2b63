//! A policy that a program writes itself, on crossbeam-deque: depth first, as Cilk and rayon do it.
//!
//! Threads divide some work as long as it can be divided, each for two others. If they run in the order
//! in which they came, all that divide it have begun before the first part of it is done. Here a processor
//! runs the newest of its threads, and a processor that has none takes the oldest of another one, which
//! has the most work before it. So few have begun at once, and few stacks are needed (Blumofe and
//! Leiserson, 1999).

use crossbeam_deque::{Stealer, Worker};
use greenthread::policy::{
    ForOthers, GlobalQueue, Lock, Next, Others, Policy, Queue, Readied, Ready, Seat, Victims,
};
use greenthread::runtime::Runtime;
use std::iter::repeat_with;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PROCESSORS: usize = 2;
/// So many threads a deque holds before it allocates, which a policy must not do. (A thief's first look
/// allocates, once for each kernel thread. It may, since libc's is the allocator of this program: no
/// thread is preempted in there.)
const CAPACITY: usize = 64;
/// One pick of so many is the shared queue's, so that nobody waits there for ever.
const INTERVAL: usize = 61;

#[derive(Default)]
struct DepthFirst {
    processors: [Processor; PROCESSORS],
    /// What no deque has room for, and the threads that give way: they let all others go first.
    shared: Lock<Queue>,
}

struct Processor {
    /// Nobody else locks it.
    own: Lock<Worker<Ready>>,
    stealer: Stealer<Ready>,
    picks: AtomicUsize,
}

impl Default for Processor {
    fn default() -> Processor {
        let own = Worker::new_lifo();
        Processor {
            stealer: own.stealer(),
            own: Lock::new(own),
            picks: AtomicUsize::new(0),
        }
    }
}

impl Policy for DepthFirst {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        let gives_way = matches!(how, Readied::Yielded | Readied::Preempted);
        let own = seat.map(|seat| self.processors[seat.index()].own.lock());
        match own.filter(|own| !gives_way && own.len() < CAPACITY) {
            Some(own) => own.push(thread),
            None => self.shared.lock().push(thread),
        }
        ForOthers::Work // each processor can take any of them
    }

    fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
        let processor = &self.processors[seat.index()];
        let newest = || processor.own.lock().pop();
        let shared = || self.shared.lock().pop();
        let picks = processor.picks.fetch_add(1, Relaxed);
        let thread = match picks.is_multiple_of(INTERVAL) {
            true => shared().or_else(newest),
            false => newest().or_else(shared),
        };
        thread.map(Next::from)
    }

    fn steal(&self, _: &Seat, mut victims: Victims<'_>) -> Option<Ready> {
        victims.find_map(|victim| {
            let steal = || self.processors[victim].stealer.steal();
            repeat_with(steal)
                .find(|stolen| !stolen.is_retry())?
                .success()
        })
    }

    fn leave(&self, seat: &Seat) {
        let own = self.processors[seat.index()].own.lock();
        std::iter::from_fn(|| own.pop()).for_each(|thread| self.shared.lock().push(thread));
    }

    fn resize(&self, processors: usize) {
        assert!(processors <= PROCESSORS, "more processors than deques");
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.shared.lock().len(),
            Some(index) => self.processors[index].stealer.len(),
        }
    }

    fn work_for_others(&self) -> ForOthers {
        let waits = |processor: &Processor| !processor.stealer.is_empty();
        ForOthers::when(self.len(None) != 0 || self.processors.iter().any(waits))
    }
}

/// How many threads have begun and not ended: now, and at most.
static BEGUN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// How long a part takes.
const PART: Duration = Duration::from_micros(50);

/// Does 2^`depth` parts of work, and counts them.
fn divide(depth: u32) -> u64 {
    let begun = BEGUN[0].fetch_add(1, Relaxed) + 1;
    BEGUN[1].fetch_max(begun, Relaxed);
    let parts = match depth {
        0 => {
            let begin = Instant::now();
            while begin.elapsed() < PART {} // computes
            1
        }
        _ => {
            let halves = [(); 2].map(|()| greenthread::spawn(move || divide(depth - 1)));
            halves.into_iter().map(|half| half.join().unwrap()).sum()
        }
    };
    BEGUN[0].fetch_sub(1, Relaxed);
    parts
}

/// Returns how many threads had begun at once.
fn run(policy: impl Policy) -> std::io::Result<usize> {
    let builder = Runtime::builder().processors(PROCESSORS).policy(policy);
    let parts = builder.build()?.spawn(|| divide(9)).join().unwrap();
    assert_eq!(parts, 1 << 9);
    Ok(BEGUN[1].swap(0, Relaxed))
}

fn main() -> std::io::Result<()> {
    let breadth = run(GlobalQueue::new())?;
    let depth = run(DepthFirst::default())?;
    println!("of 1023 threads, {breadth} have begun at once in the order in which they came,");
    println!("and {depth} depth first");
    Ok(())
}
