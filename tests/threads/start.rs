//! A thread gets its stack when it first runs: those that have been spawned and wait for their turn
//! cost little, those that do not wait for anything have few stacks among them, and memory that runs
//! out meanwhile loses nobody.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use greenthread::{Builder, JoinHandle};
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Of ten thousand spawned at once that do not wait, each begins where another has ended.
#[test]
fn who_does_not_wait_leaves_its_stack_to_the_next() {
    alone!();
    const THREADS: usize = 10_000;
    let _w = watchdog("start::who_does_not_wait_leaves_its_stack_to_the_next");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let spawner = runtime.spawn(|| {
        let place = || {
            let local = 0u8;
            black_box(&raw const local) as usize >> 20
        };
        let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(place)).collect();
        let places = threads.into_iter().map(|thread| thread.join().unwrap());
        places.collect::<HashSet<usize>>().len()
    });
    let places = spawner.join().unwrap();
    println!("{places} stacks for {THREADS} threads");
    assert!(places < THREADS / 20 || !green(), "{places} stacks");
    runtime.shutdown();
}

/// On one processor, so that none of them runs before its spawner waits.
#[test]
fn who_has_not_run_yet_takes_little_memory() {
    const NAME: &str = "start::who_has_not_run_yet_takes_little_memory";
    const THREADS: usize = 100_000;
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    if !green() {
        return;
    }
    let builder = Runtime::builder().processors(1);
    let runtime = builder
        .time_slice(Duration::from_secs(3600))
        .build()
        .unwrap();
    let spawner = runtime.spawn(|| {
        let before = resident();
        let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(|| ())).collect();
        let each = (resident() - before) / THREADS as u64;
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        each
    });
    let each = spawner.join().unwrap();
    println!("{each} bytes for a thread that has not run");
    assert!(each < 1024, "{each} bytes for each");
}

/// A handle keeps what handles need, and not what the thread's closure held.
#[test]
fn a_handle_keeps_no_large_closure() {
    const NAME: &str = "start::a_handle_keeps_no_large_closure";
    const THREADS: usize = 256;
    /// Without optimization the closure is on the spawner's stack several times.
    const SIZE: usize = 1 << 17;
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    let spawn = || {
        let large = [1u8; SIZE];
        let thread = Builder::new()
            .stack_size(16 * SIZE)
            .spawn(move || black_box(&large).len())
            .unwrap();
        let handle = thread.thread().clone();
        assert_eq!(thread.join().unwrap(), SIZE);
        handle
    };
    // The first ones pay for what is made once.
    let first: Vec<_> = (0..4).map(|_| spawn()).collect();
    let before = resident();
    let handles: Vec<_> = (0..THREADS).map(|_| spawn()).collect();
    let kept = resident().saturating_sub(before);
    println!("{kept} bytes for {THREADS} handles");
    assert!(kept < (THREADS * SIZE / 4) as u64, "{kept} bytes");
    drop((first, handles));
}

/// Threads of the common stack size get their stacks when they run: then there may be no memory for
/// all that were spawned. Those that are left run when others have ended.
#[test]
fn who_was_spawned_runs_when_there_is_address_space() {
    const NAME: &str = "start::who_was_spawned_runs_when_there_is_address_space";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        let size = ("GREENTHREAD_STACK_SIZE", "16777216");
        return assert_code(&child_with(NAME, "", &[size]), 0);
    }
    // The kernel threads that it takes.
    let blocked = (0..4).map(|_| {
        thread::spawn(|| greenthread::blocking(|| std::thread::sleep(Duration::from_millis(10))))
    });
    blocked
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    let limit = address_space() + (2 << 30);
    set_limit(libc::RLIMIT_AS, limit);
    let open = Arc::new(AtomicBool::new(false));
    let runs = Arc::new(AtomicUsize::new(0));
    let mut spawned: Vec<JoinHandle<()>> = Vec::with_capacity(100_000);
    let error = loop {
        let (open, runs) = (open.clone(), runs.clone());
        let waits = move || {
            runs.fetch_add(1, Relaxed);
            while !open.load(Acquire) {
                thread::park();
            }
        };
        match Builder::new().spawn(waits) {
            Ok(handle) => spawned.push(handle),
            Err(error) => break error,
        }
        assert!(spawned.len() < 100_000, "1.6 TB of stacks under 2 GiB");
    };
    println!("{} threads, then: {error}", spawned.len());
    // libc aborts when it cannot remember a thread-local's destructor: room for that.
    set_limit(libc::RLIMIT_AS, limit + (64 << 20));
    open.store(true, Release);
    let number = spawned.len();
    spawned.iter().for_each(|handle| handle.thread().unpark());
    spawned
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    assert_eq!(runs.load(Relaxed), number);
}

/// Counts its drops, and panics in them if told so.
struct Dropped<'a>(&'a AtomicUsize, bool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        assert!(!self.1, "a destructor that panics");
    }
}

/// A closure is dropped once, whether its thread runs, panics, or cannot be had; and a scope then
/// waits for nobody.
#[test]
fn a_closure_is_dropped_once() {
    const NAME: &str = "start::a_closure_is_dropped_once";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    let case = |size: Option<usize>, panics_in_drop: bool, panics: bool| {
        let drops = AtomicUsize::new(0);
        let tried = std::panic::catch_unwind(|| {
            thread::scope(|scope| {
                let dropped = Dropped(&drops, panics_in_drop);
                let mut builder = Builder::new();
                if let Some(size) = size {
                    builder = builder.stack_size(size);
                }
                let body = move || {
                    let _dropped = &dropped;
                    assert!(!panics, "a thread that panics");
                };
                let result = builder.spawn_scoped(scope, body);
                result.map(|handle| handle.join().is_ok()).ok()
            })
        });
        assert_eq!(drops.load(Relaxed), 1);
        tried
    };
    assert_eq!(case(None, false, false).unwrap(), Some(true));
    assert_eq!(case(None, false, true).unwrap(), Some(false));
    assert_eq!(case(None, true, false).unwrap(), Some(false));
    set_limit(libc::RLIMIT_AS, address_space() + (1 << 30));
    const TOO_MUCH: Option<usize> = Some(16 << 30);
    assert_eq!(case(TOO_MUCH, false, false).unwrap(), None);
    // It is dropped in `spawn`, which passes the panic on.
    assert!(case(TOO_MUCH, true, false).is_err());
    assert_eq!(case(None, false, false).unwrap(), Some(true));
}

/// Who asks for an observer that the program was built without is told so; a value that asks for none is accepted.
#[cfg(not(feature = "observe"))]
#[test]
fn observers_that_are_not_there_are_refused() {
    use greenthread::runtime::OnDeadlock;
    alone!(GREENTHREAD_SIGQUIT = "off", GREENTHREAD_WARN = "0");
    let build = |action| Runtime::builder().on_deadlock(action).build();
    build(OnDeadlock::Ignore).unwrap().shutdown();
    let said = |error: std::io::Error| {
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
        error.to_string()
    };
    let missing = "the program was built without greenthread's feature `observe`";
    let error = said(build(OnDeadlock::Abort).unwrap_err());
    assert_eq!(error, format!("on_deadlock(Abort): {missing}"));
    // SAFETY: no other thread of the program's runs.
    unsafe { std::env::set_var("GREENTHREAD_TRACE", "a.json") };
    let error = said(Runtime::new().unwrap_err());
    assert_eq!(error, format!("GREENTHREAD_TRACE=\"a.json\": {missing}"));
}
