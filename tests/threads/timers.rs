//! A timer fires although everybody is asleep, whichever way they fell asleep: somebody always watches
//! the earliest deadline. Nothing here measures time: what would end a hang comes only after the timer.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

const NAP: Duration = Duration::from_millis(100);

fn one_processor() -> Runtime {
    Runtime::builder().processors(1).build().unwrap()
}

#[test]
fn beside_a_thread_blocked_in_the_kernel() {
    let _w = watchdog("timers::beside_a_thread_blocked_in_the_kernel");
    let runtime = one_processor();
    let sleeper = runtime.spawn(|| thread::sleep(NAP));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let blocked = runtime.spawn(move || reader.read(&mut [0]).unwrap());
    sleeper.join().unwrap();
    writer.write_all(&[1]).unwrap();
    assert_eq!(blocked.join().unwrap(), 1);
    runtime.shutdown();
}

#[test]
fn of_a_thread_locked_to_its_kernel_thread() {
    let _w = watchdog("timers::of_a_thread_locked_to_its_kernel_thread");
    let runtime = one_processor();
    let sleeper = runtime.spawn(|| {
        let _lock = thread::lock_kernel_thread();
        (0..10).for_each(|_| thread::sleep(NAP / 10));
    });
    sleeper.join().unwrap();
    runtime.shutdown();
}

/// Many threads that sleep, block and yield at random: the runtime falls asleep in many ways.
#[test]
fn however_the_runtime_falls_asleep() {
    let _w = watchdog("timers::however_the_runtime_falls_asleep");
    let seed = std::env::var("GT_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1);
    println!("seed: GT_SEED={seed}");
    for processors in [1, 2] {
        let runtime = Runtime::builder().processors(processors).build().unwrap();
        let threads: Vec<_> = (0..20)
            .map(|i| {
                runtime.spawn(move || {
                    let mut x = seed ^ (i << 32 | 1);
                    for _ in 0..50 {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let time = Duration::from_micros(x >> 8 & 4095);
                        match x % 5 {
                            0 => std::thread::sleep(time),
                            1 => thread::blocking(|| std::thread::sleep(time)),
                            2 => thread::yield_now(),
                            3 => thread::park_timeout(time),
                            _ => thread::sleep(time),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        runtime.shutdown();
    }
}

/// Threads in the round of a processor whose thread then blocks are run by another.
#[test]
fn threads_that_yielded_are_not_stranded() {
    let _w = watchdog("timers::threads_that_yielded_are_not_stranded");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    static DONE: AtomicUsize = AtomicUsize::new(0);
    DONE.store(0, SeqCst);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let yielders: Vec<_> = (0..10)
        .map(|_| {
            runtime.spawn(|| {
                (0..10_000).for_each(|_| thread::yield_now());
                DONE.fetch_add(1, SeqCst);
            })
        })
        .collect();
    let blocked = runtime.spawn(move || {
        (0..100).for_each(|_| thread::yield_now());
        reader.read(&mut [0]).unwrap()
    });
    wait_until(|| DONE.load(SeqCst) == 10);
    writer.write_all(&[1]).unwrap();
    yielders.into_iter().for_each(|y| y.join().unwrap());
    assert_eq!(blocked.join().unwrap(), 1);
    runtime.shutdown();
}
