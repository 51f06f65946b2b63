//! Schedule traces: what is recorded is what happened, and the files are what they should be.
//!
//! The idea: a program with a known schedule is traced, and the JSON, read by a real parser, is counted.
//! A trace is of the whole process, so the tests take turns.

#[path = "../support/timeline.rs"]
mod timeline;

use crate::common::*;
use greenthread::observe;
use greenthread::runtime::Runtime;
use greenthread::sync::Mutex;
use greenthread::{Builder, channel};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};
use timeline::{Events, Run};

static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Traces `work`, and reads the JSON.
fn traced<T>(work: impl FnOnce() -> T) -> (T, Events) {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (result, trace) = observe::trace(work).unwrap();
    assert_eq!(trace.lost(), 0);
    (result, Events::of(&trace))
}

fn compute_until(stop: impl Fn() -> bool) {
    while !stop() {
        (0..100).for_each(|i| _ = black_box(i));
    }
}

/// Whether the thread is one of many, `t-0` and so on.
fn named(runs: &[Run], thread: u64) -> bool {
    let mut names = runs.iter().filter(|run| run.thread == thread);
    names.any(|run| run.name.starts_with("t-"))
}

#[test]
fn every_spawn_and_every_end_is_there_once() {
    alone!();
    let _dog = watchdog("trace::every_spawn_and_every_end_is_there_once");
    const THREADS: usize = 500;
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let ((), events) = traced(|| {
        let main = || {
            let spawn = |i| {
                Builder::new()
                    .name(format!("t-{i}"))
                    .spawn(greenthread::yield_now)
            };
            let threads: Vec<_> = (0..THREADS).map(|i| spawn(i).unwrap()).collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        };
        runtime.spawn(main).join().unwrap();
        // A joiner goes on a moment before the thread has left its stack.
        runtime.shutdown();
    });
    events.check();
    let spawned = events
        .phase("s")
        .filter(|event| event["args"]["how"] == "spawn");
    let spawned: Vec<u64> = spawned
        .map(|event| event["args"]["to"].as_u64().unwrap())
        .collect();
    assert_eq!(spawned.len(), THREADS + 1);
    assert_eq!(spawned.iter().collect::<HashSet<_>>().len(), THREADS + 1);
    let runs = events.runs();
    let ended: Vec<_> = runs.iter().filter(|run| run.stopped == "ends").collect();
    let names: HashSet<_> = ended.iter().map(|run| run.name.clone()).collect();
    assert_eq!(ended.len(), THREADS + 1);
    assert!((0..THREADS).all(|i| names.contains(&format!("t-{i}"))));
    if green() {
        for thread in spawned.into_iter().filter(|&thread| named(&runs, thread)) {
            let yields = runs
                .iter()
                .filter(|run| run.thread == thread && run.stopped == "yields");
            assert!(yields.count() >= 1);
        }
        let (starts, ends) = (events.phase("s").count(), events.phase("f").count());
        assert!(
            ends >= THREADS && ends <= starts,
            "{ends} of {starts} arrows end"
        );
    }
}

#[test]
fn a_wake_up_names_its_waker() {
    alone!();
    let _dog = watchdog("trace::a_wake_up_names_its_waker");
    if !green() {
        return;
    }
    const TURNS: usize = 100;
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let ((), events) = traced(|| {
        let (ping, pinged) = channel::bounded(0);
        let (pong, ponged) = channel::bounded(0);
        let name = |name: &str| Builder::new().name(name.into());
        let server = move || {
            pinged
                .into_iter()
                .for_each(|i: usize| pong.send(i).unwrap())
        };
        let server = runtime.spawn_named(name("server"), server);
        let client = move || {
            (0..TURNS).for_each(|i| {
                ping.send(i).unwrap();
                assert_eq!(ponged.recv(), Ok(i));
            });
        };
        let client = runtime.spawn_named(name("client"), client);
        [server, client]
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    events.check();
    let number = |name: &str| {
        let runs = events.runs();
        runs.iter().find(|run| run.name == name).unwrap().thread
    };
    let (server, client) = (number("server"), number("client"));
    let mut of_server = 0;
    for event in events
        .phase("s")
        .filter(|event| event["args"]["how"] == "wake-up")
    {
        let waker = events.at(event);
        if event["args"]["to"] == server {
            assert_eq!(waker.as_deref(), Some("client"));
            of_server += 1;
        } else if event["args"]["to"] == client {
            assert_eq!(waker.as_deref(), Some("server"));
        }
    }
    // Either of the two waits in each turn; which one depends on who came first.
    assert!(of_server >= 1, "the server was never woken");
    runtime.shutdown();
}

trait Named {
    fn spawn_named(
        &self,
        builder: Builder,
        work: impl FnOnce() + Send + 'static,
    ) -> greenthread::JoinHandle<()>;
}

impl Named for Runtime {
    /// A thread of this runtime, with a name.
    fn spawn_named(
        &self,
        builder: Builder,
        work: impl FnOnce() + Send + 'static,
    ) -> greenthread::JoinHandle<()> {
        self.spawn(|| builder.spawn(work).unwrap()).join().unwrap()
    }
}

#[test]
fn a_mutex_is_handed_over_by_its_holder() {
    alone!();
    let _dog = watchdog("trace::a_mutex_is_handed_over_by_its_holder");
    if !green() {
        return;
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let ((), events) = traced(|| {
        let lock = Arc::new(Mutex::new(()));
        let (held, is_held) = channel::bounded(1);
        let others = lock.clone();
        let holder = move || {
            let guard = lock.lock().unwrap();
            held.send(()).unwrap();
            greenthread::sleep(Duration::from_millis(5));
            drop(guard);
        };
        let waiter = move || {
            is_held.recv().unwrap();
            drop(others.lock().unwrap());
        };
        let name = |name: &str| Builder::new().name(name.into());
        // The one that was spawned last runs first, and waits for the holder, whatever takes how long.
        let spawn_both = move || {
            let holder = name("holder").spawn(holder).unwrap();
            [holder, name("waiter").spawn(waiter).unwrap()]
        };
        let both = runtime.spawn(spawn_both).join().unwrap();
        both.into_iter().for_each(|thread| thread.join().unwrap());
    });
    events.check();
    let runs = events.runs();
    let waiter = runs.iter().find(|run| run.name == "waiter").unwrap().thread;
    let wakes = events
        .phase("s")
        .filter(|event| event["args"]["to"] == waiter && event["args"]["how"] == "wake-up");
    let wakers: Vec<_> = wakes.map(|event| events.at(event)).collect();
    assert!(!wakers.is_empty());
    assert!(
        wakers
            .iter()
            .all(|waker| waker.as_deref() == Some("holder")),
        "{wakers:?}"
    );
    assert!(events.instants("a deadline has passed") >= 1);
    runtime.shutdown();
}

#[test]
fn a_preemption_is_there() {
    alone!();
    let _dog = watchdog("trace::a_preemption_is_there");
    if !green() {
        return;
    }
    let runtime = Runtime::builder()
        .processors(1)
        .preemption(true)
        .build()
        .unwrap();
    let ((), events) = traced(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(move || compute_until(|| stop.load(Relaxed)))
            })
            .collect();
        let before = runtime.metrics().preemptions;
        wait_until(|| runtime.metrics().preemptions >= before + 3);
        stop.store(true, Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
    });
    events.check();
    // One whose processor was taken from it first is preempted without one.
    assert!(events.instants("preemption") >= 1);
    assert!(
        events
            .runs()
            .iter()
            .any(|run| run.stopped == "was preempted")
    );
    runtime.shutdown();
}

#[test]
fn a_hand_off_is_there() {
    alone!();
    let _dog = watchdog("trace::a_hand_off_is_there");
    if !green() {
        return;
    }
    let runtime = Runtime::builder()
        .processors(1)
        .hand_off(true)
        .build()
        .unwrap();
    let ((), events) = traced(|| {
        // The monitor may come too late.
        while runtime.metrics().hand_offs == 0 {
            let blocked = runtime.spawn(|| {
                greenthread::blocking(|| std::thread::sleep(Duration::from_millis(30)));
            });
            let others = runtime.spawn(|| greenthread::sleep(Duration::from_millis(5)));
            [blocked, others]
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
    });
    events.check();
    assert!(events.instants("hand-off") >= 1);
    let phase = |phase| {
        events
            .phase(phase)
            .filter(|event| event["cat"] == "without a processor")
    };
    assert!(phase("b").count() >= 1);
    assert_eq!(phase("b").count(), phase("e").count());
    runtime.shutdown();
}

#[test]
fn a_steal_is_there() {
    alone!();
    let _dog = watchdog("trace::a_steal_is_there");
    if !green() {
        return;
    }
    let runtime = Runtime::builder()
        .processors(2)
        .policy_named("work-stealing");
    let runtime = runtime.build().unwrap();
    let before = runtime.metrics().steals;
    let (steals, events) = traced(|| {
        let end = Instant::now() + Duration::from_secs(20);
        while runtime.metrics().steals == before && Instant::now() < end {
            let brood = || {
                let threads = (0..50)
                    .map(|_| greenthread::spawn(|| (0..20_000).for_each(|i| _ = black_box(i))));
                let threads: Vec<_> = threads.collect();
                threads
                    .into_iter()
                    .for_each(|thread| thread.join().unwrap());
            };
            runtime.spawn(brood).join().unwrap();
        }
        runtime.metrics().steals - before
    });
    events.check();
    assert!(steals >= 1);
    assert_eq!(events.instants("steal") as u64, steals);
    runtime.shutdown();
}

#[test]
fn each_runtime_has_its_own_tracks() {
    alone!();
    let _dog = watchdog("trace::each_runtime_has_its_own_tracks");
    if !green() {
        return;
    }
    let runtimes: Vec<_> = (0..3)
        .map(|_| Runtime::builder().processors(1).build().unwrap())
        .collect();
    let ((), events) = traced(|| {
        for runtime in runtimes {
            runtime.spawn(|| ()).join().unwrap();
            runtime.shutdown();
        }
    });
    events.check();
    let ended = events
        .runs()
        .into_iter()
        .filter(|run| run.stopped == "ends");
    let processes: HashSet<u64> = ended.map(|run| run.track.0).collect();
    assert!(processes.len() >= 3, "{processes:?}");
}

#[test]
fn names_are_quoted() {
    alone!();
    let _dog = watchdog("trace::names_are_quoted");
    let name = "</script><b>\"quoted\\\n\u{1F600}";
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let work = || {
        let thread = Builder::new()
            .name(name.into())
            .spawn(greenthread::yield_now);
        thread.unwrap().join().unwrap();
    };
    let ((), trace) = observe::trace(work).unwrap();
    let events = Events::of(&trace);
    assert!(events.runs().iter().any(|run| run.name == name));
    let mut page = Vec::new();
    trace.write_html(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(page.contains(r"\u003c/script\u003e\u003cb\u003e"));
}

#[test]
fn threads_of_kernel_thread_mode_run_and_wait() {
    alone!();
    let _dog = watchdog("trace::threads_of_kernel_thread_mode_run_and_wait");
    let runtime = Runtime::builder().mode(greenthread::runtime::Mode::Kernel);
    let runtime = runtime.build().unwrap();
    let ((), events) = traced(|| {
        let (send, receive) = channel::bounded(0);
        let receiver = runtime.spawn(move || receive.recv().unwrap());
        let sender = runtime.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            send.send(()).unwrap();
        });
        receiver.join().unwrap();
        sender.join().unwrap();
    });
    events.check();
    assert!(events.phase("X").any(|event| event["cat"] == "wait"));
    assert!(events.runs().iter().any(|run| run.stopped == "waits"));
    runtime.shutdown();
}

#[test]
fn nothing_happens_and_the_files_are_whole() {
    alone!();
    let ((), events) = traced(|| ());
    events.check();
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let ((), trace) = observe::trace(|| ()).unwrap();
    let error = trace.save("trace.txt").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn one_trace_at_a_time() {
    alone!();
    let (inner, events) = traced(|| observe::trace(|| unreachable!()).map(|((), _)| ()));
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::ResourceBusy);
    events.check();
    // The panic ends the trace, and the next one can begin.
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let panicking = || observe::trace(|| panic!("as it should")).map(|((), _)| ());
    assert!(std::panic::catch_unwind(panicking).is_err());
    observe::trace(|| ()).unwrap();
}

/// Threads that were there before a trace, and in an earlier one, have their names in the next.
#[test]
fn old_threads_are_introduced_again() {
    alone!();
    let _dog = watchdog("trace::old_threads_are_introduced_again");
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let (go, went) = channel::bounded::<()>(0);
    let name = Builder::new().name("old".into());
    // Not in the trace of another test, which counts its threads.
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let old = runtime.spawn_named(name, move || went.into_iter().for_each(drop));
    drop(turn);
    for _ in 0..3 {
        let ((), events) = traced(|| {
            go.send(()).unwrap();
            // On the one processor, this runs when the other thread has stopped.
            runtime.spawn(|| ()).join().unwrap();
        });
        assert!(events.runs().iter().any(|run| run.name == "old") || !green());
    }
    drop(go);
    old.join().unwrap();
    runtime.shutdown();
}

#[test]
fn the_environment_asks_for_a_trace() {
    const TEST: &str = "trace::the_environment_asks_for_a_trace";
    if let Some(case) = child_case(TEST) {
        let worker = Builder::new()
            .name("worker".into())
            .spawn(greenthread::yield_now);
        match case.as_str() {
            "bad" => println!("{}", worker.unwrap_err()),
            _ => worker.unwrap().join().unwrap(),
        }
        std::process::exit(0);
    }
    let directory = std::env::temp_dir();
    let path = |end: &str| directory.join(format!("observe-{}.{end}", std::process::id()));
    for end in ["json", "html"] {
        let path = path(end);
        let output = child_with(TEST, end, &[("GREENTHREAD_TRACE", path.to_str().unwrap())]);
        assert!(output.status.success(), "{output:?}");
        let text = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        match end {
            "json" => {
                let events = Events::read(&text);
                events.check();
                assert!(events.runs().iter().any(|run| run.name == "worker"));
            }
            _ => assert!(text.starts_with(b"<!doctype html>") && text.ends_with(b"</html>\n")),
        }
    }
    let output = child_with(TEST, "bad", &[("GREENTHREAD_TRACE", "trace.txt")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("accepted is a path that ends in .html or .json"),
        "{said}"
    );
}
