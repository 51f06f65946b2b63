//! Nobody waits for ever beside a scheduler that is at work, and nobody works for ever for nothing.
//!
//! The idea: each test uses up something that the scheduler has a bounded number of, or has two of
//! its parts do at once what is one's to do, and then counts what must come out. What comes late is
//! told from what never comes by the CPU time that the process has used, not by the clock: a processor
//! that looks and does not see uses all of it, however busy the worker is with others.

#![cfg(feature = "net")]

use crate::common::*;
use greenthread as thread;
use greenthread::net::TcpListener;
use greenthread::runtime::{Driver, Mode, Runtime};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// CPU time that this process has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The only processor serves a connection whose bytes come so quickly that it never sleeps: each time
/// it runs out of threads it searches until the next one comes. After some hundreds of such searches
/// something else comes: threads from outside, and their timers.
#[test]
fn who_has_searched_often_sees_what_comes() {
    const IN_A_ROW: usize = 130; // more than the searches between two rests
    const QUICK: Duration = Duration::from_micros(50); // so long a processor searches at least
    let _w = watchdog("liveness::who_has_searched_often_sees_what_comes");
    let builder = Runtime::builder().processors(1).driver(Driver::Epoll);
    let runtime = builder.build().unwrap();
    if runtime.mode() == Mode::Kernel {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let echo = runtime.spawn(move || {
        let (mut server, _) = listener.accept().unwrap();
        server.set_nodelay(true).unwrap();
        let mut byte = [0];
        while server.read(&mut byte).unwrap() != 0 {
            server.write_all(&byte).unwrap();
        }
    });
    let (mut bursts, mut quick) = (0, 0);
    // On a busy machine there may be no burst at all.
    for _ in 0..50_000 {
        let start = Instant::now();
        client.write_all(&[1]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        quick = if start.elapsed() < QUICK {
            quick + 1
        } else {
            0
        };
        if quick < IN_A_ROW {
            continue;
        }
        let ended = Arc::new(AtomicUsize::new(0));
        for time in [0, 0, 0, 20, 0, 0, 20, 0] {
            let ended = ended.clone();
            runtime.spawn(move || {
                thread::sleep(Duration::from_micros(time));
                ended.fetch_add(1, Relaxed);
            });
        }
        let before = cpu_time();
        while ended.load(Relaxed) < 8 {
            let used = cpu_time() - before;
            assert!(
                used < Duration::from_secs(1),
                "{used:?} used for {ended:?} of 8"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
        quick = 0;
        bursts += 1;
        if bursts == 50 {
            break;
        }
    }
    println!("{bursts} bursts");
    drop(client);
    echo.join().unwrap();
    runtime.shutdown();
}

/// A processor retires with hundreds of stacks, which are to be given back, while its runtime is shut
/// down, which gives back everybody's. For `GT_STRESS_SECS` seconds (1 unless given).
#[test]
fn one_party_gives_back_what_a_retired_processor_has() {
    const THREADS: usize = 1200;
    let _w = watchdog("liveness::one_party_gives_back_what_a_retired_processor_has");
    let ran = Arc::new(AtomicUsize::new(0));
    let mut rounds = 0;
    let begun = Instant::now();
    while begun.elapsed() < stress_time() {
        let processors = [2, 8][rounds % 2];
        let runtime = Runtime::builder().processors(processors).build().unwrap();
        if runtime.mode() == Mode::Kernel {
            return;
        }
        let threads = (0..THREADS).map(|_| {
            let ran = ran.clone();
            runtime.spawn(move || {
                thread::park();
                ran.fetch_add(1, Relaxed);
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.iter().for_each(|thread| thread.thread().unpark());
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        runtime.set_processors(1).unwrap();
        runtime.shutdown();
        rounds += 1;
        assert_eq!(ran.load(Relaxed), rounds * THREADS);
    }
    println!("{rounds} rounds");
}

/// More threads are locked to kernel threads than there may be kernel threads, and all of them wait.
#[test]
fn locked_threads_leave_kernel_threads_for_others() {
    const LOCKED: usize = 8;
    const ROUNDS: usize = 20;
    let _w = watchdog("liveness::locked_threads_leave_kernel_threads_for_others");
    let builder = Runtime::builder().processors(1).max_kernel_threads(2);
    let runtime = builder.build().unwrap();
    let rounds = Arc::new(AtomicUsize::new(0));
    let threads = [(); LOCKED].map(|()| {
        let rounds = rounds.clone();
        runtime.spawn(move || {
            let _lock = thread::lock_kernel_thread();
            let me = gettid();
            for _ in 0..ROUNDS {
                thread::sleep(Duration::from_micros(100));
                assert_eq!(gettid(), me);
                rounds.fetch_add(1, Relaxed);
            }
        })
    });
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(rounds.load(Relaxed), LOCKED * ROUNDS);
    assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
    runtime.shutdown();
}
