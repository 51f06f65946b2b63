//! The right to one operation, which a select is given: how it completes it or gives it back.
//!
//! | right | to send | to receive |
//! |---|---|---|
//! | `Counted` | one of the `reserved` places | the `promised` message with that ticket |
//! | `Plain`, a peer | its place is for the message | its place has the message |
//! | `Chooser`, a peer in a select | the message is buffered and promised to it | it is woken, to send it there |
//! | `Made` | | the message itself (`timer`) |
//! | `Disconnected` | an error | an error |
//!
//! Invariants:
//! 1. A right is completed or given back, once: it cannot be copied, and [`SelectedOperation`] does
//!    one of the two.
//! 2. A peer waits until then. Its time does not run out: it has been claimed.
//! 3. The side that has a right is not gone: the owner of a right keeps a sender, or a receiver,
//!    borrowed.
//!
//! [`SelectedOperation`]: super::SelectedOperation

use std::time::Instant;

use super::cell::buffer::Block;
use super::cell::{AnyPlain, Chooser, Entry, Kind, Peer, Side};
use super::shared::{Failed, Shared, Until};
use super::state::{Refused, Spare, State, Take};
use crate::wait::list::Chain;

/// The right to complete one operation, which a select has selected.
pub(super) enum Right {
    /// The right to find the channel disconnected.
    Disconnected,
    /// The right to the promised message with this ticket, or to one of the `reserved` places; in
    /// the second case the number means nothing.
    Counted(usize),
    /// The right to the peer.
    Plain(AnyPlain),
    Chooser(Chooser),
    /// The right to a message that was made for it: see `timer`.
    Made(Instant),
}

/// The outcome of a select's attempt at one operation.
pub(super) enum Attempt {
    /// The select has the right to the operation. For an observer the operation is ready.
    Selected(Option<Right>),
    /// The operation would block. If it came with an entry, the entry is queued now.
    Blocked,
    /// Another thread has ended the select's wait.
    Taken,
    /// The select has ended its own wait, but the peer was gone.
    Missed,
}

impl<T> From<Peer<T>> for Right {
    fn from(peer: Peer<T>) -> Right {
        match peer {
            Peer::Plain(peer) => Right::Plain(peer.any()),
            Peer::Select(peer) => Right::Chooser(peer),
        }
    }
}

impl<T> State<T> {
    /// Returns whether sending would not block. A node of the wait `own` does not count as a peer.
    pub(super) fn can_send(&self, own: Option<&Entry<'_, '_>>) -> bool {
        self.receivers_gone
            || self.has_place()
            || self.capacity == 0 && self.receivers.has_peer(own)
    }

    /// Returns whether receiving would not block. A node of the wait `own` does not count as a
    /// peer.
    pub(super) fn can_receive(&self, own: Option<&Entry<'_, '_>>) -> bool {
        self.has_message() || self.senders_gone || self.capacity == 0 && self.senders.has_peer(own)
    }

    /// Grants the right to send to a select that has not queued or has given up its wait `own`.
    /// Returns `None` if `can_send` saw only a peer whose wait is over already.
    pub(super) fn grant_send(&mut self, own: Option<&Entry<'_, '_>>) -> Option<Right> {
        if self.receivers_gone {
            Some(Right::Disconnected)
        } else if self.has_place() {
            self.reserved += 1;
            Some(Right::Counted(0))
        } else if self.capacity == 0 {
            self.receivers.pop_peer(own).map(Right::from)
        } else {
            None
        }
    }

    /// Grants the right to receive, as [`State::grant_send`] does for sending.
    pub(super) fn grant_receive(&mut self, own: Option<&Entry<'_, '_>>) -> Option<Right> {
        if self.has_message() {
            return Some(Right::Counted(self.promise()));
        }
        if self.capacity == 0
            && let Some(peer) = self.senders.pop_peer(own)
        {
            return Some(peer.into());
        }
        self.senders_gone.then_some(Right::Disconnected)
    }

    /// Uses a reserved place, a [`Right::Counted`] to send. After the answer `NeedsBlock` the place
    /// is still reserved, and after any other it is used up. The answer is never `Full`.
    fn send_reserved(
        &mut self,
        message: T,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> Result<(), (T, Refused)> {
        self.reserved -= 1;
        match self.room(spare, woken) {
            Ok(room) => room.fill(message),
            Err(refused) => {
                self.reserved += usize::from(refused == Refused::NeedsBlock);
                return Err((message, refused));
            }
        }
        // A receiver that waited had a place of its own: then the reserved one is free.
        if !self.senders.is_empty() {
            self.settle(spare, woken);
        }
        Ok(())
    }

    /// Takes the promised message with that ticket, a [`Right::Counted`] to receive.
    pub(super) fn take_promised(
        &mut self,
        ticket: usize,
        spare: &mut Spare<T>,
        woken: &mut Chain,
    ) -> T {
        let message = self.pop_promised(ticket, spare);
        if !self.senders.is_empty() {
            self.settle(spare, woken);
        }
        message
    }

    /// Takes a [`Right::Counted`] to send back, and passes it on if a thread waits.
    pub(super) fn unreserve(&mut self, _: usize, spare: &mut Spare<T>, woken: &mut Chain) {
        self.reserved -= 1;
        self.settle(spare, woken);
    }

    /// Takes a [`Right::Counted`] to receive back, and passes it on if a thread waits.
    pub(super) fn unpromise(&mut self, ticket: usize, spare: &mut Spare<T>, woken: &mut Chain) {
        self.break_promise(ticket);
        self.settle(spare, woken);
    }
}

impl<T> Shared<T> {
    /// Selects sending if it would not block; otherwise queues the entry, if there is one.
    pub(super) fn attempt_send(&self, entry: Option<&Entry<'_, '_>>) -> Attempt {
        let mut woken = Chain::new();
        let mut state = self.lock();
        let attempt = match entry {
            None if !state.can_send(None) => Attempt::Blocked,
            None => granted(state.grant_send(None)),
            Some(entry) if !state.can_send(Some(entry)) => {
                state.queue_select(Side::Senders, entry, &mut woken);
                Attempt::Blocked
            }
            Some(entry) => end(entry, || state.grant_send(Some(entry))),
        };
        drop(state);
        woken.wake();
        attempt
    }

    /// Selects receiving if it would not block; otherwise queues the entry, if there is one.
    pub(super) fn attempt_receive(&self, entry: Option<&Entry<'_, '_>>) -> Attempt {
        let mut woken = Chain::new();
        let mut state = self.lock();
        let attempt = match entry {
            None if !state.can_receive(None) => Attempt::Blocked,
            None => granted(state.grant_receive(None)),
            Some(entry) if !state.can_receive(Some(entry)) => {
                state.queue_select(Side::Receivers, entry, &mut woken);
                Attempt::Blocked
            }
            Some(entry) => end(entry, || state.grant_receive(Some(entry))),
        };
        drop(state);
        woken.wake();
        attempt
    }

    /// Completes a selected send. Returns the message if the channel is disconnected.
    pub(super) fn complete_send(&self, right: Right, mut message: T) -> Result<(), T> {
        let mut spare: Spare<T> = None;
        match right {
            Right::Disconnected | Right::Made(_) => return Err(message),
            Right::Counted(_) => loop {
                let mut woken = Chain::new();
                let sent = self.lock().send_reserved(message, &mut spare, &mut woken);
                woken.wake();
                match sent {
                    Ok(()) => break,
                    Err((not_yet, Refused::NeedsBlock)) => message = not_yet,
                    Err((message, _)) => return Err(message),
                }
                spare = Some(Block::new());
            },
            Right::Plain(receiver) => receiver.of(self).give(message).wake(),
            Right::Chooser(receiver) => {
                let mut state = self.lock();
                while !state.make_room(&mut spare) {
                    drop(state);
                    spare = Some(Block::new());
                    state = self.lock();
                }
                let receiver = state.promise_to(receiver, message);
                drop(state);
                receiver.wake();
            }
        }
        Ok(())
    }

    /// Completes a selected receive. It fails if the channel is disconnected.
    pub(super) fn complete_receive(&self, right: Right) -> Result<T, Failed> {
        match right {
            Right::Disconnected | Right::Made(_) => Err(Failed::Disconnected),
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::new());
                let message = self.lock().take_promised(ticket, &mut spare, &mut woken);
                woken.wake();
                Ok(message)
            }
            Right::Plain(sender) => {
                let (message, sender) = sender.of(self).take();
                sender.wake();
                Ok(message)
            }
            Right::Chooser(sender) => {
                let (state, paired) = (self.lock(), Take::Paired(sender));
                self.receive_slowly(state, Chain::new(), paired, Until::Never)
            }
        }
    }

    /// Gives the right to a selected send back without completing it.
    pub(super) fn give_back_send(&self, right: Right) {
        self.give_back(right, State::unreserve);
    }

    /// Gives the right to a selected receive back without completing it.
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
            Right::Plain(peer) => peer.send_away().wake(),
            Right::Chooser(peer) => peer.send_away().wake(),
        }
    }
}

fn granted(right: Option<Right>) -> Attempt {
    right.map_or(Attempt::Missed, |right| Attempt::Selected(Some(right)))
}

/// Ends the wait of `entry`, whose operation is ready here. It may be queued at other channels too.
pub(super) fn end(entry: &Entry<'_, '_>, grant: impl FnOnce() -> Option<Right>) -> Attempt {
    if !entry.give_up() {
        Attempt::Taken
    } else if entry.kind() == Kind::Observer {
        Attempt::Selected(None)
    } else {
        granted(grant())
    }
}
