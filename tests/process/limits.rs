//! Bad input and exhausted limits: a clear error, and nothing lost. And the ways a process ends.
//!
//! The idea: each case runs in a process of its own (`child`), because it is about the whole
//! process: the environment of the first use, address space and number of kernel threads, overflow,
//! `main` returning, `exit`, `abort`.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{self, Mode, Runtime};
use greenthread::{Builder, JoinHandle};
use std::hint::black_box;
use std::io::ErrorKind;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Threads of every kind that never end by themselves; returns when all have started.
fn endless_threads() {
    let started = Arc::new(AtomicUsize::new(0));
    let (send, receive) = mpsc::channel::<()>();
    std::mem::forget(send);
    let mut receive = Some(receive);
    let kinds = 6;
    for i in 0..4 * kinds {
        let (started, receive) = (started.clone(), receive.take());
        thread::spawn(move || {
            started.fetch_add(1, SeqCst);
            loop {
                match (i % kinds, &receive) {
                    (_, Some(receive)) => drop(receive.recv()), // blocked in the kernel
                    (0, _) => drop(black_box(i)),               // a hog
                    (1, _) => thread::yield_now(),
                    (2, _) => thread::park(),
                    (3, _) => thread::sleep(Duration::MAX),
                    (4, _) => drop(black_box(vec![i; 1000])), // a hog in malloc
                    _ => std::thread::sleep(Duration::MAX),
                }
            }
        });
    }
    wait_until(|| started.load(SeqCst) == 4 * kinds);
}

#[test]
fn a_bad_environment_is_named_on_first_use() {
    const NAME: &str = "limits::a_bad_environment_is_named_on_first_use";
    let _w = watchdog(NAME);
    match child_case(NAME).as_deref() {
        Some("global") => drop(Runtime::global()),
        Some(_) => drop(thread::spawn(|| ()).join()),
        None => {
            // The variable, a bad value, and what its message must offer: a bound or the words it
            // accepts.
            let number = |text: &str| text.contains(|c: char| c.is_ascii_digit());
            let modes = |text: &str| text.contains("green") && text.contains("kernel");
            let policies = |text: &str| text.contains("work-stealing");
            type Offer<'a> = &'a dyn Fn(&str) -> bool;
            let bad: [(&str, &[&str], Offer); 5] = [
                (
                    "GREENTHREAD_PROCS",
                    &["0", "abc", "-1", "100000000", "2.5"],
                    &number,
                ),
                (
                    "GREENTHREAD_STACK_SIZE",
                    &["abc", "-65536", "99999999999999999999999"],
                    &number,
                ),
                ("GREENTHREAD_MODE", &["foo", "GREEN "], &modes),
                ("GREENTHREAD_POLICY", &["bar"], &policies),
                ("GREENTHREAD_SIGNAL", &["9", "abc", "0", "1000"], &number),
            ];
            for (i, (variable, value, offers)) in bad
                .iter()
                .flat_map(|(variable, values, offers)| {
                    values.iter().map(move |v| (variable, v, offers))
                })
                .enumerate()
            {
                let case = ["spawn", "global"][i % 2];
                let out = child_with(NAME, case, &[(variable, value)]);
                assert_code(&out, 101);
                line_with(&out, &[variable, value]);
                let stderr = String::from_utf8_lossy(&out.stderr);
                let message = &stderr[stderr.find(variable).unwrap()..];
                let message: Vec<_> = message
                    .lines()
                    .filter(|line| !line.contains(".rs:"))
                    .collect();
                let rest = message.join("\n").replace(variable, "").replace(value, "");
                assert!(
                    offers(&rest),
                    "{variable}={value}: what is accepted? {}",
                    said(&out)
                );
            }
        }
    }
}

#[test]
fn a_bad_environment_fails_every_time() {
    const NAME: &str = "limits::a_bad_environment_fails_every_time";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        for _ in 0..3 {
            assert!(
                catch_unwind(|| thread::spawn(|| ())).is_err(),
                "not ignored the next time either"
            );
        }
        return;
    }
    assert_code(&child_with(NAME, "", &[("GREENTHREAD_PROCS", "0")]), 0);
}

#[test]
fn a_good_environment_is_heeded() {
    const NAME: &str = "limits::a_good_environment_is_heeded";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        let me = gettid();
        let other = thread::spawn(gettid).join().unwrap();
        assert_ne!(me, other);
        let runtime = Runtime::global();
        match &*case {
            "kernel" => assert_eq!(runtime.mode(), Mode::Kernel),
            "three" if green() => assert_eq!(runtime.processors(), 3),
            _ => (),
        }
        return;
    }
    let good = [
        ("three", "GREENTHREAD_PROCS", "3"),
        ("one", "GREENTHREAD_PROCS", "1"),
        ("stack", "GREENTHREAD_STACK_SIZE", "65536"),
        ("little stack", "GREENTHREAD_STACK_SIZE", "12"),
        ("kernel", "GREENTHREAD_MODE", "kernel"),
        ("green", "GREENTHREAD_MODE", "green"),
        ("policy", "GREENTHREAD_POLICY", "work-stealing"),
        ("signal", "GREENTHREAD_SIGNAL", "45"),
    ];
    for (case, variable, value) in good {
        // An order, which fails where they cannot be had, as with an old libc.
        let in_vain = case == "green" && Runtime::builder().mode(Mode::Green).build().is_err();
        let code = if in_vain { 101 } else { 0 };
        assert_code(&child_with(NAME, case, &[(variable, value)]), code);
    }
}

#[test]
fn a_bad_runtime_is_an_error() {
    alone!();
    let _w = watchdog("limits::a_bad_runtime_is_an_error");
    both(|| {
        type Setting = fn(runtime::Builder) -> runtime::Builder;
        let bad: [(&str, Setting); 10] = [
            ("no processors", |b| b.processors(0)),
            ("too many processors", |b| b.processors(usize::MAX)),
            ("no time slice", |b| b.time_slice(Duration::ZERO)),
            ("SIGKILL", |b| b.preempt_signal(libc::SIGKILL)),
            ("SIGSTOP", |b| b.preempt_signal(libc::SIGSTOP)),
            ("signal 0", |b| b.preempt_signal(0)),
            ("signal -1", |b| b.preempt_signal(-1)),
            ("signal 65", |b| b.preempt_signal(65)),
            ("no kernel threads", |b| b.max_kernel_threads(0)),
            ("too much stack", |b| b.stack_size(usize::MAX)),
        ];
        for (what, set) in bad {
            let error = set(Runtime::builder())
                .build()
                .err()
                .unwrap_or_else(|| panic!("{what}: a runtime"));
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}: {error}");
            assert!(!error.to_string().is_empty());
        }
        let good = Runtime::builder()
            .processors(1)
            .time_slice(Duration::from_millis(1))
            .stack_size(64 << 10);
        let good = good.max_kernel_threads(100).build().unwrap();
        assert_eq!(
            good.spawn(|| thread::spawn(|| 5).join().unwrap())
                .join()
                .unwrap(),
            5
        );
        good.shutdown();
    });
}

#[test]
fn without_address_space_a_spawn_fails_and_the_others_go_on() {
    const NAME: &str = "limits::without_address_space_a_spawn_fails_and_the_others_go_on";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        // libc and std end the process if they lack a few bytes (for a thread-local's destructor, say). They
        // are to have some: one heap for all threads, with space to spare, and no kernel thread of std's
        // that may just be starting.
        let env = [
            ("MALLOC_ARENA_MAX", "1"),
            ("MALLOC_TOP_PAD_", "67108864"),
            ("GREENTHREAD_SIGQUIT", "off"),
            ("GREENTHREAD_DEADLOCK", "off"),
        ];
        return assert_code(&child_with(NAME, "", &env), 0);
    }
    let (stop, open) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let counts: Vec<_> = (0..8).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let runners: Vec<_> = counts
        .iter()
        .map(|count| {
            let (count, stop) = (count.clone(), stop.clone());
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    count.fetch_add(1, Relaxed);
                    thread::yield_now();
                }
            })
        })
        .collect();
    wait_until(|| counts.iter().all(|count| count.load(Relaxed) > 0));
    let limit = address_space() + (4 << 30);
    set_limit(libc::RLIMIT_AS, limit);
    let waiter = |i: usize| {
        let open = open.clone();
        move || {
            while !open.load(Acquire) {
                thread::park();
            }
            i
        }
    };
    let mut parked: Vec<JoinHandle<usize>> = Vec::with_capacity(100_000);
    let big = |i| Builder::new().stack_size(16 << 20).spawn(waiter(i));
    let error = loop {
        match big(parked.len()) {
            Ok(handle) => parked.push(handle),
            Err(error) => break error,
        }
        assert!(
            parked.len() < 100_000,
            "1.6 TB of stacks under a limit of 4 GiB"
        );
    };
    // Room for what aborts without memory: libc, when it cannot remember a thread-local's destructor,
    // and whatever this test allocates.
    set_limit(libc::RLIMIT_AS, limit + (64 << 20));
    println!("{} stacks of 16 MiB, then: {error}", parked.len());
    assert!(!error.to_string().is_empty());
    let bigger = Builder::new().stack_size(128 << 20);
    assert!(bigger.spawn(|| ()).is_err(), "and again");
    let before: Vec<_> = counts.iter().map(|c| c.load(Relaxed)).collect();
    wait_until(|| {
        counts
            .iter()
            .zip(&before)
            .all(|(count, before)| count.load(Relaxed) > before + 100)
    });
    open.store(true, Release);
    parked.iter().for_each(|h| h.thread().unpark());
    let number = parked.len();
    assert!(parked.into_iter().map(|h| h.join().unwrap()).eq(0..number));
    wait_until(|| big(1).is_ok_and(|h| h.join().unwrap() == 1)); // there is room again
    stop.store(true, Relaxed);
    runners.into_iter().for_each(|r| r.join().unwrap());
}

fn no_kernel_thread_to_be_had() -> bool {
    set_limit(libc::RLIMIT_NPROC, 1);
    let enforced = std::thread::Builder::new().spawn(|| ()).is_err();
    if !enforced {
        println!("skipped: RLIMIT_NPROC is not enforced here");
    }
    enforced
}

#[test]
fn without_kernel_threads_a_spawn_fails() {
    const NAME: &str = "limits::without_kernel_threads_a_spawn_fails";
    if child_case(NAME).is_none() {
        let _w = watchdog(NAME);
        let out = child(NAME, "");
        println!("{}", said(&out));
        return assert_code(&out, 0);
    }
    become_nobody();
    if no_kernel_thread_to_be_had() {
        let error = Builder::new()
            .spawn(|| ())
            .expect_err("a thread, though no kernel thread can be had");
        println!("{error}");
        let payload = catch_unwind(|| thread::spawn(|| ())).expect_err("a thread");
        assert!(payload.downcast_ref::<String>().is_some_and(|reason| {
            reason.contains(error.to_string().split(" (os").next().unwrap())
        }));
        assert!(Runtime::new().is_err() || !green());
        // An error is not the end: the next attempt may succeed.
        set_limit(libc::RLIMIT_NPROC, u64::MAX);
        assert_eq!(
            Builder::new()
                .spawn(|| 5)
                .expect("a thread now")
                .join()
                .unwrap(),
            5
        );
    }
}

#[test]
fn without_new_kernel_threads_the_old_ones_carry_on() {
    const NAME: &str = "limits::without_new_kernel_threads_the_old_ones_carry_on";
    if child_case(NAME).is_none() {
        let _w = watchdog(NAME);
        let out = child(NAME, "");
        println!("{}", said(&out));
        return assert_code(&out, 0);
    }
    become_nobody();
    let stop = Arc::new(AtomicBool::new(false));
    let theirs = stop.clone();
    let old = thread::spawn(move || {
        while !theirs.load(Relaxed) {
            thread::sleep(Duration::from_micros(100));
        }
        5
    });
    if no_kernel_thread_to_be_had() {
        let job = |i: usize| {
            move || {
                std::thread::sleep(Duration::from_millis(1)); // would like a spare kernel thread
                thread::yield_now();
                i
            }
        };
        let spawned: Vec<_> = (0..300)
            .map(|i| (i, Builder::new().spawn(job(i))))
            .collect();
        assert!(green() || spawned.iter().any(|(_, result)| result.is_err()));
        let done = spawned
            .into_iter()
            .filter_map(|(i, result)| Some(result.ok()?.join().unwrap() == i));
        let done: Vec<bool> = done.collect();
        println!("{} of 300 could be spawned", done.len());
        assert!(done.into_iter().all(|right| right));
        set_limit(libc::RLIMIT_NPROC, u64::MAX);
        assert_eq!(
            Builder::new()
                .spawn(|| 5)
                .expect("a thread now")
                .join()
                .unwrap(),
            5
        );
    }
    stop.store(true, Relaxed);
    assert_eq!(old.join().unwrap(), 5);
}

#[allow(unconditional_recursion)]
fn dive(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    dive(depth + 1) + black_box(frame)[7]
}

#[test]
fn an_overflow_names_the_thread_and_aborts() {
    const NAME: &str = "limits::an_overflow_names_the_thread_and_aborts";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        endless_threads();
        match &*case {
            "deep" => {
                let deep = Builder::new().name("deep".into()).stack_size(256 << 10);
                println!("{:?}", deep.spawn(|| dive(0)).unwrap().join());
            }
            "unnamed" => println!("{:?}", thread::spawn(|| dive(0)).join()),
            _ => {
                let kernel = std::thread::Builder::new().name("kernel-deep".into());
                println!("{:?}", kernel.spawn(|| dive(0)).unwrap().join());
            }
        }
        std::process::exit(3);
    }
    // std calls a nameless thread unknown here and unnamed elsewhere.
    for (case, name) in [
        ("deep", "deep"),
        ("unnamed", "<un"),
        ("kernel", "kernel-deep"),
    ] {
        let out = child(NAME, case);
        assert_signal(&out, libc::SIGABRT);
        line_with(
            &out,
            &[&format!("thread '{name}"), "has overflowed its stack"],
        );
        if green() && case == "deep" {
            let sizes = ["256 KiB", "262144", "256K"];
            assert!(
                sizes.iter().any(|size| said(&out).contains(size)),
                "the stack's size: {}",
                said(&out)
            );
        }
    }
}

#[test]
fn another_bad_access_is_no_overflow() {
    const NAME: &str = "limits::another_bad_access_is_no_overflow";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let fault = || {
            let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: a fresh mapping; reading it faults, which is what this process is for.
            unsafe {
                libc::mmap(std::ptr::null_mut(), 4096, none, flags, -1, 0)
                    .cast::<u8>()
                    .read_volatile()
            }
        };
        println!("{:?}", thread::spawn(fault).join());
        std::process::exit(3);
    }
    let out = child(NAME, "");
    assert_signal(&out, libc::SIGSEGV);
    assert!(!said(&out).contains("overflowed"), "{}", said(&out));
}

extern "C" fn at_exit() {
    print!("at exit");
    let _ = std::io::Write::flush(&mut std::io::stdout());
}

#[test]
fn the_process_ends_as_with_std() {
    const NAME: &str = "limits::the_process_ends_as_with_std";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        // SAFETY: `at_exit` is a function of the right kind that needs nothing.
        unsafe { libc::atexit(at_exit) };
        endless_threads();
        match &*case {
            "main returns" => (),
            "main panics" => panic!("main's own"),
            "a thread exits" => thread::spawn(|| std::process::exit(7)).join().unwrap(),
            "a thread aborts" => thread::spawn(|| std::process::abort()).join().unwrap(),
            other => panic!("no case {other}"),
        }
        return;
    }
    for _ in 0..5 {
        let out = child(NAME, "main returns");
        assert_code(&out, 0);
        assert!(said(&out).contains("at exit"), "{}", said(&out));
        let out = child(NAME, "a thread exits");
        assert_code(&out, 7);
        assert!(said(&out).contains("at exit"), "{}", said(&out));
    }
    let out = child(NAME, "main panics");
    assert_code(&out, 101);
    line_with(&out, &["thread '", "panicked"]);
    line_with(&out, &["main's own"]);
    assert_signal(&child(NAME, "a thread aborts"), libc::SIGABRT);
}
