//! Drivers: what makes threads ready from outside. They return ready threads and decide nothing.

pub(crate) mod epoll;
pub(crate) mod file;
mod readiness;
pub(crate) mod source;
pub(crate) mod timer;
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "sockets and files come to use it")
)]
pub(crate) mod uring;

pub(crate) use self::source::{Direction, Limit, Source};

#[cfg(test)]
mod tests;
