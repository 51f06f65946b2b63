//! How a coroutine and the thread that resumes it take turns.
//!
//! A coroutine is a thread of its own, and its caller waits for it: one of the two runs. Each has a
//! [`Side`]; to end its turn, a side leaves a message and hands over to the other
//! ([`Side::hand_over_to`]).
//!
//! | turn | `order` | `news` |
//! |---|---|---|
//! | the coroutine's | its order, until it has read it (none in the first turn) | none |
//! | the caller's | none | the coroutine's message, until the caller has read it |
//!
//! Invariants:
//! 1. The thread that has the turn touches the messages and the sides, and no other thread does.
//! 2. The caller's side has one user at a time (`&mut`), the coroutine's never leaves its thread.
//!    The caller may be a different thread from turn to turn.
//! 3. After [`News::Ended`] and [`News::Stuck`] there is no further turn. A destructor sends the
//!    first while the coroutine's last frame is left.
//!
//! Memory orderings: a turn passes by going on in the same run loop (program order), by a queue of
//! ready threads, or by a park state; the latter two are Release and Acquire.

use core::marker::PhantomData;
use std::sync::Arc;

use crate::atomic::Cell;
use crate::sys::die;
use crate::wait::Adopted;
use crate::wait::side::Side;

/// A message from the caller to the coroutine.
pub(crate) enum Order<Input> {
    Resume(Input),
    /// The handle is being dropped: the coroutine is to leave its stack.
    Unwind,
}

/// A message from the coroutine to the caller.
pub(crate) enum News<Yield> {
    Yielded(Yield),
    /// The closure has returned or panicked: the thread is about to end.
    Ended,
    /// The coroutine cannot be unwound: it is unwinding already.
    Stuck,
}

struct Turns<Input, Yield> {
    order: Cell<Option<Order<Input>>>,
    news: Cell<Option<News<Yield>>>,
    caller: Side,
    coroutine: Side,
    frames: Adopted,
}

// SAFETY: invariant 1: the cells have one user at a time, and their contents change threads.
unsafe impl<Input: Send, Yield: Send> Sync for Turns<Input, Yield> {}

/// The caller's side.
pub(crate) struct Caller<Input, Yield>(Arc<Turns<Input, Yield>>);

/// The coroutine's side, for the coroutine's thread alone. Dropped, it says that the coroutine has ended.
pub(crate) struct Called<Input, Yield>(Arc<Turns<Input, Yield>>, PhantomData<Cell<()>>);

/// Both sides. The first turn is the coroutine's; the caller must wait for the
/// [`first_news`](Caller::first_news).
pub(crate) fn pair<Input, Yield>() -> (Caller<Input, Yield>, Called<Input, Yield>) {
    let turns = Arc::new(Turns {
        order: Cell::new(None),
        news: Cell::new(None),
        caller: Side::default(),
        coroutine: Side::default(),
        frames: Adopted::new(),
    });
    turns.frames.adopt();
    (Caller(turns.clone()), Called(turns, PhantomData))
}

impl<Input, Yield> Caller<Input, Yield> {
    /// Waits until the coroutine's first turn is over.
    pub(crate) fn first_news(&mut self) -> News<Yield> {
        self.0.caller.wait(&self.0.frames.thread);
        self.news()
    }

    /// Gives the coroutine its turn, and waits until it is over.
    #[inline(always)]
    pub(crate) fn resume(&mut self, order: Order<Input>) -> News<Yield> {
        self.0.order.set(Some(order));
        self.0.frames.adopt();
        let lead = &raw const self.0.frames.thread;
        self.0.caller.hand_over_to(&self.0.coroutine, lead);
        self.news()
    }

    #[inline(always)]
    fn news(&mut self) -> News<Yield> {
        let news = self.0.news.take();
        news.unwrap_or_else(|| die("a coroutine has given its turn back without a word"))
    }
}

impl<Input, Yield> Called<Input, Yield> {
    /// Calls `body` in the frames of whoever resumes the coroutine.
    pub(crate) fn in_frames<T>(&self, body: impl FnOnce() -> T) -> T {
        self.0.frames.run(body)
    }

    /// Gives the caller its turn, and waits until it is over.
    #[inline(always)]
    pub(crate) fn suspend(&self, news: News<Yield>) -> Order<Input> {
        self.0.news.set(Some(news));
        self.0
            .coroutine
            .hand_over_to(&self.0.caller, core::ptr::null());
        let order = self.0.order.take();
        order.unwrap_or_else(|| die("a coroutine was resumed without a word"))
    }
}

impl<Input, Yield> Drop for Called<Input, Yield> {
    fn drop(&mut self) {
        self.0.news.set(Some(News::Ended));
        self.0.caller.wake();
    }
}
