//! Which ready thread runs next, and where: a policy behind one small trait.
//!
//! A policy holds the threads that are ready and nothing else: it neither switches nor wakes
//! anybody. All of it runs with preemption off, so it never allocates or frees (queues are
//! intrusive or of fixed size), and under whatever thread pointer is set, so everything but
//! [`Policy::steal`] touches no thread-local.

pub(crate) mod fifo;
mod work_stealing;

pub(crate) use work_stealing::WorkStealing;

use crate::green::Green;

/// The right to act as the processor with this index: its owner's, and only one at a time.
#[derive(Clone, Copy)]
pub(crate) struct Seat(usize);

impl Seat {
    /// # Safety
    /// The caller owns that processor until it drops the seat.
    #[inline(always)]
    pub(crate) unsafe fn new(processor: usize) -> Seat {
        Seat(processor)
    }

    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// How a thread became ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readied {
    /// Spawned or woken by the running thread.
    ByRunning,
    /// It gave way by itself.
    Yielded,
}

/// A thread to run, and whether it goes on in the time slice of the one before.
pub(crate) struct Next {
    pub(crate) green: &'static Green,
    pub(crate) inherits_slice: bool,
}

/// Holds the ready threads of a cluster.
pub(crate) trait Policy: Send + Sync {
    /// `green` is ready, by what the owner of `seat` did. True: others could run something now,
    /// tell them.
    fn ready(&self, seat: Seat, green: &'static Green, how: Readied) -> bool;

    /// `green` is ready and no processor is near: preempted, or woken from outside.
    fn ready_globally(&self, green: &'static Green);

    /// What the owner of `seat` runs next, without looking at other processors. `share`: others
    /// have nothing to do, so what waits here should be where they can take it.
    fn next(&self, seat: Seat, share: bool) -> Option<Next>;

    /// Takes work from other processors. `random` picks the first victim; on the `last` pass
    /// nothing is spared. May use thread-locals of the kernel thread.
    fn steal(&self, seat: Seat, random: u32, last: bool) -> Option<&'static Green>;

    /// The owner of `seat` leaves it: what only it could reach goes where all can.
    fn leave(&self, seat: Seat);

    /// There are seats for so many processors from now on. Called before anything else; when there
    /// are to be more processors, before they come; and when the last surplus one has gone. It may
    /// allocate and block, but not wait for a green thread.
    fn resize(&self, processors: usize);

    /// Whether any thread waits to be run.
    fn has_work(&self) -> bool;

    /// Whether any thread waits where a processor with nothing to do can take it.
    fn has_work_for_others(&self) -> bool;

    /// How many threads wait at `processor`.
    fn len(&self, processor: usize) -> usize;

    /// How many threads wait globally.
    fn global_len(&self) -> usize;
}
