//! A global allocator with one lock.

use crate::common::alone;
use crate::hammer::{self, OneLock};
use std::alloc::{GlobalAlloc, Layout, System};

struct Locked(OneLock);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Locked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.0.with(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.0.with(|| unsafe { System.dealloc(pointer, layout) })
    }
}

static LOCKED: Locked = Locked(OneLock::new());

#[test]
fn holders_that_are_preempted_come_back() {
    alone!();
    crate::become_a(&LOCKED);
    hammer::hammer();
}
