//! Signal handlers that wake threads, on a thread that is doing that already.
//!
//! A handler may make a futex call, or post a semaphore. If it has interrupted its thread in the table of
//! addresses it cannot have the lock that the thread holds. So the handler leaves a note, and the thread heeds the note as
//! soon as the thread is out. (A handler that has interrupted the scheduler: `sched::signals`.)
//!
//! A note is an address, with the number of its table in the lowest bit; 0: none. It says that all threads which wait there
//! are to be woken: more than the handler has asked for, but any of these threads may be woken without a reason, and looks again
//! at what it waits for.
//!
//! Invariants:
//! 1. The flags of a thread belong to it and to the handlers that interrupt it: each of them ends before
//!    the thread goes on.
//! 2. A thread says that it is out before it looks whether there are notes, so none is left behind.
//!    Another thread may heed them earlier: they say what is to be done, and not by whom.
//!
//! Orderings: what a handler did before it left a note is between the Release with which it does so (also where it finds the
//! note there already, which it then exchanges for the same one) and the Acquire that takes the note. The compiler fences
//! are between a thread and its handlers.

use super::addresses::{ANY, Addresses};
use super::{futex::FUTEXES, pthread::TABLE};
use crate::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::atomic::{AtomicBool, AtomicUsize, compiler_fence};

static TABLES: [&Addresses; 2] = [&FUTEXES, &TABLE];

/// Wake-ups at as many addresses can wait at a time, in the short while that threads are inside.
static NOTES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

// What a thread and its handlers know.
thread_local! {
    static IS_INSIDE: AtomicBool = const { AtomicBool::new(false) };
    static HAS_NOTES: AtomicBool = const { AtomicBool::new(false) };
}

/// The thread is in a table, until this is dropped.
pub(super) struct Inside(());

impl Inside {
    /// `None`: the caller is a handler, and has interrupted a thread that is.
    #[inline]
    pub(super) fn enter() -> Option<Inside> {
        let was_inside = IS_INSIDE.with(|flag| {
            let was_inside = flag.load(Relaxed);
            flag.store(true, Relaxed);
            was_inside
        });
        compiler_fence(SeqCst);
        (!was_inside).then(|| Inside(()))
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        IS_INSIDE.with(|flag| flag.store(false, Relaxed));
        compiler_fence(SeqCst);
        HAS_NOTES.with(|flag| {
            if flag.load(Relaxed) {
                flag.store(false, Relaxed);
                heed();
            }
        });
    }
}

/// Leaves a note: the threads that wait at `address`, a multiple of 2, are to be woken. If there is no place for the note the
/// process ends, as a thread that is not woken would wait for ever.
#[cold]
pub(super) fn wake_later(table: &Addresses, address: usize) {
    let number = TABLES.iter().position(|other| core::ptr::eq(*other, table));
    let note = address | number.unwrap_or(0);
    HAS_NOTES.with(|flag| flag.store(true, Relaxed));
    let is_left = |before: usize| {
        // Release: what the handler has done; partner: Acquire in `heed`.
        let leave = |place: &AtomicUsize| place.compare_exchange(before, note, Release, Relaxed);
        NOTES.iter().any(|place| leave(place).is_ok())
    };
    if !is_left(note) && !is_left(0) {
        crate::sys::die("signal handlers wake threads at too many addresses at once");
    }
}

/// Does what the notes say.
#[cold]
fn heed() {
    for place in &NOTES {
        // Acquire: what the handlers have done that have left this note; partner: Release in `wake_later`.
        let note = place.swap(0, Acquire);
        if note != 0 {
            TABLES[note & 1].wake(note & !1, ANY, usize::MAX);
        }
    }
}
