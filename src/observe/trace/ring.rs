//! A processor's ring of words (`record`), and the events of green threads, which go there; or into the queue, where no
//! processor takes part.
//!
//! The ring has one writer, the owner of the processor, and one reader, which copies what is new now and
//! then. The writer never waits: it goes round and writes over the oldest words. The reader finds out
//! that words were written over while it copied, drops them, and counts them.
//!
//! | count | meaning |
//! |---|---|
//! | `head` | words that the reader may copy |
//! | `written` | words that are written; this count is ahead while an event is being written |
//!
//! *What it costs.* A thread that yields, ends or hands over costs two stores, without a clock: the processor's clock is
//! read for one of [`SPARSE`] such events while they follow each other quickly, and for each of them
//! once they do not. A reader interpolates the times of those between. All other events have a time of their own.
//!
//! # Invariants
//! 1. `written` is at most [`LONGEST`] words ahead of `head`.
//! 2. So word `i` is still whole if `i + WORDS >= head + LONGEST`, for a `head` that was read after it.
//! 3. Nothing here allocates, or takes a lock; a processor's first event maps memory (`measure`).
//!
//! # Memory orderings
//! - a word → the reader: Release of `head` in `publish` and `note`, Acquire in `head` and `copy`.
//! - the reader's second look: if it has read a word of the next round, it must see the `head` that was
//!   published before that word was written. Release where a word is stored and the Acquire fence in
//!   `copy` are partners. (On x86-64 all of these are plain moves.)
//! - what the writer alone uses is Relaxed: the processor's next owner has it with the processor (`engine::probe`).

use core::ptr;

use super::record::{self, Kind, LONGEST, introduced, put, word};
use super::timeline::Reel;
use crate::arch::ticks;
use crate::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::engine::inspect;
use crate::engine::probe::{
    Action, Actor, ObserverWords, OwnedProcessor, Pick, ReadyReason, ThreadInEvent,
};
use crate::observe::measure::{self, Kept};
use crate::sys::mm;

/// ObserverWords in a ring: 4 MiB. A processor on which threads only yield fills it in some 10 ms.
const WORDS: u64 = 1 << 19;
/// While events follow each other quickly, one of so many gets a time.
const SPARSE: u64 = 32;
/// Quickly: in fewer ticks each. Reading the clock, 20 to 30 ticks, is little beside more.
const QUICK: u64 = 500;

/// A ring. Zero bytes are an empty one.
pub(in crate::observe) struct Ring {
    head: AtomicU64,
    written: AtomicU64,
    /// The word at which an event needs a time again.
    due: AtomicU64,
    /// The ticks of the last time, and `written` then.
    last: [AtomicU64; 2],
    /// How many events may follow a time without one.
    sparse: AtomicU64,
    words: [AtomicU64; WORDS as usize],
}

impl Ring {
    // The reader's side.

    #[inline(always)]
    fn slot(&self, at: u64) -> &AtomicU64 {
        &self.words[(at % WORDS) as usize]
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

    /// Advises the system about the pages of the words.
    fn advise(&self, advice: i32) {
        let words = self.words.as_ptr_range();
        let start = words.start.addr().next_multiple_of(mm::page());
        let length = words.end.addr() / mm::page() * mm::page() - start;
        // SAFETY: these are pages within the mapping, which hold words only; no value of theirs is relied on.
        let _ = unsafe { mm::advise(start, length, advice) };
    }

    // The writer's side: the owner of the processor calls.

    /// Writes an event of one word that needs no time now. False: it does need one.
    #[inline(always)]
    fn note(&self, word: u64) -> bool {
        let is_due = self.written.load(Relaxed) >= self.due.load(Relaxed);
        if !is_due {
            self.put(word);
            self.publish();
        }
        !is_due
    }

    /// Writes one word of an event.
    #[inline(always)]
    fn put(&self, word: u64) {
        let at = self.written.load(Relaxed);
        // Release: the file's header.
        self.slot(at).store(word, Release);
        self.written.store(at + 1, Relaxed);
    }

    /// The event is written.
    #[inline(always)]
    fn publish(&self) {
        // Release: the file's header.
        self.head.store(self.written.load(Relaxed), Release);
    }

    /// Writes the time of the next event.
    #[inline]
    fn time(&self) {
        let now = ticks();
        self.put(word(Kind::Time, now));
        let at = self.written.load(Relaxed);
        self.last[0].store(now, Relaxed);
        self.last[1].store(at, Relaxed);
        self.due.store(at + self.sparse.load(Relaxed), Relaxed);
    }

    /// The same, if an event that may go without a time is due for one. How soon the next one is
    /// depends on how quickly events follow each other.
    fn time_if_due(&self) {
        let at = self.written.load(Relaxed);
        if at >= self.due.load(Relaxed) {
            let [then, last] = &self.last;
            let elapsed = ticks().wrapping_sub(then.load(Relaxed));
            let sparse = match elapsed > QUICK * (at - last.load(Relaxed)).max(1) {
                true => 1,
                false => (self.sparse.load(Relaxed) * 2).clamp(1, SPARSE),
            };
            self.sparse.store(sparse, Relaxed);
            self.time();
        }
    }
}

/// Writes an event that happens now, with the word that belongs to it or 0, to `ring` or else to the queue.
fn write(ring: Option<&Ring>, kind: Kind, number: u32, more: u64) {
    let Some(ring) = ring else {
        return put(kind, number, more);
    };
    match kind {
        Kind::Yielded | Kind::HandedOver | Kind::Ended => ring.time_if_due(),
        _ => ring.time(),
    }
    if more != 0 {
        ring.put(more);
    }
    ring.put(word(kind, number.into()));
    ring.publish();
}

/// The number of `thread`. A thread that the trace does not know yet is introduced. 0: the thread is past its last
/// instructions.
#[inline]
fn number_of(ring: Option<&Ring>, thread: ThreadInEvent<'_>) -> u32 {
    let [numbered, _] = thread.words();
    let known = introduced(numbered.load(Relaxed));
    if known != 0 {
        return known;
    }
    let Some(identity) = thread.identity() else {
        return 0;
    };
    let (number, name) = (record::number(identity.id()), identity.name().unwrap_or(""));
    numbered.store(record::numbered(number), Relaxed);
    match ring {
        Some(ring) => record::introduction(number, name).for_each(|part| ring.put(part)),
        None => record::introduce(number, name),
    }
    number
}

pub(crate) fn spawned(by: Actor<'_>, thread: ThreadInEvent<'_>) {
    // The word is still that of the thread which had this record before.
    thread.words()[0].store(0, Relaxed);
    caused(by, Kind::Spawned, thread);
}

pub(crate) fn readied(by: Actor<'_>, thread: ThreadInEvent<'_>, why: ReadyReason) {
    let kind = match why {
        ReadyReason::Woke => return caused(by, Kind::Woke, thread),
        ReadyReason::Fired => Kind::Fired,
        ReadyReason::Arrived => Kind::Arrived,
    };
    of_thread(by.processor.as_ref().and_then(Kept::ring), kind, thread, 0);
}

/// A thread has woken `thread`, or made it.
fn caused(by: Actor<'_>, kind: Kind, thread: ThreadInEvent<'_>) {
    let ring = by.processor.as_ref().and_then(Kept::ring);
    let caller = match by.thread {
        Some(caller) => number_of(ring, caller),
        None => record::own_number(),
    };
    of_thread(ring, kind, thread, word(Kind::By, caller.into()));
}

fn of_thread(ring: Option<&Ring>, kind: Kind, thread: ThreadInEvent<'_>, more: u64) {
    write(ring, kind, number_of(ring, thread), more);
}

pub(crate) fn picked(processor: &OwnedProcessor<'_>, thread: ThreadInEvent<'_>, from: Pick) {
    match from {
        Pick::Found => write(Kept::ring(processor), Kind::Found, 0, 0),
        Pick::Stolen => of_thread(Kept::ring(processor), Kind::Stole, thread, 0),
        Pick::NextSlot | Pick::Queue => {}
    }
}

/// The quick way is for a yield of a thread that is known, at a moment that needs no time.
pub(crate) fn stopped(on: Option<&OwnedProcessor<'_>>, thread: ThreadInEvent<'_>, action: Action) {
    let ring = on.and_then(Kept::ring);
    if let (Some(ring), Action::Yield) = (ring, action) {
        let number = introduced(thread.words()[0].load(Relaxed));
        if number != 0 && ring.note(word(Kind::Yielded, number.into())) {
            return;
        }
    }
    stopped_otherwise(ring, thread, action);
}

#[inline(never)]
fn stopped_otherwise(ring: Option<&Ring>, thread: ThreadInEvent<'_>, action: Action) {
    let number = number_of(ring, thread);
    let (kind, more) = match action {
        Action::Yield => (Kind::Yielded, 0),
        Action::Preempt => (Kind::Preempted, 0),
        Action::Park => match thread.waits() {
            (on, false) => (Kind::Parked, record::text(on)),
            (on, true) => (Kind::ParkedUntil, record::text(on)),
        },
        Action::HandOver => {
            let to = thread.successor().map_or(0, |to| number_of(ring, to));
            (Kind::HandedOver, word(Kind::To, to.into()))
        }
        Action::Exit => (Kind::Ended, 0),
    };
    write(ring, kind, number, more);
}

/// The thread that has lost `processor` may go on at any moment: only a thread that is known already is named.
pub(crate) fn blocked(processor: &OwnedProcessor<'_>, [numbered, _]: ObserverWords) {
    let number = introduced(numbered.load(Relaxed));
    write(Kept::ring(processor), Kind::HandedOff, number, 0);
}

pub(crate) fn worker_has(processor: &OwnedProcessor<'_>, running: Option<ThreadInEvent<'_>>) {
    match running {
        Some(thread) => of_thread(Kept::ring(processor), Kind::Resumed, thread, 0),
        None => write(Kept::ring(processor), Kind::Given, 0, 0),
    }
}

pub(crate) fn worker_idle(processor: &OwnedProcessor<'_>) {
    write(Kept::ring(processor), Kind::Idle, 0, 0);
}

/// What was copied from one ring, for the collector of the present trace.
pub(super) struct Copied {
    processor: &'static inspect::Processor,
    ring: &'static Ring,
    /// Where the next copy begins.
    next: u64,
    reel: Reel,
    /// There was no room for some of its words.
    is_cut: bool,
}

/// The rings of all processors.
fn rings() -> impl Iterator<Item = (&'static inspect::Processor, &'static Ring)> {
    // Acquire: partner: Release in `Kept::ring`.
    measure::all().filter_map(|kept| Some((kept.processor, kept.ring.load(Acquire)?)))
}

/// Copies begin at what comes from now on.
pub(super) fn begin() -> Vec<Copied> {
    let begin = |(processor, ring): (_, &'static Ring)| Copied::new(processor, ring, ring.head());
    rings().map(begin).collect()
}

/// Copies what is new, as long as fewer than `most` words are kept. Adds to the words that are kept, and lost.
pub(super) fn copy(copies: &mut Vec<Copied>, most: usize, kept: &mut usize, lost: &mut u64) {
    for (processor, ring) in rings() {
        if !copies.iter().any(|copied| ptr::eq(copied.ring, ring)) {
            copies.push(Copied::new(processor, ring, 0));
        }
    }
    for copied in copies {
        let (more, less) = copied.copy(most.saturating_sub(*kept));
        *kept += more;
        *lost += less;
    }
}

impl Copied {
    fn new(processor: &'static inspect::Processor, ring: &'static Ring, next: u64) -> Copied {
        // There are pages for the whole ring from now on, so that the writer need not wait for them; it does no harm if
        // there are none. The ring of a runtime that was shut down stays, without pages.
        if !processor.is_closed() {
            ring.advise(libc::MADV_POPULATE_WRITE);
        }
        Copied {
            processor,
            ring,
            next,
            reel: Reel {
                runtime: processor.runtime(),
                index: processor.index as u32,
                ..Reel::default()
            },
            is_cut: false,
        }
    }

    /// Copies what is new, as far as there is room, and notes which thread the processor runs then: a hint. Returns how
    /// many words were kept, and how many lost.
    fn copy(&mut self, room: usize) -> (usize, u64) {
        let words = &mut self.reel.words;
        let before = words.len();
        let (next, mut lost) = self.ring.copy(self.next, words);
        self.next = next;
        if lost != 0 {
            words.insert(before, word(Kind::Lost, lost));
        }
        let new = words.len() - before;
        let kept = new.min(room);
        if kept < new {
            lost += (new - kept) as u64;
            words.truncate(before + kept);
            // The mark tells the reader that nothing is known of the thread that ran then.
            if !self.is_cut {
                words.push(word(Kind::Lost, lost));
            }
            self.is_cut = true;
        }
        let running = self.processor.running();
        let running = running.map_or(0, |[numbered, _]| introduced(numbered.load(Relaxed)));
        // If there is no event behind the copied words, the thread has not stopped.
        let is_known = self.ring.head() == next && !self.is_cut;
        self.reel.running = if is_known { running } else { 0 };
        (kept, lost)
    }

    /// What the ring has recorded. The trace is over.
    pub(super) fn finish(self) -> Reel {
        // The system gets the pages back. Words that are written at the same moment are lost or kept; nobody reads them.
        self.ring.advise(libc::MADV_DONTNEED);
        self.reel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::engine::facade::{Backend, Running};
    use crate::runtime::Runtime;

    /// An empty ring, which stays.
    fn ring() -> &'static Ring {
        let length = size_of::<Ring>().next_multiple_of(mm::page());
        let memory = ptr::with_exposed_provenance::<Ring>(mm::map(length).unwrap());
        // SAFETY: zero bytes are a ring, and the memory stays.
        unsafe { &*memory }
    }

    #[test]
    fn the_oldest_words_are_lost_and_counted() {
        let ring = ring();
        let total = 2 * WORDS + 5;
        for value in 0..total {
            ring.put(value);
            ring.publish();
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
        let ring = ring();
        let total = 12 * WORDS;
        let writer = std::thread::spawn(move || {
            for value in 0..total {
                ring.put(value);
                if value % 5 == 4 || value == total - 1 {
                    ring.publish();
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

    /// What does not fit is counted; the first of it is marked, and nothing is kept after the mark.
    #[test]
    fn a_full_trace_is_cut_once() {
        let _runtime = Runtime::builder().processors(1).build().unwrap();
        let cluster = |running: Running| running.backend.green();
        // There may be no green threads.
        let Some(cluster) = Backend::all().into_iter().find_map(cluster) else {
            return;
        };
        let processor = cluster.table.get(0);
        let ring = ring();
        let of = |values: core::ops::Range<u64>| values.map(|value| word(Kind::Found, value));
        let write = |values| {
            of(values).for_each(|word| ring.put(word));
            ring.publish();
        };
        let mut copied = Copied::new(processor, ring, ring.head());
        write(0..50);
        assert_eq!(copied.copy(80), (50, 0));
        write(50..100);
        assert_eq!(copied.copy(30), (30, 20));
        write(100..110);
        assert_eq!(copied.copy(0), (0, 10));
        let (mark, kept) = copied.reel.words.split_last().unwrap();
        assert_eq!(*mark, word(Kind::Lost, 20));
        assert!(kept.iter().copied().eq(of(0..80)));
        assert!(copied.is_cut);
    }
}
