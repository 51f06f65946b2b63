//! What the simulator must show: the talk's result; and no policy loses a thread on any machine.

use greenthread_simulator::contenders::{self, Contender};
use greenthread_simulator::cost::{Costs, FREE, MEASURED};
use greenthread_simulator::machine::{Outcome, simulate};
use greenthread_simulator::virtual_time;
use greenthread_simulator::workload::{Burst, Chains, Churn, Tree, Workload, Yields};

const SEED: u64 = 1;

fn chains(contender: &Contender, processors: usize) -> Outcome {
    let chains = Chains {
        chains: 1,
        length: 10_000 / processors as u64,
        work: 0.0,
    };
    simulate(&*(contender.make)(), processors, &MEASURED, &chains, SEED)
}

fn named(name: &str) -> &'static Contender {
    contenders::ALL
        .iter()
        .find(|contender| contender.name == name)
        .expect(name)
}

/// "On the 4-core: the modified scheduler takes about 4x longer than the Go scheduler. On the 16-core:
/// about 31x longer!"
#[test]
fn the_talk() {
    let (stealing, global) = (named("work stealing"), named("global queue"));
    let ratio = |processors| {
        chains(global, processors).nanoseconds / chains(stealing, processors).nanoseconds
    };
    let (at_4, at_16) = (ratio(4), ratio(16));
    println!("global queue: {at_4:.1} times longer on 4 processors, {at_16:.1} on 16");
    assert!((2.0..8.0).contains(&at_4), "{at_4}");
    assert!(at_16 > 10.0, "{at_16}");
    let (alone, among_16) = (chains(stealing, 1), chains(stealing, 16));
    assert!(
        among_16.per_operation(16) < 1.5 * alone.per_operation(1),
        "{alone:?} {among_16:?}"
    );
}

/// `simulate` panics if a thread is lost, or if all sleep while one is ready.
#[test]
fn nobody_is_lost() {
    // Each on a thread of its own: 1,024 processors take half a minute.
    std::thread::scope(|scope| {
        for contender in contenders::ALL {
            for (processors, each) in [
                (1, 60),
                (2, 60),
                (3, 60),
                (7, 60),
                (16, 60),
                (64, 60),
                (1024, 3),
            ] {
                scope.spawn(move || nobody_is_lost_among(contender, processors, each));
            }
        }
    });
}

fn nobody_is_lost_among(contender: &contenders::Contender, processors: usize, each: u64) {
    let workloads: [&dyn Workload; 5] = [
        &Chains {
            chains: 1,
            length: each,
            work: 100.0,
        },
        &Burst { size: each },
        &Yields {
            threads: 3,
            each: each.div_ceil(3),
        },
        &Tree { depth: 2 },
        &Churn::new(processors, each),
    ];
    for work in workloads {
        let outcome = simulate(&*(contender.make)(), processors, &MEASURED, work, SEED);
        assert!(outcome.threads > 0 && outcome.nanoseconds > 0.0);
    }
}

/// Other costs are other interleavings.
#[test]
fn nobody_is_lost_where_things_cost_something_else() {
    for contender in contenders::ALL {
        for seed in 1..20 {
            let factor = seed as f64 / 5.0;
            let costs = Costs {
                transfer: MEASURED.transfer * factor,
                keep: MEASURED.keep / factor,
                wake_latency: MEASURED.wake_latency / (10.0 * factor),
                wake_call: 500.0 / factor,
                ..MEASURED
            };
            for processors in [2, 5, 32] {
                simulate(
                    &*(contender.make)(),
                    processors,
                    &costs,
                    &Tree { depth: 3 },
                    seed,
                );
                simulate(
                    &*(contender.make)(),
                    processors,
                    &costs,
                    &Churn::new(processors, 30),
                    seed,
                );
            }
        }
    }
}

#[test]
fn the_same_every_time() {
    for contender in contenders::ALL {
        let once = || {
            simulate(
                &*(contender.make)(),
                16,
                &MEASURED,
                &Churn::new(16, 100),
                SEED,
            )
        };
        assert_eq!(once(), once(), "{}", contender.name);
    }
}

/// So many processors that modify one line take turns; each its own line, they do not.
#[test]
fn contention_queues_up() {
    #[repr(align(64))]
    struct Line(u64);
    const TIMES: usize = 100;
    let lines: Vec<Line> = (0..64).map(Line).collect();
    let costs = Costs {
        transfer: 100.0,
        modify: 1.0,
        ..FREE
    };
    let time = |processors: usize, apart: usize| {
        let end = std::cell::Cell::new(0.0_f64);
        virtual_time::run(processors, &costs, |index| {
            (0..TIMES).for_each(|_| virtual_time::modify(&raw const lines[index * apart].0));
            end.set(end.get().max(virtual_time::now()));
        });
        end.get()
    };
    let alone = TIMES as f64 - 1.0;
    assert!(time(64, 1) <= alone + 1.0);
    let together = time(64, 0) / (64 * TIMES) as f64;
    assert!((98.0..=100.0).contains(&together), "{together} per turn");
}

/// Processors 0 and 1 are in one package, 2 and 3 in the other.
#[test]
fn lines_come_from_the_nearest_cache() {
    #[repr(align(64))]
    struct Line(u64);
    let lines: Vec<Line> = (0..5).map(Line).collect();
    let costs = Costs {
        transfer: 10.0,
        modify: 1.0,
        ..FREE.with_two_packages(100.0)
    };
    let took = |steps: [(u32, bool); 4]| {
        let times = std::cell::Cell::new([0.0; 4]);
        virtual_time::run(4, &costs, |index| {
            let (begin, writes) = steps[index];
            (0..begin).for_each(|_| virtual_time::modify(&raw const lines[index].0));
            let before = virtual_time::now();
            match writes {
                true => virtual_time::modify(&raw const lines[4].0),
                false => virtual_time::load(&raw const lines[4].0),
            }
            let mut all = times.get();
            all[index] = virtual_time::now() - before;
            times.set(all);
        });
        times.get()
    };
    let (reads, writes) = (false, true);
    // Memory is free, and whoever is first has the line from there.
    let near_then_far = took([(0, writes), (500, reads), (1000, reads), (1500, reads)]);
    assert_eq!(near_then_far, [0.0, 10.0, 100.0, 10.0]);
    // The line is on its way to the package: it comes from afar a second time if that is sooner.
    let at_once = took([(0, writes), (500, reads), (1000, reads), (1005, reads)]);
    assert_eq!(at_once, [0.0, 10.0, 100.0, 100.0]);
    let a_little_later = took([(0, writes), (500, reads), (1000, reads), (1095, reads)]);
    assert_eq!(a_little_later, [0.0, 10.0, 100.0, 15.0]);
    // A writer waits for the farthest; the next one in its package does not.
    let writers = took([(1500, writes), (0, reads), (500, reads), (2000, writes)]);
    assert_eq!(writers, [100.0, 0.0, 100.0, 100.0]);
    let writers = took([(1500, writes), (2000, writes), (0, reads), (500, reads)]);
    assert_eq!(writers, [100.0, 10.0, 0.0, 10.0]);
}

#[test]
#[should_panic(expected = "nobody wakes them")]
fn a_lost_wake_up_is_seen() {
    use greenthread_simulator::policy::{
        ForOthers, Next, Others, Policy, Priority, Readied, Ready, Seat,
    };
    use greenthread_simulator::policy::{Lock, Queue};

    /// Keeps the last thread for ever.
    #[derive(Default)]
    struct Miser(Lock<Queue>);

    impl Policy for Miser {
        fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
            assert_eq!(thread.priority(), Priority::NORMAL);
            self.0.lock().push(thread);
            ForOthers::Work
        }

        fn next(&self, _: &Seat, _: Others) -> Option<Next> {
            let mut queue = self.0.lock();
            (queue.len() > 1)
                .then(|| queue.pop())
                .flatten()
                .map(Next::from)
        }

        fn len(&self, _: Option<usize>) -> usize {
            self.0.lock().len().saturating_sub(1)
        }
    }

    let miser = Box::leak(Box::new(Miser::default()));
    simulate(miser, 3, &MEASURED, &Burst { size: 10 }, SEED);
}
