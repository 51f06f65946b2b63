//! A processor's ring of words, and the pen that writes to it.
//!
//! The ring has one writer, the owner of the processor, and one reader, which copies what is new now and
//! then. The writer never waits: it goes round and writes over the oldest words. The reader finds out
//! that words were written over while it copied, drops them, and counts them. Rings lie in mapped
//! memory, are made at a processor's first event, and are never freed.
//!
//! | count | meaning |
//! |---|---|
//! | `head`, in the ring | words that the reader may copy |
//! | `head`, in the pen | words that are written; it is ahead while an event is being written |
//!
//! # Invariants
//! 1. The pen is at most [`LONGEST`](super::words::LONGEST) words ahead of the ring's `head`.
//! 2. So word `i` is still whole if `i + WORDS >= head + LONGEST`, for a `head` that was read after it.
//!
//! # Memory orderings
//! - a word → the reader: Release of `head` in `publish` and `note`, Acquire in `copy`.
//! - the reader's second look: if it has read a word of the next round, it must see the `head` that was
//!   published before that word was written. Release where a word is stored and the Acquire fence in
//!   `copy` are partners. (On x86-64 all of these are plain moves.)
//! - the pen itself goes from owner to owner with the processor (`engine::probe`).

use core::ptr;

use super::words::{Kind, LONGEST, word};
use crate::arch::ticks;
use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::engine::probe::{Processor, Seen};
use crate::observe::kept::{ByProcessor, Zeroable, mapped};
use crate::sys::{lock::Lock, mm};

/// Words in a ring: 4 MiB. A processor on which threads only yield fills it in some 10 ms.
pub(super) const WORDS: u64 = 1 << 19;
/// While events follow each other quickly, one of so many gets a time.
pub(super) const SPARSE: u64 = 32;
/// Quickly: in fewer ticks each. Reading the clock, 20 to 30 ticks, is little beside more.
const QUICK: u64 = 500;
/// The bits that a word has for a time.
pub(super) const TIME_BITS: u64 = (1 << 56) - 1;

static PENS: ByProcessor<Pen> = ByProcessor::new();
static RINGS: Lock<Option<&'static Ring>> = Lock::new(None);

/// A processor's ring.
#[repr(C)]
pub(super) struct Ring {
    processor: Seen,
    next: Option<&'static Ring>,
    head: AtomicU64,
    words: [AtomicU64; WORDS as usize],
}

/// Every ring of the process. The caller is a kernel thread that runs no green thread.
pub(super) fn rings() -> impl Iterator<Item = &'static Ring> {
    let first = *RINGS.lock();
    core::iter::successors(first, |ring| ring.next)
}

impl Ring {
    /// Makes the ring of `processor`. Preemption is off.
    fn new(processor: Seen) -> Option<&'static Ring> {
        let memory: *mut Ring = mapped()?;
        let mut first = RINGS.lock();
        // SAFETY: new memory, large enough and aligned to a page, which stays; zeroes are valid words
        // and a valid `head`.
        let ring = unsafe {
            (&raw mut (*memory).processor).write(processor);
            (&raw mut (*memory).next).write(*first);
            &*ptr::from_ref(&*memory)
        };
        *first = Some(ring);
        Some(ring)
    }

    #[inline(always)]
    fn slot(&self, at: u64) -> &AtomicU64 {
        &self.words[(at % WORDS) as usize]
    }

    /// By this the processor's runtime is known.
    pub(super) fn runtime(&self) -> usize {
        self.processor.runtime()
    }

    /// The processor's index in its runtime.
    pub(super) fn index(&self) -> usize {
        self.processor.index()
    }

    /// The number of the thread that the processor runs, with the trace's; 0 if it runs none that is known. A hint.
    pub(super) fn running(&self) -> u32 {
        let words = self.processor.running();
        words.map_or(0, |[number, _]| number.load(Relaxed) as u32)
    }

    pub(super) fn head(&self) -> u64 {
        // Acquire: partner: Release in `publish` and `note`.
        self.head.load(Acquire)
    }

    /// Copies to `out` the words from `from` on. Returns where the next copy begins, and how many words
    /// were lost before those in `out`.
    pub(super) fn copy(&self, from: u64, out: &mut Vec<u64>) -> (u64, u64) {
        let (head, start) = (self.head(), out.len());
        let first = from.max((head + LONGEST).saturating_sub(WORDS)).min(head);
        out.extend((first..head).map(|at| self.slot(at).load(Relaxed)));
        // Acquire: partner: Release where a word is stored.
        fence(Acquire);
        let whole = (self.head.load(Relaxed) + LONGEST).saturating_sub(WORDS);
        let whole = whole.clamp(first, head);
        out.drain(start..start + (whole - first) as usize);
        (head, whole - from)
    }

    /// Finds pages for the whole ring now, so that the writer need not wait for them. It does no harm if
    /// there are none.
    pub(super) fn populate(&self) {
        const MADV_POPULATE_WRITE: i32 = 23;
        // The ring of a runtime that was shut down stays, without pages.
        if !self.processor.is_closed() {
            self.advise(MADV_POPULATE_WRITE);
        }
    }

    /// Gives the pages back. Words that are written meanwhile are lost, or stay.
    pub(super) fn forget(&self) {
        self.advise(libc::MADV_DONTNEED);
    }

    fn advise(&self, advice: i32) {
        let start = self.words.as_ptr().addr().next_multiple_of(mm::page());
        let end = ptr::from_ref(self).addr() + size_of::<Ring>();
        let length = end / mm::page() * mm::page() - start;
        // SAFETY: pages within the mapping, which hold words only; no value of theirs is relied on.
        let _ = unsafe { mm::advise(start, length, advice) };
    }
}

/// The owner's side of a ring.
pub(super) struct Pen {
    ring: Option<&'static Ring>,
    head: u64,
    /// The word at which an event needs a time again.
    due: u64,
    /// The ticks of the last time, and `head` then.
    last: (u64, u64),
    /// How many events may follow a time without one.
    sparse: u64,
}

// SAFETY: no ring, and numbers.
unsafe impl Zeroable for Pen {}

impl Pen {
    /// The pen of `processor`, which has a ring from now on. `None`: there is no memory.
    #[inline]
    pub(super) fn of<'a>(processor: &'a mut Processor<'_>) -> Option<&'a mut Pen> {
        let seen = processor.seen();
        let pen = PENS.of(processor)?;
        if pen.ring.is_none() {
            pen.ring = Ring::new(seen);
        }
        pen.ring.map(|_| pen)
    }

    /// Writes an event of one word that needs no time now. False: it does need one.
    #[inline(always)]
    pub(super) fn note(&mut self, word: u64) -> bool {
        let Some(ring) = self.ring else { return false };
        if self.head >= self.due {
            return false;
        }
        // Release, both: the file's header.
        ring.slot(self.head).store(word, Release);
        self.head += 1;
        ring.head.store(self.head, Release);
        true
    }

    /// Writes one word of an event.
    #[inline]
    pub(super) fn put(&mut self, word: u64) {
        if let Some(ring) = self.ring {
            // Release: the file's header.
            ring.slot(self.head).store(word, Release);
            self.head += 1;
        }
    }

    /// The event is written.
    #[inline]
    pub(super) fn publish(&mut self) {
        if let Some(ring) = self.ring {
            // Release: the file's header.
            ring.head.store(self.head, Release);
        }
    }

    /// Writes the time of the next event.
    #[inline]
    pub(super) fn time(&mut self) {
        let now = ticks();
        self.put(word(Kind::Time, now & TIME_BITS));
        self.last = (now, self.head);
        self.due = self.head + self.sparse;
    }

    /// The same, if an event that may go without a time is due for one. How soon the next one is
    /// depends on how quickly events follow each other.
    pub(super) fn time_if_due(&mut self) {
        if self.head >= self.due {
            let (then, head) = self.last;
            let (elapsed, count) = (ticks().wrapping_sub(then), self.head - head);
            self.sparse = match elapsed > QUICK * count.max(1) {
                true => 1,
                false => (self.sparse * 2).clamp(1, SPARSE),
            };
            self.time();
        }
    }
}

#[cfg(test)]
pub(super) use self::tests::pen;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    /// A pen with a ring of its own; `None` where there are no green threads.
    pub(in crate::observe::trace) fn pen() -> Option<(Pen, &'static Ring)> {
        let runtime = Runtime::builder().processors(1).build().unwrap();
        let processor = runtime.spawn(Seen::first_here).join().unwrap()?;
        let ring = Ring::new(processor)?;
        let pen = Pen {
            ring: Some(ring),
            head: 0,
            due: 0,
            last: (0, 0),
            sparse: 0,
        };
        Some((pen, ring))
    }

    impl Pen {
        /// Writes an event of these words.
        pub(in crate::observe::trace) fn write(&mut self, words: impl Iterator<Item = u64>) {
            words.for_each(|word| self.put(word));
            self.publish();
        }
    }

    #[test]
    fn the_oldest_words_are_lost_and_counted() {
        let Some((mut pen, ring)) = pen() else { return };
        let total = 2 * WORDS + 5;
        for value in 0..total {
            pen.put(value);
            pen.publish();
        }
        let mut words = Vec::new();
        let (next, lost) = ring.copy(7, &mut words);
        assert_eq!((next, 7 + lost + words.len() as u64), (total, total));
        assert_eq!(words.len() as u64, WORDS - LONGEST);
        assert!(words.into_iter().eq(7 + lost..total));
        assert_eq!(ring.copy(next, &mut Vec::new()), (total, 0));
    }

    /// Whatever the writer does meanwhile, the reader gets whole stretches.
    #[test]
    fn what_is_copied_was_not_written_over() {
        let Some((mut pen, ring)) = pen() else { return };
        let total = 12 * WORDS;
        let writer = std::thread::spawn(move || {
            for value in 0..total {
                pen.put(value);
                if value % 5 == 4 || value == total - 1 {
                    pen.publish();
                }
            }
        });
        let (mut next, mut seen) = (0, 0);
        let mut words = Vec::new();
        while next != total {
            words.clear();
            let (then, lost) = ring.copy(next, &mut words);
            assert!(words.iter().copied().eq(next + lost..then));
            seen += words.len() as u64 + lost;
            next = then;
        }
        assert_eq!(seen, total);
        writer.join().unwrap();
    }
}
