//! The ways of a message from one thread to another: through the `buffer`, or straight into a
//! place on the stack of the thread that waits for it. And the references by which senders and receivers share a
//! channel.
//!
//! Of the channel's files only this one and the `buffer` contain `unsafe`. This file gives safe types to the others:
//!
//! | type | is | so it can |
//! |---|---|---|
//! | [`Queue`] | one of a channel's two queues, under its lock | be added to, claimed from, left |
//! | [`Peer`] | a thread that waited there and was claimed | be told how it ended, once |
//! | [`wait_in_queue`] | a plain wait, from its beginning to its end | not be left early |
//! | [`Waiting`], [`Spot`] | a select's wait and its place in one queue | stand in several |
//! | [`Half`] | a sender's reference to its channel, or a receiver's | be cloned, and disconnect |
//!
//! Invariants:
//! 1. A thread in a queue is alive: a plain wait is one function call, which leaves the queue
//!    before it returns; a select's [`Waiting`] does not end before its spots are out.
//! 2. A queue of messages `T` holds plain waits for messages `T` only: `wait_in_queue`, which puts
//!    them in, takes no others. A select's right to such a wait does not name the type, but the wait names its
//!    channel, which has one (`AnyPeer::of`).
//! 3. A peer waits until it is woken, and looks at neither its place nor its node before. So these
//!    belong to the holder of the [`Plain`] or the [`Chooser`], and neither can be copied. Each
//!    turns into a [`Claimed`], to be woken, when it is told how its wait ended.
//! 4. A channel exists as long as a [`Half`] of it does: each is counted on its side.
//! 5. The last half of a side disconnects. Of the two last halves the later frees the channel: the
//!    half that finds `one_side_gone` set.
//!
//! Orderings: a queue is under its channel's lock, and a wake-up publishes. Giving a reference up is AcqRel, so that all
//! accesses through any handle come before the disconnection and the freeing. Cloning is Relaxed: the cloning thread has
//! a reference.

use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::Deref;
use core::ptr::NonNull;
use core::{mem, ptr};

use super::buffer::Buffer;
use super::selecting::{Handle, Right};
use super::shared::{Locked, Shared, State, wake_after};
use crate::atomic::Ordering::{AcqRel, Relaxed};
use crate::atomic::{AtomicBool, AtomicUsize};
use crate::sys::{die, perturb, word};
use crate::wait::queue::{Chain, Claimed, Crowd, Ended, List, Node, Wait};
use crate::wait::{Facts, WaitKind, WaitReason};

/// The event for which a thread in a queue waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another thread takes its message, or brings one.
    Plain = 0,
    /// The thread gets the right to an operation.
    Select = 1,
    /// The operation would not block. The thread takes nothing.
    Observer = 2,
}

impl Kind {
    fn of(node: &Node) -> Kind {
        match node.tag.get() {
            0 => Kind::Plain,
            1 => Kind::Select,
            _ => Kind::Observer,
        }
    }
}

// The answer to a select whose wait is ended. (A plain wait sees in its place whether the message was moved.)

/// The peer gave its right back, or the channel is disconnected.
const TRY_AGAIN: usize = 0;
/// A message is promised, or a place is reserved; `place` is the ticket.
const GRANTED: usize = 1;
/// To a sender: `place` is the node of a receiver that waits for the message.
const PAIRED: usize = 2;

/// The place of the message of a plain wait, on the stack of the thread that waits.
#[repr(C)]
struct Place<T> {
    /// The channel's address: a name that is unique as long as a thread waits in the channel.
    channel: *const (),
    message: Cell<Option<T>>,
}

// ==== waiting threads ====

/// Threads that wait to send messages `T`, or to receive them.
pub(super) struct Queue<T> {
    list: List,
    messages: PhantomData<Cell<T>>,
}

/// Returns whether a node in a queue waits to take part, and not only to observe.
fn is_taker(node: &Node) -> bool {
    Kind::of(node) != Kind::Observer
}

/// Returns whether a node is a taker's and does not belong to the wait of `own`.
fn is_peer(node: &Node, own: Option<&Entry<'_, '_>>) -> bool {
    is_taker(node) && own.is_none_or(|own| !ptr::eq(node.wait.get(), own.wait()))
}

impl<T> Queue<T> {
    pub(super) fn new() -> Queue<T> {
        Queue {
            list: List::default(),
            messages: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Claims the first thread that is no observer, unless `check` refuses a thread that waits so. `None`: there is none.
    #[inline(always)]
    pub(super) fn pop_checked<E>(
        &mut self,
        mut check: impl FnMut(Kind) -> Result<(), E>,
    ) -> Result<Option<Peer<T>>, E> {
        loop {
            let Some(node) = self.list.iter().find(|node| is_taker(node)) else {
                return Ok(None);
            };
            check(Kind::of(node))?;
            let node = ptr::from_ref(node);
            // SAFETY: the node was found in this list.
            if let Some(claimed) = unsafe { self.list.take(node) } {
                return Ok(Some(Peer::new(claimed)));
            }
        }
    }

    /// Claims the first thread that is no observer.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Peer<T>> {
        self.list.pop_where(is_taker).map(Peer::new)
    }

    /// Returns whether the queue has a waiting thread that is neither the caller nor an observer.
    pub(super) fn has_peer(&self, own: Option<&Entry<'_, '_>>) -> bool {
        self.list.iter().any(|node| is_peer(node, own))
    }

    /// Claims the first thread that [`Queue::has_peer`] looks for.
    pub(super) fn pop_peer(&mut self, own: Option<&Entry<'_, '_>>) -> Option<AnyPeer> {
        let peer = self.list.pop_where(|node| is_peer(node, own));
        peer.map(AnyPeer)
    }

    /// Claims all observers.
    pub(super) fn pop_observers(&mut self, woken: &mut Chain) {
        while let Some(observer) = self.list.pop_where(|node| !is_taker(node)) {
            woken.push(observer);
        }
    }

    /// Queues a select, or an observer.
    pub(super) fn push(&mut self, entry: &Entry<'_, '_>) {
        let Entry { waiting, spot } = entry;
        if !spot.queue.get().is_null() || !ptr::eq(spot.node.wait.get(), entry.wait()) {
            die("a select's spot is queued twice");
        }
        spot.queue.set(self.name());
        waiting.queued.update(|queued| queued + 1);
        // SAFETY: the node is in no queue, and its `Waiting` does not end before it is removed (invariant 1).
        unsafe { self.list.push_back(&spot.node) };
    }

    /// Takes out a select that was queued, if it is still in the queue.
    pub(super) fn remove(&mut self, entry: &Entry<'_, '_>) {
        let Entry { waiting, spot } = entry;
        if ptr::eq(spot.queue.get(), self.name()) && ptr::eq(spot.node.wait.get(), entry.wait()) {
            spot.queue.set(ptr::null());
            waiting.queued.update(|queued| queued - 1);
            // SAFETY: the node was queued here; if a thread has taken it since, it is in no queue.
            unsafe { self.list.remove(&spot.node) };
        }
    }

    fn name(&self) -> *const () {
        ptr::from_ref(self).cast()
    }
}

/// One of a channel's two queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Senders,
    Receivers,
}

// ==== claimed threads ====

/// A claimed thread, which waited for an operation on messages `T`.
pub(super) enum Peer<T> {
    Plain(Plain<T>),
    Select(Chooser),
}

impl<T> Peer<T> {
    #[inline(always)]
    fn new(claimed: Claimed) -> Peer<T> {
        match Kind::of(claimed.node()) {
            Kind::Plain => Peer::Plain(Plain(claimed, PhantomData)),
            Kind::Select | Kind::Observer => Peer::Select(Chooser(claimed)),
        }
    }
}

/// A thread with a place for a message, which is empty if it receives.
pub(super) struct Plain<T>(Claimed, PhantomData<Cell<T>>);

impl<T> Plain<T> {
    #[inline(always)]
    fn place(&self) -> &Place<T> {
        // SAFETY: the node is that of a plain wait for messages of this type (invariant 2), which
        // goes on as long as it is claimed (3).
        unsafe { &*self.0.node().place.get().cast() }
    }

    /// Gives the message to a receiver.
    #[inline(always)]
    pub(super) fn give(self, message: T) -> Claimed {
        // The place was empty, so `forget` leaks nothing, and nothing is dropped under the lock.
        mem::forget(self.place().message.replace(Some(message)));
        self.0
    }

    /// Takes the message of a sender.
    #[inline(always)]
    pub(super) fn take(self) -> (T, Claimed) {
        let Some(message) = self.place().message.take() else {
            die("a sender waits without a message")
        };
        (message, self.0)
    }
}

/// A [`Peer`] without its type, for code that does not know it. A plain wait names the channel, which has the type.
pub(super) struct AnyPeer(Claimed);

impl AnyPeer {
    /// Returns the [`Peer`] in this channel.
    pub(super) fn of<T>(self, channel: &Shared<T>) -> Peer<T> {
        let node = self.0.node();
        // SAFETY: the pointer leads to a plain wait's place, which begins with the name whatever
        // the messages are.
        let name = || unsafe { *node.place.get().cast::<*const ()>() };
        if Kind::of(node) == Kind::Plain && name() != ptr::from_ref(channel).cast() {
            die("a right to another channel's message");
        }
        // The thread still waits, so the channel with this name is the one in which it began to wait.
        Peer::new(self.0)
    }

    /// Ends the wait without moving a message, or giving a right.
    pub(super) fn send_away(self) -> Claimed {
        self.0
    }
}

/// A select that is to have the right to an operation.
pub(super) struct Chooser(Claimed);

impl Chooser {
    /// Ends the wait with the right that this ticket stands for.
    #[inline(always)]
    pub(super) fn grant(self, ticket: usize) -> Claimed {
        let node = self.0.node();
        node.place.set(ptr::without_provenance_mut(ticket));
        node.outcome.set(GRANTED);
        self.0
    }
}

/// Wakes all threads in one of a channel's queues, a few at a time. `choose` picks the queue under
/// the lock.
pub(super) fn wake_all<T>(
    channel: &Shared<T>,
    choose: impl FnOnce(&mut State<T>) -> &mut Queue<T>,
) {
    let crowd = Crowd::default();
    // SAFETY: the crowd stays here and is woken below, after the lock.
    let any = unsafe { choose(&mut channel.lock()).list.move_all(&crowd) };
    if any {
        crowd.wake(|| channel.lock());
    }
}

// ==== what a report tells of a wait ====
//
// The report reads the channel's length, its capacity and the number of its handles without the lock, word by
// word, and forgets what it has read if the thread does not wait any more (`engine::inspect::notes`).

/// A select, which waits for several channels.
pub(super) static SELECT: WaitKind = WaitKind::unwinding("select");

/// The wait reasons of channels of one type of message.
struct Of<T>(PhantomData<T>);

impl<T> Of<T> {
    const SEND: WaitKind = WaitKind::unwinding("room in channel").with_numbers(look::<T>);
    const RECEIVE: WaitKind = WaitKind::unwinding("message from channel").with_numbers(look::<T>);
}

fn look<T>(channel: usize, facts: &mut Facts) {
    let state = channel + Shared::<T>::STATE;
    facts.word("length", state + offset_of!(State<T>, buffer.len));
    match word::read(state + offset_of!(State<T>, capacity)) {
        None | Some(usize::MAX) => {}
        Some(capacity) => facts.number("capacity", capacity as u64),
    }
    let counted = channel.wrapping_sub(offset_of!(Counted<T>, shared));
    let handles = counted.wrapping_add(offset_of!(Counted<T>, handles));
    facts.word("senders", handles.wrapping_add(size_of::<AtomicUsize>()));
    facts.word("receivers", handles);
}

// ==== a plain wait ====

/// Queues the calling thread with a message to be taken, or with an empty place for one, and waits
/// until a thread has moved the message. Or waits for a message from `partner`, a select that is told to give one.
///
/// Returns whether the time is up, and what the place holds then. If no message was moved, and the time is not up, the thread
/// is to try again.
#[inline(always)]
pub(super) fn wait_in_queue<T>(
    channel: &Shared<T>,
    mut state: Locked<'_, T>,
    side: Side,
    message: Option<T>,
    partner: Option<Chooser>,
    mut woken: Chain,
    deadline: u64,
) -> (bool, Option<T>) {
    let kind = match side {
        Side::Senders => &Of::<T>::SEND,
        Side::Receivers => &Of::<T>::RECEIVE,
    };
    let wait = Wait::new(WaitReason::new(kind, channel));
    let place = Place {
        channel: ptr::from_ref(channel).cast(),
        message: Cell::new(message),
    };
    let node = Node::new(&wait);
    node.tag.set(Kind::Plain as usize);
    node.place.set(ptr::from_ref(&place).cast_mut().cast());
    let has_partner = partner.is_some();
    if let Some(Chooser(sender)) = partner {
        // The node comes into no list, so no other thread can find it and send to this one.
        let place_of_sender = &sender.node().place;
        place_of_sender.set((&raw const node).cast_mut().cast());
        sender.node().outcome.set(PAIRED);
        woken.push(sender);
    } else {
        // SAFETY: the node is new. It leaves the queue before this function ends, whose calls do not
        // unwind: the thread that wakes this one takes it out, or it is removed below.
        unsafe { state.queue(side).list.push_back(&node) };
        state.tell_observers(side, &mut woken);
    }
    wake_after(state, woken);
    let waited = match has_partner {
        // A partner answers in any case.
        true => Ended::Taken(wait.receive()),
        false => wait.wait(Some(deadline)),
    };
    let is_late = waited == Ended::TimedOut;
    if is_late {
        let mut state = channel.lock();
        // SAFETY: the node was queued there and nowhere else.
        unsafe { state.queue(side).list.remove(&node) };
    }
    (is_late, place.message.into_inner())
}

// ==== a select's wait ====

/// The place of a select, in one queue at a time.
#[derive(Default)]
pub(super) struct Spot {
    node: Node,
    /// The queue that the spot was put into, unless its own thread has taken the spot out; or null.
    queue: Cell<*const ()>,
}

// SAFETY: a thread that owns the spot can move it only while it is in no queue: otherwise its
// `Waiting` has it borrowed.
unsafe impl Send for Spot {}

/// One wait, in the queues where its spots stand. The spots live for `'o`, longer than the wait.
pub(super) struct Waiting<'o> {
    wait: Wait,
    pub(super) kind: Kind,
    /// The number of spots that were put into a queue, and that their own thread has not taken out.
    queued: Cell<usize>,
    /// The claim was ours, or the thread that had it has woken us.
    is_over: Cell<bool>,
    spots: PhantomData<Cell<&'o Spot>>,
}

/// A [`Spot`] as part of a [`Waiting`].
pub(super) struct Entry<'w, 'o> {
    pub(super) waiting: &'w Waiting<'o>,
    spot: &'o Spot,
}

/// The spot that another thread took, and the answer it gave.
pub(super) struct Taken {
    node: *const Node,
    pub(super) granted: Option<Right>,
}

impl<'o> Waiting<'o> {
    /// Runs `body`, which may queue, wait and leave.
    pub(super) fn scope<R>(kind: Kind, body: impl FnOnce(&Waiting<'o>) -> R) -> R {
        body(&Waiting {
            wait: Wait::new(WaitReason::only(&SELECT)),
            kind,
            queued: Cell::new(0),
            is_over: Cell::new(false),
            spots: PhantomData,
        })
    }

    /// Makes a spot, which is in no queue, part of this wait.
    pub(super) fn enter(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        if !spot.queue.get().is_null() {
            die("a select's spot is in a queue already");
        }
        spot.node.wait.set(&self.wait);
        spot.node.tag.set(self.kind as usize);
        spot.node.outcome.set(TRY_AGAIN);
        self.entry(spot)
    }

    /// Returns the entry of a spot that is part of this wait.
    pub(super) fn entry(&self, spot: &'o Spot) -> Entry<'_, 'o> {
        let waiting = self;
        Entry { waiting, spot }
    }

    /// Ends the wait. Returns false if another thread has ended it; [`Waiting::wait`] then tells
    /// which.
    pub(super) fn give_up(&self) -> bool {
        let given_up = self.wait.give_up();
        self.is_over.set(self.is_over.get() || given_up);
        given_up
    }

    /// Waits until `deadline`. Returns `None` if the time is up, or a frame has ended.
    pub(super) fn wait(&self, deadline: Option<u64>) -> Option<Taken> {
        let ended = self.wait.wait(deadline);
        self.is_over.set(true);
        match ended {
            Ended::Taken(node) => Some(self.taken(node)),
            Ended::TimedOut => None,
        }
    }

    /// Waits for the thread that has ended the wait.
    pub(super) fn receive(&self) -> Taken {
        let node = self.wait.receive();
        self.is_over.set(true);
        self.taken(node)
    }

    fn taken(&self, node: *const Node) -> Taken {
        // SAFETY: the claim names the node of one of our spots, which live as long as this wait;
        // the thread that took it has written its answer before it woke us.
        let told = unsafe { &*node };
        let granted = match told.outcome.get() {
            GRANTED => Some(Right::Counted(told.place.get().addr())),
            PAIRED => {
                // SAFETY: the node is that of a receiver that waits for us only. We are told once.
                let receiver = unsafe { Claimed::from_raw(told.place.get().cast()) };
                Some(Right::Peer(AnyPeer(receiver)))
            }
            _ => None,
        };
        Taken { node, granted }
    }
}

impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.queued.get() != 0 {
            die("a select ends while it is in a queue");
        }
        // If `give_up` fails, another thread has claimed this wait and is about to wake it.
        if !self.is_over.get() && !self.give_up() {
            let _ = self.wait.receive();
        }
    }
}

impl Entry<'_, '_> {
    fn wait(&self) -> *const Wait {
        &raw const self.waiting.wait
    }
}

impl Taken {
    pub(super) fn is_at(&self, spot: &Spot) -> bool {
        ptr::eq(self.node, &spot.node)
    }
}

/// A sender or receiver in the form that a select sees.
pub(super) struct AnyHandle<'a>(pub(super) &'a dyn Handle);

// SAFETY: any thread may look for peers and queue through it, under the channel's lock, whatever
// the messages are: they are moved from place to place as bytes, and no code of their type runs.
// Only the handle itself moves a message out, and the caller passes it when the operation is
// completed.
unsafe impl Send for AnyHandle<'_> {}
// SAFETY: as above.
unsafe impl Sync for AnyHandle<'_> {}

// ==== the references to a channel ====

/// In this order the address in a handle is that of what every message changes.
#[repr(C)]
struct Counted<T> {
    shared: Shared<T>,
    /// The numbers of receivers and of senders.
    handles: [AtomicUsize; 2],
    one_side_gone: AtomicBool,
}

/// A sender's reference to its channel, or a receiver's.
pub(super) struct Half<T, const SENDS: bool>(NonNull<Counted<T>>);

// SAFETY: messages go from thread to thread, which their type allows; the state is under a lock.
unsafe impl<T: Send, const SENDS: bool> Send for Half<T, SENDS> {}
// SAFETY: as above.
unsafe impl<T: Send, const SENDS: bool> Sync for Half<T, SENDS> {}

/// Makes the first two halves of a channel.
pub(super) fn halves<T>(shared: Shared<T>) -> (Half<T, true>, Half<T, false>) {
    let counted = NonNull::from(Box::leak(Box::new(Counted {
        shared,
        handles: [AtomicUsize::new(1), AtomicUsize::new(1)],
        one_side_gone: AtomicBool::new(false),
    })));
    (Half(counted), Half(counted))
}

impl<T, const SENDS: bool> Half<T, SENDS> {
    pub(super) const SIDE: Side = match SENDS {
        true => Side::Senders,
        false => Side::Receivers,
    };

    #[inline(always)]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: invariant 4.
        unsafe { self.0.as_ref() }
    }

    fn count(&self) -> &AtomicUsize {
        &self.counted().handles[usize::from(SENDS)]
    }

    /// Returns whether both halves are of one channel.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T, const SENDS: bool> Deref for Half<T, SENDS> {
    type Target = Shared<T>;

    #[inline(always)]
    fn deref(&self) -> &Shared<T> {
        &self.counted().shared
    }
}

impl<T, const SENDS: bool> Clone for Half<T, SENDS> {
    fn clone(&self) -> Self {
        // As with `Arc`: so many clones were forgotten that the count is about to overflow, and no
        // code can deal with that.
        if self.count().fetch_add(1, Relaxed) > isize::MAX as usize {
            std::process::abort();
        }
        Half(self.0)
    }
}

impl<T, const SENDS: bool> Drop for Half<T, SENDS> {
    fn drop(&mut self) {
        // AcqRel: see the header.
        if self.count().fetch_sub(1, AcqRel) != 1 {
            return;
        }
        perturb::point("channel: last of a side");
        let mut messages = Buffer::blocks();
        match SENDS {
            true => wake_all(self, State::disconnect_senders),
            false => wake_all(self, |state| state.disconnect_receivers(&mut messages)),
        }
        perturb::point("channel: side gone");
        // AcqRel: see the header.
        if self.counted().one_side_gone.swap(true, AcqRel) {
            // SAFETY: `Box::leak` made the box, and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
        // The messages are dropped last, because that may panic.
        drop(messages);
    }
}
