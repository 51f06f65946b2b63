//! [`JoinFuture`]: awaiting a thread. How it hears of the end is in `thread::end`.
//!
//! | state | `poll` | `drop` |
//! |---|---|---|
//! | has the handle, the thread runs | leaves the waker: pending | takes the waker back, detaches the thread |
//! | has the handle, the thread has ended | ready with the result; the handle is gone | drops the result |
//! | has no handle | panics | nothing |

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::thread::{JoinHandle, Result};

/// Ready when a thread has ended, with what [`JoinHandle::join`] returns; made by awaiting a
/// [`JoinHandle`].
///
/// It belongs to no runtime: any executor can poll it, and more than one in turn; the waker given
/// last is the one that is called. Dropped before it is ready it detaches the thread, as dropping
/// the handle does.
///
/// The waker is called by the thread itself as its last act, after the destructors of its
/// thread-locals: there a waker's own thread-locals may be gone, as in any such destructor. A waker
/// that panics is told of by the panic hook, and the panic goes no further.
#[must_use = "a future does nothing unless it is polled"]
pub struct JoinFuture<T>(Option<JoinHandle<T>>);

/// Awaiting a thread is joining it, without blocking the thread that awaits.
///
/// ```
/// # greenthread::block_on(async {
/// let thread = greenthread::spawn(|| 6 * 7);
/// assert_eq!(thread.await.unwrap(), 42);
/// # });
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
    /// If it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        assert!(self.0.is_some(), "polled after it was ready");
        match self.0.take_if(|handle| handle.poll_end(context.waker())) {
            Some(handle) => Poll::Ready(handle.after_end()),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for JoinFuture<T> {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.forget_waker();
        }
    }
}

impl<T> fmt::Debug for JoinFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinFuture").finish_non_exhaustive()
    }
}
