//! What a contender must be able to do, so that the work need be written only once.
//!
//! The idea: work is written as futures. A task runs them as they are. A thread that blocks runs
//! them too: there every `.await` blocks the thread, so a future is ready the first time it is
//! polled ([`at_once`]) and is compiled to the plain calls.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::report::Report;

/// Where a thread waits to be woken, one wake-up may come early: std's park and unpark.
pub trait Parker: Send + Sync + 'static {
    /// The calling thread's.
    fn mine() -> Self;

    /// Waits; called by its owner only.
    fn park(&self) -> impl Future<Output = ()> + Send;

    fn unpark(&self);
}

/// Something that threads can be started on.
pub trait Spawner: 'static {
    type Parker: Parker;

    /// Runs `main` in a new runtime with so many workers.
    fn run(workers: usize, main: impl Future<Output = Report> + Send + 'static) -> Report;

    /// Starts a thread that nobody will join.
    fn start(f: impl Future<Output = ()> + Send + 'static);
}

/// Something that runs threads which wait for each other.
pub trait Runtime: Spawner {
    type Join<T: Send + 'static>: Future<Output = T> + Send + 'static;

    fn spawn<T: Send + 'static>(f: impl Future<Output = T> + Send + 'static) -> Self::Join<T>;

    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// Runs a future that blocks where others would be pending.
pub fn at_once<T>(f: impl Future<Output = T>) -> T {
    match pin!(f).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("it blocks"),
    }
}

/// How a measurement of the work `once` goes: some of it as a warm-up, then all.
pub fn measure<S: Spawner, F>(
    workers: usize,
    time: Duration,
    once: impl Fn(Duration) -> F + Send + 'static,
) -> Report
where
    F: Future<Output = Report> + Send + 'static,
{
    S::run(workers, async move {
        let warm_up = once(time / 5);
        warm_up.await;
        let measured = once(time);
        measured.await
    })
}
