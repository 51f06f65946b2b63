//! Models of the shares in a thread's data. The result is dropped once, by the thread or by its joiner, and the
//! memory is freed once, after all that its owners do with it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize as Plain, Ordering::SeqCst},
};

use loom::{cell::UnsafeCell, thread};

use crate::runtime::spawn::Shares;

/// The data; each access to a cell says what it is for. The model itself keeps the memory.
struct Packet {
    shares: Shares,
    /// Whether the result is there.
    result: UnsafeCell<bool>,
    /// An owner touches it by reading, who frees it by writing.
    memory: UnsafeCell<()>,
    dropped: Plain,
    freed: Plain,
}

impl Packet {
    fn new() -> Arc<Packet> {
        Arc::new(Packet {
            shares: Shares::new(),
            result: UnsafeCell::new(false),
            memory: UnsafeCell::new(()),
            dropped: Plain::new(0),
            freed: Plain::new(0),
        })
    }

    fn touch(&self) {
        self.memory.with(|_| ());
    }

    fn free(&self) {
        self.memory.with_mut(|_| ());
        self.freed.fetch_add(1, SeqCst);
    }

    fn settle(&self) {
        // SAFETY: what the model checks.
        self.result.with_mut(|result| unsafe {
            assert!(*result, "lost or doubled");
            *result = false;
        });
        self.dropped.fetch_add(1, SeqCst);
    }

    fn give_up(&self) {
        self.touch();
        if self.shares.give_up() {
            self.free();
        }
    }

    /// The thread's part.
    fn end(&self, needs_dropping: bool) {
        self.touch();
        // SAFETY: what the model checks.
        self.result.with_mut(|result| unsafe { *result = true });
        if needs_dropping && self.shares.finish() {
            self.settle();
        }
        self.give_up();
    }

    /// The part of a joiner that is dropped.
    fn detach(&self, needs_dropping: bool) {
        self.touch();
        if self.shares.leave() {
            if needs_dropping {
                self.settle();
            } else {
                // It looks whether there is a result, which drops like nothing.
                self.result.with(|_| ());
            }
            self.give_up();
        }
    }

    fn hold(&self) {
        self.touch();
        self.shares.add();
    }
}

/// The joiner goes, and `others` who hold a handle give it up.
fn play(others: usize, needs_dropping: bool) {
    let packet = Packet::new();
    (0..others).for_each(|_| packet.hold());
    let owners = (0..others).map(|_| {
        let packet = packet.clone();
        thread::spawn(move || packet.give_up())
    });
    let mut owners: Vec<_> = owners.collect();
    owners.push({
        let packet = packet.clone();
        thread::spawn(move || packet.end(needs_dropping))
    });
    packet.detach(needs_dropping);
    owners.into_iter().for_each(|owner| owner.join().unwrap());
    assert_eq!(packet.freed.load(SeqCst), 1, "lost or doubled");
    let dropped = packet.dropped.load(SeqCst);
    assert_eq!(dropped, usize::from(needs_dropping), "lost or doubled");
}

/// No bound.
pub(crate) fn detached() {
    crate::check(None, || play(0, true));
}

/// Nobody drops the result. No bound.
pub(crate) fn detached_without_result() {
    crate::check(None, || play(0, false));
}

/// At most 3 preemptions.
pub(crate) fn detached_beside_a_handle() {
    crate::check(Some(3), || play(1, true));
}

/// The joiner makes a handle, gives it to another thread, and goes. At most 3 preemptions.
pub(crate) fn held_by_another() {
    crate::check(Some(3), || {
        let packet = Packet::new();
        let ends = {
            let packet = packet.clone();
            thread::spawn(move || packet.end(false))
        };
        packet.hold();
        let holds = {
            let packet = packet.clone();
            thread::spawn(move || {
                packet.hold();
                packet.give_up();
                packet.give_up();
            })
        };
        packet.detach(false);
        ends.join().unwrap();
        holds.join().unwrap();
        assert_eq!(packet.freed.load(SeqCst), 1, "lost or doubled");
    });
}
