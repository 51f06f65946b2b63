//! The search for the first of several operations, for `Select` and `select!`; and the right to one operation, which a
//! select is given: how the select completes the operation, or gives the right back.
//!
//! # The search
//!
//! Each [`Operation`] has a handle (a sender or receiver, whatever its messages) and a spot. They
//! are looked at in random order, or as they stand if the select is biased, in rounds:
//!
//! 1. Look at all of them, one after the other, without queueing. One that would not block is
//!    selected.
//! 2. With a fresh [`Waiting`], look at each again under its channel's lock, and queue its spot in the
//!    same critical section if it would block.
//! 3. Wait, until one of the spots is taken, the time is up, or a timer's message is due. If the
//!    time is up already (a select with a default), just look whether a spot was taken. If none
//!    was, all would have blocked at one moment, which the looks of step 1 cannot tell.
//! 4. Take all spots out of their queues. If one was taken with a right, that is selected; else go
//!    round again.
//! 5. If the right is to a place in a buffer, look at the operations before that one, in the order
//!    of this select. If another would not block now, it is selected instead, and the place is
//!    given back. Otherwise two selects might never meet at another channel: whenever one takes a
//!    message out of the buffer, it gives the other a place in it, and so on for ever.
//!
//! | in step 2 an operation | and the own wait | then |
//! |---|---|---|
//! | would block | | is queued |
//! | would not block | could be given up | is selected (an observer: is the answer) |
//! | would not block | was claimed: a queued spot was taken | step 3 tells which one |
//! | has a peer | could be given up, but the peer is going | next round |
//!
//! Two selects may find each other on two channels. Since each gives its own wait up before it
//! claims a peer, it cannot happen that both have a peer, or that both are one. Both may miss then;
//! they go round again in another order.
//!
//! # The right
//!
//! | right | to send | to receive |
//! |---|---|---|
//! | `Counted` | one of the `reserved` places | the `promised` message with that ticket |
//! | `Peer`, which waits | its place is for the message | its place has the message |
//! | `Peer`, in a select | the message is buffered and promised to it | it is woken, to send it there |
//! | `Made` | | the message itself (a timer's) |
//! | `Disconnected` | an error | an error |
//!
//! # Invariants
//! 1. Spots are queued in step 2 and out of all queues after step 4. In between only shared
//!    references to the operations are used, and no user code runs.
//! 2. A select is never its own peer: channels skip spots of the same wait.
//! 3. A right is completed or given back, once: it cannot be copied, and [`SelectedOperation`] takes the right out of the
//!    option that holds it for one of the two.
//! 4. A peer waits until then. Its time does not run out: it has been claimed.
//! 5. The side that has a right is not gone: the owner of a right keeps a sender, or a receiver,
//!    borrowed.

use core::cell::Cell;
use core::ops::ControlFlow::{self, Break, Continue};
use core::ptr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Instant;

use fastrand::Rng;

use super::buffer::Block;
use super::cell::{AnyHandle, AnyPeer, Entry, Half, Kind, Peer, Side, Spot, Waiting};
use super::receiver::sleep_until;
use super::shared::{Failed, PLACE, Refused, Shared, Spare, State, Take, Until, wake_after};
use super::{Receiver, RecvError, SendError, Sender};
use crate::sys::{clock, perturb};
use crate::wait::{queue::Chain, raise};

// ==== the right to one operation ====

/// The right to complete one operation, which a select has selected.
pub(super) enum Right {
    /// The right to find the channel disconnected.
    Disconnected,
    /// The right to the promised message with this ticket, or to one of the `reserved` places: then the number is [`PLACE`].
    Counted(usize),
    /// The right to the peer.
    Peer(AnyPeer),
    /// The right to a message that was made for it: see `Timer`.
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
    fn leave(&self, _: &Entry<'_, '_>) {}

    /// Gives the right to a selected operation back without completing it.
    fn give_back(&self, _: Right) {}

    /// Returns whether the operation would not block.
    fn is_ready(&self) -> bool;

    /// Returns the instant at which the operation becomes ready by itself, if it does.
    fn deadline(&self) -> Option<Instant> {
        None
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
                return Some(Right::Counted(PLACE));
            }
            Side::Receivers if self.has_message() => return Some(Right::Counted(self.promise())),
            Side::Senders => (&mut self.receivers, self.receivers_gone),
            Side::Receivers => (&mut self.senders, self.senders_gone),
        };
        let peer = (self.capacity == 0).then(|| peers.pop_peer(own)).flatten();
        peer.map(Right::Peer)
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
        if let Err((message, refused)) = self.send(message, spare, woken) {
            self.reserved += usize::from(refused == Refused::NeedsBlock);
            return Err((message, refused));
        }
        // If a receiver waited, the message went to that receiver, and the reserved place is free for a sender.
        if !self.senders.is_empty() {
            self.settle(spare, woken);
        }
        Ok(())
    }
}

impl<T, const SENDS: bool> Handle for Half<T, SENDS> {
    fn attempt(&self, entry: Option<&Entry<'_, '_>>) -> Attempt {
        let side = Self::SIDE;
        let mut woken = Chain::default();
        let mut state = self.lock();
        let attempt = match entry {
            None if state.can(side, None) => granted(state.grant(side, None)),
            Some(entry) if state.can(side, entry.into()) => {
                end(entry, || state.grant(side, Some(entry)))
            }
            None => Attempt::Blocked,
            Some(entry) => {
                state.queue(side).push(entry);
                if entry.waiting.kind != Kind::Observer {
                    state.tell_observers(side, &mut woken);
                }
                Attempt::Blocked
            }
        };
        wake_after(state, woken);
        attempt
    }

    fn leave(&self, entry: &Entry<'_, '_>) {
        self.lock().queue(Self::SIDE).remove(entry);
    }

    fn give_back(&self, right: Right) {
        match right {
            Right::Disconnected | Right::Made(_) => {}
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::default());
                let mut state = self.lock();
                match Self::SIDE {
                    Side::Senders => state.reserved -= 1,
                    Side::Receivers => state.break_promise(ticket),
                }
                state.settle(&mut spare, &mut woken);
                wake_after(state, woken);
            }
            Right::Peer(peer) => peer.send_away().wake(),
        }
    }

    fn is_ready(&self) -> bool {
        self.look(|state| state.can(Self::SIDE, None))
    }
}

impl<T> Shared<T> {
    /// Completes a selected send. Returns the message if the channel is disconnected.
    pub(super) fn complete_send(&self, right: Right, mut message: T) -> Result<(), T> {
        let mut spare: Spare<T> = None;
        match right {
            Right::Disconnected | Right::Made(_) => return Err(message),
            Right::Counted(_) => loop {
                let mut woken = Chain::default();
                let sent = self.lock().send_reserved(message, &mut spare, &mut woken);
                woken.wake();
                match sent {
                    Ok(()) => break,
                    Err((not_yet, Refused::NeedsBlock)) => message = not_yet,
                    Err((message, _)) => return Err(message),
                }
                spare = Some(Block::new());
            },
            Right::Peer(receiver) => match receiver.of(self) {
                Peer::Plain(receiver) => receiver.give(message).wake(),
                Peer::Select(receiver) => {
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
            },
        }
        Ok(())
    }

    /// Completes a selected receive. It fails if the channel is disconnected.
    pub(super) fn complete_receive(&self, right: Right) -> Result<T, Failed> {
        match right {
            Right::Disconnected | Right::Made(_) => Err(Failed::Disconnected),
            Right::Counted(ticket) => {
                let (mut spare, mut woken) = (None, Chain::default());
                let mut state = self.lock();
                let message = state.pop_promised(ticket, &mut spare);
                state.settle(&mut spare, &mut woken);
                wake_after(state, woken);
                Ok(message)
            }
            Right::Peer(sender) => match sender.of(self) {
                Peer::Plain(sender) => {
                    let (message, sender) = sender.take();
                    sender.wake();
                    Ok(message)
                }
                Peer::Select(sender) => {
                    let (state, paired) = (self.lock(), Take::Paired(sender));
                    self.receive_slowly(state, Chain::default(), paired, Until::Never)
                }
            },
        }
    }
}

fn granted(right: Option<Right>) -> Attempt {
    right.map_or(Attempt::Missed, |right| Attempt::Selected(Some(right)))
}

/// Ends the wait of `entry`, whose operation is ready here. It may be queued at other channels too.
pub(super) fn end(entry: &Entry<'_, '_>, grant: impl FnOnce() -> Option<Right>) -> Attempt {
    if !entry.waiting.give_up() {
        Attempt::Taken
    } else if entry.waiting.kind == Kind::Observer {
        Attempt::Selected(None)
    } else {
        granted(grant())
    }
}

// ==== the search ====

/// An operation that may be selected.
pub struct Operation<'a> {
    handle: AnyHandle<'a>,
    spot: Spot,
    /// The position of the operation that is looked at in this place of the order.
    pub(super) turn: Cell<usize>,
    /// The index by which the user knows the operation.
    pub(super) index: usize,
}

impl<'a> Operation<'a> {
    /// Makes a send operation.
    pub fn send<T>(sender: &'a Sender<T>) -> Operation<'a> {
        Operation::new(&sender.0)
    }

    /// Makes a receive operation.
    pub fn recv<T>(receiver: &'a Receiver<T>) -> Operation<'a> {
        Operation::new(receiver.handle())
    }

    fn new(handle: &'a dyn Handle) -> Operation<'a> {
        Operation {
            handle: AnyHandle(handle),
            spot: Spot::default(),
            turn: Cell::new(0),
            index: 0,
        }
    }
}

impl<'a> Clone for Operation<'a> {
    fn clone(&self) -> Operation<'a> {
        Operation {
            index: self.index,
            ..Operation::new(self.handle())
        }
    }
}

/// Selects an operation as [`Select`](super::Select) does, for the macro: operations are numbered as they stand. `None` if the
/// time is up.
pub fn select<'a>(
    operations: &mut [Operation<'a>],
    biased: bool,
    until: Until,
) -> Option<SelectedOperation<'a>> {
    for (index, operation) in operations.iter_mut().enumerate() {
        operation.index = index;
    }
    select_until(operations, until, biased)
}

/// Selects an operation. `None` if the time is up, or if there is no operation.
pub(super) fn select_until<'a>(
    operations: &mut [Operation<'a>],
    until: Until,
    biased: bool,
) -> Option<SelectedOperation<'a>> {
    let (operation, right) = search(operations, until, biased, Kind::Select)?;
    Some(SelectedOperation {
        handle: operation.handle(),
        right,
        index: operation.index,
    })
}

/// An operation that does not block, and the right to it. An observer has no right.
pub(super) type Found<'o, 'a> = (&'o Operation<'a>, Option<Right>);

pub(super) fn search<'o, 'a>(
    operations: &'o mut [Operation<'a>],
    until: Until,
    biased: bool,
    kind: Kind,
) -> Option<Found<'o, 'a>> {
    let mut known = None;
    let operations = in_turn(operations, biased);
    loop {
        let found = operations.clone().find_map(|one| one.look(kind));
        if found.is_some() {
            return found;
        }
        let deadline = *known.get_or_insert_with(|| until.deadline());
        if operations.len() == 0 {
            // Without a limit the search returns at once, and `select` panics.
            if deadline != clock::NEVER {
                sleep_until(deadline);
            }
            return None;
        }
        if let Break(found) = round(&operations, kind, deadline) {
            return found.map(|found| reconsider(operations, found));
        }
    }
}

/// Does step 5. A place that is given back leaves no trace. A promised message leaves one if its sender has seen it received,
/// and so does a peer, which waits.
fn reconsider<'o, 'a: 'o>(
    operations: impl InTurn<'o, 'a>,
    (served, right): Found<'o, 'a>,
) -> Found<'o, 'a> {
    let mut earlier = operations.take_while(|operation| operation.index != served.index);
    if let Some(Right::Counted(PLACE)) = right
        && let Some(other) = earlier.find_map(|operation| operation.look(Kind::Select))
    {
        served.handle().give_back(Right::Counted(PLACE));
        return other;
    }
    (served, right)
}

impl<'a> Operation<'a> {
    fn handle(&self) -> &'a dyn Handle {
        self.handle.0
    }

    /// Does step 1 for this operation.
    fn look(&self, kind: Kind) -> Option<Found<'_, 'a>> {
        match kind {
            Kind::Observer => self.handle().is_ready().then_some((self, None)),
            _ => match self.handle().attempt(None) {
                Attempt::Selected(right) => Some((self, right)),
                _ => None,
            },
        }
    }
}

/// The operations in the order in which they are to be looked at. The order lies in the operations themselves.
trait InTurn<'o, 'a: 'o>: ExactSizeIterator<Item = &'o Operation<'a>> + Clone {}
impl<'o, 'a: 'o, I: ExactSizeIterator<Item = &'o Operation<'a>> + Clone> InTurn<'o, 'a> for I {}

/// Puts the operations in order: as they were added if biased, otherwise shuffled (Fisher and Yates), so that
/// no operation is preferred however often several are ready.
fn in_turn<'o, 'a>(operations: &'o mut [Operation<'a>], biased: bool) -> impl InTurn<'o, 'a> {
    let operations: &'o [Operation<'a>] = operations;
    for (position, operation) in operations.iter().enumerate() {
        operation.turn.set(position);
        if !biased && position > 0 {
            let other = random(position + 1);
            operation.turn.swap(&operations[other].turn);
        }
    }
    let at = |operation: &'o Operation<'a>| &operations[operation.turn.get()];
    operations.iter().map(at)
}

/// Returns a number below `limit`, from one sequence for each thread. (fastrand's own thread-local
/// generator allocates at its first use.)
fn random(limit: usize) -> usize {
    #[cfg(sim)]
    if crate::sys::simulated::is_on() {
        return crate::sys::simulated::choose(limit);
    }
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let mut state = STATE.get();
    if state == 0 {
        // The address of the thread-local and the time of the first call differ from thread to
        // thread.
        state = STATE.with(|state| ptr::from_ref(state).addr() as u64) ^ clock::now();
    }
    let mut generator = Rng::with_seed(state);
    let number = generator.usize(..limit);
    STATE.set(generator.get_seed());
    number
}

/// Does steps 2 to 4. They end the search with its result, or with none: then the time is up, and at one moment, when all
/// operations were queued, all of them would have blocked.
fn round<'o, 'a>(
    operations: &(impl InTurn<'o, 'a> + 'o),
    kind: Kind,
    deadline: u64,
) -> ControlFlow<Option<Found<'o, 'a>>> {
    let is_over = deadline == 0 || deadline <= clock::now();
    if is_over && operations.len() == 1 {
        // The only operation was tried in step 1, and no second one has to be tried in the same moment.
        return Break(None);
    }
    Waiting::scope(kind, |waiting| {
        let mut queued = 0;
        let mut selected = None;
        let mut taken = false;
        let mut earliest = deadline;
        for operation in operations.clone() {
            let entry = waiting.enter(&operation.spot);
            match operation.handle().attempt(Some(&entry)) {
                Attempt::Blocked => {
                    perturb::point("select: queued");
                    queued += 1;
                    if let Some(due) = operation.handle().deadline() {
                        earliest = earliest.min(clock::at(due));
                    }
                    continue;
                }
                Attempt::Selected(right) => selected = Some((operation, right)),
                Attempt::Taken => taken = true,
                Attempt::Missed => {}
            }
            break;
        }
        let blocked = queued == operations.len();
        let ended = if blocked && is_over && waiting.give_up() {
            Some(None)
        } else if blocked && !is_over {
            Some(waiting.wait(Some(earliest).filter(|&end| end != clock::NEVER)))
        } else {
            // Here another thread has the claim and is about to wake this one.
            (blocked || taken).then(|| Some(waiting.receive()))
        };
        perturb::point("select: leaving");
        for operation in operations.clone().take(queued) {
            operation.handle().leave(&waiting.entry(&operation.spot));
        }
        match (ended, selected) {
            // A select needs a right from the thread that took one of its spots.
            (Some(Some(taken)), _) => {
                let mut all = operations.clone();
                match all.find(|operation| taken.is_at(&operation.spot)) {
                    Some(operation) if kind == Kind::Observer || taken.granted.is_some() => {
                        Break(Some((operation, taken.granted)))
                    }
                    _ => Continue(()),
                }
            }
            (None, Some(selected)) => Break(Some(selected)),
            (Some(None), _) if is_over => Break(None),
            (Some(None), _) => {
                raise(Some(earliest));
                Continue(())
            }
            _ => Continue(()),
        }
    })
}

/// An operation that a [`Select`](super::Select) has chosen, and that must be completed.
///
/// [`send`](SelectedOperation::send) completes a send operation and
/// [`recv`](SelectedOperation::recv) a receive operation.
///
/// # Panics
///
/// Panics if it is dropped without being completed. The operation is given back first, so that a
/// thread that was chosen as its peer can go on with another.
///
/// # Examples
///
/// ```
/// use greenthread::channel::{Select, bounded};
///
/// let (s, r) = bounded(1);
/// let mut select = Select::new();
/// select.send(&s);
/// select.select().send(&s, 1).unwrap();
/// assert_eq!(r.recv(), Ok(1));
/// ```
#[must_use]
pub struct SelectedOperation<'a> {
    handle: &'a dyn Handle,
    right: Option<Right>,
    index: usize,
}

// No panic can interrupt one of its steps, and channels keep their promises after a panic.
impl UnwindSafe for SelectedOperation<'_> {}
impl RefUnwindSafe for SelectedOperation<'_> {}

impl SelectedOperation<'_> {
    /// Returns the index of the operation, as [`Select::send`](super::Select::send) or
    /// [`Select::recv`](super::Select::recv) returned it.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, bounded};
    ///
    /// let (s, r) = bounded::<u8>(1);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// let sending = select.send(&s);
    /// let operation = select.select();
    /// assert_eq!(operation.index(), sending);
    /// operation.send(&s, 1).unwrap();
    /// ```
    pub fn index(&self) -> usize {
        self.index
    }

    /// Completes a send operation by sending `msg`.
    ///
    /// # Errors
    ///
    /// Returns an error if all receivers have been dropped. The error contains the message.
    ///
    /// # Panics
    ///
    /// Panics if `s` is not the sender that was given to [`Select::send`](super::Select::send).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{Select, SendError, bounded};
    ///
    /// let (s, r) = bounded(0);
    /// drop(r);
    /// let mut select = Select::new();
    /// select.send(&s);
    /// assert_eq!(select.select().send(&s, 1), Err(SendError(1)));
    /// ```
    pub fn send<T>(mut self, s: &Sender<T>, msg: T) -> Result<(), SendError<T>> {
        assert!(self.is_of(&s.0), "passed a sender that wasn't selected");
        match self.right.take() {
            Some(right) => s.0.complete_send(right, msg).map_err(SendError),
            None => Err(SendError(msg)),
        }
    }

    /// Completes a receive operation by receiving a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel is empty and all senders have been dropped.
    ///
    /// # Panics
    ///
    /// Panics if `r` is not the receiver that was given to [`Select::recv`](super::Select::recv).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::channel::{RecvError, Select, bounded};
    ///
    /// let (s, r) = bounded::<u8>(0);
    /// drop(s);
    /// let mut select = Select::new();
    /// select.recv(&r);
    /// assert_eq!(select.select().recv(&r), Err(RecvError));
    /// ```
    pub fn recv<T>(mut self, r: &Receiver<T>) -> Result<T, RecvError> {
        assert!(
            self.is_of(r.handle()),
            "passed a receiver that wasn't selected"
        );
        let right = self.right.take();
        right.map_or(Err(RecvError), |right| r.complete(right))
    }

    /// Two handles that live at one address are one, of one type.
    fn is_of(&self, handle: &dyn Handle) -> bool {
        ptr::addr_eq(self.handle, handle)
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if let Some(right) = self.right.take() {
            self.handle.give_back(right);
            assert!(
                std::thread::panicking(),
                "dropped `SelectedOperation` without completing the operation"
            );
        }
    }
}
