//! What a channel is under its lock, and who hands what to whom.
//!
//! As in Go, one lock guards one buffer and two queues, of senders and of receivers that wait.
//! Whoever comes serves those who wait: nobody is woken only to look again, and nobody overtakes.
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
//! there for the next. (Who comes before that, when the senders are gone, finds it disconnected.)
//!
//! | outcome | told to | means |
//! |---|---|---|
//! | [`TRY_AGAIN`] | all | the peer gave its right back, or the channel is disconnected |
//! | [`DONE`] | plain | the message was moved from or to its place |
//! | [`GRANTED`] | select | a message is promised, or a place reserved |
//! | [`PAIRED`] | sender in a select | `place` is the node of a receiver that waits for the message |
//!
//! Observers ([`OBSERVER`]: `Select::ready`) queue too but take nothing. They are passed over as
//! long as somebody else waits, and are woken, all of them, when something is there that stays.
//!
//! Invariants, whenever the lock is free:
//! 1. `promised` ≤ messages in the buffer; with a capacity from 1, messages + `reserved` ≤
//!    capacity.
//! 2. Nobody waits for what is there. If a message is not promised, no receiver waits. If a place
//!    is free, no sender waits. With capacity 0 senders and receivers of different waits never wait
//!    both.
//! 3. After the last sender is gone no receiver waits, and vice versa.
//! 4. A message is at one place at a time: its sender's, the buffer, its receiver's. It is moved as
//!    bytes, by who holds the lock or has claimed one side.
//!
//! No wake-up is lost. A thread queues under the lock that it has just looked under, finding (2)
//! nothing for it. Whatever comes later comes under the same lock: a message, a place, a right
//! given back and a disconnection all end in serving the queue (`offer`, `take`, `settle`,
//! `disconnect_*`) as far as it goes, so (2) and (3) hold again. Who is taken from a queue is
//! claimed, and is woken by who claimed it, after the lock; before that he is told what became of
//! it. If a claim is lost, the thread has been served by another channel, or its time is up, and
//! nothing was given to it.
//!
//! Under the lock preemption is off: nothing is allocated, freed or dropped, no user code runs.

use core::ptr;

use super::buffer::{Block, Buffer};
use crate::engine::door::claim::{Claimed, Node};
use crate::engine::door::list::{Chain, Crowd, List};

// What a node in a queue is for: `Node::tag`.
pub(super) const PLAIN: usize = 0;
pub(super) const SELECT: usize = 1;
pub(super) const OBSERVER: usize = 2;

// How its wait ended: `Node::outcome`.
pub(super) const TRY_AGAIN: usize = 0;
pub(super) const DONE: usize = 1;
pub(super) const GRANTED: usize = 2;
pub(super) const PAIRED: usize = 3;

pub(super) struct State<T> {
    pub(super) senders: List,
    pub(super) receivers: List,
    buffer: Buffer<T>,
    /// `usize::MAX`: unbounded.
    pub(super) capacity: usize,
    pub(super) promised: usize,
    pub(super) reserved: usize,
    /// The last ticket given to a promised message.
    tickets: usize,
    pub(super) senders_gone: bool,
    pub(super) receivers_gone: bool,
}

/// What became of a message offered.
pub(super) enum Offer {
    Sent,
    Full,
    Disconnected,
    /// Nothing: the buffer needs a block first.
    NeedsBlock,
}

/// What was found for a receiver.
pub(super) enum Take {
    Received,
    Empty,
    Disconnected,
    /// A sender in a select, which has no message yet.
    Paired(Claimed),
}

/// A block to be used or to be freed, both outside of the lock.
pub(super) type Spare<T> = Option<Box<Block<T>>>;

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> State<T> {
        State {
            senders: List::new(),
            receivers: List::new(),
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
        self.buffer.len() > self.promised
    }

    #[inline(always)]
    pub(super) fn has_place(&self) -> bool {
        self.buffer.len() + self.reserved < self.capacity
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    /// How many messages are there for those who come.
    pub(super) fn len(&self) -> usize {
        (self.buffer.len() - self.promised).min(self.capacity)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.has_place()
    }

    /// Sends a message, if that can be done now.
    ///
    /// # Safety
    /// `message` is one; if the answer is `Sent` it is the caller's no more.
    #[inline(always)]
    pub(super) unsafe fn offer(
        &mut self,
        message: *const T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Offer {
        if self.receivers_gone {
            return Offer::Disconnected;
        }
        if !self.receivers.is_empty() {
            // SAFETY: the caller's promise.
            if let Some(offer) = unsafe { self.offer_to_waiting(message, spare, woken) } {
                return offer;
            }
        }
        if !self.has_place() {
            return Offer::Full;
        }
        if !self.buffer.make_room(spare) {
            return Offer::NeedsBlock;
        }
        // SAFETY: the caller's promise, and there is room.
        unsafe { self.buffer.push(message) };
        Offer::Sent
    }

    /// `None`: only observers have waited, who are woken if the message can be buffered.
    ///
    /// # Safety
    /// As [`State::offer`].
    unsafe fn offer_to_waiting(
        &mut self,
        message: *const T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Option<Offer> {
        while let Some(receiver) = self.receivers.first_where(is_taker) {
            let (node, tag) = (ptr::from_ref(receiver), receiver.tag.get());
            if tag == SELECT {
                // It will be served from the buffer.
                if self.capacity != 0 && !self.has_place() {
                    return Some(Offer::Full);
                }
                if !self.buffer.make_room(spare) {
                    return Some(Offer::NeedsBlock);
                }
            }
            // SAFETY: it was found there.
            if let Some(receiver) = unsafe { self.receivers.take(node) } {
                // SAFETY: the caller's promise; there is room if it is needed.
                unsafe { self.give(&receiver, message) };
                woken.push(receiver);
                return Some(Offer::Sent);
            }
        }
        if self.has_place() {
            if !self.buffer.make_room(spare) {
                return Some(Offer::NeedsBlock);
            }
            wake_all(&mut self.receivers, woken);
        }
        None
    }

    /// Room for a message to a receiver in a select, which is claimed. False: it takes a block.
    pub(super) fn make_room(&mut self, spare: &mut Spare<T>) -> bool {
        self.buffer.make_room(spare)
    }

    /// Gives a message to a receiver that is claimed, and is to be woken then.
    ///
    /// # Safety
    /// `message` is one, and the caller's no more. The receiver waits in this channel; if it does
    /// in a select, there is room in the buffer.
    #[inline(always)]
    pub(super) unsafe fn give(&mut self, receiver: &Claimed, message: *const T) {
        let node = receiver.node();
        if node.tag.get() == PLAIN {
            // SAFETY: its place is for a message of this channel; the caller's promise.
            unsafe { give_directly(node, message) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.buffer.push(message) };
            self.promise_to(node);
        }
    }

    /// Promises the first message that is not promised, which there is: its ticket.
    pub(super) fn promise(&mut self) -> usize {
        self.tickets += 1;
        // SAFETY: there is one behind those that are promised.
        unsafe { self.buffer.set_ticket(self.promised, self.tickets) };
        self.promised += 1;
        self.tickets
    }

    /// [`State::promise`], to a receiver in a select that is claimed.
    fn promise_to(&mut self, receiver: &Node) {
        let ticket = self.promise();
        receiver.place.set(ptr::without_provenance_mut(ticket));
        receiver.outcome.set(GRANTED);
    }

    /// Moves the first message out that is not promised.
    ///
    /// # Safety
    /// There is one, and `into` is a place for it.
    #[inline(always)]
    unsafe fn pop(&mut self, into: *mut T, spare: &mut Spare<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.promised != 0 {
                self.buffer.bring_to_front(self.promised);
            }
            self.buffer.pop(into, spare);
        }
    }

    /// Moves a promised message out, to who has its ticket.
    ///
    /// # Safety
    /// It is promised, and `into` is a place for it.
    pub(super) unsafe fn pop_promised(
        &mut self,
        ticket: usize,
        into: *mut T,
        spare: &mut Spare<T>,
    ) {
        // SAFETY: the caller's promise; invariant 1.
        unsafe {
            let before = self.find(ticket);
            self.buffer.bring_to_front(before);
            self.buffer.pop(into, spare);
        }
        self.promised -= 1;
    }

    /// A promised message is one for anybody again, before those that came later.
    pub(super) fn break_promise(&mut self, ticket: usize) {
        let before = self.find(ticket);
        self.promised -= 1;
        // SAFETY: as many were promised.
        unsafe { self.buffer.send_back(before, self.promised) };
    }

    fn find(&mut self, ticket: usize) -> usize {
        // SAFETY: invariant 1.
        match unsafe { self.buffer.find(ticket, self.promised) } {
            Some(before) => before,
            None => crate::engine::door::die("a promised message is not in its channel"),
        }
    }

    /// Receives a message, if there is one.
    ///
    /// # Safety
    /// `into` is a place for it; if the answer is `Received`, it is there.
    #[inline(always)]
    pub(super) unsafe fn take(
        &mut self,
        into: *mut T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Take {
        if self.has_message() {
            // SAFETY: there is one, and a place for it.
            unsafe { self.pop(into, spare) };
            if !self.senders.is_empty() {
                self.settle(spare, woken);
            }
            return Take::Received;
        }
        if self.capacity == 0 && !self.senders.is_empty() {
            // SAFETY: the caller's promise.
            if let Some(take) = unsafe { self.take_from_waiting(into, woken) } {
                return take;
            }
        }
        if self.senders_gone {
            return Take::Disconnected;
        }
        Take::Empty
    }

    /// Of a channel of capacity 0. `None`: only observers have waited.
    ///
    /// # Safety
    /// As [`State::take`].
    unsafe fn take_from_waiting(&mut self, into: *mut T, woken: &mut Chain) -> Option<Take> {
        let sender = self.senders.pop_where(is_taker)?;
        if sender.node().tag.get() == SELECT {
            return Some(Take::Paired(sender));
        }
        // SAFETY: a plain sender's place has its message; the caller's promise.
        unsafe { take_directly(sender.node(), into) };
        woken.push(sender);
        Some(Take::Received)
    }

    /// Gives places that are free to senders that wait, and messages to receivers, until invariant
    /// 2 holds.
    #[inline(never)]
    pub(super) fn settle(&mut self, spare: &mut Spare<T>, woken: &mut Chain) {
        loop {
            while !self.senders.is_empty() && self.has_place() {
                let Some(sender) = self.senders.pop_where(is_taker) else {
                    wake_all(&mut self.senders, woken);
                    break;
                };
                let node = sender.node();
                if node.tag.get() == PLAIN {
                    // SAFETY: a plain sender's place has its message. Senders wait at rings or at
                    // capacity 0 only, and a ring with a place has room.
                    unsafe { self.buffer.push(node.place.get().cast()) };
                    node.outcome.set(DONE);
                } else {
                    self.reserved += 1;
                    node.outcome.set(GRANTED);
                }
                woken.push(sender);
            }
            if self.receivers.is_empty() || !self.has_message() {
                return;
            }
            let Some(receiver) = self.receivers.pop_where(is_taker) else {
                return wake_all(&mut self.receivers, woken);
            };
            let node = receiver.node();
            if node.tag.get() == PLAIN {
                // SAFETY: there is a message, and a plain receiver's place is for one.
                unsafe { self.pop(node.place.get().cast(), spare) };
                node.outcome.set(DONE);
            } else {
                self.promise_to(node);
            }
            woken.push(receiver);
        }
    }

    /// Queues a sender for which there was nothing.
    ///
    /// # Safety
    /// The node is in no list and lives until it is out of this one. A plain one's place has its
    /// message.
    pub(super) unsafe fn queue_sender(&mut self, node: &Node, woken: &mut Chain) {
        // SAFETY: the caller's promise.
        unsafe { self.senders.push_back(node) };
        if self.capacity == 0 {
            wake_observers(&mut self.receivers, node, woken);
        }
    }

    /// Queues a receiver for which there was nothing.
    ///
    /// # Safety
    /// As [`State::queue_sender`]; a plain one's place is for a message.
    pub(super) unsafe fn queue_receiver(&mut self, node: &Node, woken: &mut Chain) {
        // SAFETY: the caller's promise.
        unsafe { self.receivers.push_back(node) };
        if self.capacity == 0 {
            wake_observers(&mut self.senders, node, woken);
        }
    }

    /// Takes out a sender that was queued, if it is still in.
    pub(super) fn remove_sender(&mut self, node: &Node) {
        // SAFETY: it was queued here and nowhere else.
        unsafe { self.senders.remove(node) };
    }

    /// Takes out a receiver that was queued, if it is still in.
    pub(super) fn remove_receiver(&mut self, node: &Node) {
        // SAFETY: it was queued here and nowhere else.
        unsafe { self.receivers.remove(node) };
    }

    /// The last sender is gone: receivers have what is there, and then nothing to wait for.
    ///
    /// # Safety
    /// As [`List::pop_all`].
    pub(super) unsafe fn disconnect_senders(&mut self, crowd: &Crowd) -> Chain {
        self.senders_gone = true;
        // SAFETY: the caller's promise.
        unsafe { self.receivers.pop_all(crowd) }
    }

    /// The last receiver is gone: the messages are to be dropped, and senders have nothing to wait
    /// for.
    ///
    /// # Safety
    /// As [`List::pop_all`].
    pub(super) unsafe fn disconnect_receivers(&mut self, crowd: &Crowd) -> (Chain, Buffer<T>) {
        self.receivers_gone = true;
        self.promised = 0;
        let buffer = core::mem::replace(&mut self.buffer, Buffer::blocks());
        // SAFETY: the caller's promise.
        (unsafe { self.senders.pop_all(crowd) }, buffer)
    }
}

/// Moves a message to a plain receiver's place.
///
/// # Safety
/// `message` is one, the caller's no more; the receiver waits for one of this type, and is claimed.
pub(super) unsafe fn give_directly<T>(receiver: &Node, message: *const T) {
    // SAFETY: the caller's promise.
    unsafe { message.copy_to_nonoverlapping(receiver.place.get().cast(), 1) };
    receiver.outcome.set(DONE);
}

/// Moves a plain sender's message to `into`.
///
/// # Safety
/// The sender waits with a message of this type and is claimed; `into` is a place for one.
pub(super) unsafe fn take_directly<T>(sender: &Node, into: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { into.copy_from_nonoverlapping(sender.place.get().cast(), 1) };
    sender.outcome.set(DONE);
}

/// Not an observer.
pub(super) fn is_taker(node: &Node) -> bool {
    node.tag.get() != OBSERVER
}

/// Wakes the observers in a queue where nobody else waits: what is there stays there.
fn wake_all(observers: &mut List, woken: &mut Chain) {
    while let Some(observer) = observers.pop() {
        woken.push(observer);
    }
}

/// At capacity 0, who waits on one side makes the other ready.
fn wake_observers(list: &mut List, waiting: &Node, woken: &mut Chain) {
    if !is_taker(waiting) || list.is_empty() {
        return;
    }
    while let Some(observer) = list.pop_where(|node| !is_taker(node)) {
        woken.push(observer);
    }
}
