//! Stacks of green threads: slots with a guard, cut from slabs, used again and again.
//!
//! ```text
//!   low addresses                                                              high addresses
//!   | guard, 64 KiB | stack, grows down  <-- | reserve: the owner's block and Room  | Slot |
//!   ^ start         ^ bottom                 ^ top - reserve                        ^ top  ^ end
//! ```
//!
//! A slot's usable size is its class's: a power of two from 16 KiB to 64 GiB. Its memory is found
//! by the kernel page by page as it is touched, so a large class costs address space only.
//!
//! An access to the guard is a fault, which [`overflow`] reports. Code that moves the stack
//! pointer by more than 64 KiB at once without touching what lies between (a huge `alloca` or frame
//! in C; Rust's frames probe every page) jumps over the guard into the slot below, and cannot be
//! seen. That is why the guard is not a single page.
//!
//! # A slot's way
//! not cut --[`acquire`]--> in use --[`release`]--> free (class's list) --[`acquire`]--> in use ...
//! and, between two uses on one processor, in that processor's [`Cache`], which also takes from the
//! list. A slot that its owner has not furnished (there was no memory) is in a list of its own: a
//! cache has furnished ones only.
//!
//! Slots that nobody needs leave their list ([`Excess`]), the owner takes its data away, and
//! [`vacate`] gives their memory back: then they are as if not cut, and are cut again before others.
//!
//! # Invariants
//! 1. A header, once complete, stays valid until the slot is vacated, and mapped for ever: hence
//!    `&'static Slot`. A vacated slot's header reads as zero, which is a value of each field.
//! 2. A slot is in one place: in use, in a cache, in its class's list, or in the hands of the one
//!    who vacates it. `link` belongs to the place.
//! 3. A slot in use has its guard: a slot whose guard the kernel refused goes back to the list
//!    unguarded, and the next to take it tries again.
//! 4. The bytes from `top - reserve` upwards survive recycling: the owner may find there the data
//!    that it left ([`Slot::extra`] says so). Of the stack, all but the topmost [`KEEP`] bytes may be
//!    given back.
//! 5. Locks here are held with preemption off, and nothing is allocated under them.
//!
//! # Memory orderings
//! `Slot::low` is released when the header is complete, and acquired by [`find`] and [`visit`], which
//! come from an address. `extra` is released by the owner and acquired by [`visit`]. `link` and
//! `guarded` pass with the slot, under a lock or by ownership: relaxed.

mod cache;
mod list;
pub(crate) mod overflow;
mod slab;
#[cfg(test)]
mod tests;

pub(crate) use cache::Cache;
pub(crate) use list::{Excess, is_overstocked};
pub(crate) use slab::fold;

use crate::engine::arch::LARGEST_PAGE;
use crate::engine::sys::mm::page;
use crate::engine::sys::{lock::Lock, mm};
use list::{List, common};
use slab::Span;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

/// Bytes below each stack that fault when touched.
pub(crate) const GUARD: usize = 64 << 10;
/// The smallest class, a page at least; smaller requests get it.
pub(crate) const MIN_SIZE: usize = if LARGEST_PAGE > 16 << 10 {
    LARGEST_PAGE
} else {
    16 << 10
};
/// The largest class.
pub(crate) const MAX_SIZE: usize = 64 << 30;
/// The topmost bytes of a stack, below the reserve, that a free slot keeps: most threads need no
/// more.
pub(crate) const KEEP: usize = 8 << 10;

// Guards and stacks are whole pages, whatever the size of these.
const _: () = assert!(GUARD.is_multiple_of(LARGEST_PAGE) && MIN_SIZE.is_multiple_of(LARGEST_PAGE));

const CLASSES: usize = (MAX_SIZE.ilog2() - MIN_SIZE.ilog2()) as usize + 1;

/// Bytes at the top of every slot, whole pages: the owner's reserve and the header.
static RESERVED: AtomicUsize = AtomicUsize::new(LARGEST_PAGE);
/// A thread without a cache found a list empty: the next cache to get a slot gives up all it has.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The free slots that are not furnished.
static BARE: [Lock<List>; CLASSES] = [const { Lock::new(List::new()) }; CLASSES];

/// Says how many bytes the owner needs at the top of every slot, and sees whether stacks of
/// `default_size` can be had at all. Once in a process, before any slot is taken.
pub(crate) fn init(reserve: usize, default_size: usize) -> io::Result<()> {
    let reserved = reserve + size_of::<Slot>();
    RESERVED.store(reserved.next_multiple_of(page()), Relaxed);
    acquire(default_size).map(release)
}

/// A size class: the index of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class(u8);

impl Class {
    /// The class whose stacks have at least `size` usable bytes.
    fn of(size: usize) -> io::Result<Class> {
        if size > MAX_SIZE {
            let accepted = format!("stack size {size} is too large: at most {MAX_SIZE} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, accepted));
        }
        let size = size.max(MIN_SIZE).next_power_of_two();
        Ok(Class((size.ilog2() - MIN_SIZE.ilog2()) as u8))
    }

    fn index(self) -> usize {
        self.0 as usize
    }

    fn size(self) -> usize {
        MIN_SIZE << self.0
    }

    /// Bytes from one slot to the next.
    fn stride(self) -> usize {
        GUARD + self.size() + RESERVED.load(Relaxed)
    }
}

/// The size of the stack that [`acquire`] gives for `size`, if it accepts that. Call it with
/// preemption on: the error allocates.
pub(crate) fn check_size(size: usize) -> io::Result<usize> {
    Class::of(size).map(Class::size)
}

/// The header of a slot, in its last bytes.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The first usable byte; 0 while the header is not complete.
    low: AtomicUsize,
    link: AtomicPtr<Slot>,
    /// A word of the owner's: 0 until it has furnished the reserve, then any other value.
    pub(crate) extra: AtomicUsize,
    /// That of its [`Class`].
    class: AtomicU8,
    guarded: AtomicBool,
    /// Used since its memory was given back; the cache's that holds it.
    dirty: AtomicBool,
    /// How often a cache has taken it back.
    uses: AtomicU32,
}

impl Slot {
    /// Completes the header of a slot just cut, whose memory is zero.
    fn write(span: Span, class: Class) -> &'static Slot {
        let slot = Self::header(span);
        slot.class.store(class.0, Relaxed);
        // Release: pairs with the acquire in `complete`.
        slot.low.store(span.start + GUARD, Release);
        slot
    }

    /// The slot that lies at `span`, if its header is complete.
    fn complete(span: Span) -> Option<&'static Slot> {
        let slot = Self::header(span);
        // Acquire: pairs with the release in `write`: not 0 means that `class` is written.
        (slot.low.load(Acquire) != 0).then_some(slot)
    }

    /// The header of the slot at `span`, complete or not.
    fn header(span: Span) -> &'static Slot {
        let header = std::ptr::with_exposed_provenance::<Slot>(span.end - size_of::<Slot>());
        // SAFETY: a span is cut from a slab, whose memory is mapped for good and begins as zero:
        // valid for atomics, which all fields are. (`slab` gives out no span that is gone.) `end` is a multiple of the page size, so the
        // header is aligned.
        unsafe { &*header }
    }

    fn class(&self) -> Class {
        Class(self.class.load(Relaxed))
    }

    /// The first usable byte. Below it lies the guard.
    pub(crate) fn bottom(&self) -> usize {
        self.low.load(Relaxed)
    }

    /// The address of this header: the owner may use everything from `bottom` up to here.
    pub(crate) fn top(&self) -> usize {
        self as *const Slot as usize
    }

    /// Bytes of stack promised: the class's size. The reserve comes on top.
    pub(crate) fn size(&self) -> usize {
        self.class().size()
    }

    /// The deepest that the stack has been since its memory was last given back: bytes in memory
    /// below the reserve, counted from the deepest page. For diagnosis: reads the page tables.
    #[cfg(test)]
    pub(crate) fn high_water(&self) -> usize {
        let mut pages = [false; 256];
        let stack_end = self.bottom() + self.size();
        let mut at = self.bottom();
        while at < stack_end {
            let count = pages.len().min((stack_end - at) / page());
            if mm::resident(at, &mut pages[..count]).is_err() {
                return 0;
            }
            if let Some(first) = pages[..count].iter().position(|page| *page) {
                return stack_end - (at + first * page());
            }
            at += count * page();
        }
        0
    }

    /// Sees to it that the guard is there.
    fn guard(&self) -> io::Result<()> {
        if !self.guarded.load(Relaxed) {
            // SAFETY: the guard's bytes are nobody's: the owner has those from `bottom` on.
            unsafe { mm::guard(self.bottom() - GUARD, GUARD)? };
            self.guarded.store(true, Relaxed);
        }
        Ok(())
    }
}

/// Takes a slot with at least `size` usable bytes of stack below the reserve.
///
/// Call it with preemption off, after [`check_size`]: then nothing is allocated, failure included.
///
/// # Errors
/// `InvalidInput` for a size that no class has; `OutOfMemory` when there is no memory for one slot.
pub(crate) fn acquire(size: usize) -> io::Result<&'static Slot> {
    let class = Class::of(size)?;
    let furnished = common(class).lock().pop();
    let slot = match furnished.or_else(|| BARE[class.index()].lock().pop()) {
        Some(slot) => slot,
        None => {
            WANTED.store(true, Relaxed);
            Slot::write(slab::cut(class)?, class)
        }
    };
    if let Err(error) = slot.guard() {
        put(slot);
        return Err(error);
    }
    Ok(slot)
}

/// Whether there are furnished slots, with at least `size` bytes, that no cache has.
pub(crate) fn is_stocked(size: usize) -> bool {
    Class::of(size).is_ok_and(|class| !common(class).lock().is_empty())
}

/// Gives a slot back to its class's list, and its deep memory to the kernel.
///
/// The owner runs on another stack, and leaves in the reserve the data that it wants to find again.
pub(crate) fn release(slot: &'static Slot) {
    trim(slot);
    put(slot);
}

fn put(slot: &'static Slot) {
    let class = slot.class();
    match slot.extra.load(Relaxed) {
        0 => BARE[class.index()].lock().push(slot),
        _ => common(class).lock().push(slot),
    }
}

/// Gives the memory of an unused stack back to the kernel, but for the topmost [`KEEP`] bytes.
pub(crate) fn trim(slot: &'static Slot) {
    // Locked memory is refused, and stays: harmless.
    let _ = try_trim(slot);
}

/// The same. An error: the memory cannot be given back.
pub(crate) fn try_trim(slot: &'static Slot) -> io::Result<()> {
    let length = deep(slot.size(), page());
    // SAFETY: the range lies in the slot's stack, below all that the owner relies on (invariant 4).
    unsafe { mm::advise(slot.bottom(), length, libc::MADV_DONTNEED) }
}

/// Gives all memory of a slot back, the header's, too. If the kernel refuses, nobody gets the slot
/// again.
///
/// # Safety
/// The slot is the caller's, `extra` was set to 0, and the owner's data are of no use any more.
pub(crate) unsafe fn vacate(slot: &'static Slot) {
    let (class, start) = (slot.class(), slot.bottom());
    let end = slot.top() + size_of::<Slot>();
    // The guard stays, and nobody knows: it is made once more. SAFETY: the caller's promise. Others
    // read the header only, whose atomics turn to zero: it is not complete then.
    if unsafe { mm::advise(start, end - start, libc::MADV_DONTNEED) }.is_ok() {
        slab::vacate(start, class);
    }
}

/// The bytes of a stack of `size` that are not kept: whole pages.
fn deep(size: usize, page: usize) -> usize {
    size - KEEP.max(page)
}

/// Which part of a slot an address lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    Guard,
    Stack,
}

/// The slot whose memory, guard included, holds `address`. Lock-free and async-signal-safe.
pub(crate) fn find(address: usize) -> Option<(&'static Slot, Where)> {
    let slot = Slot::complete(slab::find(address)?)?;
    Some((
        slot,
        if address < slot.bottom() {
            Where::Guard
        } else {
            Where::Stack
        },
    ))
}

/// Visits every slot that its owner has furnished, in use or not: gives `extra`, which is not 0.
/// Lock-free.
pub(crate) fn visit(mut each: impl FnMut(usize)) {
    for slot in slab::spans().filter_map(Slot::complete) {
        // Acquire: pairs with the owner's release of `extra`: the furnished reserve is visible.
        match slot.extra.load(Acquire) {
            0 => {}
            extra => each(extra),
        }
    }
}
