//! `block_on`, and awaiting a thread.
//!
//! The idea: the contract of `Future` and `Waker`, asked from a kernel thread and a green one, in
//! both modes; races between the end of a thread and whoever awaits it, by counting; and the
//! example with tokio, run as it is.

use crate::common::*;
use greenthread as thread;
use greenthread::block_on;
use std::cell::RefCell;
use std::future::{IntoFuture, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A waker that calls a function.
struct Call<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Call<F> {
    fn wake(self: Arc<Self>) {
        (self.0)()
    }
}

fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Call(f)))
}

fn counting(count: &Arc<AtomicUsize>) -> Waker {
    let count = count.clone();
    waker(move || {
        count.fetch_add(1, SeqCst);
    })
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// One value from one thread to one future.
struct Slot<T>(Mutex<(Option<T>, Option<Waker>)>);

impl<T> Slot<T> {
    fn new() -> Arc<Slot<T>> {
        Arc::new(Slot(Mutex::new((None, None))))
    }

    fn put(&self, value: T) {
        let waker = {
            let mut inner = self.0.lock().unwrap();
            inner.0 = Some(value);
            inner.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn take(&self) -> impl Future<Output = T> {
        poll_fn(|context| {
            let mut inner = self.0.lock().unwrap();
            match inner.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    inner.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

#[test]
fn futures_are_send_and_sync_and_handles_still_unwind_safe() {
    fn all<T: Send + Sync + Unpin + 'static>() {}
    fn unwind<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    all::<thread::future::JoinFuture<u8>>();
    unwind::<thread::Thread>();
}

#[test]
fn block_on_runs_a_future() {
    let _w = watchdog("future::block_on_runs_a_future");
    both(|| {
        let text = String::from("borrowed");
        assert_eq!(block_on(async { text.len() }), 8);
        assert_eq!(block_on(std::future::ready(1)), 1);
        assert_eq!(block_on(thread::spawn(|| 2)).unwrap(), 2); // whatever can be awaited
        // Woken while it is polled, by itself and often.
        let mut left = 1000;
        block_on(poll_fn(|context| {
            context.waker().wake_by_ref();
            let own = context.waker().clone();
            drop(own.clone());
            own.wake();
            left -= 1;
            if left == 0 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }));
        // Nested: the inner one takes no wake-up of the outer.
        let (outer, inner) = (Slot::new(), Slot::new());
        let mut waiting = pin!(outer.take());
        let mut nested = false;
        let value = block_on(poll_fn(|context| {
            let poll = waiting.as_mut().poll(context);
            if !nested {
                nested = true;
                let (outer, theirs) = (outer.clone(), inner.clone());
                thread::spawn(move || {
                    outer.put(1);
                    theirs.put(2);
                });
                assert_eq!(block_on(inner.take()), 2);
            }
            poll
        }));
        assert_eq!(value, 1);
        // A panic goes through.
        let payload = catch_unwind(|| block_on(async { resume_unwind(Box::new(7u8)) }));
        assert_eq!(*payload.unwrap_err().downcast::<u8>().unwrap(), 7);
    });
}

#[test]
fn a_waker_may_outlive_its_call() {
    let _w = watchdog("future::a_waker_may_outlive_its_call");
    both(|| {
        let waker = block_on(poll_fn(|context| Poll::Ready(context.waker().clone())));
        waker.wake_by_ref();
        assert_eq!(block_on(async { 1 }), 1);
        thread::spawn(move || waker.wake()).join().unwrap();
    });
}

#[test]
fn block_on_parks_only_its_thread() {
    let _w = watchdog("future::block_on_parks_only_its_thread");
    const CROWD: usize = 200;
    let runtime = thread::runtime::Runtime::builder()
        .processors(1)
        .build()
        .unwrap();
    let slots: Vec<_> = (0..CROWD).map(|_| Slot::new()).collect();
    let waiting = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = slots
        .iter()
        .map(|slot| {
            let (slot, waiting) = (slot.clone(), waiting.clone());
            runtime.spawn(move || {
                waiting.fetch_add(1, SeqCst);
                block_on(slot.take())
            })
        })
        .collect();
    wait_until(|| waiting.load(SeqCst) == CROWD);
    slots.iter().enumerate().for_each(|(i, slot)| slot.put(i));
    for (i, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), i);
    }
    runtime.shutdown();
}

#[test]
fn no_wake_up_is_lost() {
    let _w = watchdog("future::no_wake_up_is_lost");
    const ROUNDS: usize = 20_000;
    let pair = || {
        let (there, back) = (Slot::new(), Slot::new());
        let (theirs, mine) = ((there.clone(), back.clone()), (there, back));
        let echo = move || (0..ROUNDS).for_each(|_| theirs.1.put(block_on(theirs.0.take())));
        let ask = move || {
            for i in 0..ROUNDS {
                mine.0.put(i);
                assert_eq!(block_on(mine.1.take()), i);
            }
        };
        (echo, ask)
    };
    // Green with green, green with kernel.
    let ((echo, ask), (other_echo, other_ask)) = (pair(), pair());
    let (echo, other_echo) = (thread::spawn(echo), thread::spawn(other_echo));
    let ask = thread::spawn(ask);
    other_ask();
    [echo, other_echo, ask]
        .into_iter()
        .for_each(|t| t.join().unwrap());
}

#[test]
fn a_thread_is_awaited() {
    let _w = watchdog("future::a_thread_is_awaited");
    both(|| {
        assert_eq!(block_on(async { thread::spawn(|| 1).await.unwrap() }), 1);
        let panics = thread::spawn(|| resume_unwind(Box::new(7u8)));
        let payload: Result<(), _> = block_on(async { panics.await });
        assert_eq!(*payload.unwrap_err().downcast::<u8>().unwrap(), 7);
        // One that has ended is ready at once; afterwards the future must not be polled.
        let (stop, handle) = stoppable(String::from("owned"));
        drop(stop);
        let handle = handle.join_timeout(Duration::ZERO);
        let mut future = match handle {
            Err(handle) => handle.into_future(),
            Ok(result) => return assert_eq!(result.unwrap(), "owned"),
        };
        let nobody = Waker::noop();
        wait_until(|| match poll(&mut future, nobody) {
            Poll::Ready(result) => result.unwrap() == "owned",
            Poll::Pending => false,
        });
        catch_unwind(AssertUnwindSafe(|| poll(&mut future, nobody))).unwrap_err();
    });
}

#[test]
fn the_last_waker_is_called_once() {
    let _w = watchdog("future::the_last_waker_is_called_once");
    both(|| {
        let (stop, handle) = stoppable(3);
        let mut future = handle.into_future();
        let counts: Vec<_> = (0..5).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        for count in &counts {
            assert!(poll(&mut future, &counting(count)).is_pending());
        }
        stop.send(()).unwrap();
        wait_until(|| counts[4].load(SeqCst) == 1);
        match poll(&mut future, &counting(&counts[0])) {
            Poll::Ready(result) => assert_eq!(result.unwrap(), 3),
            Poll::Pending => panic!("the waker was called before the end"),
        }
        assert_eq!(counts.iter().map(|c| c.load(SeqCst)).sum::<usize>(), 1);
    });
}

#[test]
fn a_waker_that_comes_too_late_is_not_kept() {
    let _w = watchdog("future::a_waker_that_comes_too_late_is_not_kept");
    both(|| {
        let handle = thread::spawn(|| ());
        let named = handle.thread().clone();
        wait_until(|| handle.is_finished());
        // Time to end altogether. If it is too short the thread itself takes the waker.
        thread::sleep(Duration::from_millis(2));
        let count = Arc::new(AtomicUsize::new(0));
        let mut future = handle.into_future();
        wait_until(|| poll(&mut future, &counting(&count)).is_ready());
        wait_until(|| Arc::strong_count(&count) == 1);
        drop(named);
    });
}

#[test]
fn dropping_the_future_detaches() {
    let _w = watchdog("future::dropping_the_future_detaches");
    both(|| {
        let done = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel::<()>();
        let theirs = done.clone();
        let handle = thread::spawn(move || {
            stopped.recv().unwrap();
            theirs.store(true, SeqCst);
        });
        let count = Arc::new(AtomicUsize::new(0));
        let mut future = handle.into_future();
        assert!(poll(&mut future, &counting(&count)).is_pending());
        assert_eq!(Arc::strong_count(&count), 2, "held by the waker");
        drop(future);
        assert_eq!(Arc::strong_count(&count), 1, "the waker is gone");
        stop.send(()).unwrap();
        wait_until(|| done.load(SeqCst));
        drop(thread::spawn(|| ()).into_future()); // never polled
    });
}

/// What a waker finds: a whole thread, preemptible, its locals destroyed; and it may do anything.
#[test]
fn a_waker_is_called_on_the_ending_thread() {
    let _w = watchdog("future::a_waker_is_called_on_the_ending_thread");
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(5));
            DESTROYED.fetch_add(1, SeqCst);
        }
    }
    thread_local! {
        static OF_THREAD: RefCell<Option<Slow>> = const { RefCell::new(None) };
    }
    both(|| {
        DESTROYED.store(0, SeqCst);
        let (stop, stopped) = mpsc::channel::<()>();
        let handle = thread::spawn(move || {
            OF_THREAD.set(Some(Slow));
            let _ = stopped.recv();
        });
        let id = handle.thread().id();
        let mut future = handle.into_future();
        let (say, heard) = mpsc::channel();
        let waker = waker(move || {
            let calm = !thread::__preemption_is_off();
            // On std alone the handle is made anew: its place is gone.
            let own = thread::current().id() == id || cfg!(not(green));
            let gone = OF_THREAD.try_with(|_| ()).is_err();
            thread::sleep(Duration::from_millis(1));
            thread::yield_now();
            let spawned = thread::spawn(|| 5).join().unwrap() == 5;
            let destroyed = DESTROYED.load(SeqCst);
            say.send((calm, own, gone, spawned, destroyed)).unwrap();
        });
        assert!(poll(&mut future, &waker).is_pending());
        drop(stop);
        assert_eq!(heard.recv().unwrap(), (true, true, true, true, 1));
        assert!(poll(&mut future, Waker::noop()).is_ready());
    });
}

/// A waker's own thread-locals: made anew, destroyed again, and nothing of them is left to the next
/// thread on the same stack.
#[test]
fn what_a_waker_leaves_is_destroyed() {
    let _w = watchdog("future::what_a_waker_leaves_is_destroyed");
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    struct Local(usize);
    impl Drop for Local {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, SeqCst);
        }
    }
    thread_local! {
        static LOCAL: RefCell<Local> = {
            ALIVE.fetch_add(1, SeqCst);
            RefCell::new(Local(0))
        };
    }
    fn use_local() {
        LOCAL.with_borrow_mut(|local| {
            assert_eq!(local.0, 0, "another thread's");
            local.0 = 1;
        });
    }
    for _ in 0..200 {
        let (stop, handle) = stoppable(());
        let mut future = handle.into_future();
        let called = Arc::new(AtomicUsize::new(0));
        let theirs = called.clone();
        let waker = waker(move || {
            use_local();
            theirs.fetch_add(1, SeqCst);
        });
        assert!(poll(&mut future, &waker).is_pending());
        drop(stop);
        wait_until(|| called.load(SeqCst) == 1);
        assert!(poll(&mut future, Waker::noop()).is_ready());
        thread::spawn(use_local).join().unwrap();
    }
    wait_until(|| ALIVE.load(SeqCst) == 0);
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    let _w = watchdog("future::a_waker_that_panics_harms_nobody");
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped the payload of a waker's panic");
        }
    }
    both(|| {
        let (stop, handle) = stoppable(9);
        let mut future = handle.into_future();
        let waker = waker(|| resume_unwind(Box::new(Bomb)));
        assert!(poll(&mut future, &waker).is_pending());
        drop((stop, waker));
        let result = block_on(poll_fn(|context| {
            // Either the bomb is off, or this waker takes its place.
            match poll(&mut future, context.waker()) {
                Poll::Ready(result) => Poll::Ready(result.unwrap()),
                Poll::Pending => Poll::Pending,
            }
        }));
        assert_eq!(result, 9);
        assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
    });
}

/// Futures that are polled, given up and joined while their threads end.
#[test]
fn ends_and_polls_race() {
    let _w = watchdog("future::ends_and_polls_race");
    let mut rng = Rng::new("future::ends_and_polls_race");
    let rounds = if green() { 4000 } else { 100 };
    let racers: Vec<_> = (0..8)
        .map(|_| rng.fork())
        .map(|mut rng| {
            let race = move || {
                for round in 0..rounds {
                    let (length, pause) = (rng.below(2000), rng.below(2000));
                    let handle = thread::spawn(move || {
                        (0..length).for_each(|_| std::hint::spin_loop());
                        round
                    });
                    (0..pause).for_each(|_| std::hint::spin_loop());
                    let mut future = handle.into_future();
                    let early =
                        (0..rng.below(3)).find_map(|_| match poll(&mut future, Waker::noop()) {
                            Poll::Ready(result) => Some(result),
                            Poll::Pending => None,
                        });
                    let result = match (early, rng.below(4)) {
                        (Some(result), _) => result,
                        (None, 0) => continue, // detached
                        (None, _) => block_on(future),
                    };
                    assert_eq!(result.unwrap(), round);
                }
            };
            thread::spawn(race)
        })
        .collect();
    racers.into_iter().for_each(|r| r.join().unwrap());
}

#[path = "../../examples/with_tokio.rs"]
mod with_tokio;

#[test]
fn green_threads_beside_tokio() {
    let _w = watchdog("future::green_threads_beside_tokio");
    assert_eq!(with_tokio::main(), std::process::ExitCode::SUCCESS);
}

/// tokio's own thread-locals, used by the wakers that ending threads call and by tasks that give
/// up.
#[test]
fn tokio_tasks_await_many_threads() {
    let _w = watchdog("future::tokio_tasks_await_many_threads");
    let threads = if green() { 2000 } else { 100 };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let inside = tokio.handle().clone();
    let sum = tokio.block_on(async move {
        let tasks: Vec<_> = (0..threads)
            .map(|i| {
                let inside = inside.clone();
                tokio::spawn(async move {
                    let thread = thread::spawn(move || {
                        let _entered = inside.enter();
                        let pause = Duration::from_micros(i % 500);
                        block_on(tokio::time::sleep(pause));
                        i
                    });
                    thread.await.unwrap()
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        let (_stop, endless) = stoppable(());
        let limit = Duration::from_millis(1);
        assert!(
            tokio::time::timeout(limit, endless.into_future())
                .await
                .is_err()
        );
        sum
    });
    assert_eq!(sum, threads * (threads - 1) / 2);
}
