//! The stand-in for the engine where green threads are not possible: everywhere but on Linux on
//! x86-64 or aarch64, with glibc.
//!
//! Every thread is a kernel thread there, by std's means alone. Locks, channels, scopes, coroutines
//! and dataflow are the same code as with green threads: they ask `sched::current` whether they are on
//! a green thread, and wait on a futex if not. So this is all that is needed: no thread is green
//! ([`sched::current`]), there is no record of a green thread ([`sched::Green`] cannot be made) and no
//! cluster ([`sched::Cluster`] cannot be made either), and a futex is a table of condition variables
//! ([`sys::futex`]).
//!
//! `net`, `fs`, `io`, `os` and `process` are std's own modules, with little beside ([`net`]).
//!
//! Code that is never reached is not written: it takes a [`sched::Green`] or a [`sched::Cluster`].
//!
//! `--cfg greenthread_portable`, or GREENTHREAD_ELSEWHERE in the environment of the build, asks for
//! this on any platform, so that tests can run there.

#[cfg(feature = "net")]
pub mod net;
pub(crate) mod sched;
pub(crate) mod sys;

pub(crate) mod arch {
    /// A clock that only orders.
    pub(crate) fn ticks() -> u64 {
        super::sys::clock::now()
    }
}

pub(crate) mod stack {
    pub(crate) const MIN_SIZE: usize = 16 << 10;
    /// On 32 bits, half of the address space.
    pub(crate) const MAX_SIZE: usize = if usize::BITS > 36 { 64 << 30 } else { 1 << 31 };
}
