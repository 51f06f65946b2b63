//! The store of thread records: it gives records to new threads, and takes back those of ended
//! ones.
//!
//! A record outlives its thread: a late signal, the monitor, or a policy's link may still point to
//! it. So records are never freed. The store makes them in batches; each processor keeps records as
//! they fall free; and a common stack carries batches from the processors where threads end to
//! those where threads are spawned.
//!
//! The batches are the magazines of Bonwick and Adams ("Magazines and Vmem", 2001). A processor has
//! one that it fills and empties, and [`KEPT`] full ones: it goes to the common stack only when these
//! are too many, or none. So processors on which threads are spawned and end in turn stay away, also
//! where hundreds live in between; the lock of the common stack would stop all of them otherwise.
//!
//! Every record stands in the roster, too, in use or not: reports go through it without a lock.
//!
//! Invariant: a free record is in one batch, linked by `next`; a batch belongs to a processor or is
//! in the common stack; full batches are linked by their first records' `heap`.

use std::io;

use super::Green;
use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::sys::lock::{Guard, Lock};
use crate::engine::sys::statics::AtomicStatic;

/// The number of records in a full batch.
pub(crate) const BATCH: usize = 32;
/// The greatest number of full batches that a processor keeps.
const KEPT: usize = 32;

static FREE: Lock<Stack> = Lock::new(Stack::EMPTY);
/// Whether the common stack has a batch; a hint, written under its lock.
static ANY_FREE: AtomicBool = AtomicBool::new(false);

/// A stack of batches.
struct Stack {
    top: Option<&'static Green>,
}

// SAFETY: the stack owns the records in it.
unsafe impl Send for Stack {}

impl Stack {
    const EMPTY: Stack = Stack { top: None };

    fn push(&mut self, batch: Batch) {
        if let Some(first) = batch.first {
            first.heap.set_link(self.top.replace(first));
        }
    }

    fn pop(&mut self) -> Option<Batch> {
        let first = self.top?;
        self.top = first.heap.take_link();
        Some(Batch { first: Some(first) })
    }
}

struct Batch {
    first: Option<&'static Green>,
}

impl Batch {
    const EMPTY: Batch = Batch { first: None };

    fn push(&mut self, green: &'static Green) {
        green.next.set(self.first.replace(green));
    }

    fn pop(&mut self) -> Option<&'static Green> {
        let green = self.first?;
        self.first = green.next.take();
        if let Some(next) = self.first {
            arch::prefetch(core::ptr::from_ref(next).cast());
        }
        Some(green)
    }
}

/// Takes a batch out of the common stack.
fn take() -> Option<Batch> {
    if !ANY_FREE.load(Ordering::Relaxed) {
        return None;
    }
    let mut free = FREE.lock();
    let batch = free.pop();
    ANY_FREE.store(free.top.is_some(), Ordering::Relaxed);
    batch
}

/// Puts batches into the common stack.
fn give(mut free: Guard<'_, Stack>, batches: impl IntoIterator<Item = Batch>) {
    batches.into_iter().for_each(|batch| free.push(batch));
    ANY_FREE.store(free.top.is_some(), Ordering::Relaxed);
}

/// A processor's free records.
pub(crate) struct Records {
    batch: Batch,
    /// The number of records in `batch`, or more, if the batch was not full when it came.
    len: usize,
    full: Stack,
    /// The number of full batches.
    kept: usize,
}

impl Records {
    pub(crate) const fn new() -> Records {
        Records {
            batch: Batch::EMPTY,
            len: 0,
            full: Stack::EMPTY,
            kept: 0,
        }
    }

    /// Returns a record for a new thread, if one is free.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        if self.batch.first.is_none() {
            self.refill();
        }
        let green = self.batch.pop()?;
        self.len -= 1;
        Some(green)
    }

    /// Keeps the record of an ended thread.
    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        if self.len == BATCH {
            self.make_room();
        }
        self.batch.push(green);
        self.len += 1;
    }

    /// Gives all records to the common stack.
    pub(crate) fn drain(&mut self) {
        let mut all = core::mem::replace(self, Records::new());
        let full = core::iter::from_fn(|| all.full.pop());
        give(FREE.lock(), full.chain([all.batch]));
    }

    #[cold]
    fn refill(&mut self) {
        let kept = self.full.pop();
        self.kept -= usize::from(kept.is_some());
        self.batch = kept.or_else(take).unwrap_or(Batch::EMPTY);
        // This is an upper bound: a batch from the common stack may be smaller.
        self.len = self.batch.first.map_or(0, |_| BATCH);
    }

    #[cold]
    fn make_room(&mut self) {
        // Where another processor is at it, this one keeps more for a while, and waits for nobody.
        if self.kept >= KEPT
            && let Some(free) = FREE.try_lock()
        {
            self.kept -= KEPT / 2;
            give(free, core::iter::from_fn(|| self.full.pop()).take(KEPT / 2));
        }
        self.full
            .push(core::mem::replace(&mut self.batch, Batch::EMPTY));
        self.kept += 1;
        self.len = 0;
    }
}

/// Returns a record for a new thread. Allocates if none is free: call it preemptible.
pub(crate) fn create() -> io::Result<&'static Green> {
    match pop_free() {
        Some(green) => Ok(green),
        None => make(),
    }
}

fn pop_free() -> Option<&'static Green> {
    let _off = super::current::preemption_off();
    let mut batch = take()?;
    let green = batch.pop();
    give(FREE.lock(), [batch]);
    green
}

/// Takes back a record that no processor keeps. The caller has preemption off.
pub(crate) fn release(green: &'static Green) {
    let mut single = Batch::EMPTY;
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
        for i in 0..BATCH {
            (&raw mut (*piece).records[i]).write(Green::new());
        }
        (&raw mut (*piece).older).write(AtomicStatic::none());
        made.set_len(1);
    }
    let mut batch = Batch::EMPTY;
    for piece in made.leak().iter() {
        piece.enlist();
        piece.records.iter().for_each(|green| batch.push(green));
    }
    let Some(green) = batch.pop() else {
        crate::engine::sys::die("a batch of records is empty")
    };
    let _off = super::current::preemption_off();
    give(FREE.lock(), [batch]);
    Ok(green)
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::*;

    #[test]
    fn no_batch_is_counted_where_there_was_none() {
        let green = create().unwrap();
        let _off = crate::engine::sched::current::preemption_off();
        let mut records = Records::new();
        let mut others = Batch::EMPTY;
        while let Some(other) = records.pop() {
            others.push(other);
        }
        records.push(green);
        assert_eq!((records.len, records.kept), (1, 0));
        records.drain();
        give(FREE.lock(), [others]);
    }
}
