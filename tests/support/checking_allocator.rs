//! The allocator of every integration test: the system's, but it aborts when it is called with
//! preemption off. Then a preempted thread may hold malloc's lock, and the scheduler would wait for
//! a thread that it is to run itself. `--cfg greenthread_allocator="jemalloc"` puts another one in
//! the system's place (`.ci/allocators`).

#[cfg(not(greenthread_allocator))]
use std::alloc::System as BENEATH;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// Cleared by tests of code that breaks the rule on purpose: what it does must be sound all the same.
pub static CHECKS: AtomicBool = AtomicBool::new(true);
/// A release of so many bytes waits for as long as this says so: for a test that needs somebody to
/// stand still in the middle of what he does. 0 holds nobody.
pub static HELD_SIZE: AtomicUsize = AtomicUsize::new(0);
/// Whether somebody is held.
pub static HOLDS: AtomicBool = AtomicBool::new(false);

#[cfg(greenthread_allocator = "jemalloc")]
static BENEATH: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
#[cfg(greenthread_allocator = "mimalloc")]
static BENEATH: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[cfg(greenthread_allocator = "snmalloc")]
static BENEATH: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

struct Checking;

fn check(what: &str) {
    if greenthread::__preemption_is_off() && CHECKS.load(Relaxed) {
        for part in ["checking allocator: ", what, " with preemption off\n"] {
            // SAFETY: writes a valid buffer.
            unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
        }
        std::process::abort();
    }
}

// SAFETY: the allocator beneath does the work.
unsafe impl GlobalAlloc for Checking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check("allocation");
        // SAFETY: the caller's promise.
        unsafe { BENEATH.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check("release");
        while layout.size() == HELD_SIZE.load(Relaxed) {
            HOLDS.store(true, Relaxed);
            // SAFETY: takes nothing and cannot fail.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: the caller's promise.
        unsafe { BENEATH.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check("reallocation");
        // SAFETY: the caller's promise.
        unsafe { BENEATH.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static CHECKING: Checking = Checking;
