//! `sem_post` in a signal handler: the only function of this folder that may be called there.
//!
//! The handler may have interrupted a thread that holds a lock of the table or of the scheduler. It cannot
//! wake a thread, then. It leaves a note, and a kernel thread, the *messenger*, wakes those that wait for this
//! semaphore. Leaving a note takes atomic operations and a system call.
//!
//! ```text
//!   handler: NOTES[i] = address, BELL = 1, futex wake ─► messenger: BELL = 0, takes the notes, wakes
//! ```
//!
//! A note says "look again": one note stands for several posts of a semaphore. If handlers post more
//! semaphores than there are notes before the messenger looks, the process ends.
//!
//! The messenger is started when the first green thread waits for a semaphore. Without one (there can be no more
//! kernel threads) the posting thread wakes.
//!
//! Orderings: a note is left and taken with AcqRel, so the woken thread sees the post; if the note was there
//! already, it is written anew. The bell rings with Release, and is heard with Acquire.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::atomic::AtomicU32;

use super::{POST, TABLE};
use crate::engine::door::{die, gives_way_here, interpose, is_preemption_off};

static NOTES: [AtomicUsize; 256] = [const { AtomicUsize::new(0) }; 256];
static BELL: AtomicU32 = AtomicU32::new(0);
static HAS_MESSENGER: AtomicBool = AtomicBool::new(false);

/// Starts the messenger, if there is none.
pub(super) fn prepare() {
    if HAS_MESSENGER.load(Relaxed) || HAS_MESSENGER.swap(true, Relaxed) {
        return;
    }
    let messenger = std::thread::Builder::new()
        .name("gt-semaphores".into())
        .stack_size(64 << 10)
        .spawn(|| {
            loop {
                wait();
                carry();
            }
        });
    if messenger.is_err() {
        HAS_MESSENGER.store(false, Relaxed);
    }
}

/// Wakes a thread that waits for the semaphore at `address`, or has it woken.
#[cold]
pub(super) fn wake(address: usize) {
    // A kernel thread does not know whether it is in a handler.
    let may_be_in_handler =
        is_preemption_off() || interpose::program_has_handlers() && !gives_way_here();
    match may_be_in_handler && HAS_MESSENGER.load(Relaxed) {
        true => leave(address),
        false => {
            TABLE.wake(address, POST, 1);
        }
    }
}

fn leave(address: usize) {
    let is_left = NOTES.iter().any(|note| {
        // AcqRel: partner is the messenger, which takes the note.
        match note.compare_exchange(0, address, AcqRel, Relaxed) {
            Ok(_) => true,
            Err(other) if other != address => false,
            // AcqRel: as above. It may have been taken just now: then another place does as well.
            Err(_) => note
                .compare_exchange(address, address, AcqRel, Relaxed)
                .is_ok(),
        }
    });
    if !is_left {
        die("signal handlers post too many semaphores at once");
    }
    // Release: partner is the Acquire in `wait`.
    if BELL.swap(1, Release) == 0 {
        super::futex_raw(&BELL, libc::FUTEX_WAKE, 1);
    }
}

/// Waits until the bell rings.
fn wait() {
    // Acquire: partner is the Release in `leave`.
    while BELL.swap(0, Acquire) == 0 {
        super::futex_raw(&BELL, libc::FUTEX_WAIT, 0);
    }
}

fn carry() {
    for note in &NOTES {
        // AcqRel: partners are those that leave notes.
        match note.swap(0, AcqRel) {
            0 => {}
            address => {
                TABLE.wake(address, POST, usize::MAX);
            }
        }
    }
}
