//! Policies: those that come with the crate by name, and a user's own.
//!
//! The idea: whatever the policy, every thread runs; and a policy decides nothing but the order, so
//! that is what is asked of it. What a user's policy does wrong ends in a message.

use crate::common::*;
use greenthread::policy::*;
use greenthread::runtime::{Mode, Runtime};
use greenthread::sync::mpsc;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Who has the smallest key runs first.
#[derive(Default)]
struct Smallest {
    heap: Lock<Heap>,
    processors: AtomicUsize,
}

impl Policy for Smallest {
    fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
        self.heap.lock().push(thread.priority().get(), thread);
        ForOthers::Work
    }

    fn next(&self, seat: &Seat, _: Others) -> Option<Next> {
        assert!(seat.index() < self.processors.load(SeqCst));
        self.heap.lock().pop().map(Next::from)
    }

    fn resize(&self, processors: usize) {
        self.processors.store(processors, SeqCst);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        match processor {
            None => self.heap.lock().len(),
            Some(_) => 0,
        }
    }
}

fn is_green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// Threads from outside that give way often, each for another time: processors exchange some, and run out of
/// threads one after the other. (Kernel threads have no policy, and beside other programs each of their turns may take
/// milliseconds: they have few.)
fn turns(runtime: &Runtime) {
    let unit = if is_green() { 100 } else { 1 };
    let threads = [1, 2, 3].repeat(4).into_iter().map(|times| {
        runtime.spawn(move || (0..unit * times).for_each(|_| greenthread::yield_now()))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// Threads and what they do to each other: all of it must end, whatever the policy.
fn traffic(runtime: Runtime) {
    let main = runtime.spawn(|| {
        let (to_sum, sum) = mpsc::channel();
        let threads: Vec<_> = (0..200u64)
            .map(|i| {
                let to_sum = to_sum.clone();
                let work = move || {
                    for _ in 0..i % 7 {
                        greenthread::yield_now();
                    }
                    if i % 5 == 0 {
                        greenthread::sleep(std::time::Duration::from_micros(i));
                    }
                    to_sum.send(i).unwrap();
                    i
                };
                greenthread::Builder::new()
                    .priority(Priority::new(i % 4))
                    .spawn(work)
                    .unwrap()
            })
            .collect();
        drop(to_sum);
        let sent: u64 = sum.iter().sum();
        let joined: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!((sent, joined), (19_900, 19_900));
    });
    main.join().unwrap();
    (0..20).for_each(|_| turns(&runtime));
    runtime.shutdown();
}

#[test]
fn every_thread_runs_whatever_the_policy() {
    let _w = watchdog("policy::every_thread_runs_whatever_the_policy");
    for processors in [1, 2, 5] {
        let builder = || Runtime::builder().processors(processors);
        traffic(builder().policy(WorkStealing::new()).build().unwrap());
        traffic(builder().policy(GlobalQueue::new()).build().unwrap());
        traffic(builder().policy(Priorities::new()).build().unwrap());
        traffic(
            builder()
                .policy(LeastLoaded::new().batch(2))
                .build()
                .unwrap(),
        );
        traffic(builder().policy(RelaxedFifo::new()).build().unwrap());
        traffic(builder().policy(Smallest::default()).build().unwrap());
    }
}

#[test]
fn every_idea_can_be_switched_off() {
    let _w = watchdog("policy::every_idea_can_be_switched_off");
    let ideas = WorkStealing::new;
    for policy in [
        ideas().stealing(false),
        ideas().next_slot(false),
        ideas().last_in_first_out(true),
        ideas().global_interval(0),
        ideas().global_interval(1),
        ideas()
            .stealing(false)
            .next_slot(false)
            .last_in_first_out(true)
            .global_interval(0),
    ] {
        let builder = Runtime::builder().processors(3).policy(policy);
        traffic(builder.clone().spinning(false).build().unwrap());
    }
    for off in 0..3 {
        let runtime = Runtime::builder()
            .processors(2)
            .spinning(off != 0)
            .hand_off(off != 1)
            .preemption(off != 2);
        traffic(runtime.build().unwrap());
    }
}

#[test]
fn a_policy_of_ones_own_decides_the_order() {
    let _w = watchdog("policy::a_policy_of_ones_own_decides_the_order");
    if !is_green() {
        return;
    }
    let runtime = Runtime::builder()
        .processors(1)
        .policy(Smallest::default())
        .build()
        .unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let keys = [5u64, 3, 9, 3, 0, 7, 3, 1_000_000_007, 4];
    let main = runtime.spawn(move || {
        // Above all others: they wait until it does.
        set_priority(Priority::HIGHEST);
        greenthread::yield_now();
        let threads: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(i, &key)| {
                let seen = seen.clone();
                greenthread::Builder::new()
                    .priority(Priority::new(key + 1))
                    .spawn(move || seen.lock().unwrap().push((key, i)))
                    .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    main.join().unwrap();
    let mut sorted: Vec<_> = keys.into_iter().zip(0..).collect();
    sorted.sort();
    assert_eq!(*order.lock().unwrap(), sorted);
}

#[test]
fn a_policy_serves_one_runtime() {
    let builder = Runtime::builder().policy(Smallest::default());
    let first = builder.clone().build().unwrap();
    if first.mode() == Mode::Green {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("another runtime"), "{error}");
    }
}

#[test]
fn what_a_policy_does_wrong_is_said() {
    struct Wrong(String, Lock<Queue>);
    impl Policy for Wrong {
        fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
            match &*self.0 {
                "drops" => drop(thread),
                _ => self.1.lock().push(thread),
            }
            ForOthers::Work
        }
        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            let next = self.1.lock().pop();
            assert!(next.is_none() || self.0 != "panics", "of the test's own");
            next.map(Next::from)
        }
        fn len(&self, _: Option<usize>) -> usize {
            self.1.lock().len()
        }
    }
    const TEST: &str = "policy::what_a_policy_does_wrong_is_said";
    if let Some(case) = child_case(TEST) {
        let wrong = Wrong(case, Lock::default());
        let runtime = Runtime::builder().policy(wrong).build().unwrap();
        let _ = runtime.spawn(|| ()).join();
        return;
    }
    if !is_green() {
        return;
    }
    for (case, message) in [
        ("drops", "a policy has dropped a ready thread"),
        // The abort follows: already what the panic allocates is too much for the allocator here.
        ("panics", "of the test's own"),
    ] {
        line_with(&child(TEST, case), &[message]);
    }
}

#[test]
fn a_policy_keeps_runtimes_apart() {
    /// Of two runtimes, by mistake.
    struct Shared(Arc<Lock<Queue>>);
    impl Policy for Shared {
        fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
            self.0.lock().push(thread);
            ForOthers::Work
        }
        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            self.0.lock().pop().map(Next::from)
        }
        fn len(&self, _: Option<usize>) -> usize {
            self.0.lock().len()
        }
    }
    const TEST: &str = "policy::a_policy_keeps_runtimes_apart";
    if child_case(TEST).is_some() {
        let queue = Arc::new(Lock::new(Queue::new()));
        let runtimes = [1, 2].map(|_| {
            let shared = Shared(queue.clone());
            Runtime::builder().policy(shared).build().unwrap()
        });
        loop {
            // Sooner or later the wrong one takes it.
            let threads = runtimes.each_ref().map(|runtime| runtime.spawn(|| ()));
            for thread in threads {
                thread.join().unwrap();
            }
        }
    }
    if is_green() {
        line_with(&child(TEST, ""), &["a thread of another runtime"]);
    }
}

/// The monitor, which takes the processor of a blocked thread, calls it too, and may do so last.
#[test]
fn shutdown_waits_for_who_calls_a_policy() {
    #[derive(Default)]
    struct Calls {
        begun: AtomicBool,
        done: AtomicBool,
        shut_down: AtomicBool,
    }
    struct Slow(Smallest, Arc<Calls>);
    impl Policy for Slow {
        fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
            self.0.ready(thread, how, seat)
        }
        fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
            self.0.next(seat, others)
        }
        fn resize(&self, processors: usize) {
            self.0.resize(processors);
        }
        fn len(&self, processor: Option<usize>) -> usize {
            self.0.len(processor)
        }
        /// Until `shutdown` has returned, if it does not wait.
        fn leave(&self, _: &Seat) {
            let calls = &self.1;
            if std::thread::current().name() == Some("gt-monitor") {
                calls.begun.store(true, SeqCst);
                let start = Instant::now();
                while !calls.shut_down.load(SeqCst) && start.elapsed() < Duration::from_secs(1) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                calls.done.store(true, SeqCst);
            }
        }
    }
    let _w = watchdog("policy::shutdown_waits_for_who_calls_a_policy");
    if !is_green() {
        return;
    }
    let calls = Arc::new(Calls::default());
    let runtime = Runtime::builder()
        .processors(1)
        .policy(Slow(Smallest::default(), calls.clone()))
        .build()
        .unwrap();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    drop(runtime.spawn(move || greenthread::unhooked(|| reader.read_exact(&mut [0]).unwrap())));
    wait_until(|| calls.begun.load(SeqCst));
    writer.write_all(&[0]).unwrap();
    runtime.shutdown();
    let is_done = calls.done.load(SeqCst);
    calls.shut_down.store(true, SeqCst);
    assert!(is_done, "shut down while the policy is being called");
}

#[test]
fn policies_are_chosen_by_name() {
    const TEST: &str = "policy::policies_are_chosen_by_name";
    let cases = [
        ("work-stealing", true),
        (
            "work-stealing,no-stealing,no-next-slot,lifo,global-interval=7",
            true,
        ),
        ("global-queue,no-spinning,no-hand-off,no-preemption", true),
        ("global-queue,lifo", false),
        ("priority,no-preemption", true),
        ("priority,batch=2", false),
        ("least-loaded,batch=3,no-hand-off", true),
        ("least-loaded,batch=0", false),
        ("relaxed-fifo,no-spinning", true),
        ("work-stealing,global-interval=many", false),
        ("round-robin", false),
        ("", false),
    ];
    if let Some(case) = child_case(TEST) {
        let (text, accepted) = cases[case.parse::<usize>().unwrap()];
        match Runtime::new() {
            Ok(runtime) => {
                assert!(accepted, "{text} was accepted");
                assert_eq!(runtime.spawn(|| 6 * 7).join().unwrap(), 42);
            }
            Err(error) => {
                assert!(!accepted, "{text}: {error}");
                let error = error.to_string();
                assert!(error.contains("GREENTHREAD_POLICY"), "{error}");
                assert!(error.contains("work-stealing, "), "{error}");
            }
        }
        return;
    }
    for (index, (text, _)) in cases.iter().enumerate() {
        let status = child_command(TEST, &index.to_string())
            .env("GREENTHREAD_POLICY", text)
            .status()
            .unwrap();
        assert!(status.success(), "{text}: {status}");
    }
}
