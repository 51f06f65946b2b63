//! What frames cost: an empty one, a wait in one, and to end many waits. The yardstick of the empty frame is a look at the
//! clock, which a limit needs; that of a wait is the same wait in no frame; that of a cancel is to wake the same threads.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use greenthread::cancel::{self, Token};
use greenthread::sync::{Condvar, Mutex, Semaphore};
use greenthread::{JoinHandle, channel, thread, time};

/// No limit here passes.
const LONG: Duration = Duration::from_secs(1_000);

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("frame");
    support::row(&mut group, "a look at the clock", times(Instant::now));
    support::row(
        &mut group,
        "timeout",
        times(|| time::timeout(LONG, || black_box(1))),
    );
    let never = || cancel::shield(Duration::MAX, || black_box(1));
    support::row(&mut group, "shield for ever", times(never));
    let in_token = |n| {
        Token::new()
            .run(|| wake_ups(n, thread::park))
            .expect("it is not cancelled")
    };
    let in_limit = |n| time::timeout(LONG, || wake_ups(n, thread::park)).expect("it is not over");
    support::row(
        &mut group,
        "park",
        support::inside(|n| wake_ups(n, thread::park)),
    );
    support::row(
        &mut group,
        "park in a token's frame",
        support::inside(in_token),
    );
    support::row(
        &mut group,
        "park in a limit's frame",
        support::inside(in_limit),
    );
    let limited = || thread::park_timeout(LONG);
    support::row(
        &mut group,
        "park with a limit of its own",
        support::inside(move |n| wake_ups(n, limited)),
    );
    group.finish();

    let mut group = criterion.benchmark_group("100,000 threads");
    group.sample_size(10);
    let mut compare = |name: &str, many: fn() -> Many| {
        group.bench_function(format!("{name}/woken"), |b| {
            b.iter_custom(|n| (0..n).map(|_| many().wake()).sum());
        });
        group.bench_function(format!("{name}/cancelled"), |b| {
            b.iter_custom(|n| (0..n).map(|_| many().cancel()).sum());
        });
    };
    compare("park", parked);
    compare("channel", receiving);
    compare("semaphore", acquiring);
    compare("condition variable", notified);
    group.finish();
    criterion.final_summary();
}

/// A row of calls by one thread.
fn times<T>(
    f: impl Fn() -> T + Copy + Send + 'static,
) -> impl Fn(&'static greenthread::runtime::Runtime, u64) -> Duration {
    support::inside(move |n| {
        let start = Instant::now();
        (0..n).for_each(|_| _ = black_box(f()));
        start.elapsed()
    })
}

/// How long it takes to be woken `n` times in `wait`. Another thread, which is in no frame, does so when asked.
fn wake_ups(n: u64, wait: impl Fn()) -> Duration {
    let me = thread::current();
    let left = Arc::new(AtomicUsize::new(n as usize));
    let waker = {
        let left = left.clone();
        cancel::shield(Duration::MAX, || {
            thread::spawn(move || {
                while left.load(Relaxed) != 0 {
                    thread::park();
                    left.fetch_sub(1, Relaxed);
                    me.unpark();
                }
            })
        })
        .expect("there is no limit")
    };
    let start = Instant::now();
    for rest in (0..n as usize).rev() {
        waker.thread().unpark();
        while left.load(Relaxed) != rest {
            wait();
        }
    }
    let elapsed = start.elapsed();
    waker.thread().unpark();
    waker.join().expect("the waker panicked");
    elapsed
}

type Wake = Box<dyn FnOnce(&[JoinHandle<bool>])>;

/// A hundred thousand threads that wait.
struct Many {
    threads: Vec<JoinHandle<bool>>,
    token: Token,
    wake: Wake,
}

impl Many {
    fn new(
        wait: impl Fn() + Clone + Send + 'static,
        wake: impl FnOnce(&[JoinHandle<bool>]) + 'static,
    ) -> Many {
        const COUNT: usize = 100_000;
        let (token, begun) = (Token::new(), Arc::new(AtomicUsize::new(0)));
        let threads = (0..COUNT).map(|_| {
            let (token, begun, wait) = (token.clone(), begun.clone(), wait.clone());
            thread::spawn(move || {
                let wait = || {
                    begun.fetch_add(1, Relaxed);
                    wait();
                };
                token.run(wait).is_ok()
            })
        });
        let threads = threads.collect();
        while begun.load(Relaxed) != COUNT {
            std::thread::yield_now();
        }
        // Those that have begun are about to wait. A few that do not wait yet change the figure little.
        std::thread::sleep(Duration::from_millis(50));
        let wake = Box::new(wake);
        Many {
            threads,
            token,
            wake,
        }
    }

    fn wake(self) -> Duration {
        let start = Instant::now();
        (self.wake)(&self.threads);
        self.threads
            .into_iter()
            .for_each(|thread| assert!(thread.join().expect("no panic")));
        start.elapsed()
    }

    fn cancel(self) -> Duration {
        let start = Instant::now();
        self.token.cancel();
        self.threads
            .into_iter()
            .for_each(|thread| assert!(!thread.join().expect("no panic")));
        start.elapsed()
    }
}

fn parked() -> Many {
    Many::new(thread::park, |threads| {
        threads.iter().for_each(|thread| thread.thread().unpark());
    })
}

fn receiving() -> Many {
    let (sender, receiver) = channel::unbounded::<()>();
    let wait = move || assert!(receiver.recv().is_err());
    Many::new(wait, |_| drop(sender))
}

fn acquiring() -> Many {
    let semaphore = Arc::new(Semaphore::new(0));
    let theirs = semaphore.clone();
    let wait = move || theirs.acquire().forget();
    Many::new(wait, move |threads| semaphore.add_permits(threads.len()))
}

fn notified() -> Many {
    let here = Arc::new((Mutex::new(false), Condvar::new()));
    let theirs = here.clone();
    let wait = move || {
        let guard = theirs.0.lock().expect("no poison");
        drop(
            theirs
                .1
                .wait_while(guard, |is_done| !*is_done)
                .expect("no poison"),
        );
    };
    Many::new(wait, move |_| {
        *here.0.lock().expect("no poison") = true;
        here.1.notify_all();
    })
}
