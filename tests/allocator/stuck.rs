//! A thread is stuck and holds the allocator's lock: SIGQUIT makes no dump, and a line says where else to look.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use greenthread::thread;

/// The system's allocator under a lock. A request for [`STUCK`] bytes never returns, once that is wanted.
struct Locked;

const STUCK: usize = 7777;
static LOCK: AtomicBool = AtomicBool::new(false);
static IS_STUCK: AtomicBool = AtomicBool::new(false);
static GETS_STUCK: AtomicBool = AtomicBool::new(false);

fn lock() {
    while LOCK.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        lock();
        while layout.size() == STUCK && GETS_STUCK.load(Ordering::Relaxed) {
            IS_STUCK.store(true, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        let allocated = unsafe { System.alloc(layout) };
        LOCK.store(false, Ordering::Release);
        allocated
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        lock();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(address, layout) };
        LOCK.store(false, Ordering::Release);
    }
}

/// Not a test: the program, which the test starts again.
#[test]
fn program() {
    if std::env::var_os("GT_PROGRAM").is_none() {
        return;
    }
    crate::become_a(&Locked);
    thread::spawn(|| ()).join().unwrap();
    GETS_STUCK.store(true, Ordering::Relaxed);
    let _stuck = thread::spawn(|| drop(Vec::<u8>::with_capacity(STUCK)));
    // No function that allocates is called from here on.
    while !IS_STUCK.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    // SAFETY: the process may send itself a signal.
    let ask = || unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
    assert_eq!(ask(), 0);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_dump_that_does_not_come_is_told_of() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["stuck::program", "--exact", "--nocapture"])
        .env("GT_PROGRAM", "")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let said: Vec<_> = lines.map(Result::unwrap).take(1).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let [line] = &said[..] else {
        panic!("nothing was said")
    };
    assert!(
        line.starts_with("greenthread: the dump is not done after 5 s"),
        "{line}"
    );
    assert!(line.contains("`info greenthreads`"), "{line}");
}
