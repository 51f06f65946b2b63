//! Signal handlers that wake threads, on a thread that is doing that already.
//!
//! A handler may make a futex call, or post a semaphore. If it has interrupted its thread in the table of
//! addresses it cannot have the lock that the thread holds. So it leaves a note, and the thread does what the
//! note says as soon as it is out.
//!
//! Invariants:
//! 1. All here belongs to one thread, and to the handlers that interrupt it: each of them ends before the
//!    thread goes on.
//! 2. Handlers leave notes only while the thread is inside, and the thread reads them only while it is
//!    not. It says that it is out before it looks whether there are any: none is left behind.
//!
//! Orderings: all Relaxed. The compiler fences are between the thread and its handlers.
//!
//! Not treated here: a handler that has interrupted the scheduler.

use super::addresses::{Addresses, Events};
use crate::engine::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

/// One for each address that handlers name in the short time that a thread is inside.
const NOTES: usize = 32;

/// A call that a handler could not make, or several for one address. The address is 0 until the rest is there.
struct Note {
    table: AtomicPtr<Addresses>,
    address: AtomicUsize,
    events: AtomicU32,
    most: AtomicUsize,
}

struct Notes {
    is_inside: AtomicBool,
    count: AtomicUsize,
    notes: [Note; NOTES],
}

thread_local! {
    static THREAD: Notes = const {
        Notes {
            is_inside: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            notes: [const {
                Note {
                    table: AtomicPtr::new(core::ptr::null_mut()),
                    address: AtomicUsize::new(0),
                    events: AtomicU32::new(0),
                    most: AtomicUsize::new(0),
                }
            }; NOTES],
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
            if thread.count.load(Relaxed) != 0 {
                thread.heed();
            }
        });
    }
}

/// Leaves a note: the interrupted thread is to wake `most` threads. If there are too many notes the process
/// ends, as a thread that is not woken would wait for ever.
#[cold]
pub(super) fn wake_later(table: &Addresses, address: usize, events: Events, most: usize) {
    THREAD.with(|thread| {
        let count = thread.count.load(Relaxed);
        let same = |note: &&Note| {
            note.address.load(Relaxed) == address
                && note.events.load(Relaxed) == events
                && core::ptr::eq(note.table.load(Relaxed), table)
        };
        if let Some(note) = thread.notes.iter().take(count).find(same) {
            note.most.fetch_add(most, Relaxed);
            return;
        }
        let Some(note) = thread.notes.get(count) else {
            crate::engine::sys::die("signal handlers wake threads at too many addresses at once");
        };
        // Before it is filled in: another handler may come between.
        thread.count.store(count + 1, Relaxed);
        compiler_fence(SeqCst);
        note.table
            .store(core::ptr::from_ref(table).cast_mut(), Relaxed);
        note.events.store(events, Relaxed);
        note.most.store(most, Relaxed);
        compiler_fence(SeqCst);
        // From now on another handler may add to it.
        note.address.store(address, Relaxed);
    });
}

impl Notes {
    /// Does what the notes say.
    #[cold]
    fn heed(&self) {
        // The thread is not inside, so no handler adds one before the next `enter`, in `wake`; and
        // that has heeded what was added when it is over.
        while let Some(last) = self.count.load(Relaxed).checked_sub(1) {
            let note = &self.notes[last];
            let table = note.table.load(Relaxed);
            let (address, events) = (note.address.swap(0, Relaxed), note.events.load(Relaxed));
            let most = note.most.load(Relaxed);
            compiler_fence(SeqCst);
            self.count.store(last, Relaxed);
            // SAFETY: a table is a static.
            let table = unsafe { &*table };
            table.wake(address, events, most);
        }
    }
}
