//! The bridge between threads and `async` code.
//!
//! - [`block_on`] runs a future on the current thread and parks only that thread. With
//!   it a green thread can use any `async` library. If the library needs a runtime of its own,
//!   enter that runtime first.
//! - A [`JoinHandle`] can be awaited like a future, by tasks of any runtime. The
//!   future is a [`JoinFuture`].
//!
//! # Examples
//!
//! ```
//! use greenthread::future::block_on;
//!
//! let thread = greenthread::spawn(|| block_on(async { 6 * 7 }));
//! assert_eq!(block_on(async { thread.await.unwrap() }), 42);
//! ```

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::thread::{JoinHandle, Result};
use crate::wait::{Outcome, WaitKind, WaitReason, Waiter, raise};

// `block_on`: the waker is a count of a `Waiter`, on which the thread waits between polls.
//
// Invariants:
// 1. One thread waits on it, since each call makes its own. So calls nest, and a wake-up meant for
//    an outer call stays there until that call waits.
// 2. A wake-up that comes while the future is being polled ends the next wait at once (`wait`).
// 3. The waiter lives as long as its last waker, which may be longer than the call; waking it then
//    does nothing.
//
// Ordering: a poll sees what the caller of the waker wrote before it (Release in `wake`, Acquire
// in `wait`).

struct Signal(Waiter);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

/// For reports.
static FUTURE: WaitKind = WaitKind::outside("future").unwinds();

/// Runs a future on the current thread until it is ready, and returns its output.
///
/// While the future is pending the call blocks the current thread, green or kernel, and no other.
/// It drives this one future and nothing else: it has no timers and no I/O of its own. A future
/// that needs a runtime finds it in the usual way. For example, tokio's `Handle::enter` makes a
/// runtime known to the current thread, and that may be a green thread.
///
/// # Panics
///
/// Panics if the future panics.
///
/// # Examples
///
/// ```
/// use std::future::poll_fn;
/// use std::task::Poll;
///
/// let mut polls = 0;
/// let future = poll_fn(|cx| {
///     polls += 1;
///     let waker = cx.waker().clone();
///     greenthread::spawn(move || waker.wake());
///     if polls == 3 { Poll::Ready(polls) } else { Poll::Pending }
/// });
/// assert_eq!(greenthread::block_on(future), 3);
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    let mut future = pin!(future.into_future());
    let signal = Arc::new(Signal(Waiter::new()));
    let waker = Waker::from(signal.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        if signal.0.wait(WaitReason::only(&FUTURE), None) == Outcome::Expired {
            raise(None);
        }
    }
}

// `JoinFuture`: awaiting a thread. The end of the thread (`runtime::handle`) calls its waker.
//
// | state | `poll` | `drop` |
// |---|---|---|
// | has the handle, the thread runs | leaves the waker: pending | takes the waker back, detaches the thread |
// | has the handle, the thread has ended | ready with the result; the handle is gone | drops the result |
// | has no handle | panics | nothing |

/// A future that is ready when a thread has ended, made by awaiting a [`JoinHandle`].
///
/// Its output is the result that [`JoinHandle::join`] returns. It belongs to no runtime: any
/// executor can poll it, and more than one in turn. Only the waker of the last poll is called.
/// Dropping the future before it is ready detaches the thread, as dropping the handle does.
///
/// The thread itself calls the waker, as its last act, after the destructors of its thread-locals
/// have run. So thread-locals that the waker uses may be gone, as in any such destructor. If the
/// waker panics, the panic hook reports it, and the panic goes no further.
///
/// # Examples
///
/// ```
/// use greenthread::future::{JoinFuture, block_on};
/// use std::future::IntoFuture;
///
/// let future: JoinFuture<u32> = greenthread::spawn(|| 6 * 7).into_future();
/// assert_eq!(block_on(future).unwrap(), 42);
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct JoinFuture<T>(Option<JoinHandle<T>>);

/// Joins the thread by awaiting it, which does not block the thread that awaits.
///
/// # Examples
///
/// ```
/// let answer = greenthread::block_on(async {
///     let thread = greenthread::spawn(|| 6 * 7);
///     thread.await.unwrap()
/// });
/// assert_eq!(answer, 42);
/// ```
impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T>;
    type IntoFuture = JoinFuture<T>;

    fn into_future(self) -> JoinFuture<T> {
        JoinFuture(Some(self))
    }
}

impl<T> Future for JoinFuture<T> {
    type Output = Result<T>;

    /// # Panics
    ///
    /// Panics if the future was ready in an earlier poll.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        assert!(self.0.is_some(), "polled after it was ready");
        match self.0.take_if(|handle| handle.end().poll(context.waker())) {
            Some(handle) => Poll::Ready(handle.after_end()),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for JoinFuture<T> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.end().forget_waker();
        }
    }
}

without_details!([T] JoinFuture<T>, "JoinFuture";);
