//! Stands in for the library's `green`. Each green thread has a thread of the checker's, which
//! plays its stack and, when that has been left, the run loop that goes on: what that does comes
//! after, and before the thread waits. Kernel threads there are enough: who is made ready runs.

use std::sync::OnceLock;

use loom::thread::{self, JoinHandle, Thread};

use crate::engine::atomic::Cell;

#[path = "context.rs"]
pub(crate) mod context;
#[path = "current.rs"]
pub(crate) mod current;
#[path = "../../../src/engine/green/subject.rs"]
pub(crate) mod subject;
#[path = "../../../src/engine/green/ticket.rs"]
pub(crate) mod ticket;

pub(crate) struct Green {
    pub(crate) next: Cell<Option<&'static Green>>,
    /// Its context is saved. Touched by who leaves the stack, and by who resumes it.
    saved: Cell<bool>,
    stack: OnceLock<Thread>,
}

/// As `loom::thread::spawn`, but it is a green thread.
pub(crate) fn spawn<T: 'static>(main: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    // Leaked, as the library's are; and an execution's are few.
    let green: &'static Green = Box::leak(Box::new(Green {
        next: Cell::new(None),
        saved: Cell::new(false),
        stack: OnceLock::new(),
    }));
    thread::spawn(move || {
        let _ = green.stack.set(thread::current());
        current::begin(green);
        main()
    })
}

/// No report reads a park here.
pub(crate) mod waiter {
    use super::subject::About;

    pub(crate) struct Parking;

    impl Parking {
        pub(crate) const fn without_waiter(_: About) -> Parking {
            Parking
        }
    }
}

impl Green {
    pub(crate) fn expect(&self, _: &waiter::Parking) {}

    pub(crate) fn goes_on(&self) {}

    pub(crate) fn leave_stack(&self) {
        assert!(!self.saved.replace(true), "it is left twice");
    }

    /// Its owner lets it go on.
    pub(crate) fn resume(&self) {
        assert!(self.saved.replace(false), "it is on its stack");
        self.stack.get().expect("it has begun").unpark();
    }

    /// Its stack is resumed exactly once each time, so there is no loop.
    pub(crate) fn until_resumed(&self) {
        thread::park();
    }
}

/// Threads in a row: none is green where that is used.
pub(crate) mod fifo {
    use crate::engine::green::Green;

    pub(crate) struct Fifo(());

    impl Fifo {
        pub(crate) fn new() -> Fifo {
            Fifo(())
        }

        pub(crate) fn push(&mut self, _: &'static Green) {
            unreachable!("kernel threads only");
        }

        pub(crate) fn pop(&mut self) -> Option<&'static Green> {
            None
        }
    }
}
