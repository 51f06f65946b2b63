//! Dataflow: graphs of every shape, run and checked against the same sums done one after the other.
//!
//! The idea: a *gate* is a node that waits for a channel. What depends on it cannot run before the
//! test says so; a graph that is built behind a gate is there as a whole, waiting, before the first
//! node of it runs. Most graphs are run behind a gate and without one.

use crate::common::*;
use crate::dying;
use greenthread as thread;
use greenthread::dataflow::{Value, call, value};
use std::panic::{panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

/// A value that is resolved when the sender sends it.
fn gate() -> (mpsc::Sender<u64>, Value<u64>) {
    let (open, opened) = mpsc::channel();
    (open, call((), move |()| opened.recv().unwrap()))
}

/// Runs `build` with an input that is there, and with one that comes when all is built. It returns
/// handles that must be resolved in the end, and what they must be.
fn now_and_later(name: &str, nodes: usize, build: impl Fn(Value<u64>) -> Vec<(Value<u64>, u64)>) {
    for gated in [false, true] {
        let start = Instant::now();
        let (open, input) = if gated {
            let (open, input) = gate();
            (Some(open), input)
        } else {
            (None, value(1))
        };
        let expected = build(input);
        let built = start.elapsed();
        if let Some(open) = open {
            assert!(expected.iter().all(|(value, _)| !value.is_resolved()));
            open.send(1).unwrap();
        }
        for (value, expected) in &expected {
            assert_eq!(value.get(), Ok(expected));
            assert_eq!(value.try_get(), Some(Ok(expected)));
        }
        let (done, per_node) = (start.elapsed(), start.elapsed().as_nanos() / nodes as u128);
        println!("{name}, gated: {gated}: built {built:?}, done {done:?}, {per_node} ns a node");
    }
}

/// As many nodes as a mode, and a build, can be asked for in a test.
fn million() -> usize {
    match green() && !cfg!(debug_assertions) {
        true => 1_000_000,
        false => 100_000,
    }
}

#[test]
fn shapes_of_inputs() {
    let _w = watchdog("dataflow::shapes_of_inputs");
    both(|| {
        let (a, b, c) = (value(1), value("two".to_string()), value(vec![3]));
        assert_eq!(call((), |()| 0).get(), Ok(&0));
        assert_eq!(call(&a, |a| a + 1).get(), Ok(&2));
        assert_eq!(call(a.clone(), |a| *a).get(), Ok(&1));
        assert_eq!(call((&a,), |(a,)| *a).get(), Ok(&1));
        let all = call((&a, &b, &c), |(a, b, c)| format!("{a} {b} {c:?}"));
        assert_eq!(all.get().unwrap(), "1 two [3]");
        let many: Vec<Value<u64>> = (0..100).map(value).collect();
        assert_eq!(call(&many, |all| all.into_iter().sum()).get(), Ok(&4950));
        assert_eq!(call(&many[..10], |all| all.len()).get(), Ok(&10));
        assert_eq!(call([&a, &a], |[x, y]| x + y).get(), Ok(&2));
        let nested = call((many, [(a.clone(), b), (a, value("x".into()))]), {
            |(many, [(one, _), (_, x)])| many.len() as i32 + one + x.len() as i32
        });
        assert_eq!(nested.get(), Ok(&102));
        let v = || value(1);
        let twelve = (v(), v(), v(), v(), v(), v(), v(), v(), v(), v(), v(), v());
        let sum = call(twelve, |(a, b, c, d, e, f, g, h, i, j, k, l)| {
            a + b + c + d + e + f + g + h + i + j + k + l
        });
        assert_eq!(sum.get(), Ok(&12));
        assert_eq!(
            call(Vec::<Value<u8>>::new(), |none| none.len()).get(),
            Ok(&0)
        );
    });
}

#[test]
fn diamonds() {
    let _w = watchdog("dataflow::diamonds");
    now_and_later("10,000 diamonds", 40_000, |top| {
        let bottoms = (0..10_000).map(|i| {
            let left = call(&top, move |top| top + i);
            let right = call(&top, move |top| top * 2);
            (call((&left, &right, &top), |(l, r, t)| l + r + t), i + 4)
        });
        bottoms.collect()
    });
}

#[test]
fn wide() {
    let _w = watchdog("dataflow::wide");
    let n = million() as u64;
    now_and_later("dataflow::wide", 2 * n as usize, |root| {
        let leaves: Vec<_> = (0..n).map(|i| call(&root, move |one| one + i)).collect();
        let sum = call(leaves, |leaves| leaves.into_iter().sum());
        vec![(sum, n + n * (n - 1) / 2)]
    });
}

#[test]
fn deep() {
    let _w = watchdog("dataflow::deep");
    now_and_later("dataflow::deep", million(), |root| {
        let mut last = root;
        (0..million()).for_each(|_| last = call(&last, |n| n + 1));
        vec![(last, million() as u64 + 1)]
    });
}

#[test]
fn deep_with_all_handles_kept() {
    let _w = watchdog("dataflow::deep_with_all_handles_kept");
    now_and_later("deep, kept", million(), |root| {
        let mut all = vec![(root, 1)];
        for i in 0..million() {
            all.push((call(&all[i].0, |n| n + 1), i as u64 + 2));
        }
        all
    });
}

/// The gate opens when half of the graph is built: from then on nodes run while others are added.
#[test]
fn random_graph() {
    let _w = watchdog("dataflow::random_graph");
    let mut rng = Rng::new("dataflow::random_graph");
    fn node(i: u64, a: u64, b: u64, c: u64) -> u64 {
        a.wrapping_mul(6_364_136_223_846_793_005) ^ b.rotate_left(17) ^ c.wrapping_add(i)
    }
    let (open, start) = gate();
    let (mut nodes, mut expected) = (vec![start], vec![1]);
    let before = Instant::now();
    for i in 0..million() {
        // Three inputs among the nodes before, most of them near.
        let [a, b, c] = [(); 3].map(|()| match rng.below(4) {
            0 => rng.below(i + 1),
            _ => i - rng.below((i + 1).min(100)),
        });
        expected.push(node(i as u64, expected[a], expected[b], expected[c]));
        let (a, b, c, i) = (&nodes[a], &nodes[b], &nodes[c], i as u64);
        nodes.push(match i % 3 {
            0 => call([a, b, c], move |[a, b, c]| node(i, *a, *b, *c)),
            1 => call((a, b, c), move |(a, b, c)| node(i, *a, *b, *c)),
            _ => {
                let early = call((a, b), move |(a, b)| node(i, *a, *b, 0));
                call((early, c), move |(early, c)| early ^ i ^ c.wrapping_add(i))
            }
        });
        if i as usize == million() / 2 {
            open.send(1).unwrap();
        }
    }
    println!("built {:?}", before.elapsed());
    for (node, expected) in nodes.iter().zip(&expected) {
        assert_eq!(node.get(), Ok(expected));
    }
    println!("done {:?}", before.elapsed());
}

#[test]
fn graphs_that_grow_by_themselves() {
    let _w = watchdog("dataflow::graphs_that_grow_by_themselves");
    fn fibonacci(n: u64) -> Value<u64> {
        if n < 2 {
            return value(n);
        }
        let parts = [n - 1, n - 2].map(|n| call((), move |()| fibonacci(n)).flatten());
        call(parts, |[a, b]| a + b)
    }
    /// Each step is made by the one before, and is all that it returns.
    fn count(n: usize, found: u64) -> Value<u64> {
        if n == 0 {
            return value(found);
        }
        call(value(found), move |found| count(n - 1, found + 1)).flatten()
    }
    both(|| {
        assert_eq!(fibonacci(20).get(), Ok(&6765));
        assert_eq!(count(million() / 4, 0).get(), Ok(&(million() as u64 / 4)));
    });
}

#[test]
fn panics_flow() {
    let _w = watchdog("dataflow::panics_flow");
    dying::quietly();
    both(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = |n: &u64| {
            let ran = ran.clone();
            let n = *n;
            move |_: &u64| {
                ran.fetch_add(1, SeqCst);
                n
            }
        };
        let (open, start) = gate();
        let line = line!() + 1;
        let broken = call(&start, |_| -> u64 { resume_unwind(Box::new("no luck")) });
        let healthy = call(&start, counted(&7));
        let mut chain = vec![call(&broken, counted(&1))];
        for i in 0..100_000 {
            chain.push(call(&chain[i], counted(&1)));
        }
        let joined = call((&healthy, &broken, &chain[5]), |_| 0);
        let all = call(vec![healthy.clone(), joined.clone()], |_| 0);
        let flat = call(&broken, |n| value(*n)).flatten();
        let flat_inside = call((), {
            let broken = broken.clone();
            move |()| broken
        })
        .flatten();
        open.send(1).unwrap();
        let failure = broken.get().unwrap_err();
        assert_eq!(failure.message(), "no luck");
        assert_eq!(
            (failure.origin().file(), failure.origin().line()),
            (file!(), line)
        );
        let said = failure.to_string();
        assert!(said.contains("no luck") && said.contains(file!()), "{said}");
        for value in chain.iter().chain([&joined, &all, &flat, &flat_inside]) {
            assert_eq!(value.get(), Err(failure.clone())); // the very same panic
        }
        assert_eq!(healthy.get(), Ok(&7));
        assert_eq!(ran.load(SeqCst), 1, "dependents ran");
        let late = call((&broken, &healthy), |(a, b)| a + b);
        assert_eq!(late.get(), Err(failure.clone()));
        let payload = late.get().unwrap_err().take_payload().unwrap();
        assert_eq!(payload.downcast_ref(), Some(&"no luck"));
        assert!(failure.take_payload().is_none());
        // The first of several, in the order of the inputs.
        let other = call((), |()| -> u64 { panic_any(dying::Killed) });
        let both = call((&other, &broken), |(a, b)| a + b);
        assert_eq!(both.get(), other.get());
        assert_eq!(call((&broken, &other), |_| ()).get(), Err(failure));
    });
}

/// Counts how many of it are alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, SeqCst);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn everything_is_dropped_once() {
    let _w = watchdog("dataflow::everything_is_dropped_once");
    dying::quietly();
    both(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let make = || Counted::new(&alive);
        let (open, start) = gate();
        let (captured, count) = (make(), alive.clone());
        let first = call(&start, move |_| {
            drop(captured);
            Counted::new(&count)
        });
        let captured = make();
        let broken = call(&first, move |_| -> Counted {
            let _captured = captured;
            dying::die()
        });
        let captured = make();
        let never = call(&broken, move |_| drop(captured));
        let count = alive.clone();
        let flat = call(&first, move |_| value(Counted::new(&count))).flatten();
        assert_eq!(alive.load(SeqCst), 3);
        open.send(1).unwrap();
        assert!(never.get().is_err() && broken.get().is_err() && flat.get().is_ok());
        // A node lets go of what it holds before it is resolved.
        assert_eq!(alive.load(SeqCst), 2);
        drop(first);
        wait_until(|| alive.load(SeqCst) == 1);
        drop(flat);
        wait_until(|| alive.load(SeqCst) == 0);
    });
}

#[test]
fn nodes_without_handles_run() {
    let _w = watchdog("dataflow::nodes_without_handles_run");
    both(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let (open, start) = gate();
        let mut last = start;
        for _ in 0..1000 {
            let ran = ran.clone();
            last = call(last, move |n| {
                ran.fetch_add(1, SeqCst);
                *n
            });
        }
        drop(last);
        open.send(1).unwrap();
        wait_until(|| ran.load(SeqCst) == 1000);
    });
}

#[test]
fn many_wait_for_one() {
    let _w = watchdog("dataflow::many_wait_for_one");
    let (open, start) = gate();
    let value = call(&start, |n| n + 1);
    let green = (0..100).map(|_| {
        let value = value.clone();
        thread::spawn(move || *value.get().unwrap())
    });
    let green: Vec<_> = green.collect();
    std::thread::scope(|s| {
        let kernel: Vec<_> = (0..8).map(|_| s.spawn(|| *value.get().unwrap())).collect();
        assert_eq!(value.try_get(), None);
        assert_eq!(format!("{value:?}"), "Value(<waiting>)");
        open.send(1).unwrap();
        kernel
            .into_iter()
            .for_each(|k| assert_eq!(k.join().unwrap(), 2));
    });
    green
        .into_iter()
        .for_each(|g| assert_eq!(g.join().unwrap(), 2));
    assert_eq!(format!("{value:?}"), "Value(2)");
}

/// Values are resolved while dependents are added, from many threads.
#[test]
fn added_while_it_resolves() {
    let _w = watchdog("dataflow::added_while_it_resolves");
    let rounds = if green() { 2000 } else { 200 };
    for round in 0..rounds {
        let (open, start) = gate();
        let sums: Vec<_> = std::thread::scope(|s| {
            let adders = [(); 3].map(|()| {
                let start = &start;
                s.spawn(move || {
                    let added: Vec<_> = (0..20).map(|i| call(start, move |n| n + i)).collect();
                    call(added, |added| added.into_iter().sum::<u64>())
                })
            });
            open.send(round).unwrap();
            adders
                .into_iter()
                .map(|adder| adder.join().unwrap())
                .collect()
        });
        for sum in sums {
            assert_eq!(sum.get(), Ok(&(20 * round + 190)));
        }
    }
}

/// Nodes that block do not keep others from running, not even those that they wait for.
#[test]
fn nodes_may_block() {
    let _w = watchdog("dataflow::nodes_may_block");
    let n = if green() { 10_000 } else { 30 };
    // Each waits for a later one.
    let later: Arc<Vec<Mutex<Option<Value<usize>>>>> =
        Arc::new((0..=n).map(|_| Mutex::new(None)).collect());
    let (open, start) = gate();
    let nodes: Vec<_> = (0..n)
        .map(|i| {
            let later = later.clone();
            call(&start, move |_| {
                let next = later[i + 1].lock().unwrap().clone();
                next.map_or(0, |next| *next.get().unwrap() + 1)
            })
        })
        .collect();
    for (place, node) in later.iter().zip(&nodes) {
        *place.lock().unwrap() = Some(node.clone());
    }
    open.send(1).unwrap();
    for (i, node) in nodes.iter().enumerate() {
        assert_eq!(node.get(), Ok(&(n - 1 - i)));
    }
    later.iter().for_each(|place| *place.lock().unwrap() = None);
}

/// What is ready is run in parallel: all wait for each other.
#[test]
fn all_processors_are_used() {
    let _w = watchdog("dataflow::all_processors_are_used");
    let barrier = Arc::new(thread::sync::Barrier::new(16));
    let (open, start) = gate();
    let nodes: Vec<_> = (0..16)
        .map(|_| {
            let barrier = barrier.clone();
            call(&start, move |_| barrier.wait().is_leader())
        })
        .collect();
    open.send(1).unwrap();
    let leaders = nodes.iter().filter(|node| *node.get().unwrap()).count();
    assert_eq!(leaders, 1);
}

/// Nodes stay in the runtime where they become ready.
#[test]
fn runtimes() {
    let _w = watchdog("dataflow::runtimes");
    if !green() {
        return; // kernel threads belong to no runtime
    }
    let runtime = thread::runtime::Runtime::builder()
        .processors(1)
        .build()
        .unwrap();
    let before = runtime.metrics().spawns;
    let sum = runtime.spawn(|| {
        let leaves: Vec<_> = (0..100).map(|i| call((), move |()| i)).collect();
        call(leaves, |leaves| leaves.into_iter().sum::<u64>())
    });
    let sum = sum.join().unwrap();
    assert_eq!(sum.get(), Ok(&4950));
    assert!(
        runtime.metrics().spawns > before + 1,
        "the nodes ran elsewhere"
    );
    runtime.shutdown();
}

/// A forked child has its parent's threads no more, and goes on all the same. (Not on std alone, which
/// hears of no fork.)
#[cfg(green)]
#[test]
fn forked() {
    let _w = watchdog("dataflow::forked");
    both(|| {
        let (open, start) = gate();
        let busy = call(&start, |one| assert_eq!(*one, 1));
        // SAFETY: the child leaves by `_exit`.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let six = call((), |()| 6);
            let right = call((&six, value(7)), |(a, b)| a * b).get() == Ok(&42);
            // SAFETY: ends the process.
            unsafe { libc::_exit(if right { 42 } else { 1 }) };
        }
        open.send(1).unwrap();
        assert!(busy.get().is_ok());
        let mut status = 0;
        // SAFETY: a valid place.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(libc::WEXITSTATUS(status), 42, "status {status}");
    });
}
