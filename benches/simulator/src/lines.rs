//! Cache lines: whose caches one is in, and since when; and that lines are the same in every simulation.

use core::hash::Hasher;
use std::alloc::{GlobalAlloc, Layout, System};

use super::{MAX, PACKAGES, Time};

/// Bytes.
pub(super) const LINE: usize = 64;

/// Processors, a bit each.
pub(super) type Set = [u64; MAX / 64];

#[derive(Default)]
pub(super) struct Line {
    /// Whose caches it is in.
    pub(super) holders: Set,
    /// When it has come, or comes, into each package.
    pub(super) came: [Time; PACKAGES],
    /// Until then a writer's transfer is under way.
    pub(super) written: Time,
    /// Until then a reader's is.
    pub(super) read: Time,
}

impl Line {
    pub(super) fn is_held_by(&self, processor: usize) -> bool {
        self.holders[processor / 64] & 1 << (processor % 64) != 0
    }

    pub(super) fn is_held_by_alone(&self, processor: usize) -> bool {
        self.is_held_by(processor)
            && self
                .holders
                .iter()
                .map(|bits| bits.count_ones())
                .sum::<u32>()
                == 1
    }

    pub(super) fn is_held(&self) -> bool {
        self.holders.iter().any(|&bits| bits != 0)
    }

    pub(super) fn is_held_among(&self, set: &Set) -> bool {
        self.holders
            .iter()
            .zip(set)
            .any(|(bits, set)| bits & set != 0)
    }

    pub(super) fn is_held_outside(&self, set: &Set) -> bool {
        self.holders
            .iter()
            .zip(set)
            .any(|(bits, set)| bits & !set != 0)
    }

    pub(super) fn add(&mut self, processor: usize) {
        self.holders[processor / 64] |= 1 << (processor % 64);
    }
}

/// Begins every allocation at a cache line: so what shares a line is the same every time.
struct Lines;

// SAFETY: the system's allocator, asked for more than was asked for.
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; a greater alignment is a valid one.
        unsafe { System.alloc(layout.align_to(LINE).unwrap_or(layout)) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as it was allocated.
        unsafe { System.dealloc(pointer, layout.align_to(LINE).unwrap_or(layout)) }
    }
}

#[global_allocator]
static ALLOCATOR: Lines = Lines;

/// Hashes an address by a multiplication (Knuth, "The Art of Computer Programming" 6.4).
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only addresses are hashed");
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }
}
