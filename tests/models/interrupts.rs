//! Models of a thread that waits, and of cancellers, who know only where the thread's words are.
//!
//! The thread waits on a kernel thread: so it needs nobody to resume it. What lies on its stack while it waits, the park, is a
//! cell: the thread changes it before and after each wait, and a canceller that looks at it at another time is a race. A thread
//! that waits although its frame has ended is a deadlock.

use std::sync::Arc;

use loom::{
    cell::UnsafeCell,
    sync::{Condvar, Mutex},
    thread,
};

use crate::atomic::Ordering::{Relaxed, SeqCst};
use crate::atomic::{AtomicU32, fence};
use crate::sched::park::Interrupts;
use crate::sched::park::{Found, Outcome, ParkState};

struct World {
    words: Interrupts,
    state: ParkState,
    park: UnsafeCell<u32>,
    /// The futex.
    kernel: (Mutex<()>, Condvar),
    /// Which frames have ended. The thread is in the last one.
    ended: [AtomicU32; 2],
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            words: Interrupts::default(),
            state: ParkState::new(),
            park: UnsafeCell::new(0),
            kernel: (Mutex::new(()), Condvar::new()),
            ended: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    fn has_ended(&self) -> bool {
        self.ended[1].load(Relaxed) == 1
    }

    /// Whether the frame has ended, by the thread, before it waits.
    fn look(&self) -> bool {
        if !self.words.is_pending() {
            return false;
        }
        if !self.has_ended() {
            self.words.clear();
            if !self.has_ended() {
                return false;
            }
            self.words.set();
        }
        true
    }

    fn change_park(&self) {
        // SAFETY: what the model checks.
        self.park.with_mut(|park| unsafe { *park += 1 });
    }

    /// Waits until it is notified, or the frame has ended.
    fn wait(&self) -> Outcome {
        loop {
            if self.look() {
                return Outcome::Expired;
            }
            self.change_park();
            self.words.note_park(std::ptr::from_ref(self).cast());
            if !self.words.is_pending() && self.state.commit(ParkState::ASLEEP) {
                let mut guard = self.kernel.0.lock().unwrap();
                while self.state.as_futex().load(Relaxed) == ParkState::ASLEEP {
                    guard = self.kernel.1.wait(guard).unwrap();
                }
            }
            let outcome = self.state.resumed();
            self.words.note_park(std::ptr::null());
            self.words.settle();
            self.change_park();
            if outcome == Outcome::Notified {
                return outcome;
            }
        }
    }

    fn notify(&self) {
        let found = self.state.notify();
        self.wake(found);
    }

    fn wake(&self, found: Found) {
        if found == Found::Kernel {
            drop(self.kernel.0.lock().unwrap());
            self.kernel.1.notify_one();
        }
    }

    /// The frame ends with that number.
    fn cancel(&self, frame: usize) {
        self.ended[frame].store(1, Relaxed);
        self.words.pin();
        // The barrier. SeqCst: partner: the fence in `note_park`.
        fence(SeqCst);
        if !self.words.park().is_null() {
            // SAFETY: what the model checks.
            self.park.with(|park| assert!(unsafe { *park } % 2 == 1));
            self.wake(self.state.expire());
        }
        self.words.unpin();
    }
}

/// It waits once, and its frame ends. At most 3 preemptions.
pub(crate) fn its_frame_ends() {
    crate::check(Some(3), || {
        let world = World::new();
        let waiter = thread::spawn({
            let world = world.clone();
            move || assert_eq!(world.wait(), Outcome::Expired)
        });
        world.cancel(1);
        waiter.join().unwrap();
    });
}

/// It is notified, and waits again; meanwhile its frame ends. At most 2 preemptions.
pub(crate) fn it_is_notified_too() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiter = thread::spawn({
            let world = world.clone();
            move || while world.wait() == Outcome::Notified {}
        });
        let notifier = thread::spawn({
            let world = world.clone();
            move || world.notify()
        });
        world.cancel(1);
        notifier.join().unwrap();
        waiter.join().unwrap();
    });
}

/// A frame ends that the thread does not see, and its own. At most 2 preemptions.
pub(crate) fn another_frame_ends_too() {
    crate::check(Some(2), || {
        let world = World::new();
        let waiter = thread::spawn({
            let world = world.clone();
            move || assert_eq!(world.wait(), Outcome::Expired)
        });
        let other = thread::spawn({
            let world = world.clone();
            move || world.cancel(0)
        });
        world.cancel(1);
        other.join().unwrap();
        waiter.join().unwrap();
    });
}
