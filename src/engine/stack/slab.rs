//! Slabs: large mappings from which the slots of one class are cut, one after another.
//!
//! A mapping for each stack would meet the kernel's limit of 65,530 mappings at some 30,000
//! threads. So many slots share one, and their guards are markers in the page tables, which split
//! nothing.
//!
//! ```text
//!   base                 base + stride                              base + slots * stride
//!   | slot 0             | slot 1             | ... cut | not cut yet |
//! ```
//!
//! A class begins with a small slab, so that a process with little address space can start, and
//! each further one is twice as large. Where that much cannot be had, halves are tried, down to one
//! slot.
//!
//! # Invariants
//! 1. A slab, once in `SLABS`, stays as it is for ever, but for `cut`, which only grows.
//! 2. Only the last slab of a class has slots that are not cut.
//! 3. Slabs are added, and slots cut, under `GROWTH`. Nothing else takes that lock, and it is held
//!    with preemption off. [`find`] takes none: signal handlers call it.
//!
//! # Memory orderings
//! `COUNT` is released when a slab is added and acquired by [`slabs`]: a thread that sees the number
//! sees the slabs. `cut` is relaxed: the slot's own header says (with its own pair) whether it is
//! complete.

use super::{CLASSES, Class};
use crate::engine::sys::{lock::Lock, mm};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// Slots of a class's first slab, and the most that one has.
const FIRST: usize = 16;
const MOST: usize = 16 << 10;
/// Bytes that a slab of more than one slot does not exceed.
const MOST_BYTES: usize = 32 << 30;
/// Far more slabs than address space has room for, unless want of memory has made them small.
const TABLE: usize = 4096;

struct Slab {
    base: AtomicUsize,
    stride: AtomicUsize,
    slots: AtomicUsize,
    cut: AtomicUsize,
}

static SLABS: [Slab; TABLE] = [const {
    Slab {
        base: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
        slots: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
    }
}; TABLE];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// For each class the slab being cut, and the number of slots that the next one should have.
struct Growth {
    current: [Option<&'static Slab>; CLASSES],
    next: [usize; CLASSES],
}

static GROWTH: Lock<Growth> = Lock::new(Growth {
    current: [None; CLASSES],
    next: [FIRST; CLASSES],
});

/// Where a slot lies: guard and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Cuts a slot never used before, all zero, from a slab.
pub(super) fn cut(class: Class) -> io::Result<Span> {
    let mut growth = GROWTH.lock();
    let slab = match growth.current[class.index()] {
        Some(slab) if slab.cut.load(Relaxed) < slab.slots.load(Relaxed) => slab,
        _ => growth.grow(class)?,
    };
    let index = slab.cut.load(Relaxed);
    slab.cut.store(index + 1, Relaxed);
    Ok(slab.span(index))
}

/// The slot, cut already, that holds `address`. Lock-free and async-signal-safe.
pub(super) fn find(address: usize) -> Option<Span> {
    slabs().iter().find_map(|slab| {
        let index = address.checked_sub(slab.base.load(Relaxed))? / slab.stride.load(Relaxed);
        (index < slab.cut.load(Relaxed)).then(|| slab.span(index))
    })
}

/// All slots cut so far.
pub(super) fn spans() -> impl Iterator<Item = Span> {
    slabs()
        .iter()
        .flat_map(|slab| (0..slab.cut.load(Relaxed)).map(|index| slab.span(index)))
}

fn slabs() -> &'static [Slab] {
    // Acquire: pairs with the release in `grow`, which publishes the fields.
    &SLABS[..COUNT.load(Acquire)]
}

impl Slab {
    fn span(&self, index: usize) -> Span {
        let stride = self.stride.load(Relaxed);
        let start = self.base.load(Relaxed) + index * stride;
        Span {
            start,
            end: start + stride,
        }
    }
}

impl Growth {
    fn grow(&mut self, class: Class) -> io::Result<&'static Slab> {
        let count = COUNT.load(Relaxed);
        let Some(slab) = SLABS.get(count) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let stride = class.stride();
        let next = &mut self.next[class.index()];
        let mut slots = (*next).min(MOST_BYTES / stride).max(1);
        let base = loop {
            match mm::map(slots * stride) {
                Ok(base) => break base,
                Err(_) if slots > 1 => slots /= 2,
                Err(error) => {
                    // Ask for little the next time: each failure is a system call under the lock.
                    *next = 1;
                    return Err(error);
                }
            }
        };
        *next = (slots * 2).min(MOST);
        // A huge page would make every stack cost 2 MiB. Kernels without huge pages refuse, which is
        // as good. SAFETY: the memory is ours and new; the advice changes no contents.
        let _ = unsafe { mm::advise(base, slots * stride, libc::MADV_NOHUGEPAGE) };
        slab.base.store(base, Relaxed);
        slab.stride.store(stride, Relaxed);
        slab.slots.store(slots, Relaxed);
        // Release: pairs with the acquire in `slabs`.
        COUNT.store(count + 1, Release);
        self.current[class.index()] = Some(slab);
        Ok(slab)
    }
}
