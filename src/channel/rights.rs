//! What a select is given: the right to one operation; and how it completes it or gives it back.
//!
//! | right | to send | to receive |
//! |---|---|---|
//! | `Counted` | one of the `reserved` places | the `promised` message with that ticket |
//! | `Peer`, plain | its place is for the message | its place has the message |
//! | `Peer`, in a select | the message is buffered and promised to it | it is woken, to send it there |
//! | `Made` | | the message itself (`timer`) |
//! | `Disconnected` | an error | an error |
//!
//! Invariants:
//! 1. A right is completed or given back, once: it cannot be copied, and [`SelectedOperation`] does
//!    one of the two.
//! 2. A peer waits until then. Its time does not run out: it has been claimed.
//! 3. The side that has a right is not gone: who has it keeps a sender, or a receiver, borrowed.
//!
//! [`SelectedOperation`]: super::SelectedOperation

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr;
use std::time::Instant;

use super::buffer::Block;
use super::shared::{Failed, Shared, Until};
use super::state::{
    OBSERVER, Offer, PLAIN, Spare, State, TRY_AGAIN, Take, give_directly, is_taker, take_directly,
};
use crate::engine::door::claim::{Claimed, Node, Wait};
use crate::engine::door::list::Chain;

/// The right to complete one operation: what a select has selected.
pub(super) enum Right {
    /// To find the channel disconnected.
    Disconnected,
    /// To the promised message with this ticket; or to one of the `reserved` places: then it means
    /// nothing.
    Counted(usize),
    /// To the peer.
    Peer(Claimed),
    /// To a message that was made for it: see `timer`.
    Made(Instant),
}

/// What became of a select's attempt.
pub(super) enum Attempt {
    /// It has the right to the operation; an observer: the operation is ready.
    Selected(Option<Right>),
    /// It would block. If it had a node, that is queued now.
    Blocked,
    /// Its wait has been ended by somebody.
    Taken,
    /// It has ended its wait for a peer that was gone.
    Missed,
}

impl<T> State<T> {
    /// Whether sending would not block. Who waits with `own` is nobody's peer.
    pub(super) fn can_send(&self, own: *const Wait) -> bool {
        self.receivers_gone
            || self.has_place()
            || self.capacity == 0
                && self
                    .receivers
                    .first_where(|node| is_peer(node, own))
                    .is_some()
    }

    /// Whether receiving would not block. Who waits with `own` is nobody's peer.
    pub(super) fn can_receive(&self, own: *const Wait) -> bool {
        self.has_message()
            || self.senders_gone
            || self.capacity == 0
                && self
                    .senders
                    .first_where(|node| is_peer(node, own))
                    .is_some()
    }

    /// The right to send, for a select that has not queued or has given up its wait `own`. `None`:
    /// what `can_send` saw was a peer that is going already.
    pub(super) fn grant_send(&mut self, own: *const Wait) -> Option<Right> {
        if self.receivers_gone {
            Some(Right::Disconnected)
        } else if self.has_place() {
            self.reserved += 1;
            Some(Right::Counted(0))
        } else if self.capacity == 0 {
            let peer = self.receivers.pop_where(|node| is_peer(node, own));
            peer.map(Right::Peer)
        } else {
            None
        }
    }

    /// The right to receive, as [`State::grant_send`].
    pub(super) fn grant_receive(&mut self, own: *const Wait) -> Option<Right> {
        if self.has_message() {
            return Some(Right::Counted(self.promise()));
        }
        if self.capacity == 0 {
            let peer = self.senders.pop_where(|node| is_peer(node, own));
            if peer.is_some() {
                return peer.map(Right::Peer);
            }
        }
        self.senders_gone.then_some(Right::Disconnected)
    }

    /// Uses a reserved place: [`State::offer`], whose answer is never `Full`.
    ///
    /// # Safety
    /// As [`State::offer`]; the caller has a [`Right::Counted`] to send, and no longer if the
    /// answer is anything but `NeedsBlock`.
    pub(super) unsafe fn offer_reserved(
        &mut self,
        message: *const T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Offer {
        self.reserved -= 1;
        // SAFETY: the caller's promise.
        let offer = unsafe { self.offer(message, spare, woken) };
        match offer {
            Offer::NeedsBlock => self.reserved += 1,
            // A receiver that waited had a place of its own: then the reserved one is free.
            Offer::Sent if !self.senders.is_empty() => self.settle(spare, woken),
            _ => {}
        }
        offer
    }

    /// Takes the promised message with that ticket.
    ///
    /// # Safety
    /// `into` is a place for it; the caller has a [`Right::Counted`] to receive, and no longer.
    pub(super) unsafe fn take_promised(
        &mut self,
        ticket: usize,
        into: *mut T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.pop_promised(ticket, into, spare) };
        if !self.senders.is_empty() {
            self.settle(spare, woken);
        }
    }

    /// A [`Right::Counted`] to send is given back, and passed on if somebody waits.
    pub(super) fn unreserve(&mut self, _: usize, spare: &mut Spare<T>, woken: &mut Chain) {
        self.reserved -= 1;
        self.settle(spare, woken);
    }

    /// A [`Right::Counted`] to receive is given back, and passed on if somebody waits.
    pub(super) fn unpromise(&mut self, ticket: usize, spare: &mut Spare<T>, woken: &mut Chain) {
        self.break_promise(ticket);
        self.settle(spare, woken);
    }
}

impl<T> Shared<T> {
    /// Selects sending if it would not block; else queues the node if there is one.
    ///
    /// # Safety
    /// The node and its wait stay where they are until [`Shared::leave_senders`].
    pub(super) unsafe fn attempt_send(&self, node: Option<&Node>) -> Attempt {
        let mut woken = Chain::new();
        let mut state = self.lock();
        let attempt = match node {
            None if !state.can_send(ptr::null()) => Attempt::Blocked,
            None => granted(state.grant_send(ptr::null())),
            Some(node) if !state.can_send(node.wait()) => {
                // SAFETY: the caller's promise.
                unsafe { state.queue_sender(node, &mut woken) };
                Attempt::Blocked
            }
            Some(node) => end(node, || state.grant_send(node.wait())),
        };
        drop(state);
        woken.wake();
        attempt
    }

    /// Selects receiving if it would not block; else queues the node if there is one.
    ///
    /// # Safety
    /// The node and its wait stay where they are until [`Shared::leave_receivers`].
    pub(super) unsafe fn attempt_receive(&self, node: Option<&Node>) -> Attempt {
        let mut woken = Chain::new();
        let mut state = self.lock();
        let attempt = match node {
            None if !state.can_receive(ptr::null()) => Attempt::Blocked,
            None => granted(state.grant_receive(ptr::null())),
            Some(node) if !state.can_receive(node.wait()) => {
                // SAFETY: the caller's promise.
                unsafe { state.queue_receiver(node, &mut woken) };
                Attempt::Blocked
            }
            Some(node) => end(node, || state.grant_receive(node.wait())),
        };
        drop(state);
        woken.wake();
        attempt
    }

    pub(super) fn leave_senders(&self, node: &Node) {
        self.lock().remove_sender(node);
    }

    pub(super) fn leave_receivers(&self, node: &Node) {
        self.lock().remove_receiver(node);
    }

    /// Completes a selected send. The message comes back if the channel is disconnected.
    pub(super) fn complete_send(&self, right: Right, message: T) -> Result<(), T> {
        let message = ManuallyDrop::new(message);
        let mut spare: Spare<T> = None;
        loop {
            let mut woken = Chain::new();
            match &right {
                Right::Disconnected | Right::Made(_) => {
                    return Err(ManuallyDrop::into_inner(message));
                }
                Right::Counted(_) => {
                    let mut state = self.lock();
                    // SAFETY: the message is not used any more if it was sent.
                    let offer = unsafe {
                        state.offer_reserved(&raw const *message, &mut spare, &mut woken)
                    };
                    drop(state);
                    woken.wake();
                    match offer {
                        Offer::Sent => return Ok(()),
                        Offer::NeedsBlock => {}
                        Offer::Disconnected | Offer::Full => {
                            return Err(ManuallyDrop::into_inner(message));
                        }
                    }
                }
                Right::Peer(receiver) => {
                    if receiver.node().tag.get() == PLAIN {
                        // SAFETY: it waits in this channel, and is ours; so was the message.
                        unsafe { give_directly(receiver.node(), &raw const *message) };
                    } else {
                        let mut state = self.lock();
                        if !state.make_room(&mut spare) {
                            drop(state);
                            spare = Some(Block::new());
                            continue;
                        }
                        // SAFETY: as above, and there is room.
                        unsafe { state.give(receiver, &raw const *message) };
                    }
                    break;
                }
            }
            spare = Some(Block::new());
        }
        if let Right::Peer(receiver) = right {
            receiver.wake();
        }
        Ok(())
    }

    /// Completes a selected receive. An error: the channel is disconnected.
    pub(super) fn complete_receive(&self, right: Right) -> Result<T, Failed> {
        let mut message = MaybeUninit::uninit();
        match right {
            Right::Disconnected | Right::Made(_) => return Err(Failed::Disconnected),
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::new());
                let into = message.as_mut_ptr();
                let mut state = self.lock();
                // SAFETY: a place for a message, and a right to one.
                unsafe { state.take_promised(ticket, into, &mut spare, &mut woken) };
                drop(state);
                woken.wake();
            }
            Right::Peer(sender) if sender.node().tag.get() == PLAIN => {
                // SAFETY: it waits in this channel, and is ours.
                unsafe { take_directly(sender.node(), message.as_mut_ptr()) };
                sender.wake();
            }
            Right::Peer(sender) => {
                let (state, paired) = (self.lock(), Take::Paired(sender));
                let into = message.as_mut_ptr();
                // SAFETY: a place for a message.
                unsafe { self.receive_slowly(state, Chain::new(), paired, into, Until::Never)? };
            }
        }
        // SAFETY: all ways here have received it.
        Ok(unsafe { message.assume_init() })
    }

    /// A selected send is not completed.
    pub(super) fn give_back_send(&self, right: Right) {
        self.give_back(right, State::unreserve);
    }

    /// A selected receive is not completed.
    pub(super) fn give_back_receive(&self, right: Right) {
        self.give_back(right, State::unpromise);
    }

    fn give_back(&self, right: Right, count: fn(&mut State<T>, usize, &mut Spare<T>, &mut Chain)) {
        match right {
            Right::Disconnected | Right::Made(_) => {}
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::new());
                count(&mut self.lock(), ticket, &mut spare, &mut woken);
                woken.wake();
            }
            Right::Peer(peer) => {
                peer.node().outcome.set(TRY_AGAIN);
                peer.wake();
            }
        }
    }
}

fn is_peer(node: &Node, own: *const Wait) -> bool {
    is_taker(node) && !ptr::eq(node.wait(), own)
}

fn granted(right: Option<Right>) -> Attempt {
    right.map_or(Attempt::Missed, |right| Attempt::Selected(Some(right)))
}

/// The operation of `node`, which is queued elsewhere perhaps, is ready: ends its wait.
pub(super) fn end(node: &Node, grant: impl FnOnce() -> Option<Right>) -> Attempt {
    if !node.give_up() {
        Attempt::Taken
    } else if node.tag.get() == OBSERVER {
        Attempt::Selected(None)
    } else {
        granted(grant())
    }
}
