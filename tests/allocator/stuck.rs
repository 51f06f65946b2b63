//! A thread is stuck and holds the allocator's lock: SIGQUIT still makes a dump, without names of functions.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use std::alloc::{GlobalAlloc, Layout, System};
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

/// Whether the kernel thread that makes such dumps has prepared what it needs: it waits on a futex then.
fn watchdog_is_ready() -> bool {
    const FUTEX: &str = "202 ";
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.map(|task| task.unwrap().path()).any(|task| {
        let read = |name: &str| std::fs::read_to_string(task.join(name)).unwrap_or_default();
        read("comm") == "gt-watchdog\n" && read("syscall").starts_with(FUTEX)
    })
}

/// Not a test: the program, which the test starts again.
#[test]
fn program() {
    if std::env::var_os("GT_PROGRAM").is_none() {
        return;
    }
    crate::become_a(&Locked);
    let named = |name: &str| thread::Builder::new().name(name.into());
    let _waiter = named("waiter").spawn(thread::park).unwrap();
    while !watchdog_is_ready() {
        std::thread::yield_now();
    }
    GETS_STUCK.store(true, Ordering::Relaxed);
    let _stuck = named("stuck").spawn(|| drop(Vec::<u8>::with_capacity(STUCK)));
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
fn a_dump_needs_no_memory() {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["stuck::program", "--exact", "--nocapture"])
        .env("GT_PROGRAM", "")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut text = Vec::new();
    for line in lines.map(Result::unwrap) {
        text.push(line);
        // Whether there is a line of the thread's stack.
        let has_stack = |thread: &str| {
            let from = text.iter().skip_while(|line| !line.contains(thread));
            let mut all = from.take_while(|line| !line.is_empty());
            all.any(|line| line.starts_with("    allocator-"))
        };
        if has_stack("\"stuck\": running") && has_stack("\"waiter\": parked") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let has = |part: &str| text.iter().any(|line| line.contains(part));
    for part in [
        "greenthread: a dump without names",
        "\"stuck\": running, or blocked in the kernel for ",
        "\"waiter\": parked for ",
        ", waits for unpark 0x",
        "  spawned at tests/allocator/stuck.rs:",
    ] {
        assert!(has(part), "{part:?} in {text:#?}");
    }
}
