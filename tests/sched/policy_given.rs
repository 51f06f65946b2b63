//! A policy of the crate's is given to a builder after it has served another runtime's guest.
//!
//! The idea: a guest in one runtime puts a thread into the policy, which another runtime is then
//! built with. That runtime must not run the thread: it would end up on the first one's stacks,
//! kernel threads and counts.

#![forbid(unsafe_code)]

#[path = "../support/safe.rs"]
mod safe;

use greenthread::policy::*;
use greenthread::runtime::Runtime;
use safe::{is_green, watchdog};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Puts threads of a low priority into `aside`, while there is such a policy.
struct Smuggler<P> {
    own: Lock<Queue>,
    aside: Arc<Lock<Option<P>>>,
    is_aside: Arc<AtomicBool>,
}

impl<P: Policy> Policy for Smuggler<P> {
    fn ready(&self, thread: Ready, how: Readied, _: Option<&Seat>) -> ForOthers {
        if thread.priority() == Priority::LOW
            && let Some(aside) = &*self.aside.lock()
        {
            aside.ready(thread, how, None);
            self.is_aside.store(true, SeqCst);
            return ForOthers::Nothing;
        }
        self.own.lock().push(thread);
        ForOthers::Work
    }

    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        self.own.lock().pop().map(Next::from)
    }

    fn len(&self, processor: Option<usize>) -> usize {
        processor.map_or(self.own.lock().len(), |_| 0)
    }
}

fn another_runtime_leaves_the_thread_alone(policy: impl Policy) {
    let aside = Arc::new(Lock::new(Some(policy)));
    let is_aside = Arc::new(AtomicBool::new(false));
    let smuggler = Smuggler {
        own: Lock::default(),
        aside: aside.clone(),
        is_aside: is_aside.clone(),
    };
    let one = Runtime::builder()
        .processors(1)
        .policy(smuggler)
        .build()
        .unwrap();
    let has_gone_on = Arc::new(AtomicBool::new(false));
    let told = has_gone_on.clone();
    drop(one.spawn(move || {
        set_priority(Priority::LOW);
        greenthread::yield_now();
        told.store(true, SeqCst);
    }));
    while !is_aside.load(SeqCst) {
        std::thread::yield_now();
    }

    let policy = aside.lock().take().unwrap();
    assert!(policy.len(None) + policy.len(Some(0)) == 1);
    let other = Runtime::builder().processors(1).policy(policy).build();
    let other = other.unwrap();
    // The thread came first: it would have its turn before all of these have ended.
    let turns = || (0..1_000).for_each(|_| greenthread::yield_now());
    let threads: Vec<_> = (0..10).map(|_| other.spawn(turns)).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(!has_gone_on.load(SeqCst), "it ran in another runtime");
    other.shutdown();
    assert!(!has_gone_on.load(SeqCst), "it ran in another runtime");
}

#[test]
fn a_policy_brings_no_threads() {
    let _w = watchdog("policy_given::a_policy_brings_no_threads");
    if !is_green() {
        return;
    }
    another_runtime_leaves_the_thread_alone(WorkStealing::new());
    another_runtime_leaves_the_thread_alone(RelaxedFifo::new());
    another_runtime_leaves_the_thread_alone(LeastLoaded::new());
    another_runtime_leaves_the_thread_alone(Priorities::new());
    another_runtime_leaves_the_thread_alone(GlobalQueue::new());
}
