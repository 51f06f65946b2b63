//! What is kept of each processor for traces and measures, in memory that is mapped at the processor's first event: the
//! scheduler, which calls, may not allocate. The observer's word in the processor's record leads there, and a list leads
//! to all of them. Nothing of this is ever freed.
//!
//! Orderings: an entry is put in the list with Release and found there with Acquire; the same holds for a ring. The
//! processor's word is Relaxed, because the owner of the processor alone writes and reads it.

use core::ptr;

use super::measure::Measures;
use super::trace::ring::Ring;
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::engine::inspect;
use crate::engine::probe::Processor;
use crate::sys::{mm, statics::AtomicStatic};

/// The entry of one processor. Zero bytes are a value of every field but `processor`.
pub(super) struct Kept {
    pub(super) processor: &'static inspect::Processor,
    before: AtomicStatic<Kept>,
    pub(super) measures: Measures,
    /// There is one from the first event of a trace on.
    pub(super) ring: AtomicStatic<Ring>,
}

static LAST: AtomicStatic<Kept> = AtomicStatic::none();

/// The entries of all processors of the process.
pub(super) fn all() -> impl Iterator<Item = &'static Kept> {
    // Acquire: partner: Release in `make`.
    core::iter::successors(LAST.load(Acquire), |kept| kept.before.load(Relaxed))
}

/// New memory of zero bytes for a `T`, which stays.
fn mapped<T>() -> Option<*mut T> {
    let memory = mm::map(size_of::<T>().next_multiple_of(mm::page())).ok()?;
    Some(ptr::with_exposed_provenance_mut(memory))
}

impl Kept {
    /// The entry of `processor`. The first call makes the entry. `None`: there is no memory.
    #[inline]
    pub(super) fn of(processor: &Processor<'_>) -> Option<&'static Kept> {
        match ptr::with_exposed_provenance::<Kept>(processor.observed.load(Relaxed)) {
            kept if kept.is_null() => Kept::make(processor),
            // SAFETY: `make` alone writes the word, and the entry that it leads to stays.
            kept => Some(unsafe { &*kept }),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(processor: &Processor<'_>) -> Option<&'static Kept> {
        let memory: *mut Kept = mapped()?;
        // SAFETY: the memory is new, large enough and aligned to a page, and stays. The processor is written before there is a
        // reference; in the other fields zero bytes are numbers, and addresses that are null.
        let kept = unsafe {
            (&raw mut (*memory).processor).write(processor.shared());
            &*memory.cast_const()
        };
        processor
            .observed
            .store(memory.expose_provenance(), Relaxed);
        let mut before = LAST.load(Relaxed);
        loop {
            kept.before.store(before, Relaxed);
            // Release: partner: Acquire in `all`.
            match LAST.replace(before, kept, Release) {
                Ok(()) => return Some(kept),
                Err(now) => before = now,
            }
        }
    }

    /// The ring of the processor. The owner of the processor calls; the first call makes the ring.
    #[inline]
    pub(super) fn ring(&self) -> Option<&'static Ring> {
        self.ring.load(Relaxed).or_else(|| {
            // SAFETY: the memory is new, large enough and aligned to a page, and it stays; zero bytes are a ring.
            let ring = mapped::<Ring>().map(|memory| unsafe { &*memory.cast_const() });
            // Release: partner: Acquire in the collector's `copy`.
            self.ring.store(ring, Release);
            ring
        })
    }
}
