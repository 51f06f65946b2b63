//! Drivers: what makes threads ready from outside. They return ready threads and decide nothing.

pub(crate) mod epoll;
mod readiness;
pub(crate) mod source;
pub(crate) mod timer;

pub(crate) use self::source::{Direction, Limit, Source};

#[cfg(test)]
mod tests;
