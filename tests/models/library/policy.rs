//! Stands in for the library's `policy`: its protocol files.

#[path = "../../../src/engine/policy/local_queue.rs"]
pub(crate) mod local_queue;
#[path = "../../../src/engine/policy/readers.rs"]
pub(crate) mod readers;

/// A model has one runtime.
pub(crate) mod seats {
    use super::Seat;
    use crate::engine::sys::statics::Table;

    pub(crate) struct Seats<T>(Table<T>);

    impl<T> Seats<T> {
        pub(crate) fn new() -> Self {
            Self(Table::new())
        }

        pub(crate) fn grow_to(&self, len: usize, make: impl FnMut(usize) -> T) {
            self.0.grow_to(len, make);
        }

        pub(crate) fn of(&self, seat: &Seat) -> &T {
            self.0.get(seat.index())
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
            self.0.iter()
        }
    }
}

/// The model's own care that nobody else has it.
pub(crate) struct Seat(pub(crate) usize);

impl Seat {
    pub(crate) fn index(&self) -> usize {
        self.0
    }
}
