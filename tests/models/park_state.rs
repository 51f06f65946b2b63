//! Models of the park state. A resumer runs the waiter itself, at once, as an eager scheduler would.

use std::sync::{
    Arc,
    atomic::{AtomicU32 as Plain, Ordering::SeqCst},
};

use loom::{
    cell::UnsafeCell,
    sync::{Condvar, Mutex},
    thread,
};

use crate::atomic::AtomicU32;
use crate::atomic::Ordering::Relaxed;
use crate::sched::park::{Found, Outcome, ParkState};

/// Waits, in a loop as every waiter does, until two notifiers are through. At most 3 preemptions.
pub(crate) fn wait_for_two() {
    /// A green thread that waits until both words are set.
    struct Green {
        state: ParkState,
        /// Its saved context: only one kernel thread at a time may touch it, and must see what the
        /// last one did.
        context: UnsafeCell<u32>,
        sent: [AtomicU32; 2],
        /// How often it came to its end (a plain atomic: no ordering for the checker to profit
        /// from).
        ended: Plain,
    }

    impl Green {
        fn run(&self) {
            loop {
                // SAFETY: what the model checks.
                self.context.with_mut(|context| unsafe { *context += 1 });
                if self.sent.iter().all(|sent| sent.load(Relaxed) == 1) {
                    self.ended.fetch_add(1, SeqCst);
                    return;
                }
                if self.state.consume() {
                    continue;
                }
                // Its context is saved: we are the scheduler now.
                if self.state.commit(ParkState::PARKED) {
                    return;
                }
                self.state.resumed();
            }
        }

        fn resume(&self) {
            // The scheduler restores the context, then the green thread looks why. SAFETY: what the
            // model checks.
            self.context.with_mut(|context| unsafe { *context += 1 });
            self.state.resumed();
            self.run();
        }

        fn send(&self, i: usize) {
            self.sent[i].store(1, Relaxed);
            if self.state.notify() == Found::Green {
                self.resume();
            }
        }
    }

    crate::check(Some(3), || {
        let green = Arc::new(Green {
            state: ParkState::new(),
            context: UnsafeCell::new(0),
            sent: [AtomicU32::new(0), AtomicU32::new(0)],
            ended: Plain::new(0),
        });
        let notifiers = [0, 1].map(|i| {
            let green = green.clone();
            thread::spawn(move || green.send(i))
        });
        green.run();
        for notifier in notifiers {
            notifier.join().unwrap();
        }
        assert_eq!(green.ended.load(SeqCst), 1, "lost or doubled");
    });
}

/// Waits once, with a timer. A notification that comes with or after the timer is still there
/// afterwards. At most 4 preemptions.
pub(crate) fn wait_with_timeout() {
    struct Green {
        state: ParkState,
        context: UnsafeCell<u32>,
        message: UnsafeCell<u32>,
        timer: UnsafeCell<u32>,
        /// 1: notified, 2: expired, each counted in its own half.
        outcome: Plain,
    }

    impl Green {
        fn went_on(&self, outcome: Outcome) {
            // SAFETY: what the model checks.
            self.context.with_mut(|context| unsafe { *context += 1 });
            match outcome {
                Outcome::Notified => {
                    self.read_message();
                    self.outcome.fetch_add(1, SeqCst);
                }
                Outcome::Expired => {
                    // SAFETY: what the model checks.
                    self.timer.with(|timer| assert_eq!(unsafe { *timer }, 1));
                    self.outcome.fetch_add(1 << 16, SeqCst);
                }
            }
        }

        fn read_message(&self) {
            // SAFETY: what the model checks.
            self.message
                .with(|message| assert_eq!(unsafe { *message }, 1));
        }

        fn resume(&self) {
            // SAFETY: what the model checks.
            self.context.with_mut(|context| unsafe { *context += 1 });
            self.went_on(self.state.resumed());
        }
    }

    crate::check(Some(4), || {
        let green = Arc::new(Green {
            state: ParkState::new(),
            context: UnsafeCell::new(0),
            message: UnsafeCell::new(0),
            timer: UnsafeCell::new(0),
            outcome: Plain::new(0),
        });
        let notifier = thread::spawn({
            let green = green.clone();
            move || {
                // SAFETY: written before it is sent.
                green.message.with_mut(|message| unsafe { *message = 1 });
                if green.state.notify() == Found::Green {
                    green.resume();
                }
            }
        });
        let timer = thread::spawn({
            let green = green.clone();
            move || {
                // SAFETY: written before it expires.
                green.timer.with_mut(|timer| unsafe { *timer = 1 });
                if green.state.expire() == Found::Green {
                    green.resume();
                }
            }
        });
        // SAFETY: nobody can resume us yet.
        green.context.with_mut(|context| unsafe { *context += 1 });
        if green.state.consume() {
            green.went_on(Outcome::Notified);
        } else if !green.state.commit(ParkState::PARKED) {
            green.went_on(green.state.resumed());
        }
        notifier.join().unwrap();
        timer.join().unwrap();
        match green.outcome.load(SeqCst) {
            1 => {}
            0x1_0000 => assert!(green.state.consume(), "lost or doubled"),
            _ => panic!("lost or doubled"),
        }
    });
}

/// A kernel thread waits on the word itself until it is notified, and its waiter is gone
/// afterwards. At most 4 preemptions.
pub(crate) fn kernel_thread_waits() {
    kernel_thread(false);
}

/// As before, but its time is up: it ends its sleep itself unless the notification came first. At
/// most 4 preemptions.
pub(crate) fn kernel_thread_times_out() {
    kernel_thread(true);
}

fn kernel_thread(times_out: bool) {
    struct Kernel {
        state: ParkState,
        /// All that lies beside the park state, such as the name of a green thread. Written when the
        /// waiter goes.
        beside: UnsafeCell<u32>,
        message: UnsafeCell<u32>,
        /// The kernel's side of a futex: compare and block under a lock. It knows addresses only.
        futex: (Mutex<()>, Condvar),
    }

    impl Kernel {
        fn futex_wait(&self) {
            let guard = self.futex.0.lock().unwrap();
            if self.state.as_futex().load(Relaxed) == ParkState::ASLEEP {
                drop(self.futex.1.wait(guard).unwrap());
            }
        }

        fn futex_wake(&self) {
            let _guard = self.futex.0.lock().unwrap();
            self.futex.1.notify_all();
        }

        fn notify(&self) {
            match self.state.notify() {
                Found::Nobody => {}
                // Who is it? Nobody, but a kernel thread.
                Found::Green => {
                    self.beside.with(|_| ());
                    self.futex_wake();
                }
                Found::Kernel => self.futex_wake(),
            }
        }

        fn wait(&self, times_out: bool) -> Outcome {
            if self.state.consume() {
                return Outcome::Notified;
            }
            let is_asleep = self.state.commit(ParkState::ASLEEP);
            while is_asleep && self.state.as_futex().load(Relaxed) == ParkState::ASLEEP {
                if times_out {
                    assert_ne!(self.state.expire(), Found::Green);
                } else {
                    self.futex_wait();
                }
            }
            self.state.resumed()
        }
    }

    crate::check(Some(4), move || {
        let kernel = Arc::new(Kernel {
            state: ParkState::new(),
            beside: UnsafeCell::new(0),
            message: UnsafeCell::new(0),
            futex: (Mutex::new(()), Condvar::new()),
        });
        let notifier = thread::spawn({
            let kernel = kernel.clone();
            move || {
                // SAFETY: written before it is sent.
                kernel.message.with_mut(|message| unsafe { *message = 1 });
                kernel.notify();
            }
        });
        let outcome = kernel.wait(times_out);
        if outcome == Outcome::Notified {
            // SAFETY: what the model checks.
            kernel
                .message
                .with(|message| assert_eq!(unsafe { *message }, 1));
            // Nobody else has a reason to look at the waiter now. SAFETY: what the model checks.
            kernel.beside.with_mut(|beside| unsafe { *beside = 1 });
        }
        notifier.join().unwrap();
        let notified = outcome == Outcome::Notified || kernel.state.consume();
        assert!(notified, "lost or doubled");
        assert!(times_out || outcome == Outcome::Notified, "lost or doubled");
    });
}

/// The waiter says something and looks for a token; the notifier leaves one and looks whether
/// something was said: one hears of the other. Full exploration.
pub(crate) fn one_sees_the_other() {
    crate::check(None, || {
        let shared = Arc::new((ParkState::new(), AtomicU32::new(0)));
        let notifier = thread::spawn({
            let shared = shared.clone();
            move || {
                assert_eq!(shared.0.notify(), Found::Nobody);
                shared.1.load(Relaxed) == 1
            }
        });
        shared.1.store(1, Relaxed);
        let notified = shared.0.is_notified();
        let heard = notifier.join().unwrap();
        assert!(notified || heard, "lost or doubled");
    });
}
