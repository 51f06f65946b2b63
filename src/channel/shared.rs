//! The channel itself, which its senders and receivers share: two reference counts, and the state
//! under its lock; and how a thread waits for it.
//!
//! A plain operation (a select's are in `rights`) tries once, under the lock. If it must wait it
//! queues in the same critical section, with a place on its stack where its message is or goes to;
//! the peer moves the message, so there is nothing to do after it was woken. Only
//! [`Ended::TryAgain`] sends it round again.
//!
//! Invariants:
//! 1. Under the lock preemption is off. What must be woken, allocated or freed waits until after
//!    it.
//! 2. The last of a side disconnects.
//!
//! Orderings: giving a reference up is AcqRel, so that what was done through any handle comes
//! before the disconnection. Cloning is Relaxed: who clones has a reference.

use core::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::cell::buffer::{Block, Buffer};
use super::cell::{Ended, Side, wait_for, wait_in_queue, wake_all};
use super::state::{Offer, Spare, State, Take};
use crate::engine::door::atomic::AtomicUsize;
use crate::engine::door::atomic::Ordering::{AcqRel, Relaxed};
use crate::engine::door::clock;
use crate::engine::door::list::Chain;
use crate::engine::door::lock::{Guard, Lock};
use crate::engine::door::perturb;
use crate::engine::door::{self, PreemptionOff};

pub(super) struct Shared<T> {
    state: Lock<State<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

/// How long an operation may wait.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Now,
    Never,
    After(Duration),
    At(Instant),
}

impl Until {
    /// `None`: never.
    pub(super) fn instant(self) -> Option<Instant> {
        match self {
            Until::Now => Some(Instant::now()),
            Until::Never => None,
            Until::After(duration) => Instant::now().checked_add(duration),
            Until::At(when) => Some(when),
        }
    }

    /// In monotonic nanoseconds.
    fn deadline(self) -> u64 {
        match self {
            Until::Now => 0,
            Until::Never => clock::NEVER,
            Until::After(duration) => clock::after(duration),
            Until::At(when) => clock::at(when),
        }
    }
}

/// An [`Until`] that is reckoned once, when it is first needed.
pub(super) struct Deadline {
    pub(super) until: Until,
    known: Option<u64>,
}

impl Deadline {
    pub(super) fn new(until: Until) -> Deadline {
        Deadline { until, known: None }
    }

    /// In monotonic nanoseconds.
    pub(super) fn get(&mut self) -> u64 {
        *self.known.get_or_insert_with(|| self.until.deadline())
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    TimedOut,
    Disconnected,
}

/// The state, locked, and preemption off; both until it is dropped, in this order.
pub(super) struct Locked<'a, T> {
    state: Guard<'a, State<T>>,
    _preemption: PreemptionOff,
}

impl<T> Deref for Locked<'_, T> {
    type Target = State<T>;
    #[inline(always)]
    fn deref(&self) -> &State<T> {
        &self.state
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State<T> {
        &mut self.state
    }
}

impl<T> Shared<T> {
    /// With one sender and one receiver. `usize::MAX`: without a bound.
    pub(super) fn new(capacity: usize) -> Shared<T> {
        Shared {
            state: Lock::new(State::new(capacity)),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        }
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, T> {
        let preemption = door::preemption_off();
        Locked {
            state: self.state.lock(),
            _preemption: preemption,
        }
    }

    /// Looks at the state. `look` runs under the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<T>) -> R) -> R {
        look(&self.lock())
    }

    /// Sends, waiting until then if the channel is full.
    #[inline]
    pub(super) fn send(&self, message: T, until: Until) -> Result<(), (T, Failed)> {
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        match state.offer(message, &mut spare, &mut woken) {
            Offer::Sent => {
                drop(state);
                woken.wake();
                Ok(())
            }
            offer => self.send_slowly(state, woken, offer, Deadline::new(until)),
        }
    }

    #[cold]
    #[inline(never)]
    fn send_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut offer: Offer<T>,
        mut deadline: Deadline,
    ) -> Result<(), (T, Failed)> {
        let mut spare: Spare<T> = None;
        loop {
            let message = match offer {
                Offer::Full(message) if !matches!(deadline.until, Until::Now) => {
                    let to_send = Some(message);
                    let (ended, message) =
                        wait_in_queue(self, state, Side::Senders, to_send, woken, &mut deadline);
                    match (ended, message) {
                        (Ended::TryAgain, Some(message)) => message,
                        (Ended::TimedOut, Some(message)) => {
                            return Err((message, Failed::TimedOut));
                        }
                        (_, None) | (Ended::Done, _) => return Ok(()),
                    }
                }
                _ => {
                    drop(state);
                    woken.wake();
                    match offer {
                        Offer::Sent => return Ok(()),
                        Offer::Full(message) => return Err((message, Failed::TimedOut)),
                        Offer::Disconnected(message) => {
                            return Err((message, Failed::Disconnected));
                        }
                        Offer::NeedsBlock(message) => {
                            spare = Some(Block::new());
                            message
                        }
                    }
                }
            };
            woken = Chain::new();
            state = self.lock();
            offer = state.offer(message, &mut spare, &mut woken);
        }
    }

    /// Receives, waiting until then if the channel is empty.
    #[inline]
    pub(super) fn receive(&self, until: Until) -> Result<T, Failed> {
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        match state.take(&mut spare, &mut woken) {
            Take::Received(message) => {
                drop(state);
                woken.wake();
                Ok(message)
            }
            take => self.receive_slowly(state, woken, take, Deadline::new(until)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn receive_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut take: Take<T>,
        mut deadline: Deadline,
    ) -> Result<T, Failed> {
        let mut spare: Spare<T> = None;
        loop {
            let (ended, message) = match take {
                Take::Empty if !matches!(deadline.until, Until::Now) => {
                    wait_in_queue(self, state, Side::Receivers, None, woken, &mut deadline)
                }
                Take::Paired(sender) => wait_for(self, state, sender, woken),
                Take::Empty | Take::Received(_) | Take::Disconnected => {
                    drop(state);
                    woken.wake();
                    return match take {
                        Take::Received(message) => Ok(message),
                        Take::Disconnected => Err(Failed::Disconnected),
                        _ => Err(Failed::TimedOut),
                    };
                }
            };
            match (ended, message) {
                (_, Some(message)) => return Ok(message),
                (Ended::TimedOut, None) => return Err(Failed::TimedOut),
                (Ended::TryAgain | Ended::Done, None) => {}
            }
            woken = Chain::new();
            state = self.lock();
            take = state.take(&mut spare, &mut woken);
        }
    }

    pub(super) fn add_sender(&self) {
        add_reference(&self.senders);
    }

    pub(super) fn add_receiver(&self) {
        add_reference(&self.receivers);
    }

    /// Gives a sender's reference up: the caller has it, and does not send any more.
    pub(super) fn remove_sender(&self) {
        // AcqRel: see the header.
        if self.senders.fetch_sub(1, AcqRel) == 1 {
            perturb::point("channel: last sender");
            wake_all(self, State::disconnect_senders);
        }
    }

    /// Gives a receiver's reference up: the caller has it, and does not receive any more.
    pub(super) fn remove_receiver(&self) {
        // AcqRel: see the header.
        if self.receivers.fetch_sub(1, AcqRel) == 1 {
            perturb::point("channel: last receiver");
            let mut messages = Buffer::blocks();
            wake_all(self, |state| state.disconnect_receivers(&mut messages));
            // Last, because it may panic.
            drop(messages);
        }
    }
}

/// As with `Arc`, so many clones that were forgotten that the count is about to overflow cannot be
/// dealt with.
fn add_reference(count: &AtomicUsize) {
    if count.fetch_add(1, Relaxed) > isize::MAX as usize {
        std::process::abort();
    }
}
