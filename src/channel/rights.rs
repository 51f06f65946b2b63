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
use crate::wait::claim::Chain;

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

/// A sender or a receiver in a select, whatever its messages are.
pub(super) trait Handle {
    /// Selects the operation if it would not block. Otherwise queues the entry, if there is one.
    fn attempt(&self, entry: Option<&Entry<'_, '_>>) -> Attempt;

    /// Takes the entry out of the queue that `attempt` has put it in, if it is still there.
    fn leave(&self, entry: &Entry<'_, '_>);

    /// Gives the right to a selected operation back without completing it.
    fn give_back(&self, right: Right);

    /// Returns whether giving the right back leaves no trace. A place in a buffer leaves none. A
    /// promised message leaves one if its sender has seen it received, and so does a peer, which
    /// waits.
    fn leaves_no_trace(&self, _: &Right) -> bool {
        false
    }

    /// Returns whether the operation would not block.
    fn is_ready(&self) -> bool;

    /// Returns the instant at which the operation becomes ready by itself, if it does.
    fn deadline(&self) -> Option<Instant> {
        None
    }
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
    /// Returns whether sending (for `Senders`) or receiving would not block. A node of the wait `own` does not
    /// count as a peer.
    pub(super) fn can(&self, side: Side, own: Option<&Entry<'_, '_>>) -> bool {
        let (at_once, peers) = match side {
            Side::Senders => (self.receivers_gone || self.has_place(), &self.receivers),
            Side::Receivers => (self.has_message() || self.senders_gone, &self.senders),
        };
        at_once || self.capacity == 0 && peers.has_peer(own)
    }

    /// Grants the right to send or to receive to a select that has not queued or has given up its wait `own`.
    /// Returns `None` if `can` saw only a peer whose wait is over already.
    pub(super) fn grant(&mut self, side: Side, own: Option<&Entry<'_, '_>>) -> Option<Right> {
        let (peers, is_disconnected) = match side {
            Side::Senders if self.has_place() && !self.receivers_gone => {
                self.reserved += 1;
                return Some(Right::Counted(0));
            }
            Side::Receivers if self.has_message() => return Some(Right::Counted(self.promise())),
            Side::Senders => (&mut self.receivers, self.receivers_gone),
            Side::Receivers => (&mut self.senders, self.senders_gone),
        };
        let peer = (self.capacity == 0).then(|| peers.pop_peer(own)).flatten();
        peer.map(Right::from)
            .or(is_disconnected.then_some(Right::Disconnected))
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

    /// Takes back a [`Right::Counted`] that is not used, and serves the threads that wait.
    fn take_back(&mut self, side: Side, ticket: usize, spare: &mut Spare<T>, woken: &mut Chain) {
        match side {
            Side::Senders => self.reserved -= 1,
            Side::Receivers => self.break_promise(ticket),
        }
        self.settle(spare, woken);
    }
}

impl<T> Shared<T> {
    /// Selects the operation if it would not block; otherwise queues the entry, if there is one.
    pub(super) fn attempt(&self, side: Side, entry: Option<&Entry<'_, '_>>) -> Attempt {
        let mut woken = Chain::new();
        let mut state = self.lock();
        let attempt = match entry {
            None if state.can(side, None) => granted(state.grant(side, None)),
            Some(entry) if state.can(side, entry.into()) => {
                end(entry, || state.grant(side, Some(entry)))
            }
            None => Attempt::Blocked,
            Some(entry) => {
                state.queue_select(side, entry, &mut woken);
                Attempt::Blocked
            }
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
                while !state.buffer.make_room(&mut spare) {
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

    /// Gives the right to a selected operation back without completing it.
    pub(super) fn give_back(&self, side: Side, right: Right) {
        match right {
            Right::Disconnected | Right::Made(_) => {}
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::new());
                self.lock().take_back(side, ticket, &mut spare, &mut woken);
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
