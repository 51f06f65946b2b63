//! A policy that a program writes itself: earliest deadline first.
//!
//! Jobs arrive in a burst, each with a time by which it should be done. If one processor runs them in
//! the order in which they came, many are late. If it runs them in the order of their deadlines, all
//! are in time whenever any order can achieve that (Liu and Layland, 1973). The policy takes a
//! thread's priority for its deadline, in microseconds from the start.

use greenthread::Builder;
use greenthread::policy::{
    self, ForOthers, Heap, Lock, Next, Others, Policy, Priority, Readied, Ready, Seat,
};
use greenthread::runtime::Runtime;
use std::time::{Duration, Instant};

/// One queue, ordered by deadlines. Of two equal ones, the thread that came first goes first.
#[derive(Default)]
struct EarliestDeadline(Lock<Heap>);

impl Policy for EarliestDeadline {
    fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
        let deadline = thread.priority().get();
        self.0.lock().push(deadline, thread);
        ForOthers::Work // any processor could run it
    }

    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        self.0.lock().pop().map(Next::from)
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.0.lock().len(), // all wait in the one queue
            Some(_) => 0,
        }
    }
}

const JOBS: u64 = 100;
const WORK: Duration = Duration::from_micros(500);

/// Runs the burst, and returns how many jobs were late.
fn burst(runtime: Runtime) -> usize {
    let all = runtime.spawn(|| {
        policy::set_priority(Priority::HIGHEST); // until all have arrived
        let start = Instant::now();
        let job = |i: u64| {
            // Twice the time that all take, but the last to come are the most urgent.
            let deadline = WORK * 2 * (JOBS - i) as u32;
            let run = move || {
                let begin = Instant::now();
                while begin.elapsed() < WORK {} // computes
                start.elapsed() > deadline
            };
            let urgency = Priority::new(deadline.as_micros() as u64);
            Builder::new().priority(urgency).spawn(run).unwrap()
        };
        let jobs: Vec<_> = (0..JOBS).map(job).collect();
        let late = jobs.into_iter().map(|job| job.join().unwrap());
        late.filter(|&late| late).count()
    });
    all.join().unwrap()
}

fn main() -> std::io::Result<()> {
    let one = || Runtime::builder().processors(1);
    let first_come = burst(one().policy(policy::GlobalQueue::new()).build()?);
    let earliest = burst(one().policy(EarliestDeadline::default()).build()?);
    println!("of {JOBS} jobs were late: {first_come} in the order in which they came,");
    println!("{earliest} with the earliest deadline first");
    Ok(())
}
