//! Stacks of green threads: slots with a guard, cut from slabs, used again and again.
//!
//! ```text
//!   low addresses                                                              high addresses
//!   | guard, 64 KiB | stack, grows down  <-- | reserve: the owner's block and ThreadStack  | Slot |
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
//! not cut --[`acquire`]--> in use --[`release`]--> free (its class's common list) --[`acquire`]--> in use ...
//! and, between two uses on one processor, in that processor's [`Cache`], which also takes from the
//! list. Only slots that their owner has initialised are free.
//!
//! Of the free slots that nobody needs ([`reclaim`]) the owner takes its data away, and [`decommit`] gives
//! their memory back: then they are as if not cut, and are cut again before others. The same happens to a slot that
//! could not be guarded or initialised.
//!
//! # Invariants
//! 1. A header, once complete, stays valid until the slot is decommitted, and mapped for ever: hence
//!    `&'static Slot`. A decommitted slot's header reads as zero, which is a value of each field.
//! 2. A slot is in one place: in use, in a cache, in its class's list, or in the hands of the thread
//!    that decommits it. `link` belongs to the place.
//! 3. A slot that is given out has its guard, and keeps it until it is decommitted.
//! 4. The bytes from `top - reserve` upwards survive recycling: the owner may find there the data
//!    that it left ([`Slot::extra`] says so). Of the stack, all but the topmost [`KEEP`] bytes may be
//!    given back.
//! 5. Locks here are held with preemption off, and nothing is allocated under them.
//!
//! # Memory orderings
//! `Slot::low` is released when the header is complete, and acquired by [`find`] and [`visit`], which
//! come from an address. `extra` is released by the owner and acquired by [`visit`]. `link` passes
//! with the slot, under a lock or by ownership, and is no atomic.

pub(crate) mod overflow;
pub(crate) mod reclaim;
mod slab;
#[cfg(test)]
mod tests;

use crate::engine::arch::LARGEST_PAGE;
use crate::engine::sys::mm::{self, page};
use crate::engine::sys::perturb;
use crate::engine::sys::shared::{Lifo, Linked, Lock};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};
use std::{cell::Cell, io, ops::Range};

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
/// The next cache to get a slot gives up half of what it has: a thread without a cache found a list
/// empty, or `reclaim` asks.
static WANTED: AtomicBool = AtomicBool::new(false);

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
    /// The class whose stacks have at least `size` usable bytes; [`MAX_SIZE`] is the most.
    fn of(size: usize) -> Class {
        let size = size.clamp(MIN_SIZE, MAX_SIZE).next_power_of_two();
        Class((size.ilog2() - MIN_SIZE.ilog2()) as u8)
    }

    fn size(self) -> usize {
        MIN_SIZE << self.0
    }

    /// Bytes from one slot to the next.
    fn stride(self) -> usize {
        GUARD + self.size() + RESERVED.load(Relaxed)
    }
}

/// The header of a slot, in its last bytes.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// The first usable byte; 0 while the header is not complete.
    low: AtomicUsize,
    link: Cell<Option<&'static Slot>>,
    /// A word of the owner's: 0 until it has initialised the reserve, then any other value.
    pub(crate) extra: AtomicUsize,
    /// That of its [`Class`].
    class: AtomicU8,
}

// SAFETY: whoever has the slot in its hands or its list uses `link`; the rest are atomics.
unsafe impl Sync for Slot {}

impl Slot {
    /// Completes the header of a slot just cut, whose memory is zero.
    fn write(span: Range<usize>, class: Class) -> &'static Slot {
        let slot = Self::header(span.end);
        slot.class.store(class.0, Relaxed);
        // Release: pairs with the acquire in `complete`.
        slot.low.store(span.start + GUARD, Release);
        slot
    }

    /// The slot that lies at `span`, if its header is complete.
    fn complete(span: Range<usize>) -> Option<&'static Slot> {
        let slot = Self::header(span.end);
        // Acquire: pairs with the release in `write`: not 0 means that `class` is written.
        (slot.low.load(Acquire) != 0).then_some(slot)
    }

    /// The header of the slot that ends at `end`, complete or not.
    fn header(end: usize) -> &'static Slot {
        let header = std::ptr::with_exposed_provenance::<Slot>(end - size_of::<Slot>());
        // SAFETY: a span is cut from a slab, whose memory is mapped for good and begins as zero: valid for
        // atomics and for an absent link, which are all fields. (`slab` gives out no decommitted span.) The
        // address `end` is a multiple of the page size, so the header is aligned.
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
}

/// Takes a slot with at least `size` usable bytes of stack below the reserve.
///
/// Call it with preemption off, for [`MAX_SIZE`] at most. Nothing is allocated.
///
/// # Errors
/// There is no memory for a slot.
pub(crate) fn acquire(size: usize) -> io::Result<&'static Slot> {
    let class = Class::of(size);
    let free = common(class).lock().pop();
    if let Some(slot) = free {
        return Ok(slot);
    }
    WANTED.store(true, Relaxed);
    let slot = Slot::write(slab::cut(class)?, class);
    // SAFETY: the guard's bytes are nobody's: the owner has those from `bottom` on.
    let guarded = unsafe { mm::guard(slot.bottom() - GUARD, GUARD) };
    // SAFETY: the slot is new, and nobody's.
    guarded.inspect_err(|_| unsafe { decommit(slot) })?;
    Ok(slot)
}

/// Whether there are free slots, with at least `size` bytes, that no cache has.
pub(crate) fn is_stocked(size: usize) -> bool {
    !common(Class::of(size)).lock().list.is_empty()
}

/// Gives a slot back to its class's list, and its deep memory to the kernel; one that is not initialised
/// is decommitted. Call it with preemption off.
///
/// The owner runs on another stack, and leaves in the reserve the data that it wants to find again.
pub(crate) fn release(slot: &'static Slot) {
    if slot.extra.load(Relaxed) == 0 {
        // SAFETY: the slot is the caller's, and the owner has put nothing into it.
        return unsafe { decommit(slot) };
    }
    // The kernel refuses to take locked memory (`mlock`), which then stays; that does no harm.
    let _ = trim(slot);
    common(slot.class()).lock().list.push(slot);
}

/// Gives the memory of an unused stack back to the kernel, but for the topmost [`KEEP`] bytes. An error:
/// the memory cannot be given back.
pub(crate) fn trim(slot: &'static Slot) -> io::Result<()> {
    let length = deep(slot.size(), page());
    // SAFETY: the range lies in the slot's stack, below all that the owner relies on (invariant 4).
    unsafe { mm::advise(slot.bottom(), length, libc::MADV_DONTNEED) }
}

/// Gives all memory of a slot back, the header's, too. If the kernel refuses, nobody gets the slot
/// again. Call it with preemption off.
///
/// # Safety
/// The slot is the caller's, `extra` is 0, and the owner's data are of no use any more.
pub(crate) unsafe fn decommit(slot: &'static Slot) {
    let start = slot.bottom();
    let end = slot.top() + size_of::<Slot>();
    // The guard stays. But `acquire` does not know that, and installs it once more.
    // SAFETY: the slot is the caller's, and nothing in it is needed. Other threads read the header only, whose
    // atomics turn to zero: it is not complete then.
    if unsafe { mm::advise(start, end - start, libc::MADV_DONTNEED) }.is_ok() {
        slab::decommit(start);
    }
}

/// The bytes of a stack of `size` that are not kept: whole pages.
fn deep(size: usize, page: usize) -> usize {
    size - KEEP.max(page)
}

/// The slot whose memory, guard included, holds `address`. Lock-free and async-signal-safe.
pub(crate) fn find(address: usize) -> Option<&'static Slot> {
    Slot::complete(slab::find(address)?)
}

/// Visits every slot that its owner has initialised, in use or not: gives `extra`, which is not 0.
/// Lock-free.
pub(crate) fn visit(each: impl FnMut(usize)) {
    // Acquire: pairs with the owner's release of `extra`: the initialised reserve is visible.
    let extra = |slot: &'static Slot| slot.extra.load(Acquire);
    let slots = slab::spans().filter_map(Slot::complete);
    slots.map(extra).filter(|&extra| extra != 0).for_each(each);
}

// ==== free slots ====

// All of them are initialised: those that a processor keeps for itself, and the common lists, one for each class, of those
// that no processor keeps. They are linked through their headers.

/// How many slots a cache takes from its class's list at a time.
const BATCH: usize = 16;
/// The most that a cache keeps.
const MOST: usize = 1024;

static COMMON: [Lock<Common>; CLASSES] = [const { Lock::new(Common::new()) }; CLASSES];

/// The last in is the first out.
pub(crate) type List = Lifo<Slot>;

impl Linked for Slot {
    fn below(&self) -> &Cell<Option<&'static Slot>> {
        &self.link
    }
}

impl List {
    /// Gives them, trimmed, to their class's list in one piece.
    fn release(mut self) {
        let mut trimmed = List::new();
        while let Some(slot) = self.pop() {
            // The kernel may refuse, as in `release`.
            let _ = trim(slot);
            trimmed.push(slot);
        }
        perturb::point("stack: trimmed");
        let Some(first) = trimmed.iter().next() else {
            return;
        };
        let mut free = common(first.class()).lock();
        while let Some(slot) = trimmed.pop() {
            free.list.push(slot);
        }
    }
}

/// The free slots of a class.
struct Common {
    list: List,
    /// The smallest length since the last look of `reclaim`, and when that was.
    fewest: usize,
    looked_at: u64,
}

/// That of a class. Take the lock with preemption off.
fn common(class: Class) -> &'static Lock<Common> {
    &COMMON[class.0 as usize]
}

impl Common {
    const fn new() -> Common {
        Common {
            list: List::new(),
            fewest: 0,
            looked_at: 0,
        }
    }

    fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.fewest = self.fewest.min(self.list.len());
        Some(slot)
    }
}

/// Free slots that one processor keeps for itself, so that most starts take no lock and make no
/// system call, and get a stack that is still in the CPU's cache.
///
/// All are of one class, that of the cluster's default size.
///
/// Giving memory back costs more than a thread's whole life, so it is not done at each death: a
/// slot's is given back when it leaves the cache.
pub(crate) struct Cache {
    list: List,
    class: Class,
}

impl Cache {
    /// For slots with at least `size` usable bytes.
    pub(crate) fn new(size: usize) -> Self {
        Cache {
            list: List::new(),
            class: Class::of(size),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sees to it that there are slots, if the class's list has any.
    pub(crate) fn fetch(&mut self) -> bool {
        !self.is_empty() || self.fetch_some()
    }

    #[cold]
    fn fetch_some(&mut self) -> bool {
        let mut free = common(self.class).lock();
        let some = std::iter::from_fn(|| free.pop()).take(BATCH);
        some.for_each(|slot| self.list.push(slot));
        !self.is_empty()
    }

    /// The slot recycled last.
    pub(crate) fn pop(&mut self) -> Option<&'static Slot> {
        self.list.pop()
    }

    /// Keeps a slot that a thread has left, and gives half of all to others that want some; a slot of
    /// another class goes to that class's list.
    pub(crate) fn push(&mut self, slot: &'static Slot) {
        self.keep(slot);
        if WANTED.load(Relaxed) && WANTED.swap(false, Relaxed) {
            self.halve();
        }
    }

    /// The same for a slot that was acquired for this cache: perhaps it was this cache's owner that
    /// found the list empty.
    pub(crate) fn keep(&mut self, slot: &'static Slot) {
        if self.class != slot.class() {
            return release(slot);
        }
        if self.list.len() == MOST {
            self.halve();
        }
        self.list.push(slot);
    }

    /// Gives half of the slots, those recycled last, to the class's list.
    #[cold]
    fn halve(&mut self) {
        let mut given = List::new();
        let half = self.list.len().div_ceil(2);
        let slots = std::iter::from_fn(|| self.list.pop()).take(half);
        slots.for_each(|slot| given.push(slot));
        given.release();
    }

    /// Takes all slots out.
    pub(crate) fn take(&mut self) -> Option<List> {
        let all = std::mem::replace(&mut self.list, List::new());
        (!all.is_empty()).then_some(all)
    }

    /// Gives all slots to the class's list.
    pub(crate) fn drain(&mut self) {
        self.take().into_iter().for_each(List::release);
    }
}
