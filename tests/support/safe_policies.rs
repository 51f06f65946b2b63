//! What tests of hostile policies share: a policy that others can reach, and threads to schedule.

use greenthread::policy::*;
use greenthread::runtime::Runtime;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A policy that somebody else can reach, too.
pub struct Shared<P>(pub Arc<P>);

impl<P: Policy> Policy for Shared<P> {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        self.0.ready(thread, how, seat)
    }
    fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
        self.0.next(seat, others)
    }
    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        self.0.steal(seat, victims)
    }
    fn leave(&self, seat: &Seat) {
        self.0.leave(seat);
    }
    fn resize(&self, processors: usize) {
        self.0.resize(processors);
    }
    fn len(&self, processor: Option<usize>) -> usize {
        self.0.len(processor)
    }
    fn out_of_reach(&self, processor: usize) -> usize {
        self.0.out_of_reach(processor)
    }
    fn work_for_others(&self) -> ForOthers {
        self.0.work_for_others()
    }
}

pub fn runtime(processors: usize, policy: impl Policy) -> Runtime {
    let builder = Runtime::builder().processors(processors).policy(policy);
    builder
        .time_slice(Duration::from_micros(200))
        .build()
        .unwrap()
}

/// Threads that give way, wait, and wake each other; all must end.
pub fn traffic(runtime: &Runtime, threads: usize) {
    let main = runtime.spawn(move || {
        let ended = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..threads)
            .map(|i| {
                let ended = ended.clone();
                greenthread::spawn(move || {
                    (0..i % 7).for_each(|_| greenthread::yield_now());
                    if i % 5 == 0 {
                        greenthread::sleep(Duration::from_micros(i as u64));
                    }
                    ended.fetch_add(1, SeqCst);
                })
            })
            .collect();
        let count = threads.len();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(ended.load(SeqCst), count);
    });
    main.join().unwrap();
}

/// Calls `$body` with each policy that comes with the crate.
macro_rules! each_policy {
    (|$policy:ident| $body:expr) => {{
        let $policy = || WorkStealing::new();
        $body;
        let $policy = || WorkStealing::new().stealing(false);
        $body;
        let $policy = RelaxedFifo::new;
        $body;
        let $policy = LeastLoaded::new;
        $body;
        let $policy = Priorities::new;
        $body;
        let $policy = GlobalQueue::new;
        $body;
    }};
}
