//! Signal handlers that wake threads, on a thread that is doing that already.
//!
//! A handler may make a futex call, or post a semaphore. If it has interrupted its thread in the table of
//! addresses it cannot have the lock that the thread holds. So it leaves a note, and the thread does what the
//! note says as soon as it is out. (A handler that has interrupted the scheduler: `sched::deferred`.)
//!
//! | a note is | changed by |
//! |---|---|
//! | `FREE` | a handler that takes it |
//! | `TAKEN` | the handler that fills it in; the thread that reads it |
//! | `LEFT` | any thread that heeds notes |
//!
//! Invariants:
//! 1. The flags of a thread belong to it and to the handlers that interrupt it: each of them ends before
//!    the thread goes on.
//! 2. A thread says that it is out before it looks whether there are notes, so none is left behind.
//!    Another thread may heed them earlier: they say what is to be done, and not by whom.
//!
//! Orderings: a note's content is between the Release that leaves it and the Acquire that takes it. The
//! compiler fences are between a thread and its handlers.

use super::addresses::{Addresses, Events};
use crate::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

/// As many wake-ups can wait at a time, in the short while that threads are inside.
const NOTES: usize = 64;

/// A call that a handler could not make.
struct Note {
    state: AtomicU32,
    table: AtomicPtr<Addresses>,
    address: AtomicUsize,
    events: AtomicU32,
    most: AtomicUsize,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const LEFT: u32 = 2;

static BOARD: [Note; NOTES] = [const {
    Note {
        state: AtomicU32::new(FREE),
        table: AtomicPtr::new(core::ptr::null_mut()),
        address: AtomicUsize::new(0),
        events: AtomicU32::new(0),
        most: AtomicUsize::new(0),
    }
}; NOTES];

/// What a thread and its handlers know.
struct Flags {
    is_inside: AtomicBool,
    has_notes: AtomicBool,
}

thread_local! {
    static THREAD: Flags = const {
        Flags {
            is_inside: AtomicBool::new(false),
            has_notes: AtomicBool::new(false),
        }
    };
}

/// The thread is in a table, until this is dropped.
pub(super) struct Inside(());

impl Inside {
    /// `None`: the caller is a handler, and has interrupted a thread that is.
    #[inline]
    pub(super) fn enter() -> Option<Inside> {
        THREAD.with(|thread| {
            let is_inside = thread.is_inside.load(Relaxed);
            thread.is_inside.store(true, Relaxed);
            compiler_fence(SeqCst);
            (!is_inside).then(|| Inside(()))
        })
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        THREAD.with(|thread| {
            compiler_fence(SeqCst);
            thread.is_inside.store(false, Relaxed);
            compiler_fence(SeqCst);
            if thread.has_notes.load(Relaxed) {
                thread.has_notes.store(false, Relaxed);
                heed();
            }
        });
    }
}

/// Leaves a note: `most` threads are to be woken. If there is no room for it the process ends, as a thread that is
/// not woken would wait for ever.
#[cold]
pub(super) fn wake_later(table: &Addresses, address: usize, events: Events, most: usize) {
    let says_so = |note: &Note| {
        note.address.load(Relaxed) == address
            && note.events.load(Relaxed) == events
            && core::ptr::eq(note.table.load(Relaxed), table)
    };
    THREAD.with(|thread| thread.has_notes.store(true, Relaxed));
    // A note that says so already; it may have become another one before it was taken.
    for note in BOARD.iter().filter(|note| says_so(note)) {
        if note.take(LEFT) {
            let is_it = says_so(note);
            if is_it {
                let sum = note.most.load(Relaxed).saturating_add(most);
                note.most.store(sum, Relaxed);
            }
            // Release: the content; partner: Acquire in `take`.
            note.state.store(LEFT, Release);
            if is_it {
                return;
            }
        }
    }
    let Some(note) = BOARD.iter().find(|note| note.take(FREE)) else {
        crate::sys::die("signal handlers wake threads at too many addresses at once");
    };
    note.table
        .store(core::ptr::from_ref(table).cast_mut(), Relaxed);
    note.address.store(address, Relaxed);
    note.events.store(events, Relaxed);
    note.most.store(most, Relaxed);
    // Release: the content; partner: Acquire in `take`.
    note.state.store(LEFT, Release);
}

impl Note {
    fn take(&self, from: u32) -> bool {
        // Acquire: the content; partner: Release in `wake_later`. Or the last reader is done with the
        // place; partner: Release in `heed`.
        self.state
            .compare_exchange(from, TAKEN, Acquire, Relaxed)
            .is_ok()
    }
}

/// Does what the notes say.
#[cold]
fn heed() {
    while let Some(note) = BOARD.iter().find(|note| note.take(LEFT)) {
        // SAFETY: a table is a static.
        let table = unsafe { &*note.table.load(Relaxed) };
        let (address, events) = (note.address.load(Relaxed), note.events.load(Relaxed));
        let most = note.most.load(Relaxed);
        // Release: this thread is done with the place; partner: Acquire in `take`.
        note.state.store(FREE, Release);
        table.wake(address, events, most);
    }
}
