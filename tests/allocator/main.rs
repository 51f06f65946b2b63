//! Global allocators that are hard on a runtime: one with a lock, under which threads are preempted; one that keeps a list of
//! its threads; one in which a thread is stuck. A program has one allocator, so this one becomes what the test in this
//! process asks for ([`become_a`]), each in a process of its own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/hammer.rs"]
mod hammer;

mod global;
mod stuck;
mod threads;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

struct Given;

#[global_allocator]
static ALLOCATOR: Given = Given;
static GIVEN: OnceLock<&'static (dyn GlobalAlloc + Sync)> = OnceLock::new();

/// From now on; what was allocated before is the system's, as all is that these give.
fn become_a(allocator: &'static (dyn GlobalAlloc + Sync)) {
    assert!(GIVEN.set(allocator).is_ok(), "a second allocator");
}

impl Given {
    fn beneath(&self) -> &'static dyn GlobalAlloc {
        match GIVEN.get() {
            Some(given) => *given,
            None => &System,
        }
    }
}

// SAFETY: the given allocators, and the system's, do the work.
unsafe impl GlobalAlloc for Given {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
        unsafe { self.beneath().alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same; all give memory of the system's allocator.
        unsafe { self.beneath().dealloc(pointer, layout) }
    }
}
