//! Slabs: large mappings from which the slots of one class are cut, one after another.
//!
//! A mapping for each stack would meet the kernel's limit of 65,530 mappings at some 30,000
//! threads. Therefore many slots share one, and their guards are markers in the page tables, which split
//! nothing.
//!
//! ```text
//!   base                 base + stride                              base + slots * stride
//!   | slot 0             | slot 1             | ... cut | not cut yet | Slab | bits |
//! ```
//!
//! A class begins with a small slab, so that a process with little address space can start, and
//! each further one is twice as large. Where that much cannot be had, halves are tried, down to one
//! slot.
//!
//! # Decommitted slots
//! A slot whose memory was given back is *decommitted*: nobody has it, its memory is zero, and its bit is set.
//! It is cut again before a new slot is. Its page tables are still there, a page of them for 2 MiB of
//! stacks: as much as the stacks themselves have had. So neighbours that are decommitted are *folded*
//! ([`fold`]): a new mapping takes the place of the old one. If the kernel takes the old one and refuses
//! the new one, the slab is *torn*: its decommitted slots stay so for ever.
//!
//! # Invariants
//! 1. A slab, once in `SLABS`, stays as it is for ever, but for the bits and the atomics; `cut` only grows.
//! 2. Only the last slab of a class has slots that are not cut.
//! 3. Slabs are added and torn, slots cut, decommitted and folded under `GROWTH`. Nothing else takes that
//!    lock, and it is held with preemption off. [`find`] takes none: signal handlers call it.
//! 4. Nobody touches the memory of a decommitted slot.
//!
//! # Memory orderings
//! `COUNT` is released when a slab is added and acquired by [`slabs`]: a thread that sees the number
//! sees the slabs. `cut` and the bits are relaxed: the slot's own header says (with its own pair)
//! whether it is complete, and that of a slot that is just being decommitted reads as zero.

use super::{CLASSES, Class};
use crate::engine::sys::shared::{AtomicStatic, Lock};
use crate::engine::sys::{mm, perturb};
use std::ptr::{self, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::{io, ops::Range};

/// Slots of a class's first slab, and the most that one has.
const FIRST: usize = 16;
const MOST: usize = 16 << 10;
/// Bytes that a slab of more than one slot does not exceed.
const MOST_BYTES: usize = 32 << 30;
/// The most bytes of neighbours that are folded at a time: the kernel holds up the page faults of all threads
/// meanwhile. A 64th of that is worth folding.
const FOLD_MOST: usize = 256 << 20;
const FOLD_LEAST: usize = FOLD_MOST / 64;
/// Far more slabs than address space has room for, unless want of memory has made them small.
const TABLE: usize = 4096;
const WORD: usize = usize::BITS as usize;

/// A slab's record, which lies in its own mapping. Behind it are the bits of the slots.
struct Slab {
    base: usize,
    stride: usize,
    slots: usize,
    class: Class,
    cut: AtomicUsize,
    /// How many slots are decommitted.
    decommitted: AtomicUsize,
    /// Slots were decommitted since the last folding.
    is_untidy: AtomicBool,
    is_torn: AtomicBool,
}

static SLABS: [AtomicStatic<Slab>; TABLE] = [const { AtomicStatic::none() }; TABLE];
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

/// Cuts a slot, all zero, from a slab. Returns where it lies, guard and all.
pub(super) fn cut(class: Class) -> io::Result<Range<usize>> {
    let mut growth = GROWTH.lock();
    if let Some(span) = cut_again(class) {
        return Ok(span);
    }
    let slab = match growth.current[class.0 as usize] {
        Some(slab) if slab.cut.load(Relaxed) < slab.slots => slab,
        _ => growth.grow(class)?,
    };
    Ok(slab.span(slab.cut.fetch_add(1, Relaxed)))
}

/// Cuts a decommitted slot, the lowest of its slab, under the lock.
fn cut_again(class: Class) -> Option<Range<usize>> {
    let slab = slabs().find(|slab| {
        slab.class == class && slab.decommitted.load(Relaxed) != 0 && !slab.is_torn.load(Relaxed)
    })?;
    let first = |(at, word): (usize, &AtomicUsize)| {
        let word = word.load(Relaxed);
        (word != 0).then(|| at * WORD + word.trailing_zeros() as usize)
    };
    let index = slab.bits().iter().enumerate().find_map(first)?;
    slab.flip(index);
    slab.decommitted.fetch_sub(1, Relaxed);
    Some(slab.span(index))
}

/// The slot that holds `address` is decommitted: its memory is zero, and nobody has it.
pub(super) fn decommit(address: usize) {
    let Some((slab, index)) = place(address) else {
        return;
    };
    let _growth = GROWTH.lock();
    slab.flip(index);
    slab.decommitted.fetch_add(1, Relaxed);
    slab.is_untidy.store(true, Relaxed);
}

/// Gives back the page tables of decommitted slots, in one slab; false: no slab is left to fold. Preemption is off.
///
/// Nobody cuts a slot meanwhile: the lock is held as long as the kernel replaces the mapping.
pub(super) fn fold() -> bool {
    let mut slabs = slabs();
    let Some(slab) = slabs.find(|slab| slab.is_untidy.swap(false, Relaxed)) else {
        return false;
    };
    let most = (FOLD_MOST / slab.stride).max(1);
    let mut from = 0;
    loop {
        perturb::point("stack: folds");
        let _growth = GROWTH.lock();
        let run = slab.run(from, most);
        if run.is_empty() || slab.is_torn.load(Relaxed) {
            return true;
        }
        from = run.end;
        let bytes = run.len() * slab.stride;
        if bytes >= FOLD_LEAST {
            // SAFETY: the slots are decommitted, and nobody can cut them.
            let folded = unsafe { mm::map_again(slab.span(run.start).start, bytes) };
            slab.is_torn.store(folded.is_err(), Relaxed);
        }
    }
}

/// The slot, cut already and not decommitted, that holds `address`. Lock-free and async-signal-safe.
pub(super) fn find(address: usize) -> Option<Range<usize>> {
    let (slab, index) = place(address)?;
    (!slab.is_decommitted(index)).then(|| slab.span(index))
}

fn place(address: usize) -> Option<(&'static Slab, usize)> {
    slabs().find_map(|slab| {
        let index = address.checked_sub(slab.base)? / slab.stride;
        (index < slab.cut.load(Relaxed)).then_some((slab, index))
    })
}

/// All slots cut so far that are not decommitted.
pub(super) fn spans() -> impl Iterator<Item = Range<usize>> {
    slabs().flat_map(|slab| {
        let there = |index: &usize| !slab.is_decommitted(*index);
        let cut = slab.cut.load(Relaxed);
        (0..cut).filter(there).map(|index| slab.span(index))
    })
}

fn slabs() -> impl Iterator<Item = &'static Slab> {
    // Acquire: pairs with the release in `grow`, which publishes the slabs.
    let slabs = &SLABS[..COUNT.load(Acquire)];
    slabs.iter().filter_map(|slab| slab.load(Relaxed))
}

impl Slab {
    fn span(&self, index: usize) -> Range<usize> {
        let start = self.base + index * self.stride;
        start..start + self.stride
    }

    /// Bytes of a slab's mapping: slots, record, and a bit for each slot.
    fn bytes(slots: usize, stride: usize) -> usize {
        let record = size_of::<Slab>() + slots.div_ceil(WORD) * size_of::<usize>();
        slots * stride + record.next_multiple_of(mm::page())
    }

    /// The bits that say which slots are decommitted, in words.
    fn bits(&self) -> &[AtomicUsize] {
        let bits = with_exposed_provenance(ptr::from_ref(self).addr() + size_of::<Slab>());
        // SAFETY: the words lie behind the record (`bytes`), are zero at first, and are mapped for good.
        unsafe { std::slice::from_raw_parts(bits, self.slots.div_ceil(WORD)) }
    }

    /// The lock is held.
    fn flip(&self, index: usize) {
        self.bits()[index / WORD].fetch_xor(1 << (index % WORD), Relaxed);
    }

    fn is_decommitted(&self, index: usize) -> bool {
        // Most slabs have no decommitted slot: their bits are not read, so this memory stays untouched.
        self.decommitted.load(Relaxed) != 0
            && self.bits()[index / WORD].load(Relaxed) & 1 << (index % WORD) != 0
    }

    /// The first neighbours, from slot `from` on, that are decommitted, `most` at most. Empty: there are
    /// no more.
    fn run(&self, from: usize, most: usize) -> Range<usize> {
        let is_decommitted = |index: &usize| self.is_decommitted(*index);
        let start = (from..self.slots).find(is_decommitted);
        let start = start.unwrap_or(self.slots);
        let end = self.slots.min(start + most);
        start..start + (start..end).take_while(is_decommitted).count()
    }
}

impl Growth {
    fn grow(&mut self, class: Class) -> io::Result<&'static Slab> {
        let count = COUNT.load(Relaxed);
        let full = || io::Error::from_raw_os_error(libc::ENOMEM);
        let entry = SLABS.get(count).ok_or_else(full)?;
        let stride = class.stride();
        let next = &mut self.next[class.0 as usize];
        let mut slots = (*next).min(MOST_BYTES / stride).max(1);
        let base = loop {
            match mm::map(Slab::bytes(slots, stride)) {
                Ok(base) => break base,
                Err(_) if slots > 1 => slots /= 2,
                Err(error) => {
                    // The next slab is to be small, since each failed attempt is a system call under
                    // the lock.
                    *next = 1;
                    return Err(error);
                }
            }
        };
        *next = (slots * 2).min(MOST);
        // A huge page would make every stack cost 2 MiB. Kernels without huge pages refuse the advice, which
        // does no harm.
        // SAFETY: the memory is ours and new; the advice changes no contents.
        let _ = unsafe { mm::advise(base, slots * stride, libc::MADV_NOHUGEPAGE) };
        let record = with_exposed_provenance_mut::<Slab>(base + slots * stride);
        // SAFETY: the record's place (`bytes`), in whole pages, mapped for good, and nobody else's.
        let slab: &'static Slab = unsafe {
            record.write(Slab {
                base,
                stride,
                slots,
                class,
                cut: AtomicUsize::new(0),
                decommitted: AtomicUsize::new(0),
                is_untidy: AtomicBool::new(false),
                is_torn: AtomicBool::new(false),
            });
            &*record
        };
        entry.store(Some(slab), Relaxed);
        // Release: pairs with the acquire in `slabs`.
        COUNT.store(count + 1, Release);
        self.current[class.0 as usize] = Some(slab);
        Ok(slab)
    }
}
