//! Runtimes whose threads are tasks, tokio and smol; and rayon, whose jobs cannot wait.

use std::future::{pending, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use tokio::sync::Notify;

use crate::report::Report;
use crate::runtime::{Parker, Runtime, Spawner, at_once};

/// The least that lets a task park; neither tokio nor smol has it. tokio's `Notify` is dearer.
#[derive(Default)]
pub struct Spot {
    woken: AtomicBool,
    waker: AtomicWaker,
}

impl Parker for Spot {
    fn mine() -> Spot {
        Spot::default()
    }

    async fn park(&self) {
        poll_fn(|cx| {
            // Acquire: what was done before `unpark` is seen after.
            if self.woken.swap(false, Acquire) {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            // Again: who came before the waker was there has woken nobody.
            match self.woken.swap(false, Acquire) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await
    }

    fn unpark(&self) {
        // Release: see `park`.
        self.woken.swap(true, AcqRel);
        self.waker.wake();
    }
}

/// What tokio offers instead.
impl Parker for Notify {
    fn mine() -> Notify {
        Notify::new()
    }

    async fn park(&self) {
        self.notified().await;
    }

    fn unpark(&self) {
        self.notify_one();
    }
}

/// tokio's multi-threaded runtime, without the drivers that its workers would have to look after;
/// its tasks park in a `P`.
pub struct OnTokio<P>(PhantomData<P>);

/// A tokio task's end.
pub struct Join<T>(tokio::task::JoinHandle<T>);

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context) -> Poll<T> {
        let joined = Pin::new(&mut self.0).poll(cx);
        joined.map(|result| result.expect("a task panicked"))
    }
}

impl<P: Parker> Spawner for OnTokio<P> {
    type Parker = P;

    fn run(workers: usize, main: impl Future<Output = Report> + Send + 'static) -> Report {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .build();
        let runtime = runtime.expect("a runtime");
        // A task, since the future given to `block_on` does not run on a worker.
        let main = runtime.spawn(main);
        runtime.block_on(main).expect("the work panicked")
    }

    fn start(f: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(f);
    }
}

impl<P: Parker> Runtime for OnTokio<P> {
    type Join<T: Send + 'static> = Join<T>;

    fn spawn<T: Send + 'static>(f: impl Future<Output = T> + Send + 'static) -> Join<T> {
        Join(tokio::spawn(f))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// smol's executor; its global one takes its number of workers from the environment only.
pub struct OnSmol;

static EXECUTOR: smol::Executor = smol::Executor::new();

impl Spawner for OnSmol {
    type Parker = Spot;

    fn run(workers: usize, main: impl Future<Output = Report> + Send + 'static) -> Report {
        for _ in 0..workers {
            std::thread::spawn(|| smol::block_on(EXECUTOR.run(pending::<()>())));
        }
        smol::block_on(EXECUTOR.spawn(main))
    }

    fn start(f: impl Future<Output = ()> + Send + 'static) {
        EXECUTOR.spawn(f).detach();
    }
}

impl Runtime for OnSmol {
    type Join<T: Send + 'static> = smol::Task<T>;

    fn spawn<T: Send + 'static>(f: impl Future<Output = T> + Send + 'static) -> smol::Task<T> {
        EXECUTOR.spawn(f)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        smol::future::yield_now()
    }
}

/// rayon: jobs are spawned and end.
pub struct OnRayon;

impl Spawner for OnRayon {
    /// Only `main` waits, outside the pool.
    type Parker = std::thread::Thread;

    fn run(workers: usize, main: impl Future<Output = Report> + Send + 'static) -> Report {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers);
        pool.build_global().expect("a pool");
        at_once(main)
    }

    fn start(f: impl Future<Output = ()> + Send + 'static) {
        rayon::spawn(|| at_once(f));
    }
}
