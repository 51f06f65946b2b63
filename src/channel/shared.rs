//! The channel itself: the state under its lock, and how a thread waits for it.
//!
//! A plain operation (a select's are in `rights`) tries once, under the lock. If it must wait, it
//! queues in the same critical section, with a place on its stack for its message. The peer moves
//! the message, so there is nothing to do after the wake-up. Only [`Ended::TryAgain`] sends it round
//! again.
//!
//! Invariant: under the lock preemption is off. All waking, allocating and freeing waits until after
//! it.

use core::mem::offset_of;
use core::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::cell::buffer::Block;
use super::cell::{Ended, Side, wait_for, wait_in_queue};
use super::state::{Refused, Spare, State, Take};
use crate::engine::facade::{self, PreemptionOff};
use crate::sys::clock;
use crate::sys::lock::{Guard, Lock};
use crate::wait::claim::Chain;

pub(super) struct Shared<T> {
    state: Lock<State<T>>,
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
    /// Returns the instant at which the wait ends, or `None` if it never does.
    pub(super) fn instant(self) -> Option<Instant> {
        match self {
            Until::Now => Some(Instant::now()),
            Until::Never => None,
            Until::After(duration) => Instant::now().checked_add(duration),
            Until::At(when) => Some(when),
        }
    }
}

/// An [`Until`] that is converted once, when it is first needed.
pub(super) struct Deadline {
    until: Until,
    known: Option<u64>,
}

impl Deadline {
    pub(super) fn new(until: Until) -> Deadline {
        Deadline { until, known: None }
    }

    /// Returns the end of the wait in monotonic nanoseconds.
    pub(super) fn get(&mut self) -> u64 {
        *self.known.get_or_insert_with(|| match self.until {
            Until::Now => 0,
            Until::Never => clock::NEVER,
            Until::After(duration) => clock::after(duration),
            Until::At(when) => clock::at(when),
        })
    }

    pub(super) fn is_over(&mut self) -> bool {
        matches!(self.until, Until::Now) || self.get() <= clock::now()
    }
}

/// The reason why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    TimedOut,
    Disconnected,
}

/// The locked state, with preemption off. Dropping it unlocks the state before preemption is on.
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
    /// Where the state lies, for reports.
    pub(super) const STATE: usize = offset_of!(Shared<T>, state) + Lock::<State<T>>::VALUE;

    /// Makes a channel for `capacity` messages; `usize::MAX` means no bound.
    pub(super) fn new(capacity: usize) -> Shared<T> {
        Shared {
            state: Lock::new(State::new(capacity)),
        }
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, T> {
        let preemption = facade::preemption_off();
        Locked {
            state: self.state.lock(),
            _preemption: preemption,
        }
    }

    /// Calls `look` on the state, under the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<T>) -> R) -> R {
        look(&self.lock())
    }

    /// Sends a message, waiting until `until` while the channel is full.
    #[inline]
    pub(super) fn send(&self, message: T, until: Until) -> Result<(), (T, Failed)> {
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        match state.room(&mut spare, &mut woken) {
            Ok(room) => room.fill(message),
            Err(refused) => return self.send_slowly(state, woken, refused, message, until),
        }
        drop(state);
        woken.wake();
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn send_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut refused: Refused,
        mut message: T,
        until: Until,
    ) -> Result<(), (T, Failed)> {
        let mut deadline = Deadline::new(until);
        let mut spare: Spare<T> = None;
        loop {
            if refused == Refused::Full && !matches!(until, Until::Now) {
                let side = Side::Senders;
                let to_send = Some(message);
                let waited = wait_in_queue(self, state, side, to_send, woken, &mut deadline);
                message = match waited {
                    (Ended::TryAgain, Some(message)) => message,
                    (Ended::TimedOut, Some(message)) => return Err((message, Failed::TimedOut)),
                    (_, None) | (Ended::Done, _) => return Ok(()),
                };
            } else {
                drop(state);
                woken.wake();
                match refused {
                    Refused::Full => return Err((message, Failed::TimedOut)),
                    Refused::Disconnected => return Err((message, Failed::Disconnected)),
                    Refused::NeedsBlock => spare = Some(Block::new()),
                }
            }
            woken = Chain::new();
            state = self.lock();
            refused = match state.room(&mut spare, &mut woken) {
                Ok(room) => {
                    room.fill(message);
                    drop(state);
                    woken.wake();
                    return Ok(());
                }
                Err(refused) => refused,
            };
        }
    }

    /// Receives a message, waiting until `until` while the channel is empty.
    #[inline]
    pub(super) fn receive(&self, until: Until) -> Result<T, Failed> {
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        if state.has_message() {
            let message = state.take(&mut spare, &mut woken);
            drop(state);
            woken.wake();
            return Ok(message);
        }
        match state.take_from_waiting(&mut woken) {
            Take::Received(message) => {
                drop(state);
                woken.wake();
                Ok(message)
            }
            Take::Empty if matches!(until, Until::Now) => Err(Failed::TimedOut),
            take => self.receive_slowly(state, woken, take, until),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn receive_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut take: Take<T>,
        until: Until,
    ) -> Result<T, Failed> {
        let mut deadline = Deadline::new(until);
        let mut spare: Spare<T> = None;
        loop {
            let (ended, message) = match take {
                Take::Empty if !matches!(until, Until::Now) => {
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
            take = if state.has_message() {
                Take::Received(state.take(&mut spare, &mut woken))
            } else {
                state.take_from_waiting(&mut woken)
            };
        }
    }
}
