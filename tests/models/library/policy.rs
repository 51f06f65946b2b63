//! Stands in for the library's `policy`: its protocol file; in the models no green thread waits.

pub(crate) mod fifo {
    use crate::sched::Green;

    pub(crate) struct Fifo(());

    impl Fifo {
        pub(crate) fn new() -> Fifo {
            Fifo(())
        }

        pub(crate) fn push(&mut self, green: Green) {
            match green {}
        }

        pub(crate) fn pop(&mut self) -> Option<Green> {
            None
        }
    }
}

#[path = "../../../src/policy/readers.rs"]
pub(crate) mod readers;

/// The model's own care that nobody else has it.
pub(crate) struct Seat(pub(crate) usize);

impl Seat {
    pub(crate) fn index(&self) -> usize {
        self.0
    }
}
