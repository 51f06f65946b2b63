//! Drivers: what makes threads ready from outside. They return ready threads and decide nothing.

pub(crate) mod timer;
