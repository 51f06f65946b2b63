//! [`block_on`]: the waker is a count of a [`Waiter`], on which the thread waits between polls.
//!
//! Invariants:
//! 1. One thread waits on it, since each call makes its own. So calls nest, and a wake-up meant for
//!    an outer call stays there until that call waits.
//! 2. A wake-up that comes while the future is being polled ends the next wait at once (`wait`).
//! 3. The waiter lives as long as its last waker, which may be longer than the call; waking it then
//!    does nothing.
//!
//! Ordering: a poll sees what the caller of the waker wrote before it (Release in `wake`, Acquire
//! in `wait`).

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::wait::{WaitKind, WaitReason, Waiter, reason};

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
static FUTURE: WaitKind = WaitKind::outside("future", reason::nothing);

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
        signal.0.wait(WaitReason::only(&FUTURE), None);
    }
}
