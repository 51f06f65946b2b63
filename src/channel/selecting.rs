//! The search for the first of several operations, for `Select` and `select!`.
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
//! The result is a [`Right`], which [`SelectedOperation`] completes or gives back: exactly one of
//! the two, since it is taken out of the option that holds it.
//!
//! Invariants:
//! 1. Spots are queued in step 2 and out of all queues after step 4. In between only shared
//!    references to the operations are used, and no user code runs.
//! 2. A select is never its own peer: channels skip spots of the same wait.

use core::cell::Cell;
use core::ptr;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use fastrand::Rng;

use super::cell::{AnyHandle, Kind, Spot, Taken, Waiting};
use super::rights::{Attempt, Handle, Right};
use super::shared::{Deadline, Until};
use super::timer::sleep_until;
use super::{Receiver, RecvError, SelectTimeoutError, SendError, Sender, TrySelectError};
use crate::sys::{clock, perturb};

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
        Operation::new(sender)
    }

    /// Makes a receive operation.
    pub fn recv<T>(receiver: &'a Receiver<T>) -> Operation<'a> {
        Operation::new(receiver)
    }

    fn new(handle: &'a dyn Handle) -> Operation<'a> {
        Operation {
            handle: AnyHandle::new(handle),
            spot: Spot::new(),
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

/// Selects as [`Select::select`](super::Select::select) does, for the macro: operations are
/// numbered as they stand.
pub fn select<'a>(operations: &mut [Operation<'a>], biased: bool) -> SelectedOperation<'a> {
    number(operations);
    match select_until(operations, Until::Never, biased) {
        Some(operation) => operation,
        None => without_operations(),
    }
}

/// Selects as [`Select::try_select`](super::Select::try_select) does, for the macro.
pub fn try_select<'a>(
    operations: &mut [Operation<'a>],
    biased: bool,
) -> Result<SelectedOperation<'a>, TrySelectError> {
    number(operations);
    select_until(operations, Until::Now, biased).ok_or(TrySelectError)
}

/// Selects as [`Select::select_timeout`](super::Select::select_timeout) does, for the macro.
pub fn select_timeout<'a>(
    operations: &mut [Operation<'a>],
    biased: bool,
    timeout: Duration,
) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
    number(operations);
    select_until(operations, Until::After(timeout), biased).ok_or(SelectTimeoutError)
}

fn number(operations: &mut [Operation<'_>]) {
    for (index, operation) in operations.iter_mut().enumerate() {
        operation.index = index;
    }
}

/// Panics, since a select without operations would block for ever.
#[cold]
pub(super) fn without_operations() -> ! {
    panic!("no operations have been added to `Select`")
}

/// Selects an operation. `None` if the time is up, or if there is no operation.
pub(super) fn select_until<'a>(
    operations: &mut [Operation<'a>],
    until: Until,
    biased: bool,
) -> Option<SelectedOperation<'a>> {
    let mut limit = Deadline::new(until);
    let operations = in_turn(operations, biased);
    loop {
        for operation in operations.clone() {
            if let Attempt::Selected(Some(right)) = operation.handle().attempt(None) {
                return Some(operation.selected(right));
            }
        }
        if operations.len() == 0 {
            pass(&mut limit);
            return None;
        }
        match round(&operations, Kind::Select, &mut limit) {
            Round::Ready(operation, Some(right)) => {
                return Some(reconsider(operations, operation.selected(right)));
            }
            Round::Over => return None,
            Round::Ready(..) | Round::Again => {}
        }
    }
}

/// Does step 5.
fn reconsider<'o, 'a: 'o>(
    operations: impl InTurn<'o, 'a>,
    mut served: SelectedOperation<'a>,
) -> SelectedOperation<'a> {
    let can_be_exchanged = |right: &Right| served.handle.leaves_no_trace(right);
    if !served.right.as_ref().is_some_and(can_be_exchanged) {
        return served;
    }
    for operation in operations {
        if operation.index == served.index {
            break;
        }
        if let Attempt::Selected(Some(right)) = operation.handle().attempt(None) {
            let other = operation.selected(right);
            served.give_back();
            return other;
        }
    }
    served
}

/// Returns the index of an operation that does not block. `None` if the time is up, or if there is
/// no operation.
pub(super) fn ready_until(
    operations: &mut [Operation<'_>],
    until: Until,
    biased: bool,
) -> Option<usize> {
    let mut limit = Deadline::new(until);
    let operations = in_turn(operations, biased);
    loop {
        let ready = |operation: &&Operation<'_>| operation.handle().is_ready();
        if let Some(operation) = operations.clone().find(ready) {
            return Some(operation.index);
        }
        if operations.len() == 0 {
            pass(&mut limit);
            return None;
        }
        match round(&operations, Kind::Observer, &mut limit) {
            Round::Ready(operation, _) => return Some(operation.index),
            Round::Over => return None,
            Round::Again => {}
        }
    }
}

/// Waits until the time is up, since there is no operation. Without a limit it returns at once; `select`
/// panics then.
fn pass(limit: &mut Deadline) {
    if !limit.is_over() && limit.get() != clock::NEVER {
        sleep_until(limit.get());
    }
}

impl<'a> Operation<'a> {
    fn handle(&self) -> &'a dyn Handle {
        self.handle.get()
    }

    fn selected(&self, right: Right) -> SelectedOperation<'a> {
        SelectedOperation {
            handle: self.handle(),
            right: Some(right),
            index: self.index,
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

/// The outcome of a round.
enum Round<'o, 'a> {
    /// This operation is the result. An observer has no right to it.
    Ready(&'o Operation<'a>, Option<Right>),
    /// The time is up. At one moment, when all were queued, all of them would have blocked.
    Over,
    Again,
}

/// Does steps 2 to 4.
fn round<'o, 'a>(
    operations: &(impl InTurn<'o, 'a> + 'o),
    kind: Kind,
    limit: &mut Deadline,
) -> Round<'o, 'a> {
    let is_over = limit.is_over();
    if is_over && operations.len() == 1 {
        // Step 1 was that moment.
        return Round::Over;
    }
    Waiting::scope(kind, |waiting| {
        let mut queued = 0;
        let mut selected = None;
        let mut taken = false;
        let mut earliest = limit.get();
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
            // If the claim is not ours, the wake-up is on its way.
            (blocked || taken).then(|| waiting.wait(None))
        };
        perturb::point("select: leaving");
        for operation in operations.clone().take(queued) {
            operation.handle().leave(&waiting.entry(&operation.spot));
        }
        match (ended, selected) {
            (Some(Some(taken)), _) => outcome_of(taken, operations, kind),
            (None, Some((operation, right))) => Round::Ready(operation, right),
            (Some(None), _) if is_over => Round::Over,
            _ => Round::Again,
        }
    })
}

/// Reads the answer of the thread that took one of the spots. A select needs a right from it.
#[inline(always)]
fn outcome_of<'o, 'a>(
    taken: Taken,
    operations: &(impl InTurn<'o, 'a> + 'o),
    kind: Kind,
) -> Round<'o, 'a> {
    let mut all = operations.clone();
    let operation = all.find(|operation| taken.is_at(&operation.spot));
    match operation {
        Some(operation) if kind == Kind::Observer || taken.granted.is_some() => {
            Round::Ready(operation, taken.granted)
        }
        _ => Round::Again,
    }
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
        assert!(self.is_of(s), "passed a sender that wasn't selected");
        match self.right.take() {
            Some(right) => s.complete(right, msg),
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
        assert!(self.is_of(r), "passed a receiver that wasn't selected");
        match self.right.take() {
            Some(right) => r.complete(right),
            None => Err(RecvError),
        }
    }

    /// Gives the right back. Returns false if there was none.
    fn give_back(&mut self) -> bool {
        let right = self.right.take();
        let was_given = right.is_some();
        right
            .into_iter()
            .for_each(|right| self.handle.give_back(right));
        was_given
    }

    /// Two handles that live at one address are one, of one type.
    fn is_of<H>(&self, handle: &H) -> bool {
        ptr::addr_eq(self.handle, handle)
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if self.give_back() && !std::thread::panicking() {
            panic!("dropped `SelectedOperation` without completing the operation");
        }
    }
}
