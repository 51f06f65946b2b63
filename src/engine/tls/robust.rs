//! Robust mutexes that a thread holds when it ends.
//!
//! glibc keeps a ring of them in the control block, and gives its address to the kernel, which walks it when a kernel
//! thread ends (`exit_robust_list` in Linux' `kernel/futex`). It does not know a green thread's ring, so [`let_go`]
//! does the same, step for step: a mutex that has the thread's id gets the mark "its owner died" in place of the id, and
//! one that waits for it is woken, and will find the mark. The mutex that the thread was about to take or to give back
//! (`pending`) may be in the ring or not.
//!
//! Waiters of a robust mutex wait in the kernel, in a futex that other processes may share, since that is where the
//! kernel wakes them. A mutex that inherits priorities is marked, and nobody is woken.
//!
//! A mutex may lie in memory that is gone. Such words are read guarded, and the walk ends where one cannot be read.
//!
//! | word | the ring, from `probe.robust` |
//! |---|---|
//! | 0 | its last mutex |
//! | 1 | its first mutex: the head, to which the last one leads back |
//! | 2 | from an entry to the futex of its mutex |
//! | 3 | the pending one |
//!
//! The lowest bit of an entry says that the mutex inherits priorities.

use super::layout::{WORD, layout};
use crate::engine::sys::{call, word};
use std::sync::atomic::Ordering::Relaxed;

/// Entries that are looked at, at most: as the kernel has it, against rings that do not end.
const MOST: usize = 2048;

// A futex's word (linux/futex.h).
const WAITERS: u32 = libc::FUTEX_WAITERS;
const OWNER_DIED: u32 = libc::FUTEX_OWNER_DIED;
const OWNER: u32 = libc::FUTEX_TID_MASK;

/// An entry of the ring: its address, and whether its mutex inherits priorities.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(usize, bool);

impl Entry {
    fn new(word: usize) -> Entry {
        Entry(word & !1, word & 1 != 0)
    }
}

/// Does what the kernel does for a thread that ends: its robust mutexes have no owner from now on, and its ring is empty.
pub(super) fn let_go() {
    let (control, tid, ring) = layout().own_robust();
    let head = control.word(ring + WORD);
    let (empty, pending) = (
        core::ptr::from_ref(head).addr(),
        control.word(ring + 3 * WORD),
    );
    if head.load(Relaxed) == empty && pending.load(Relaxed) == 0 {
        return;
    }
    let last = Entry::new(pending.load(Relaxed));
    let futex = |entry: Entry| {
        entry
            .0
            .wrapping_add(control.word(ring + 2 * WORD).load(Relaxed))
    };
    let mut entry = Entry::new(head.load(Relaxed));
    for _ in 0..MOST {
        if entry.0 == empty {
            break;
        }
        // Its next owner changes the entry, so that is read before.
        let next = word::read(entry.0);
        let is_left = entry.0 == last.0 || leave(futex(entry), tid, entry.1, false).is_some();
        match next.filter(|_| is_left) {
            Some(next) => entry = Entry::new(next),
            None => break,
        }
    }
    if last.0 != 0 {
        leave(futex(last), tid, last.1, true);
    }
    control.word(ring).store(empty, Relaxed);
    head.store(empty, Relaxed);
    pending.store(0, Relaxed);
}

/// The thread `tid` has ended: if it owns the mutex, the mutex is marked, and one that waits is woken. `None`: the word
/// cannot be read or written.
fn leave(futex: usize, tid: u32, inherits: bool, is_pending: bool) -> Option<()> {
    if !futex.is_multiple_of(4) {
        return None;
    }
    let next = |word: u32| match word & OWNER == tid {
        true => word & WAITERS | OWNER_DIED,
        false => word,
    };
    let before = word::update(futex, next).ok()?;
    let was_ours = before & OWNER == tid && before & WAITERS != 0;
    // It may have given the mutex back already, and not have come to the wake-up.
    let was_given_back = is_pending && before & OWNER == 0;
    if !inherits && (was_ours || was_given_back) {
        let wake = [futex, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: the kernel takes the address for a name.
        let _ = unsafe { call(libc::SYS_futex, &wake) };
    }
    Some(())
}
