//! How a message gets from one thread to another: by way of the [`buffer`], or straight into a
//! place on the stack of the thread that waits for it.
//!
//! This is the only file of the channel, beside the `buffer` and the references to it (`half`), with
//! `unsafe` in it. What it gives to the others is safe:
//!
//! | type | is | so it can |
//! |---|---|---|
//! | [`Queue`] | one of a channel's two queues, under its lock | be added to, claimed from, left |
//! | [`Peer`] | somebody who waited there and was claimed | be told how it ended, once |
//! | [`wait_in_queue`], [`wait_for`] | a plain wait, from its beginning to its end | not be left early |
//! | [`Waiting`], [`Spot`] | a select's wait and its place in one queue | stand in several |
//!
//! Invariants:
//! 1. Whoever is in a queue is alive: a plain wait is one function call, which leaves the queue
//!    before it returns; a select's [`Waiting`] does not end before its spots are out.
//! 2. A queue of messages `T` holds plain waits for messages `T` only: `Queue::push_plain` takes no
//!    others. A select's right to such a wait does not name the type, but the wait names its
//!    channel, which has one (`AnyPlain::of`).
//! 3. A peer waits until it is woken, and looks at neither its place nor its node before. So these
//!    belong to who has the [`Plain`] or the [`Chooser`], and neither can be copied. Each turns
//!    into a [`Claimed`], to be woken, when it is told how its wait ended.
//!
//! Ordering: none of its own. A queue is under its channel's lock, and a wake-up publishes.

pub(super) mod buffer;
pub(super) mod half;

use core::cell::Cell;
use core::marker::PhantomData;
use core::{mem, ptr};

use super::handle::Handle;
use super::shared::{Deadline, Locked, Shared};
use super::state::State;
use crate::engine::door::claim::{self, Claimed, Node, Wait};
use crate::engine::door::die;
use crate::engine::door::list::{Chain, Crowd, List};

/// What a thread in a queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its message is to be taken, or brought.
    Plain,
    /// The right to an operation.
    Select,
    /// That the operation would not block. It takes nothing.
    Observer,
}

impl Kind {
    fn of(node: &Node) -> Kind {
        match node.tag.get() {
            PLAIN => Kind::Plain,
            SELECT => Kind::Select,
            _ => Kind::Observer,
        }
    }
}

const PLAIN: usize = Kind::Plain as usize;
const SELECT: usize = Kind::Select as usize;

/// What is told to a thread whose wait is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The peer gave its right back, or the channel is disconnected.
    TryAgain,
    /// To a plain wait: the message was moved from or to its place.
    Done,
    /// To a select: a message is promised, or a place reserved; `place` is the ticket.
    Granted,
    /// To a sender in a select: `place` is the node of a receiver that waits for the message.
    Paired,
}

impl Outcome {
    fn of(node: &Node) -> Outcome {
        const DONE: usize = Outcome::Done as usize;
        const GRANTED: usize = Outcome::Granted as usize;
        const PAIRED: usize = Outcome::Paired as usize;
        match node.outcome.get() {
            DONE => Outcome::Done,
            GRANTED => Outcome::Granted,
            PAIRED => Outcome::Paired,
            _ => Outcome::TryAgain,
        }
    }

    fn tell(self, node: &Node) {
        node.outcome.set(self as usize);
    }
}

/// A channel's name, as long as anybody waits in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name(*const ());

impl Name {
    fn of<T>(channel: &Shared<T>) -> Name {
        Name(ptr::from_ref(channel).cast())
    }
}

/// Where the message of a plain wait is or goes to; on the stack of the thread that waits.
#[repr(C)]
struct Place<T> {
    channel: Name,
    message: Cell<Option<T>>,
}

// ---- those who wait ----

/// Threads that wait to send messages `T`, or to receive them.
pub(super) struct Queue<T> {
    list: List,
    messages: PhantomData<Cell<T>>,
}

/// Which of the first in a queue is asked for.
fn is_taker(node: &Node) -> bool {
    Kind::of(node) != Kind::Observer
}

/// A taker that does not wait with `own`.
fn is_peer(node: &Node, own: *const Wait) -> bool {
    is_taker(node) && !ptr::eq(node.wait(), own)
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue {
            list: List::new(),
            messages: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first that is no observer.
    #[inline(always)]
    pub(super) fn first_taker(&mut self) -> Option<Found<'_, T>> {
        let node: *const Node = self.list.first_where(is_taker)?;
        Some(Found { queue: self, node })
    }

    /// Claims the first that is no observer.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Peer<T>> {
        self.list.pop_where(is_taker).map(Peer::new)
    }

    /// Whether somebody but the wait that asks is there for more than to look.
    pub(super) fn has_peer(&self, own: Option<&Entry<'_, '_>>) -> bool {
        let own = own.map_or(ptr::null(), Entry::wait);
        self.list.first_where(|node| is_peer(node, own)).is_some()
    }

    /// Claims the first that [`Queue::has_peer`] looks for.
    pub(super) fn pop_peer(&mut self, own: Option<&Entry<'_, '_>>) -> Option<Peer<T>> {
        let own = own.map_or(ptr::null(), Entry::wait);
        self.list
            .pop_where(|node| is_peer(node, own))
            .map(Peer::new)
    }

    /// Claims all observers.
    pub(super) fn pop_observers(&mut self, woken: &mut Chain) {
        while let Some(observer) = self.list.pop_where(|node| !is_taker(node)) {
            woken.push(observer);
        }
    }

    /// Queues a select, or one that observes.
    pub(super) fn push(&mut self, entry: &Entry<'_, '_>) {
        entry.come_in(self.name());
        // SAFETY: `come_in` has seen that it is in none, and its `Waiting` does not end before
        // `come_out` (invariant 1).
        unsafe { self.list.push_back(&entry.spot.node) };
    }

    /// Takes out a select that was queued, if it is still in.
    pub(super) fn remove(&mut self, entry: &Entry<'_, '_>) {
        if entry.come_out(self.name()) {
            // SAFETY: it was queued here; if it was taken since, it is in none.
            unsafe { self.list.remove(&entry.spot.node) };
        }
    }

    fn name(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

/// Somebody in a queue.
pub(super) struct Found<'a, T> {
    queue: &'a mut Queue<T>,
    node: *const Node,
}

impl<T> Found<'_, T> {
    #[inline(always)]
    pub(super) fn kind(&self) -> Kind {
        // SAFETY: it is in the queue, and so alive (invariant 1).
        Kind::of(unsafe { &*self.node })
    }

    /// Claims it. `None`: its wait is over already, and it is out.
    #[inline(always)]
    pub(super) fn take(self) -> Option<Peer<T>> {
        // SAFETY: it was found there.
        unsafe { self.queue.list.take(self.node) }.map(Peer::new)
    }
}

/// Which of a channel's queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Senders,
    Receivers,
}

// ---- those who were claimed ----

/// Somebody who waited for an operation on messages `T`, and was claimed.
pub(super) enum Peer<T> {
    Plain(Plain<T>),
    Select(Chooser),
}

impl<T> Peer<T> {
    #[inline(always)]
    fn new(claimed: Claimed) -> Peer<T> {
        match Kind::of(claimed.node()) {
            Kind::Plain => Peer::Plain(Plain {
                claimed,
                messages: PhantomData,
            }),
            Kind::Select | Kind::Observer => Peer::Select(Chooser(claimed)),
        }
    }
}

/// A thread with a place for a message, which is empty if it receives.
pub(super) struct Plain<T> {
    claimed: Claimed,
    messages: PhantomData<Cell<T>>,
}

impl<T> Plain<T> {
    #[inline(always)]
    fn place(&self) -> &Place<T> {
        // SAFETY: the node of a plain wait for messages of this type (invariant 2), which goes on
        // as long as it is claimed (3).
        unsafe { &*self.claimed.node().place.get().cast() }
    }

    /// To a receiver: here is the message.
    #[inline(always)]
    pub(super) fn give(self, message: T) -> Claimed {
        // It was empty: nothing is dropped under the lock.
        mem::forget(self.place().message.replace(Some(message)));
        Outcome::Done.tell(self.claimed.node());
        self.claimed
    }

    /// From a sender: the message.
    #[inline(always)]
    pub(super) fn take(self) -> (T, Claimed) {
        let Some(message) = self.place().message.take() else {
            die("a sender waits without a message")
        };
        Outcome::Done.tell(self.claimed.node());
        (message, self.claimed)
    }

    /// For who does not know the type of the channel's messages.
    pub(super) fn any(self) -> AnyPlain {
        AnyPlain(self.claimed)
    }
}

/// A [`Plain`] of a channel that it names itself.
pub(super) struct AnyPlain(Claimed);

impl AnyPlain {
    /// That of this channel.
    pub(super) fn of<T>(self, channel: &Shared<T>) -> Plain<T> {
        // SAFETY: a plain wait's place, which begins with the name whatever the messages are.
        let name = unsafe { *self.0.node().place.get().cast::<Name>() };
        if name != Name::of(channel) {
            die("a right to another channel's message");
        }
        // Its thread waits in this channel, which therefore is the one that had the name then.
        Plain {
            claimed: self.0,
            messages: PhantomData,
        }
    }

    /// Nothing was moved.
    pub(super) fn send_away(self) -> Claimed {
        send_away(self.0)
    }
}

/// A select that is to have the right to an operation.
pub(super) struct Chooser(Claimed);

impl Chooser {
    /// The right that goes by this ticket.
    #[inline(always)]
    pub(super) fn grant(self, ticket: usize) -> Claimed {
        let node = self.0.node();
        node.place.set(ptr::without_provenance_mut(ticket));
        Outcome::Granted.tell(node);
        self.0
    }

    /// There is no right.
    pub(super) fn send_away(self) -> Claimed {
        send_away(self.0)
    }
}

fn send_away(claimed: Claimed) -> Claimed {
    Outcome::TryAgain.tell(claimed.node());
    claimed
}

/// Wakes all in one of a channel's queues, a few at a time. It is chosen under the lock.
pub(super) fn wake_all<T>(
    channel: &Shared<T>,
    choose: impl FnOnce(&mut State<T>) -> &mut Queue<T>,
) {
    let crowd = Crowd::new();
    // SAFETY: it stays here and is woken below, after the lock.
    let first = unsafe { choose(&mut channel.lock()).list.pop_all(&crowd) };
    first.wake();
    crowd.wake(|| channel.lock());
}

// ---- a plain wait ----

/// How a plain wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    TryAgain,
    TimedOut,
}

/// Queues the calling thread with a message to be taken, or without one to be given one, and waits
/// until that is done.
#[inline(always)]
pub(super) fn wait_in_queue<T>(
    channel: &Shared<T>,
    mut state: Locked<'_, T>,
    side: Side,
    message: Option<T>,
    mut woken: Chain,
    deadline: &mut Deadline,
) -> (Ended, Option<T>) {
    let wait = Wait::new();
    let place = Place {
        channel: Name::of(channel),
        message: Cell::new(message),
    };
    let node = plain_node(&wait, &place);
    // SAFETY: it is new. It leaves before this function ends, whose calls do not unwind: it is taken
    // by who wakes it, or removed below.
    unsafe { state.queue(side).list.push_back(&node) };
    state.tell_observers(side, &mut woken);
    drop(state);
    woken.wake();
    let ended = match wait.wait(Some(deadline.get())) {
        claim::Ended::Taken(_) => ended(&node),
        claim::Ended::TimedOut => {
            let mut state = channel.lock();
            // SAFETY: it was queued there and nowhere else.
            unsafe { state.queue(side).list.remove(&node) };
            Ended::TimedOut
        }
    };
    (ended, place.message.into_inner())
}

/// Waits to be given a message by `sender`, a select that is told to.
pub(super) fn wait_for<T>(
    channel: &Shared<T>,
    state: Locked<'_, T>,
    sender: Chooser,
    mut woken: Chain,
) -> (Ended, Option<T>) {
    let wait = Wait::new();
    let place = Place {
        channel: Name::of(channel),
        message: Cell::new(None),
    };
    // It is in no list, so nobody else sends here.
    let node = plain_node(&wait, &place);
    sender
        .0
        .node()
        .place
        .set((&raw const node).cast_mut().cast());
    Outcome::Paired.tell(sender.0.node());
    woken.push(sender.0);
    drop(state);
    woken.wake();
    // Without a deadline: it is claimed.
    let _taken = wait.wait(None);
    (ended(&node), place.message.into_inner())
}

fn plain_node<T>(wait: &Wait, place: &Place<T>) -> Node {
    let node = Node::new(wait);
    node.tag.set(PLAIN);
    Outcome::TryAgain.tell(&node);
    node.place.set(ptr::from_ref(place).cast_mut().cast());
    node
}

fn ended(node: &Node) -> Ended {
    match Outcome::of(node) {
        Outcome::Done => Ended::Done,
        _ => Ended::TryAgain,
    }
}

// ---- a select's wait ----

/// A select's place in one queue at a time.
pub(super) struct Spot {
    node: Node,
    /// The queue that it has come into and not been taken out of by its own thread; or null.
    queue: Cell<*const ()>,
}

// SAFETY: whoever has it for himself moves it, and then it is in no queue: while it is, its
// `Waiting` has it borrowed.
unsafe impl Send for Spot {}

impl Spot {
    pub(super) fn new() -> Spot {
        Spot {
            node: Node::new(ptr::null()),
            queue: Cell::new(ptr::null()),
        }
    }
}

/// One wait, in the queues where its spots stand. They live for `'o`, longer than it.
pub(super) struct Waiting<'o> {
    wait: Wait,
    kind: Kind,
    /// So many spots are in a queue, or were and have not been taken out by their own thread.
    queued: Cell<usize>,
    /// The claim was ours, or whoever had it has woken us.
    is_over: Cell<bool>,
    spots: PhantomData<Cell<&'o Spot>>,
}

/// A [`Spot`] as part of a [`Waiting`].
pub(super) struct Entry<'w, 'o> {
    waiting: &'w Waiting<'o>,
    spot: &'o Spot,
}

/// A spot was taken by somebody who said this.
pub(super) struct Taken {
    node: *const Node,
    pub(super) granted: Option<Granted>,
}

/// The right that a select was given.
pub(super) enum Granted {
    /// That with this ticket.
    Ticket(usize),
    /// To send to this receiver.
    Peer(AnyPlain),
}

impl<'o> Waiting<'o> {
    /// Lets `body` queue, wait and leave.
    pub(super) fn scope<R>(kind: Kind, body: impl FnOnce(&Waiting<'o>) -> R) -> R {
        body(&Waiting {
            wait: Wait::new(),
            kind,
            queued: Cell::new(0),
            is_over: Cell::new(false),
            spots: PhantomData,
        })
    }

    /// Makes a spot, which is in no queue, one of this wait.
    pub(super) fn enter(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        if !spot.queue.get().is_null() {
            die("a select's spot is in a queue already");
        }
        spot.node.set_wait(&self.wait);
        spot.node.tag.set(self.kind as usize);
        Outcome::TryAgain.tell(&spot.node);
        self.entry(spot)
    }

    /// A spot that has been entered.
    pub(super) fn entry(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        Entry {
            waiting: self,
            spot,
        }
    }

    /// Ends the wait. False: somebody else did, and [`Waiting::wait`] tells who.
    pub(super) fn give_up(&self) -> bool {
        let given_up = self.wait.give_up();
        self.is_over.set(self.is_over.get() || given_up);
        given_up
    }

    /// `None`: the time is up.
    pub(super) fn wait(&self, deadline: Option<u64>) -> Option<Taken> {
        let ended = self.wait.wait(deadline);
        self.is_over.set(true);
        let claim::Ended::Taken(node) = ended else {
            return None;
        };
        // SAFETY: the claim names one of our spots', which live as long as this wait; and who took
        // it has told us before it woke us.
        let told = unsafe { &*node };
        let granted = match Outcome::of(told) {
            Outcome::Granted => Some(Granted::Ticket(told.place.get().addr())),
            Outcome::Paired => {
                // SAFETY: the node of a receiver that waits for us only. We are told once.
                let receiver = unsafe { Claimed::from_raw(told.place.get().cast()) };
                Some(Granted::Peer(AnyPlain(receiver)))
            }
            Outcome::TryAgain | Outcome::Done => None,
        };
        Some(Taken { node, granted })
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.queued.get() != 0 {
            die("a select ends while it is in a queue");
        }
        // Who has claimed it may still be about to wake it.
        if !self.is_over.get() && !self.give_up() {
            let _ = self.wait.wait(None);
        }
    }
}

impl Entry<'_, '_> {
    pub(super) fn kind(&self) -> Kind {
        self.waiting.kind
    }

    /// [`Waiting::give_up`].
    pub(super) fn give_up(&self) -> bool {
        self.waiting.give_up()
    }

    fn wait(&self) -> *const Wait {
        &raw const self.waiting.wait
    }

    fn come_in(&self, queue: *const ()) {
        if !self.spot.queue.get().is_null() || !ptr::eq(self.spot.node.wait(), self.wait()) {
            die("a select's spot is queued twice");
        }
        self.spot.queue.set(queue);
        self.waiting.queued.update(|queued| queued + 1);
    }

    /// Whether it has come in there.
    fn come_out(&self, queue: *const ()) -> bool {
        let was_in =
            ptr::eq(self.spot.queue.get(), queue) && ptr::eq(self.spot.node.wait(), self.wait());
        if was_in {
            self.spot.queue.set(ptr::null());
            self.waiting.queued.update(|queued| queued - 1);
        }
        was_in
    }
}

impl Taken {
    pub(super) fn is_at(&self, spot: &Spot) -> bool {
        ptr::eq(self.node, &spot.node)
    }
}

/// A sender or receiver as a select sees it.
#[derive(Clone, Copy)]
pub(super) struct AnyHandle<'a>(&'a dyn Handle);

// SAFETY: any thread may look for peers and queue through it, under the channel's lock, whatever
// the messages are: they are moved from place to place as bytes, and given to no code of their type.
// A message is moved out only by the handle itself, which is passed when the operation is completed.
unsafe impl Send for AnyHandle<'_> {}
// SAFETY: as above.
unsafe impl Sync for AnyHandle<'_> {}

impl<'a> AnyHandle<'a> {
    pub(super) fn new(handle: &'a dyn Handle) -> AnyHandle<'a> {
        AnyHandle(handle)
    }

    pub(super) fn get(self) -> &'a dyn Handle {
        self.0
    }
}
