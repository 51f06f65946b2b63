//! Figures: what is counted is what happened, times are as long as they must be, and the forms in which figures
//! leave the program are what they should be.
//!
//! The idea: programs with a known number of turns, and hogs, whose slices bound the times from below. No test
//! says how short a time must be.

#[path = "../support/exposition.rs"]
mod exposition;

use crate::common::*;
use exposition::Exposition;
use greenthread::observe;
use greenthread::runtime::{Histogram, Runtime};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(5);

fn one_processor() -> Runtime {
    let runtime = Runtime::builder().processors(1).time_slice(SLICE);
    runtime.build().unwrap()
}

/// How many times are longer than `bound`, at least.
fn longer(histogram: &Histogram, bound: Duration) -> u64 {
    let long = histogram
        .buckets()
        .filter(|bucket| bucket.up_to > bound.mul_f64(1.25));
    long.map(|bucket| bucket.count).sum()
}

/// Two threads compute on one processor until `stop`.
fn hogs(runtime: &Runtime, stop: &Arc<AtomicBool>) -> Vec<greenthread::JoinHandle<()>> {
    let hog = || {
        let stop = stop.clone();
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                (0..1000).for_each(|i| _ = black_box(i));
            }
        })
    };
    vec![hog(), hog()]
}

#[test]
fn every_turn_is_a_run_and_a_wait() {
    alone!();
    let _dog = watchdog("metrics::every_turn_is_a_run_and_a_wait");
    const YIELDS: u64 = 1000;
    observe::measure(true);
    let runtime = one_processor();
    let body = || (0..YIELDS).for_each(|_| greenthread::yield_now());
    runtime.spawn(body).join().unwrap();
    if !green() {
        let metrics = runtime.metrics();
        assert_eq!(metrics.run_time, Histogram::default());
        assert_eq!(metrics.scheduling_latency, Histogram::default());
        return;
    }
    // A joiner goes on a moment before the thread has left its stack.
    // It counts the run first, and then the switch.
    wait_until(|| runtime.metrics().switches > YIELDS);
    let metrics = runtime.metrics();
    assert_eq!(metrics.run_time.count(), metrics.switches);
    assert_eq!(metrics.run_time.count(), YIELDS + 1 + metrics.preemptions);
    // One wait before each run.
    assert_eq!(metrics.scheduling_latency.count(), metrics.run_time.count());
    let waits = &metrics.queue_wait;
    assert_eq!(waits.queue.count(), metrics.run_time.count(), "{waits:?}");
    assert_eq!(waits.stolen.count(), 0);
}

#[test]
fn a_thread_that_the_running_one_wakes_waits_in_the_next_slot() {
    alone!();
    let _dog = watchdog("metrics::a_thread_that_the_running_one_wakes_waits_in_the_next_slot");
    const ROUNDS: u64 = 500;
    observe::measure(true);
    let policy = greenthread::policy::WorkStealing::new();
    let runtime = Runtime::builder()
        .processors(1)
        .policy(policy)
        .build()
        .unwrap();
    let pairs = || {
        let (to, from) = greenthread::channel::bounded(0);
        let receiver = greenthread::spawn(move || from.iter().count() as u64);
        (0..ROUNDS).for_each(|i| to.send(i).unwrap());
        drop(to);
        receiver.join().unwrap()
    };
    assert_eq!(runtime.spawn(pairs).join().unwrap(), ROUNDS);
    let metrics = runtime.metrics();
    if green() {
        let waits = &metrics.queue_wait;
        assert!(waits.next_slot.count() >= ROUNDS / 2, "{waits:?}");
        let parts = waits.next_slot.count() + waits.queue.count() + waits.stolen.count();
        assert_eq!(metrics.scheduling_latency.count(), parts);
    }
}

#[test]
fn hogs_run_for_a_slice_and_wait_for_one() {
    alone!();
    if !green() {
        return;
    }
    let _dog = watchdog("metrics::hogs_run_for_a_slice_and_wait_for_one");
    const SLICES: u64 = 20;
    observe::measure(true);
    let runtime = one_processor();
    let (begin, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let threads = hogs(&runtime, &stop);
    wait_until(|| runtime.metrics().preemptions >= SLICES);
    let metrics = runtime.metrics();
    let elapsed = begin.elapsed();
    stop.store(true, Relaxed);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // The monitor counts a slice from the look that has first seen it, so no slice is too short.
    let bound = SLICE.mul_f64(0.6);
    assert!(longer(&metrics.run_time, bound) >= SLICES, "{metrics:?}");
    // Each preempted thread has waited for the other one's slice, but for the last one or two, and those that
    // ran without a processor.
    let waits = (SLICES - 2).saturating_sub(2 * metrics.hand_offs);
    assert!(
        longer(&metrics.scheduling_latency, bound) >= waits,
        "{metrics:?}"
    );
    // One thread at a time had the processor.
    assert!(
        metrics.run_time.sum() <= elapsed,
        "{metrics:?} in {elapsed:?}"
    );
    assert!(
        metrics.run_time.sum() >= bound * SLICES as u32,
        "{metrics:?}"
    );
}

/// A call that no hook knows, and that blocks the kernel thread.
#[cfg(target_os = "linux")]
fn block(time: Duration) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: time.as_nanos() as _,
    };
    let none = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: a plain system call, with a time that outlives it.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, none) };
}

#[test]
#[cfg(target_os = "linux")]
fn blocked_threads_are_known_by_call_and_place() {
    alone!();
    if !green() {
        return;
    }
    let _dog = watchdog("metrics::blocked_threads_are_known_by_call_and_place");
    const NAP: Duration = Duration::from_millis(500);
    observe::measure(true);
    let runtime = one_processor();
    let begin = Instant::now();
    let line = line!() + 1;
    let blocked: Vec<_> = (0..3).map(|_| runtime.spawn(|| block(NAP))).collect();
    blocked
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    wait_until(|| runtime.metrics().blocked_time.count() >= 3);
    let (metrics, elapsed) = (runtime.metrics(), begin.elapsed());
    let call = &metrics.blocked_calls[0];
    assert_eq!((call.name.as_str(), call.count), ("nanosleep", 3));
    let [place] = &call.places[..] else {
        panic!("{:?}", call.places)
    };
    let at = place.spawned_at.unwrap();
    assert_eq!((at.file(), at.line()), (file!(), line));
    assert_eq!(place.count, 3);
    assert_eq!(place.time, metrics.blocked_time.sum());
    assert!(place.time <= 3 * elapsed);
    // Each lost its processor long before its nap was over; if not, the naps were one after the other.
    assert!(place.time + elapsed >= 3 * NAP, "{metrics:?}");
    assert!(metrics.run_time.sum() + place.time <= 4 * elapsed);
}

#[test]
fn steals_are_some_of_the_attempts() {
    alone!();
    let _dog = watchdog("metrics::steals_are_some_of_the_attempts");
    let policy = greenthread::policy::WorkStealing::new();
    let runtime = Runtime::builder()
        .processors(2)
        .policy(policy)
        .build()
        .unwrap();
    let fan_out = || {
        let compute = || (0..20_000).for_each(|i| _ = black_box(i));
        let threads: Vec<_> = (0..64).map(|_| greenthread::spawn(compute)).collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    };
    loop {
        runtime.spawn(fan_out).join().unwrap();
        let metrics = runtime.metrics();
        if !green() {
            assert_eq!(metrics.steal_attempts, 0);
            break;
        }
        assert!(metrics.steals <= metrics.steal_attempts);
        if metrics.steals != 0 {
            break;
        }
    }
}

#[test]
fn nothing_is_measured_until_it_is_asked_for() {
    const TEST: &str = "metrics::nothing_is_measured_until_it_is_asked_for";
    if let Some(case) = child_case(TEST) {
        let runtime = match Runtime::new() {
            Ok(runtime) => runtime,
            Err(error) => {
                println!("{error}");
                std::process::exit(0);
            }
        };
        let turns = || (0..100).for_each(|_| greenthread::yield_now());
        runtime.spawn(turns).join().unwrap();
        let measured = |count: u64| match green() {
            true => assert!(count >= 100),
            false => assert_eq!(count, 0),
        };
        let count = runtime.metrics().run_time.count();
        match case.as_str() {
            "on" => {
                assert!(observe::is_measuring());
                measured(count);
            }
            _ => {
                assert!(!observe::is_measuring());
                assert_eq!(count, 0);
                observe::measure(true);
                runtime.spawn(turns).join().unwrap();
                measured(runtime.metrics().run_time.count());
                observe::measure(false);
                let then = runtime.metrics();
                runtime.spawn(turns).join().unwrap();
                let now = runtime.metrics();
                // A turn may have been under way.
                assert!(now.run_time.count() <= then.run_time.count() + 2);
                assert!(now.switches >= then.switches);
            }
        }
        println!("as it should be");
        std::process::exit(0);
    }
    for (case, value) in [("on", Some("on")), ("off", Some("off")), ("unset", None)] {
        let mut command = child_command(TEST, case);
        match value {
            Some(value) => command.env("GREENTHREAD_METRICS", value),
            None => command.env_remove("GREENTHREAD_METRICS"),
        };
        let output = command.output().unwrap();
        assert!(
            said(&output).contains("as it should be"),
            "{}",
            said(&output)
        );
    }
    let output = child_with(TEST, "bad", &[("GREENTHREAD_METRICS", "1")]);
    let expected = "GREENTHREAD_METRICS=\"1\": accepted is on or off";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

#[test]
fn what_prometheus_reads_is_what_the_metrics_say() {
    alone!();
    let _dog = watchdog("metrics::what_prometheus_reads_is_what_the_metrics_say");
    observe::measure(true);
    let runtime = Runtime::builder().processors(3).build().unwrap();
    let turns = || (0..100).for_each(|_| greenthread::yield_now());
    runtime.spawn(turns).join().unwrap();
    // The last switch is counted a moment after the thread's end.
    wait_until(|| {
        let metrics = runtime.metrics();
        metrics.live_threads == 0 && (metrics.switches > 100 || !green())
    });
    let page = || {
        let mut text = Vec::new();
        observe::write_prometheus(&mut text).unwrap();
        Exposition::read(&String::from_utf8(text).unwrap())
    };
    let page = page();
    // Other tests have runtimes too: ours is one with three processors.
    let processors = page.family("greenthread_processors");
    let ours = processors.samples.iter().find(|sample| sample.value == 3.0);
    let number = ours.unwrap().labels["runtime"].clone();
    let ours: [(&str, &str); 1] = [("runtime", &number)];
    let metrics = runtime.metrics();
    assert_eq!(page.family("greenthread_spawns_total").sum("", &ours), 1.0);
    let latency = page.family("greenthread_scheduling_latency_seconds");
    let waits = page.family("greenthread_queue_wait_seconds");
    assert_eq!(latency.kind, "histogram");
    if green() {
        let count = metrics.scheduling_latency.count() as f64;
        assert!(count > 100.0);
        assert_eq!(latency.sum("_count", &ours), count);
        assert_eq!(waits.sum("_count", &ours), count);
        let switches = page.family("greenthread_switches_total").sum("", &ours);
        assert_eq!(switches, metrics.switches as f64);
        let by_processor = page.family("greenthread_processor_switches_total");
        assert_eq!(by_processor.sum("", &ours), metrics.switches as f64);
        // A bucket has what the histogram has below the same bound.
        let bound = Duration::from_nanos(1 << 14);
        let below = metrics
            .scheduling_latency
            .buckets()
            .filter(|bucket| bucket.up_to <= bound);
        let below: u64 = below.map(|bucket| bucket.count).sum();
        let le = ("le", "0.000016384");
        assert_eq!(latency.sum("_bucket", &[ours[0], le]), below as f64);
    }
    runtime.shutdown();
    let mut text = Vec::new();
    observe::write_prometheus(&mut text).unwrap();
    let gone = format!("runtime=\"{number}\"");
    assert!(!String::from_utf8(text).unwrap().contains(&gone));
}

#[test]
fn schedtrace_writes_a_line_for_each_runtime() {
    const TEST: &str = "metrics::schedtrace_writes_a_line_for_each_runtime";
    const VARIABLE: &str = "GREENTHREAD_SCHEDTRACE";
    let _dog = watchdog(TEST);
    if child_case(TEST).is_some() {
        use std::io::{BufRead, BufReader, Write};
        use std::os::fd::{AsRawFd, FromRawFd};
        let built = [2, 3].map(|count| Runtime::builder().processors(count).build());
        let [Ok(first), Ok(second)] = built else {
            println!("{built:?}");
            std::process::exit(0);
        };
        // The parent reads what comes out of the other end of this.
        let (said, says) = std::io::pipe().unwrap();
        // SAFETY: both are open; the copy is nobody else's.
        let mut parent = unsafe {
            let copy = libc::dup(2);
            assert_eq!(libc::dup2(says.as_raw_fd(), 2), 2);
            std::fs::File::from_raw_fd(copy)
        };
        let (stop, parked) = stoppable(());
        let thread = second.spawn(move || parked.join().unwrap());
        let (mut lines, mut rounds) = (BufReader::new(said).lines(), 0);
        while rounds < 3 {
            let line = lines.next().unwrap().unwrap();
            writeln!(parent, "{line}").unwrap();
            let is_last = line.split(' ').any(|word| word == "runtime=1");
            rounds += usize::from(is_last && line.split(' ').any(|word| word == "live_threads=1"));
        }
        drop(stop);
        thread.join().unwrap();
        first.shutdown();
        std::process::exit(0);
    }
    let output = child_with(TEST, "lines", &[(VARIABLE, "20")]);
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("SCHED "))
        .collect();
    let mut last = 0;
    for line in &lines {
        let mut words = line.split(' ').skip(1);
        let at = words.next().unwrap().strip_suffix("ms:").unwrap();
        let at: u64 = at.parse().unwrap();
        assert!(at >= last, "{text}");
        last = at;
        let fields: Vec<_> = words
            .by_ref()
            .take_while(|word| word.contains('='))
            .collect();
        let field = |name: &str| -> Option<u64> {
            let mut fields = fields.iter().filter_map(|field| field.split_once('='));
            fields.find(|(found, _)| *found == name)?.1.parse().ok()
        };
        let runtime = field("runtime").unwrap();
        // The thread that was spawned to be joined is on the default runtime, which starts last.
        let expected = [Some(2), Some(3), field("processors")][runtime as usize];
        assert_eq!(field("processors"), expected, "{line}");
        assert!(field("live_threads").is_some(), "{line}");
        assert_eq!(line.contains(" mode=kernel "), !green(), "{line}");
        if green() {
            let begin = line.find('[').unwrap() + 1;
            let queues = line[begin..].strip_suffix(']').unwrap();
            assert_eq!(
                queues.split(' ').count() as u64,
                field("processors").unwrap(),
                "{line}"
            );
            assert!(field("idle") <= field("processors"), "{line}");
            assert!(
                field("kernel_threads") >= field("parked_kernel_threads"),
                "{line}"
            );
            assert!(
                field("searching").is_some() && field("blocked").is_some(),
                "{line}"
            );
            assert!(field("global_queue_len").is_some(), "{line}");
        }
    }
    for runtime in ["runtime=0", "runtime=1"] {
        let of = lines
            .iter()
            .filter(|line| line.split(' ').any(|word| word == runtime));
        assert!(of.count() >= 2, "{text}");
    }
    assert!(lines.iter().any(|line| line.contains(" live_threads=1 ")));
    for bad in ["0", "3600001", "1.5", "10ms", ""] {
        let output = child_with(TEST, "bad", &[(VARIABLE, bad)]);
        let expected = "accepted is a number of milliseconds from 1 to 3600000 (an hour)";
        assert!(said(&output).contains(expected), "{bad}: {}", said(&output));
    }
}
