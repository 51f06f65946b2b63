//! Stands in for the library's `policy`: its protocol file, and threads in a row: none is green where
//! that is used.

pub(crate) mod fifo {
    use crate::green::Green;

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

#[path = "../../../src/policy/readers.rs"]
pub(crate) mod readers;

/// The model's own care that nobody else has it.
pub(crate) struct Seat(pub(crate) usize);

impl Seat {
    pub(crate) fn index(&self) -> usize {
        self.0
    }
}
