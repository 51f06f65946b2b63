//! The channel itself: its state, and the rules by which messages change hands; the lock of the state, and how a thread
//! waits for its turn.
//!
//! As in Go, one lock guards one buffer and two queues, of senders and of receivers that wait. A
//! thread that comes by serves the waiting threads: no thread is woken only to look again, and none
//! overtakes.
//!
//! | arrives | meets a waiting | with a buffer | at capacity 0 |
//! |---|---|---|---|
//! | sender | receiver | puts the message into its place | the same |
//! | sender | receiver in a select | buffers the message, promises it | the same |
//! | sender in a select | either | reserves a place in the buffer | claims it for when it has the message |
//! | receiver | sender | takes the first message, buffers this one | takes the message from its place |
//! | receiver | sender in a select | takes the first, reserves the place for it | claims it, waits for the message |
//! | receiver in a select | either | is promised the first message | claims it for when it completes |
//!
//! A select first gets the right to an operation and completes it later. With a buffer that is the
//! right to one of the `reserved` places, whichever is free when it comes; or to a certain message,
//! the first that was there: it is `promised`, stays at the front with a ticket, and is passed over
//! by others. (Were it any message, a receiver could get a sender's second message before its
//! first.) Without a buffer the right is the claimed peer itself, which waits.
//!
//! A channel of capacity 0 has a buffer nonetheless, empty and without memory until a message is
//! sent to a receiver in a select. That receiver has no place for it yet, so the message is kept,
//! promised, until the operation is completed. It is the one case in which such a channel holds a
//! message, and its send has met a receiver. If the receiver gives its right back, the message is
//! there for the next. (A receiver that comes before that, when the senders are gone, finds the
//! channel disconnected.)
//!
//! The file `cell` has the outcomes that a thread is told after a wait, and the moving of messages.
//!
//! Observers ([`Kind::Observer`]: `Select::ready`) queue too but take nothing. They are passed over
//! as long as another thread waits. All of them are woken when a message or a place is there that
//! stays.
//!
//! Invariants, whenever the lock is free:
//! 1. `promised` ≤ messages in the buffer; with a capacity from 1, messages + `reserved` ≤
//!    capacity.
//! 2. No thread waits for a message or a place that is there. If a message is not promised, no
//!    receiver waits. If a place is free, no sender waits. With capacity 0 senders and receivers of
//!    different waits never wait both.
//! 3. After the last sender is gone no receiver waits, and vice versa.
//! 4. A message is at one place at a time: its sender's, the buffer, its receiver's. The thread
//!    that holds the lock or has claimed one side moves it.
//!
//! No wake-up is lost. A thread queues under the lock under which it has just looked, finding (2)
//! nothing for it. All later events come under the same lock: a message, a place, a right given
//! back and a disconnection all end in serving the queue (`send`, `take`, `settle`,
//! `disconnect_*`) as far as it goes, so (2) and (3) hold again. A thread that is taken from a
//! queue is claimed. The claimer tells it the outcome and wakes it after the lock. If a claim is
//! lost, another channel has served the thread, or its time is up, and this channel gives it
//! nothing.
//!
//! Under the lock preemption is off: nothing is allocated, freed or dropped, no user code runs. All waking, allocating and
//! freeing waits until after the lock.
//!
//! A plain operation ([`Shared::send`], [`Shared::receive`]; a select's are in `selecting`) tries once, under the lock. If
//! it must wait, it queues in the same critical section, with a place on its stack for its message. The peer moves
//! the message, so there is nothing to do after the wake-up. Only a right that was given back, or a disconnection, sends the
//! operation round again.

use core::mem::offset_of;
use std::time::{Duration, Instant};

use super::buffer::{Block, Buffer};
use super::cell::{Chooser, Kind, Peer, Queue, Side, wait_in_queue};
use crate::engine::facade::{self, PreemptionOff};
use crate::sys::shared::{Guard, Lock};
use crate::sys::{clock, perturb};
use crate::wait::queue::{Chain, Claimed};
use crate::wait::raise;

// ==== the state under the lock ====

pub(super) struct State<T> {
    pub(super) senders: Queue<T>,
    pub(super) receivers: Queue<T>,
    pub(super) buffer: Buffer<T>,
    /// The greatest number of messages, or `usize::MAX` if there is no bound.
    pub(super) capacity: usize,
    pub(super) promised: usize,
    pub(super) reserved: usize,
    /// The last ticket given to a promised message.
    tickets: usize,
    pub(super) senders_gone: bool,
    pub(super) receivers_gone: bool,
}

/// The reason why there is no room for a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Disconnected,
    /// Nothing was done, because the buffer needs a block first.
    NeedsBlock,
}

/// The outcome of trying to receive.
pub(super) enum Take<T> {
    Received(T),
    Empty,
    Disconnected,
    /// A sender in a select, which has no message yet.
    Paired(Chooser),
}

/// Stands for the ticket where a place is granted and no message: tickets begin with 1.
pub(super) const PLACE: usize = 0;

/// A block to be used or to be freed, both outside of the lock.
pub(super) type Spare<T> = Option<Box<Block<T>>>;

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> State<T> {
        State {
            senders: Queue::new(),
            receivers: Queue::new(),
            buffer: match capacity {
                0 | usize::MAX => Buffer::blocks(),
                _ => Buffer::ring(capacity),
            },
            capacity,
            promised: 0,
            reserved: 0,
            tickets: 0,
            senders_gone: false,
            receivers_gone: false,
        }
    }

    #[inline(always)]
    pub(super) fn has_message(&self) -> bool {
        self.buffer.len > self.promised
    }

    #[inline(always)]
    pub(super) fn has_place(&self) -> bool {
        self.buffer.len + self.reserved < self.capacity
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    /// Returns the number of messages that are there for receivers that come now.
    pub(super) fn len(&self) -> usize {
        (self.buffer.len - self.promised).min(self.capacity)
    }

    /// Sends a message if that needs no waiting. Otherwise the message comes back.
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        message: T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Result<(), (T, Refused)> {
        if self.receivers_gone {
            return Err((message, Refused::Disconnected));
        }
        if !self.receivers.is_empty() {
            match self.find_receiver(spare) {
                Err(refused) => return Err((message, refused)),
                Ok(Some(Peer::Plain(receiver))) => {
                    woken.push(receiver.give(message));
                    return Ok(());
                }
                Ok(Some(Peer::Select(receiver))) => {
                    woken.push(self.promise_to(receiver, message));
                    return Ok(());
                }
                // Only observers have waited, who are woken if the message can be buffered.
                Ok(None) if !self.has_place() || !self.buffer.make_room(spare) => {}
                Ok(None) => self.receivers.pop_observers(woken),
            }
        }
        if !self.has_place() {
            return Err((message, Refused::Full));
        }
        if !self.buffer.make_room(spare) {
            return Err((message, Refused::NeedsBlock));
        }
        self.buffer.push(message);
        Ok(())
    }

    /// Claims a receiver. If its message must go by way of the buffer, there is room for the
    /// message.
    #[inline]
    fn find_receiver(&mut self, spare: &mut Spare<T>) -> Result<Option<Peer<T>>, Refused> {
        let has_place = self.capacity == 0 || self.has_place();
        self.receivers.pop_checked(|kind| match kind {
            // A select will be served from the buffer.
            Kind::Select if !has_place => Err(Refused::Full),
            Kind::Select if !self.buffer.make_room(spare) => Err(Refused::NeedsBlock),
            _ => Ok(()),
        })
    }

    /// Buffers a message, for which there is room, and promises it to a receiver in a select.
    pub(super) fn promise_to(&mut self, receiver: Chooser, message: T) -> Claimed {
        self.buffer.push(message);
        receiver.grant(self.promise())
    }

    /// Promises the first message that is not promised yet, and returns its ticket. There must be
    /// such a message.
    pub(super) fn promise(&mut self) -> usize {
        self.tickets += 1;
        if let Some(ticket) = self.buffer.ticket(self.promised) {
            *ticket = self.tickets;
        }
        self.promised += 1;
        self.tickets
    }

    /// Moves out the first message that is not promised. There must be one.
    #[inline(always)]
    fn pop(&mut self, spare: &mut Spare<T>) -> T {
        if self.promised != 0 {
            self.buffer.bring_to_front(self.promised);
        }
        self.buffer.pop(spare)
    }

    /// Moves a promised message out, to the owner of its ticket.
    pub(super) fn pop_promised(&mut self, ticket: usize, spare: &mut Spare<T>) -> T {
        let before = self.find(ticket);
        self.buffer.bring_to_front(before);
        self.promised -= 1;
        self.buffer.pop(spare)
    }

    /// Frees a promised message for any receiver, in front of the messages that came later.
    pub(super) fn break_promise(&mut self, ticket: usize) {
        let before = self.find(ticket);
        self.promised -= 1;
        self.buffer.send_back(before, self.promised);
    }

    fn find(&mut self, ticket: usize) -> usize {
        let before = self.buffer.find(ticket, self.promised);
        before.unwrap_or_else(|| crate::sys::die("a promised message is not in its channel"))
    }

    /// Receives a message. There must be one: [`State::has_message`].
    #[inline(always)]
    pub(super) fn take(&mut self, spare: &mut Spare<T>, woken: &mut Chain) -> T {
        let message = self.pop(spare);
        if !self.senders.is_empty() {
            self.settle(spare, woken);
        }
        message
    }

    /// Receives from a sender that waits in a channel of capacity 0, or says why there is nothing.
    #[inline(always)]
    pub(super) fn take_from_waiting(&mut self, woken: &mut Chain) -> Take<T> {
        if self.capacity == 0
            && !self.senders.is_empty()
            && let Some(sender) = self.senders.pop()
        {
            return match sender {
                Peer::Plain(sender) => {
                    let (message, sender) = sender.take();
                    woken.push(sender);
                    Take::Received(message)
                }
                Peer::Select(sender) => Take::Paired(sender),
            };
        }
        if self.senders_gone {
            return Take::Disconnected;
        }
        Take::Empty
    }

    /// Gives free places to senders that wait, and messages to receivers that wait, until invariant
    /// 2 holds.
    #[inline(never)]
    pub(super) fn settle(&mut self, spare: &mut Spare<T>, woken: &mut Chain) {
        loop {
            while !self.senders.is_empty() && self.has_place() {
                let Some(sender) = self.senders.pop() else {
                    self.senders.pop_observers(woken);
                    break;
                };
                woken.push(match sender {
                    Peer::Plain(sender) => {
                        // Senders wait only where the capacity is bounded, and a ring with a place has room for a
                        // message.
                        let (message, sender) = sender.take();
                        self.buffer.push(message);
                        sender
                    }
                    Peer::Select(sender) => {
                        self.reserved += 1;
                        sender.grant(PLACE)
                    }
                });
            }
            if self.receivers.is_empty() || !self.has_message() {
                return;
            }
            let Some(receiver) = self.receivers.pop() else {
                return self.receivers.pop_observers(woken);
            };
            woken.push(match receiver {
                Peer::Plain(receiver) => receiver.give(self.pop(spare)),
                Peer::Select(receiver) => receiver.grant(self.promise()),
            });
        }
    }

    pub(super) fn queue(&mut self, side: Side) -> &mut Queue<T> {
        match side {
            Side::Senders => &mut self.senders,
            Side::Receivers => &mut self.receivers,
        }
    }

    /// Wakes the other side's observers at capacity 0, where a thread that waits on one side makes
    /// the other side ready.
    pub(super) fn tell_observers(&mut self, side: Side, woken: &mut Chain) {
        if self.capacity == 0 {
            let other_side = match side {
                Side::Senders => &mut self.receivers,
                Side::Receivers => &mut self.senders,
            };
            other_side.pop_observers(woken);
        }
    }

    /// Notes that the last sender is gone. The caller must wake the receivers that are returned:
    /// they get the messages that are left, and then have nothing to wait for.
    pub(super) fn disconnect_senders(&mut self) -> &mut Queue<T> {
        self.senders_gone = true;
        &mut self.receivers
    }

    /// Notes that the last receiver is gone. The caller must drop the messages, and wake the
    /// senders that are returned: they have nothing to wait for.
    pub(super) fn disconnect_receivers(&mut self, messages: &mut Buffer<T>) -> &mut Queue<T> {
        self.receivers_gone = true;
        self.promised = 0;
        core::mem::swap(&mut self.buffer, messages);
        &mut self.senders
    }
}

// ==== the lock, and waiting ====

pub(super) struct Shared<T> {
    state: Lock<State<T>>,
}

/// How long an operation may wait.
#[allow(missing_docs, reason = "for the macro")]
#[derive(Clone, Copy)]
pub enum Until {
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

    /// Returns the end of the wait in monotonic nanoseconds: 0 for no wait at all.
    pub(super) fn deadline(self) -> u64 {
        match self {
            Until::Now => 0,
            Until::Never => clock::NEVER,
            Until::After(duration) => clock::after(duration),
            Until::At(when) => clock::at(when),
        }
    }
}

/// The reason why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    TimedOut,
    Disconnected,
}

/// The locked state, with preemption off. Dropping it unlocks the state before preemption is on.
pub(super) type Locked<'a, T> = Guard<'a, State<T>, PreemptionOff>;

/// Unlocks the channel, and then wakes these threads, which may want the lock.
#[inline(always)]
pub(super) fn wake_after<T>(state: Locked<'_, T>, woken: Chain) {
    drop(state);
    woken.wake();
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
        perturb::point("channel: locking");
        self.state.lock_with(facade::preemption_off())
    }

    /// Calls `look` on the state, under the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<T>) -> R) -> R {
        look(&self.lock())
    }

    /// Sends a message, waiting until `until` while the channel is full.
    #[inline]
    pub(super) fn send(&self, message: T, until: Until) -> Result<(), (T, Failed)> {
        let (mut spare, mut woken) = (None, Chain::default());
        let mut state = self.lock();
        if let Err((message, refused)) = state.send(message, &mut spare, &mut woken) {
            return self.send_slowly(state, woken, refused, message, until);
        }
        wake_after(state, woken);
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
        let deadline = until.deadline();
        let mut spare: Spare<T> = None;
        loop {
            if refused == Refused::Full && !matches!(until, Until::Now) {
                let side = Side::Senders;
                let to_send = Some(message);
                message = match wait_in_queue(self, state, side, to_send, None, woken, deadline) {
                    (_, None) => return Ok(()),
                    (true, Some(message)) => {
                        raise(Some(deadline));
                        return Err((message, Failed::TimedOut));
                    }
                    (false, Some(message)) => message,
                };
            } else {
                wake_after(state, woken);
                match refused {
                    Refused::Full => return Err((message, Failed::TimedOut)),
                    Refused::Disconnected => return Err((message, Failed::Disconnected)),
                    Refused::NeedsBlock => spare = Some(Block::new()),
                }
            }
            woken = Chain::default();
            state = self.lock();
            (message, refused) = match state.send(message, &mut spare, &mut woken) {
                Ok(()) => {
                    wake_after(state, woken);
                    return Ok(());
                }
                Err(refused) => refused,
            };
        }
    }

    /// Receives a message, waiting until `until` while the channel is empty.
    #[inline]
    pub(super) fn receive(&self, until: Until) -> Result<T, Failed> {
        let (mut spare, mut woken) = (None, Chain::default());
        let mut state = self.lock();
        if state.has_message() {
            let message = state.take(&mut spare, &mut woken);
            wake_after(state, woken);
            return Ok(message);
        }
        match state.take_from_waiting(&mut woken) {
            Take::Received(message) => {
                wake_after(state, woken);
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
        let deadline = until.deadline();
        let mut spare: Spare<T> = None;
        loop {
            let partner = match take {
                Take::Empty if !matches!(until, Until::Now) => None,
                Take::Paired(sender) => Some(sender),
                Take::Empty | Take::Received(_) | Take::Disconnected => {
                    wake_after(state, woken);
                    return match take {
                        Take::Received(message) => Ok(message),
                        Take::Disconnected => Err(Failed::Disconnected),
                        _ => Err(Failed::TimedOut),
                    };
                }
            };
            let side = Side::Receivers;
            match wait_in_queue(self, state, side, None, partner, woken, deadline) {
                (_, Some(message)) => return Ok(message),
                (true, None) => {
                    raise(Some(deadline));
                    return Err(Failed::TimedOut);
                }
                (false, None) => {}
            }
            woken = Chain::default();
            state = self.lock();
            take = if state.has_message() {
                Take::Received(state.take(&mut spare, &mut woken))
            } else {
                state.take_from_waiting(&mut woken)
            };
        }
    }
}
