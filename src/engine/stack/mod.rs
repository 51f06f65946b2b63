//! Stacks of green threads: slots with a guard, cut from slabs, recycled for ever.
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
//! # Invariants
//! 1. A header, once complete, stays mapped and valid for ever: `&'static Slot`.
//! 2. A slot is in one place: in use, in a cache, or in its class's list. `link` belongs to the
//!    place.
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

pub(crate) mod overflow;
mod slab;
#[cfg(test)]
mod tests;

use crate::engine::arch::LARGEST_PAGE;
use crate::engine::sys::mm::page;
use crate::engine::sys::{lock::Lock, mm, perturb};
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
static FREE: [Lock<List>; CLASSES] = [const { Lock::new(List::new()) }; CLASSES];
/// The free ones that are not furnished.
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
    /// Completes the header of a slot just cut.
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
        // Acquire: pairs with the release in `write`: not 0 means that `class` is written, which
        // never is again.
        (slot.low.load(Acquire) != 0).then_some(slot)
    }

    /// The header of the slot at `span`, complete or not.
    fn header(span: Span) -> &'static Slot {
        let header = std::ptr::with_exposed_provenance::<Slot>(span.end - size_of::<Slot>());
        // SAFETY: a span is cut from a slab, whose memory is mapped for good and begins as zero:
        // valid for atomics, which all fields are. `end` is a multiple of the page size, so the
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
    let free = |lists: &[Lock<List>; CLASSES]| lists[class.index()].lock().pop();
    let slot = match free(&FREE).or_else(|| free(&BARE)) {
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
    Class::of(size).is_ok_and(|class| FREE[class.index()].lock().head.is_some())
}

/// Gives a slot back to its class's list, and its deep memory to the kernel.
///
/// The owner runs on another stack, and leaves in the reserve the data that it wants to find again.
pub(crate) fn release(slot: &'static Slot) {
    trim(slot);
    put(slot);
}

fn put(slot: &'static Slot) {
    let lists = match slot.extra.load(Relaxed) {
        0 => &BARE,
        _ => &FREE,
    };
    lists[slot.class().index()].lock().push(slot);
}

/// Gives the memory of an unused stack back to the kernel, but for the topmost [`KEEP`] bytes.
pub(crate) fn trim(slot: &'static Slot) {
    let length = deep(slot.size(), page());
    // SAFETY: the range lies in the slot's stack, below all that the owner relies on (invariant 4).
    // Locked memory is refused, and stays: harmless.
    let _ = unsafe { mm::advise(slot.bottom(), length, libc::MADV_DONTNEED) };
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

/// Visits every slot that its owner has furnished (`extra` is not 0), in use or not. Lock-free.
pub(crate) fn visit(mut each: impl FnMut(&'static Slot)) {
    for slot in slab::spans().filter_map(Slot::complete) {
        // Acquire: pairs with the owner's release of `extra`: the furnished reserve is visible.
        if slot.extra.load(Acquire) != 0 {
            each(slot);
        }
    }
}

/// Slots linked through their headers, the last in first.
struct List {
    head: Option<&'static Slot>,
}

impl List {
    const fn new() -> Self {
        List { head: None }
    }

    fn push(&mut self, slot: &'static Slot) {
        set_next(slot, self.head.replace(slot));
    }

    fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.head?;
        self.head = next(slot);
        Some(slot)
    }
}

fn next(slot: &'static Slot) -> Option<&'static Slot> {
    // SAFETY: a link is null or came from a `&'static Slot` (`set_next`).
    unsafe { slot.link.load(Relaxed).as_ref() }
}

fn set_next(slot: &'static Slot, next: Option<&'static Slot>) {
    let link = next.map_or(std::ptr::null(), |slot| slot as *const Slot);
    slot.link.store(link.cast_mut(), Relaxed);
}

/// Free slots that one processor keeps for itself, so that most starts take no lock and make no
/// system call, and get a stack that is still in the CPU's cache.
///
/// All are of one class, that of the first slot pushed: push those of the cluster's default size.
///
/// Giving memory back costs more than a thread's whole life, so it is not done at each death: a
/// slot's is given back every [`USES`](Cache::USES)th time, when it leaves the cache, and when the
/// processor has nothing else to do.
pub(crate) struct Cache {
    list: List,
    class: Option<Class>,
    length: usize,
    dirty: usize,
}

impl Cache {
    const MOST: usize = 1024;
    const USES: u32 = 256;
    /// How many slots are trimmed between two looks at whether there is something better to do, and
    /// how many are taken from the class's list at a time.
    const BATCH: usize = 16;

    pub(crate) const fn new() -> Self {
        Cache {
            list: List::new(),
            class: None,
            length: 0,
            dirty: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sees to it that there are slots, of `size` bytes at least, if the class's list has any.
    pub(crate) fn fetch(&mut self, size: usize) -> bool {
        self.length != 0 || self.fetch_some(size)
    }

    #[cold]
    fn fetch_some(&mut self, size: usize) -> bool {
        let Ok(class) = Class::of(size) else {
            return false;
        };
        if *self.class.get_or_insert(class) != class {
            return false;
        }
        let mut free = FREE[class.index()].lock();
        while self.length < Self::BATCH
            && let Some(slot) = free.pop()
        {
            slot.dirty.store(false, Relaxed);
            self.list.push(slot);
            self.length += 1;
        }
        self.length != 0
    }

    /// The slot recycled last.
    pub(crate) fn pop(&mut self) -> Option<&'static Slot> {
        let slot = self.list.pop()?;
        self.length -= 1;
        self.dirty -= usize::from(slot.dirty.load(Relaxed));
        Some(slot)
    }

    /// Keeps a slot that a thread has left, unless others want it; one of another class goes to that
    /// class's list.
    pub(crate) fn push(&mut self, slot: &'static Slot) {
        if WANTED.load(Relaxed) && WANTED.swap(false, Relaxed) {
            self.shrink(0);
            return release(slot);
        }
        self.keep(slot);
    }

    /// The same for a slot that was acquired for this cache: perhaps it was this cache's owner that
    /// found the list empty.
    pub(crate) fn keep(&mut self, slot: &'static Slot) {
        if *self.class.get_or_insert(slot.class()) != slot.class() {
            return release(slot);
        }
        if self.length == Self::MOST {
            self.shrink(Self::MOST / 2);
        }
        let uses = slot.uses.load(Relaxed).wrapping_add(1);
        slot.uses.store(uses, Relaxed);
        let is_dirty = !uses.is_multiple_of(Self::USES);
        if !is_dirty {
            trim(slot);
        }
        slot.dirty.store(is_dirty, Relaxed);
        self.list.push(slot);
        self.length += 1;
        self.dirty += usize::from(is_dirty);
    }

    /// Gives back the memory of the slots recycled since the last call, as long as `go_on` agrees.
    /// For a processor going idle.
    pub(crate) fn trim_dirty(&mut self, go_on: impl Fn() -> bool) {
        let mut slots = std::iter::successors(self.list.head, |slot| next(slot));
        while self.dirty != 0 && go_on() {
            let batch = slots
                .by_ref()
                .filter(|slot| slot.dirty.swap(false, Relaxed));
            // No more than there are: the dirty ones are at the front, and the list is long.
            let few = Self::BATCH.min(self.dirty);
            let trimmed = batch.take(few).map(trim).count();
            self.dirty -= trimmed;
        }
    }

    /// Gives all slots to their class's list.
    pub(crate) fn drain(&mut self) {
        self.shrink(0);
    }

    /// Trims the dirty slots behind the first `keep`.
    fn trim_after(&mut self, keep: usize) {
        let slots = std::iter::successors(self.list.head, |slot| next(slot));
        for slot in slots
            .skip(keep)
            .filter(|slot| slot.dirty.swap(false, Relaxed))
        {
            trim(slot);
            self.dirty -= 1;
        }
    }

    /// Keeps the first `keep` slots; the others, trimmed, go to their class's list in one piece.
    fn shrink(&mut self, keep: usize) {
        if self.length <= keep {
            return;
        }
        self.trim_after(keep);
        perturb::point("stack: trimmed");
        let mut slots = std::iter::successors(self.list.head, |slot| next(slot));
        let kept = keep.checked_sub(1).and_then(|last| slots.nth(last));
        let Some(first) = slots.next() else { return };
        let last = slots.last().unwrap_or(first);
        match kept {
            Some(slot) => set_next(slot, None),
            None => self.list.head = None,
        }
        self.length = keep;
        let mut free = FREE[first.class().index()].lock();
        set_next(last, free.head);
        free.head = Some(first);
    }
}
