//! [`JoinFuture`]: awaiting a thread. The end of the thread (`runtime::handle`) calls its waker.
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
