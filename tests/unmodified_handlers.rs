//! A signal handler wakes green threads by a futex call, while it interrupts kernel threads of the runtime
//! in the middle of the scheduler: it must not enter that.

#![cfg(all(feature = "unmodified", target_os = "linux"))]

mod common;

use common::*;
use greenthread::runtime::Runtime;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};

/// What the waiters wait for: it never changes.
static WORD: AtomicU32 = AtomicU32::new(0);
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static WOKEN: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

const SIGNALS: usize = 20_000;

fn futex(operation: i32, value: i32) -> i64 {
    // SAFETY: a valid word, and no time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WORD.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            0usize,
        )
    }
}

extern "C" fn wake_all(_: i32) {
    futex(libc::FUTEX_WAKE, i32::MAX);
    HANDLED.fetch_add(1, Relaxed);
}

/// Sends the signal to each kernel thread of the process in turn, but not to its own.
fn signal_all() {
    // SAFETY: a system call of numbers.
    let (process, own) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    while HANDLED.load(Relaxed) < SIGNALS {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let id: i64 = task.file_name().to_str().unwrap().parse().unwrap();
            if id != own {
                // SAFETY: the signal has a handler; the thread may be gone.
                unsafe { libc::syscall(libc::SYS_tgkill, process, id, libc::SIGUSR1) };
            }
        }
    }
}

#[test]
fn a_handler_wakes_while_the_scheduler_runs() {
    const NAME: &str = "a_handler_wakes_while_the_scheduler_runs";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    // SAFETY: a zeroed action is valid; the handler makes async-signal-safe calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = wake_all as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
            0
        );
    }
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let waiters = (0..50).map(|_| {
        runtime.spawn(|| {
            while !OVER.load(SeqCst) {
                futex(libc::FUTEX_WAIT, 0);
                WOKEN.fetch_add(1, Relaxed);
            }
        })
    });
    let waiters: Vec<_> = waiters.collect();
    // They keep the scheduler busy: yields, wake-ups, spawns.
    let busy = (0..8).map(|_| {
        runtime.spawn(|| {
            while !OVER.load(SeqCst) {
                let (sender, receiver) = greenthread::channel::bounded(1);
                let other = greenthread::spawn(move || sender.send(1).unwrap());
                greenthread::yield_now();
                assert_eq!(receiver.recv(), Ok(1));
                other.join().unwrap();
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    std::thread::spawn(signal_all).join().unwrap();
    OVER.store(true, SeqCst);
    for thread in busy {
        thread.join().unwrap();
    }
    for thread in waiters {
        while !thread.is_finished() {
            futex(libc::FUTEX_WAKE, i32::MAX);
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }
    assert!(WOKEN.load(Relaxed) > 0);
    runtime.shutdown();
}
