//! The store of thread records: it gives records to new threads, and takes back those of ended
//! ones.
//!
//! A record outlives its thread: a late signal, the monitor, or a policy's link may still point to
//! it. So records are never freed. The store makes them in batches; each processor keeps records as
//! they fall free; and a common stack carries batches from the processors where threads end to
//! those where threads are spawned.
//!
//! The batches are the magazines of Bonwick and Adams ("Magazines and Vmem", 2001). A processor has a
//! batch that it fills and empties, and up to [`KEPT`] full ones: it goes to the common stack only when there
//! are too many full ones, or none. So processors on which threads are spawned and end in turn stay away, also
//! where hundreds live in between; the lock of the common stack would stop all of them otherwise.
//!
//! Every record stands in the roster, too, in use or not: reports go through it without a lock.
//!
//! Invariant: a free record is in one batch, linked by `next`; a batch belongs to a processor or is
//! in the common stack; the first record of a batch that is put aside has the batch's length and its link to the next
//! batch in `heap`.

use core::cell::Cell;
use std::io;

use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::sched::list::{Lifo, Linked};
use crate::engine::sched::{Green, current};
use crate::engine::sys::lock::{Guard, Lock};
use crate::engine::sys::statics::AtomicStatic;

/// The number of records in a full batch.
pub(crate) const BATCH: usize = 32;
/// The greatest number of full batches that a processor keeps.
const KEPT: usize = 32;

/// The common stack.
static FREE: Lock<Batches> = Lock::new(Batches::NONE);
/// Whether the common stack has a batch; a hint, written under its lock.
static ANY_FREE: AtomicBool = AtomicBool::new(false);

/// Records, linked by `next`.
type Batch = Lifo<Green>;

impl Linked for Green {
    fn below(&self) -> &Cell<Option<&'static Green>> {
        &self.next
    }
}

/// A stack of batches that are not empty, linked by their first records.
struct Batches {
    top: Option<&'static Green>,
    len: usize,
}

// SAFETY: the stack owns the records in it.
unsafe impl Send for Batches {}

impl Batches {
    const NONE: Batches = Batches { top: None, len: 0 };

    fn push(&mut self, batch: Batch) {
        if let Some(first) = batch.iter().next() {
            first.heap.child.set(self.top.replace(first));
            first.heap.rank.set((0, batch.len() as u64));
            self.len += 1;
        }
    }

    fn pop(&mut self) -> Option<Batch> {
        let first = self.top?;
        self.top = first.heap.child.take();
        self.len -= 1;
        Some(Lifo::from_top(first, first.heap.rank.get().1 as usize))
    }
}

/// Takes a batch out of the common stack; an empty one if there is none.
fn take() -> Batch {
    if !ANY_FREE.load(Ordering::Relaxed) {
        return Lifo::new();
    }
    let mut free = FREE.lock();
    let batch = free.pop();
    ANY_FREE.store(free.len != 0, Ordering::Relaxed);
    batch.unwrap_or(Lifo::new())
}

/// Puts batches into the common stack.
fn give(mut free: Guard<'_, Batches>, batches: impl IntoIterator<Item = Batch>) {
    batches.into_iter().for_each(|batch| free.push(batch));
    ANY_FREE.store(free.len != 0, Ordering::Relaxed);
}

/// A processor's free records.
pub(crate) struct Records {
    batch: Batch,
    full: Batches,
}

impl Records {
    pub(crate) const fn new() -> Records {
        Records {
            batch: Lifo::new(),
            full: Batches::NONE,
        }
    }

    /// Returns a record for a new thread, if one is free.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        if self.batch.len() == 0 {
            self.refill();
        }
        let green = self.batch.pop();
        if let Some(next) = self.batch.iter().next() {
            arch::prefetch(core::ptr::from_ref(next).cast());
        }
        green
    }

    /// Keeps the record of an ended thread.
    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        if self.batch.len() == BATCH {
            self.put_full_aside();
        }
        self.batch.push(green);
    }

    /// Gives all records to the common stack.
    pub(crate) fn drain(&mut self) {
        let mut all = core::mem::replace(self, Records::new());
        let full = core::iter::from_fn(|| all.full.pop());
        give(FREE.lock(), full.chain([all.batch]));
    }

    #[cold]
    fn refill(&mut self) {
        self.batch = self.full.pop().unwrap_or_else(take);
    }

    #[cold]
    fn put_full_aside(&mut self) {
        // While another processor has the lock, this one keeps more for a while, and waits for nobody.
        if self.full.len >= KEPT
            && let Some(free) = FREE.try_lock()
        {
            give(free, core::iter::from_fn(|| self.full.pop()).take(KEPT / 2));
        }
        let batch = core::mem::replace(&mut self.batch, Lifo::new());
        self.full.push(batch);
    }
}

/// Returns a record for a new thread. Allocates if none is free: call it preemptible.
pub(crate) fn create() -> io::Result<&'static Green> {
    let free = {
        let _off = current::preemption_off();
        let mut batch = take();
        let green = batch.pop();
        if green.is_some() {
            give(FREE.lock(), [batch]);
        }
        green
    };
    free.map_or_else(make, Ok)
}

/// Takes back a record that no processor keeps. The caller has preemption off.
pub(crate) fn release(green: &'static Green) {
    let mut single = Lifo::new();
    single.push(green);
    give(FREE.lock(), [single]);
}

/// Records that were made together: an entry of the roster.
#[repr(C)]
pub(crate) struct Piece {
    records: [Green; BATCH],
    /// The piece that was made before.
    older: AtomicStatic<Piece>,
}

/// The roster: the piece that was made last leads to all others.
static NEWEST: AtomicStatic<Piece> = AtomicStatic::none();

/// For debuggers: where a piece leads to the one before.
pub(crate) const OLDER: usize = core::mem::offset_of!(Piece, older);
/// The place that leads to the newest piece.
pub(crate) type Roster = AtomicStatic<Piece>;
pub(crate) const fn roster() -> *const Roster {
    &raw const NEWEST
}

impl Piece {
    fn enlist(&'static self) {
        let mut newest = NEWEST.load(Ordering::Relaxed);
        loop {
            self.older.store(newest, Ordering::Relaxed);
            // Release: the piece; partner: Acquire in `all`. (Later pieces continue its release
            // sequence.)
            match NEWEST.replace(newest, self, Ordering::Release) {
                Ok(()) => return,
                Err(now) => newest = now,
            }
        }
    }
}

/// Every record that was ever made, the newest first. Records that are made meanwhile may be missing.
pub(crate) fn all() -> impl Iterator<Item = &'static Green> {
    // Acquire: partner: Release in `enlist`.
    let newest = NEWEST.load(Ordering::Acquire);
    core::iter::successors(newest, |piece| piece.older.load(Ordering::Relaxed))
        .flat_map(|piece| &piece.records)
}

fn make() -> io::Result<&'static Green> {
    let mut made: Vec<Piece> = Vec::new();
    made.try_reserve_exact(1)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Each record is written where it stays: the stack of a thread that asks may be small.
    let piece: *mut Piece = made.as_mut_ptr();
    // SAFETY: there is room for a piece, whose fields are all written before it counts.
    unsafe {
        // A number that the compiler does not know: it would unroll the loop to 8 KB.
        for i in 0..core::hint::black_box(BATCH) {
            (&raw mut (*piece).records[i]).write(Green::new());
        }
        (&raw mut (*piece).older).write(AtomicStatic::none());
        made.set_len(1);
    }
    let piece = &made.leak()[0];
    piece.enlist();
    let (green, others) = (&piece.records[0], 1..core::hint::black_box(BATCH));
    let mut batch = Lifo::new();
    others.for_each(|i| batch.push(&piece.records[i]));
    let _off = current::preemption_off();
    give(FREE.lock(), [batch]);
    Ok(green)
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    #[test]
    fn no_batch_is_counted_where_there_was_none() {
        let green = create().unwrap();
        let _off = current::preemption_off();
        let mut records = Records::new();
        let mut others = Lifo::new();
        while let Some(other) = records.pop() {
            others.push(other);
        }
        records.push(green);
        assert_eq!((records.batch.len(), records.full.len), (1, 0));
        records.drain();
        give(FREE.lock(), [others]);
    }
}
