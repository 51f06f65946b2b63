//! What safe code can do to a policy, and with one: no undefined behaviour, and no hang that is not
//! its own doing.
//!
//! The idea: `Shared` lets anybody reach a policy that a runtime uses. Then it is told of processors
//! by several threads at once, shared by two runtimes, asked before it was told, asked again in the
//! middle of an answer, and left by panics. What ends the process by contract happens in a child, and
//! must say why.

#![cfg(target_pointer_width = "64")] // its dice
#![forbid(unsafe_code)]

#[macro_use]
#[path = "../support/safe_policies.rs"]
mod safe_policies;

use crate::checking_allocator::CHECKS;
use crate::common::alone;
use crate::safe::{Rng, aborts, case, child, is_green, watchdog};
use greenthread::policy::*;
use greenthread::runtime::{Mode, Runtime};
use safe_policies::{Shared, runtime, traffic};
use std::io::ErrorKind;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

#[test]
fn anybody_tells_a_policy_of_processors_at_any_time() {
    alone!();
    CHECKS.store(false, Relaxed);
    let _w = watchdog("safe_policy::anybody_tells_a_policy_of_processors_at_any_time");
    fn new<P: Policy>(policy: P) {
        let begin = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    begin.wait();
                    (1..300).for_each(|processors| policy.resize(processors));
                });
            }
        });
        assert!((0..300).all(|processor| policy.len(Some(processor)) == 0));
    }
    fn in_use<P: Policy>(policy: P, rng: &mut Rng) {
        const MOST: usize = 6;
        let policy = Arc::new(policy);
        let runtime = &runtime(2, Shared(policy.clone()));
        let (over, policy) = (&AtomicBool::new(false), &policy);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut rng = rng.fork();
                scope.spawn(move || {
                    while !over.load(SeqCst) {
                        policy.resize(MOST + rng.below(60));
                        std::thread::yield_now();
                    }
                });
            }
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    runtime.set_processors(1 + rng.below(MOST)).unwrap();
                    // Not fewer than there are: this is the test's part of the contract.
                    policy.resize(MOST);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            // A green thread does, too.
            let told = policy.clone();
            let teller = runtime.spawn(move || {
                for round in 0..100 {
                    told.resize(MOST + round);
                    greenthread::yield_now();
                }
            });
            (0..4).for_each(|_| traffic(runtime, 200));
            teller.join().unwrap();
            over.store(true, SeqCst);
        });
    }
    let mut rng = Rng::new("safe_policy::anybody_tells_a_policy_of_processors_at_any_time");
    each_policy!(|policy| {
        (0..3).for_each(|_| new(policy()));
        if is_green() {
            in_use(policy(), &mut rng);
        }
    });
}

#[test]
fn what_a_policy_cannot_be_told_is_refused() {
    alone!();
    CHECKS.store(false, Relaxed);
    let _w = watchdog("safe_policy::what_a_policy_cannot_be_told_is_refused");
    fn refuses<P: Policy>(policy: P, processors: usize) {
        let told = std::panic::AssertUnwindSafe(|| policy.resize(processors));
        let payload = std::panic::catch_unwind(told).unwrap_err();
        let said = payload.downcast_ref::<String>().unwrap();
        assert!(
            said.contains(&format!("{processors} processors: accepted")),
            "{said}"
        );
        // It is as good as before.
        policy.resize(3);
        assert_eq!(policy.work_for_others(), ForOthers::Nothing);
    }
    for processors in [0, 8192, usize::MAX] {
        refuses(WorkStealing::new(), processors);
        refuses(RelaxedFifo::new(), processors);
        refuses(LeastLoaded::new(), processors);
        refuses(Priorities::new(), processors);
    }
    each_policy!(|policy| {
        for told in [0, 1, 3] {
            let policy = policy();
            if told != 0 {
                policy.resize(told);
            }
            for processor in [0, 1, 3, 4096, usize::MAX] {
                assert_eq!(policy.len(Some(processor)), 0);
                assert_eq!(policy.out_of_reach(processor), 0);
            }
            assert_eq!(policy.len(None), 0);
            assert_eq!(policy.work_for_others(), ForOthers::Nothing);
        }
    });
}

#[test]
fn a_policy_of_ours_serves_one_runtime() {
    alone!();
    CHECKS.store(false, Relaxed);
    const TEST: &str = "safe_policy::a_policy_of_ours_serves_one_runtime";
    fn serves_two<P: Policy>(policy: P) {
        let policy = Arc::new(policy);
        let runtimes = [1, 2].map(|processors| runtime(processors, Shared(policy.clone())));
        loop {
            runtimes.iter().for_each(|runtime| traffic(runtime, 20));
        }
    }
    let _w = watchdog(TEST);
    match case(TEST).as_deref() {
        Some("work stealing") => serves_two(WorkStealing::new()),
        Some("relaxed fifo") => serves_two(RelaxedFifo::new()),
        Some("least loaded") => serves_two(LeastLoaded::new()),
        Some("priorities") => serves_two(Priorities::new()),
        Some("global queue") => serves_two(GlobalQueue::new()),
        _ if !is_green() => {}
        _ => {
            for case in [
                "work stealing",
                "relaxed fifo",
                "least loaded",
                "priorities",
            ] {
                // Of a seat, or of a thread, whichever is noticed first.
                aborts(TEST, case, "another runtime");
            }
            // It has nothing that is a seat's: only the threads must not be mixed up.
            aborts(TEST, "global queue", "a thread of another runtime");
        }
    }
}

#[test]
fn who_does_not_tell_a_policy_of_its_processors_hears_of_it() {
    alone!();
    CHECKS.store(false, Relaxed);
    const TEST: &str = "safe_policy::who_does_not_tell_a_policy_of_its_processors_hears_of_it";
    /// Says nothing, or less than is true.
    struct Understated<P>(P, usize);
    impl<P: Policy> Policy for Understated<P> {
        fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
            self.0.ready(thread, how, seat)
        }
        fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
            self.0.next(seat, others)
        }
        fn resize(&self, processors: usize) {
            self.0.resize(processors);
            if self.1 != 0 {
                self.0.resize(self.1);
            }
        }
        fn len(&self, processor: Option<usize>) -> usize {
            self.0.len(processor)
        }
        fn work_for_others(&self) -> ForOthers {
            ForOthers::Work
        }
    }
    struct Silent<P>(P);
    impl<P: Policy> Policy for Silent<P> {
        fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
            self.0.ready(thread, how, seat)
        }
        fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
            self.0.next(seat, others)
        }
        fn len(&self, processor: Option<usize>) -> usize {
            self.0.len(processor)
        }
    }
    let _w = watchdog(TEST);
    let forever = |runtime: Runtime| {
        loop {
            traffic(&runtime, 50);
        }
    };
    let silent = "was used with a policy that knows of";
    // A processor that such a policy does not know uses the queues of the others.
    let serves_all = |runtime: Runtime| (0..20).for_each(|_| traffic(&runtime, 50));
    match case(TEST).as_deref() {
        Some("silent work stealing") => forever(runtime(2, Silent(WorkStealing::new()))),
        Some("silent relaxed fifo") => forever(runtime(2, Silent(RelaxedFifo::new()))),
        Some("silent least loaded") => forever(runtime(2, Silent(LeastLoaded::new()))),
        Some("silent priorities") => forever(runtime(2, Silent(Priorities::new()))),
        Some("least loaded") => serves_all(runtime(2, Understated(LeastLoaded::new(), 1))),
        Some("priorities") => serves_all(runtime(2, Understated(Priorities::new(), 1))),
        _ if !is_green() => {}
        _ => {
            for policy in [
                "work stealing",
                "relaxed fifo",
                "least loaded",
                "priorities",
            ] {
                aborts(TEST, &format!("silent {policy}"), silent);
            }
            for policy in ["least loaded", "priorities"] {
                let out = child(TEST, policy);
                assert!(out.status.success(), "{policy}: {out:?}");
            }
        }
    }
}

/// Whatever it is asked, it asks the policy in it some more, in the seat's name.
struct Restless<P> {
    inner: P,
    processors: AtomicUsize,
    /// A random number, whose turns all processors take.
    dice: AtomicUsize,
}

impl<P: Policy> Restless<P> {
    fn roll(&self, sides: usize) -> usize {
        let roll = self.dice.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        ((roll ^ roll >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33) % sides
    }

    fn give_back(&self, thread: Ready, seat: &Seat) {
        let hows = [
            Readied::Spawned,
            Readied::Woken,
            Readied::Arrived,
            Readied::Yielded,
            Readied::Preempted,
        ];
        let seat = (self.roll(3) != 0).then_some(seat);
        self.inner.ready(thread, hows[self.roll(5)], seat);
    }

    fn stir(&self, seat: &Seat) {
        match self.roll(9) {
            0 => self.inner.leave(seat),
            1 => self.inner.resize(self.processors.load(SeqCst)),
            2 => {
                let all: Vec<_> = [Others::Busy, Others::Idle]
                    .into_iter()
                    .filter_map(|others| self.inner.next(seat, others))
                    .collect();
                all.into_iter().for_each(|n| self.give_back(n.thread, seat));
            }
            _ => {}
        }
    }
}

impl<P: Policy> Policy for Restless<P> {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        if let Some(seat) = seat {
            self.stir(seat);
        }
        let seat = seat.filter(|_| self.roll(4) != 0);
        self.inner.ready(thread, how, seat);
        ForOthers::Work
    }
    fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
        self.stir(seat);
        self.inner.next(seat, others)
    }
    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        self.stir(seat);
        // With something in its own queue already, and more than once.
        let first = self.inner.steal(seat, victims.clone());
        let second = self.inner.steal(seat, victims);
        match (first, second) {
            (Some(first), Some(second)) => {
                self.give_back(first, seat);
                Some(second)
            }
            (first, second) => first.or(second),
        }
    }
    fn leave(&self, seat: &Seat) {
        self.inner.leave(seat);
        self.inner.leave(seat);
    }
    fn resize(&self, processors: usize) {
        self.processors.store(processors, SeqCst);
        self.inner.resize(processors);
    }
    fn len(&self, processor: Option<usize>) -> usize {
        self.inner.len(processor)
    }
    fn work_for_others(&self) -> ForOthers {
        // What only the owner could reach counts, too.
        let waits_at = |processor| self.inner.len(Some(processor)) != 0;
        match (0..self.processors.load(SeqCst)).any(waits_at) {
            true => ForOthers::Work,
            false => self.inner.work_for_others(),
        }
    }
}

#[test]
fn a_policy_is_asked_again_in_the_middle_of_an_answer() {
    alone!();
    CHECKS.store(false, Relaxed);
    let _w = watchdog("safe_policy::a_policy_is_asked_again_in_the_middle_of_an_answer");
    if !is_green() {
        return;
    }
    let mut rng = Rng::new("safe_policy::a_policy_is_asked_again_in_the_middle_of_an_answer");
    each_policy!(|policy| {
        let restless = Restless {
            inner: policy(),
            processors: AtomicUsize::new(0),
            dice: AtomicUsize::new(rng.below(usize::MAX)),
        };
        let runtime = runtime(3, restless);
        (0..3).for_each(|_| traffic(&runtime, 200));
        runtime.shutdown();
    });
}

#[test]
fn a_forgotten_thread_concerns_nobody_else() {
    alone!();
    CHECKS.store(false, Relaxed);
    /// Loses who is least urgent.
    #[derive(Default)]
    struct Forgetful(Lock<Queue>, AtomicUsize);
    impl Policy for Forgetful {
        fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
            match thread.priority() {
                Priority::LOW => {
                    self.1.fetch_add(1, SeqCst);
                    mem::forget(thread);
                }
                _ => self.0.lock().push(thread),
            }
            ForOthers::Work
        }
        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            self.0.lock().pop().map(Next::from)
        }
        fn len(&self, processor: Option<usize>) -> usize {
            processor.map_or_else(|| self.0.lock().len(), |_| 0)
        }
    }
    let _w = watchdog("safe_policy::a_forgotten_thread_concerns_nobody_else");
    if !is_green() {
        return;
    }
    let policy = Arc::new(Forgetful::default());
    let runtime = runtime(2, Shared(policy.clone()));
    let lost = runtime.spawn(|| {
        let low = || greenthread::Builder::new().priority(Priority::LOW);
        (0..50).map(|_| low().spawn(|| ()).unwrap()).collect()
    });
    let lost: Vec<greenthread::JoinHandle<()>> = lost.join().unwrap();
    traffic(&runtime, 200);
    assert_eq!(policy.1.load(SeqCst), 50);
    assert!(lost.iter().all(|thread| !thread.is_finished()));
}

#[test]
fn a_panic_in_resize_is_an_error_to_who_asked_for_it() {
    alone!();
    CHECKS.store(false, Relaxed);
    const TEST: &str = "safe_policy::a_panic_in_resize_is_an_error_to_who_asked_for_it";
    struct Limited {
        queue: GlobalQueue,
        most: usize,
        least: AtomicUsize,
    }
    /// A payload that panics itself.
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("of the payload");
        }
    }
    impl Policy for Limited {
        fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
            self.queue.ready(thread, how, seat)
        }
        fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
            self.queue.next(seat, others)
        }
        fn resize(&self, processors: usize) {
            match processors {
                13 => std::panic::panic_any(Bomb),
                _ if processors > self.most => panic!("{processors} are too many"),
                _ => assert!(processors >= self.least.load(SeqCst), "too few"),
            }
        }
        fn len(&self, processor: Option<usize>) -> usize {
            self.queue.len(processor)
        }
    }
    let _w = watchdog(TEST);
    let limited = |least| Limited {
        queue: GlobalQueue::new(),
        most: 3,
        least: AtomicUsize::new(least),
    };
    match case(TEST).as_deref() {
        Some("too few") => {
            let runtime = runtime(3, limited(2));
            runtime.set_processors(1).unwrap();
            loop {
                traffic(&runtime, 20);
            }
        }
        Some("bomb") => {
            let runtime = runtime(3, limited(0));
            let _ = runtime.set_processors(13);
            return;
        }
        _ if !is_green() => return,
        _ => {}
    }
    let refused = Runtime::builder().processors(4).policy(limited(0)).build();
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    assert!(error.to_string().contains("4 are too many"), "{error}");

    let runtime = runtime(2, limited(0));
    for round in 0..20 {
        let error = runtime.set_processors(4 + round % 3).unwrap_err();
        assert!(error.to_string().contains("are too many"), "{error}");
        assert_eq!(runtime.processors(), 2 + round % 2);
        traffic(&runtime, 50);
        runtime.set_processors(2 + (round + 1) % 2).unwrap();
        traffic(&runtime, 50);
    }
    runtime.shutdown();
    aborts(
        TEST,
        "too few",
        "a policy has panicked when processors had gone",
    );
    aborts(TEST, "bomb", "has panicked while it was dropped");
}

#[test]
fn a_forgotten_guard_concerns_no_other_thread() {
    alone!();
    CHECKS.store(false, Relaxed);
    let _w = watchdog("safe_policy::a_forgotten_guard_concerns_no_other_thread");
    const THREADS: usize = 40;
    let runtime = runtime(1, WorkStealing::new());
    if runtime.mode() == Mode::Kernel {
        return;
    }
    let main = runtime.spawn(|| {
        let forget = || {
            let lock = Lock::new(());
            mem::forget(lock.lock());
        };
        for _ in 0..3 {
            let forgetful: Vec<_> = (0..THREADS).map(|_| greenthread::spawn(forget)).collect();
            forgetful.into_iter().for_each(|t| t.join().unwrap());
        }
        // Their records serve these, each of which begins only if those before it are preempted.
        let begun = Arc::new(AtomicUsize::new(0));
        let hogs: Vec<_> = (0..THREADS)
            .map(|_| {
                let begun = begun.clone();
                greenthread::spawn(move || {
                    begun.fetch_add(1, SeqCst);
                    while begun.load(SeqCst) < THREADS {}
                })
            })
            .collect();
        hogs.into_iter().for_each(|t| t.join().unwrap());
    });
    main.join().unwrap();
    runtime.shutdown();
}
