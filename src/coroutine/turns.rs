//! How a coroutine and whoever resumes it take turns.
//!
//! A coroutine is a thread of its own, and its caller waits for it: one of the two runs. Each has a
//! [`Waiter`]; to end its turn, a side leaves a message, wakes the other, and waits. That is right
//! for green threads and kernel threads, of one cluster or of two; [`Waiter::hand_over_to`] makes
//! it a plain switch where both are green threads of one cluster.
//!
//! | turn | `order` | `news` |
//! |---|---|---|
//! | the caller's, before the first | none | none |
//! | the coroutine's | what it is to do, until it has read it | none |
//! | the caller's | none | what has happened, until it has read it |
//!
//! Invariants:
//! 1. Whose turn it is touches the messages, and nobody else does. A turn passes with a wake-up,
//!    which is Release on one side and Acquire on the other.
//! 2. The caller's side has one user at a time (`&mut`), the coroutine's side never leaves its
//!    thread (it is not `Send` once it runs). The caller's may change between two turns.
//! 3. After [`News::Ended`] and [`News::Stuck`] there is no further turn. The first is said while
//!    the last frame of the coroutine's closure is left, by a destructor.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use std::sync::Arc;

use crate::wait::Waiter;

/// What the caller tells the coroutine.
pub(super) enum Order<Input> {
    Resume(Input),
    /// The handle is being dropped: leave the stack.
    Unwind,
}

/// What the coroutine tells the caller.
pub(super) enum News<Yield> {
    Yielded(Yield),
    /// The closure has returned or panicked: the thread is about to end.
    Ended,
    /// It cannot be unwound: it is unwinding already.
    Stuck,
}

struct Turns<Input, Yield> {
    order: UnsafeCell<Option<Order<Input>>>,
    news: UnsafeCell<Option<News<Yield>>>,
    caller: Waiter,
    coroutine: Waiter,
}

// SAFETY: invariant 1: the cells have one user at a time, and what is in them changes threads.
unsafe impl<Input: Send, Yield: Send> Sync for Turns<Input, Yield> {}

impl<Input, Yield> Turns<Input, Yield> {
    /// Ends the coroutine's turn for good, or until the next.
    fn leave(&self, news: News<Yield>) {
        // SAFETY: the coroutine calls it, in its turn.
        unsafe { *self.news.get() = Some(news) };
    }
}

/// The caller's side.
pub(super) struct Caller<Input, Yield>(Arc<Turns<Input, Yield>>);

/// The coroutine's side. Dropped, it says that the coroutine has ended.
pub(super) struct Called<Input, Yield>(Arc<Turns<Input, Yield>>, PhantomData<*mut ()>);

/// The coroutine's side before it begins, on its way to the coroutine's thread.
pub(super) struct Ready<Input, Yield>(Arc<Turns<Input, Yield>>);

/// Both sides. The first turn is the coroutine's, from [`Ready::begin`] on; the caller must wait
/// for the [`first_news`](Caller::first_news) then.
pub(super) fn pair<Input, Yield>() -> (Caller<Input, Yield>, Ready<Input, Yield>) {
    let turns = Arc::new(Turns {
        order: UnsafeCell::new(None),
        news: UnsafeCell::new(None),
        caller: Waiter::new(),
        coroutine: Waiter::new(),
    });
    (Caller(turns.clone()), Ready(turns))
}

impl<Input, Yield> Caller<Input, Yield> {
    /// Waits until the coroutine's first turn is over.
    pub(super) fn first_news(&mut self) -> News<Yield> {
        self.0.caller.wait(None);
        self.news()
    }

    /// Gives the coroutine its turn, and waits until it is over.
    pub(super) fn resume(&mut self, order: Order<Input>) -> News<Yield> {
        // SAFETY: it is the caller's turn, and `&mut` says that this is the caller.
        unsafe { *self.0.order.get() = Some(order) };
        self.0.caller.hand_over_to(&self.0.coroutine);
        self.news()
    }

    fn news(&mut self) -> News<Yield> {
        // SAFETY: as above: the turn has come back.
        match unsafe { (*self.0.news.get()).take() } {
            Some(news) => news,
            None => crate::sys::die("a coroutine has given its turn back without a word"),
        }
    }
}

impl<Input, Yield> Ready<Input, Yield> {
    /// The coroutine's thread takes its side. Its turn has begun.
    pub(super) fn begin(self) -> Called<Input, Yield> {
        Called(self.0, PhantomData)
    }
}

impl<Input, Yield> Called<Input, Yield> {
    /// Gives the caller its turn, and waits until it is over.
    pub(super) fn suspend(&self, news: News<Yield>) -> Order<Input> {
        self.0.leave(news);
        self.0.coroutine.hand_over_to(&self.0.caller);
        // SAFETY: it is the coroutine's turn, and this is its thread.
        match unsafe { (*self.0.order.get()).take() } {
            Some(order) => order,
            None => crate::sys::die("a coroutine was resumed without a word"),
        }
    }
}

impl<Input, Yield> Drop for Called<Input, Yield> {
    fn drop(&mut self) {
        self.0.leave(News::Ended);
        self.0.caller.wake();
    }
}
