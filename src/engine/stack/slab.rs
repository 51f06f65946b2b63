//! Slabs: large mappings from which the slots of one class are cut, one after another.
//!
//! A mapping for each stack would meet the kernel's limit of 65,530 mappings at some 30,000
//! threads. So many slots share one, and their guards are markers in the page tables, which split
//! nothing.
//!
//! ```text
//!   base                 base + stride                              base + slots * stride
//!   | slot 0             | slot 1             | ... cut | not cut yet | bits |
//! ```
//!
//! A class begins with a small slab, so that a process with little address space can start, and
//! each further one is twice as large. Where that much cannot be had, halves are tried, down to one
//! slot.
//!
//! # Slots that are gone
//! A slot whose memory was given back is *gone*: nobody has it, and its memory is zero. It is cut
//! again before a new one is. Its page tables are still there, a page of them for 2 MiB of stacks:
//! as much as the stacks themselves have had. So neighbours that are gone are *folded*: a new
//! mapping takes the place of the old one. Two bits for each slot say what it is:
//!
//! | gone | ready | the slot is |
//! |---|---|---|
//! | no | no | not cut, or somebody's |
//! | yes | yes | gone, and may be cut again |
//! | yes | no | being folded, or lost: the kernel took the old mapping and refused the new one |
//!
//! # Invariants
//! 1. A slab, once in `SLABS`, stays as it is for ever, but for the bits, and `cut`, which only grows.
//! 2. Only the last slab of a class has slots that are not cut.
//! 3. Slabs are added, slots cut, and bits and `lowest` changed, under `GROWTH`. Nothing else takes that lock, and
//!    it is held with preemption off. [`find`] takes none: signal handlers call it.
//! 4. Nobody touches the memory of a slot that is gone.
//! 5. Below a slab's `lowest` no slot may be cut again.
//!
//! # Memory orderings
//! `COUNT` is released when a slab is added and acquired by [`slabs`]: a thread that sees the number
//! sees the slabs. `cut` and the bits are relaxed: the slot's own header says (with its own pair)
//! whether it is complete, and that of a slot that is just going reads as zero.

use super::{CLASSES, Class};
use crate::engine::sys::{lock::Lock, mm, perturb};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::*};

/// Slots of a class's first slab, and the most that one has.
const FIRST: usize = 16;
const MOST: usize = 16 << 10;
/// Bytes that a slab of more than one slot does not exceed.
const MOST_BYTES: usize = 32 << 30;
/// So many bytes of neighbours are worth folding, and so many are folded at a time: the kernel holds
/// up the page faults of all threads meanwhile.
const FOLD_LEAST: usize = 4 << 20;
const FOLD_MOST: usize = 256 << 20;
/// Far more slabs than address space has room for, unless want of memory has made them small.
const TABLE: usize = 4096;

struct Slab {
    base: AtomicUsize,
    stride: AtomicUsize,
    slots: AtomicUsize,
    cut: AtomicUsize,
    class: AtomicU8,
    /// How many slots are gone.
    gone: AtomicUsize,
    /// No slot below it may be cut again.
    lowest: AtomicUsize,
    /// Slots have gone since the last folding.
    is_untidy: AtomicBool,
}

static SLABS: [Slab; TABLE] = [const {
    Slab {
        base: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
        slots: AtomicUsize::new(0),
        cut: AtomicUsize::new(0),
        class: AtomicU8::new(0),
        gone: AtomicUsize::new(0),
        lowest: AtomicUsize::new(0),
        is_untidy: AtomicBool::new(false),
    }
}; TABLE];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// For each class the slab being cut, the number of slots that the next one should have, and how
/// many slots may be cut again.
struct Growth {
    current: [Option<&'static Slab>; CLASSES],
    next: [usize; CLASSES],
    ready: [usize; CLASSES],
}

static GROWTH: Lock<Growth> = Lock::new(Growth {
    current: [None; CLASSES],
    next: [FIRST; CLASSES],
    ready: [0; CLASSES],
});

/// Where a slot lies: guard and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Cuts a slot, all zero, from a slab.
pub(super) fn cut(class: Class) -> io::Result<Span> {
    let mut growth = GROWTH.lock();
    if growth.ready[class.index()] != 0
        && let Some(span) = growth.cut_again(class)
    {
        return Ok(span);
    }
    let slab = match growth.current[class.index()] {
        Some(slab) if slab.cut.load(Relaxed) < slab.slots.load(Relaxed) => slab,
        _ => growth.grow(class)?,
    };
    let index = slab.cut.load(Relaxed);
    slab.cut.store(index + 1, Relaxed);
    Ok(slab.span(index))
}

/// The slot that holds `address` is gone: its memory is zero, and nobody has it.
pub(super) fn vacate(address: usize, class: Class) {
    let Some((slab, index)) = place(address) else {
        return;
    };
    let mut growth = GROWTH.lock();
    slab.set(slab.gone_bit(index), true);
    slab.gone.store(slab.gone.load(Relaxed) + 1, Relaxed);
    slab.is_untidy.store(true, Relaxed);
    growth.set_ready(slab, class, index..index + 1, true);
}

/// Gives back the page tables of slots that are gone. Preemption is off. Does so for one slab at a time: false when
/// there is none left.
pub(crate) fn fold() -> bool {
    let mut slabs = slabs().iter();
    let Some(slab) = slabs.find(|slab| slab.is_untidy.swap(false, Relaxed)) else {
        return false;
    };
    let class = Class(slab.class.load(Relaxed));
    let stride = slab.stride.load(Relaxed);
    let mut from = 0;
    loop {
        let run = {
            let mut growth = GROWTH.lock();
            let run = slab.run(from, (FOLD_MOST / stride).max(1));
            if run.is_empty() {
                return true;
            }
            if run.len() * stride >= FOLD_LEAST {
                growth.set_ready(slab, class, run.clone(), false);
            }
            run
        };
        from = run.end;
        let bytes = run.len() * stride;
        if bytes < FOLD_LEAST {
            continue;
        }
        perturb::point("stack: folds");
        // SAFETY: the slots are gone, and nobody can cut them.
        if unsafe { mm::map_again(slab.span(run.start).start, bytes) }.is_ok() {
            GROWTH.lock().set_ready(slab, class, run, true);
        }
    }
}

/// The slot, cut already and not gone, that holds `address`. Lock-free and async-signal-safe.
pub(super) fn find(address: usize) -> Option<Span> {
    let (slab, index) = place(address)?;
    (!slab.is_gone(index)).then(|| slab.span(index))
}

fn place(address: usize) -> Option<(&'static Slab, usize)> {
    slabs().iter().find_map(|slab| {
        let index = address.checked_sub(slab.base.load(Relaxed))? / slab.stride.load(Relaxed);
        (index < slab.cut.load(Relaxed)).then_some((slab, index))
    })
}

/// All slots cut so far that are not gone.
pub(super) fn spans() -> impl Iterator<Item = Span> {
    slabs().iter().flat_map(|slab| {
        let there = |index: &usize| !slab.is_gone(*index);
        (0..slab.cut.load(Relaxed))
            .filter(there)
            .map(|index| slab.span(index))
    })
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

    /// Bytes of a slab's mapping: slots, and two bits for each.
    fn bytes(slots: usize, stride: usize) -> usize {
        let bits = 2 * slots.div_ceil(usize::BITS as usize) * size_of::<usize>();
        slots * stride + bits.next_multiple_of(mm::page())
    }

    /// The bit that says whether a slot is gone.
    fn gone_bit(&self, index: usize) -> usize {
        index
    }

    /// The bit that says whether it may be cut again.
    fn ready_bit(&self, index: usize) -> usize {
        let slots = self.slots.load(Relaxed);
        slots.next_multiple_of(usize::BITS as usize) + index
    }

    fn word(&self, bit: usize) -> (&AtomicUsize, usize) {
        let bits = self.base.load(Relaxed) + self.slots.load(Relaxed) * self.stride.load(Relaxed);
        let at = bits + bit / usize::BITS as usize * size_of::<usize>();
        // SAFETY: the words lie behind the slots (`bytes`), are zero at first, and are mapped for good.
        let word = unsafe { &*std::ptr::with_exposed_provenance::<AtomicUsize>(at) };
        (word, 1 << (bit % usize::BITS as usize))
    }

    fn get(&self, bit: usize) -> bool {
        let (word, mask) = self.word(bit);
        word.load(Relaxed) & mask != 0
    }

    /// The lock is held.
    fn set(&self, bit: usize, value: bool) {
        let (word, mask) = self.word(bit);
        let others = word.load(Relaxed) & !mask;
        word.store(others | if value { mask } else { 0 }, Relaxed);
    }

    fn is_gone(&self, index: usize) -> bool {
        // Most slabs have none: their bits stay untouched.
        self.gone.load(Relaxed) != 0 && self.get(self.gone_bit(index))
    }

    /// The first neighbours, from slot `from` on, that may be cut again, and at most so many. Empty:
    /// there are no more.
    fn run(&self, from: usize, most: usize) -> Range<usize> {
        let cut = self.cut.load(Relaxed);
        let is_ready = |index: &usize| self.get(self.ready_bit(*index));
        let start = (from..cut).find(is_ready).unwrap_or(cut);
        let end = (start..cut.min(start + most)).take_while(is_ready).count() + start;
        start..end
    }
}

impl Growth {
    /// Cuts a slot that is gone. Where many are, one after another: each is looked for behind the one before.
    fn cut_again(&mut self, class: Class) -> Option<Span> {
        let is_right = |slab: &&Slab| {
            slab.gone.load(Relaxed) != 0 && slab.class.load(Relaxed) == class.index() as u8
        };
        let (slab, run) = slabs().iter().filter(is_right).find_map(|slab| {
            let run = slab.run(slab.lowest.load(Relaxed), 1);
            slab.lowest.store(run.end, Relaxed);
            (!run.is_empty()).then_some((slab, run))
        })?;
        let index = run.start;
        self.set_ready(slab, class, run, false);
        slab.set(slab.gone_bit(index), false);
        slab.gone.store(slab.gone.load(Relaxed) - 1, Relaxed);
        Some(slab.span(index))
    }

    /// Whether slots may be cut again.
    fn set_ready(&mut self, slab: &Slab, class: Class, slots: Range<usize>, value: bool) {
        let ready = &mut self.ready[class.index()];
        *ready = match value {
            true => *ready + slots.len(),
            false => *ready - slots.len(),
        };
        if value {
            slab.lowest.fetch_min(slots.start, Relaxed);
        }
        slots.for_each(|index| slab.set(slab.ready_bit(index), value));
    }

    fn grow(&mut self, class: Class) -> io::Result<&'static Slab> {
        let count = COUNT.load(Relaxed);
        let Some(slab) = SLABS.get(count) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let stride = class.stride();
        let next = &mut self.next[class.index()];
        let mut slots = (*next).min(MOST_BYTES / stride).max(1);
        let base = loop {
            match mm::map(Slab::bytes(slots, stride)) {
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
        slab.class.store(class.index() as u8, Relaxed);
        // Release: pairs with the acquire in `slabs`.
        COUNT.store(count + 1, Release);
        self.current[class.index()] = Some(slab);
        Ok(slab)
    }
}
