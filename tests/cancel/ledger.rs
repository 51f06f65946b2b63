//! A ledger of cancellations: ten thousand, at random instants, over every primitive.
//!
//! The idea: an operation that has returned has had its effect once, and one that has unwound or has failed has had none. Each
//! primitive of the table [`BOOKS`] keeps books of both, and they balance once all threads are home.
//!
//! 1. [`ACTORS`] threads use the primitive, 0 and 1 kernel threads, the others green ones. Each operation runs in frames
//!    ([`Actor::framed`]): tokens of its own and shared ones, limits of some microseconds, shields, each in the other.
//! 2. Two cancellers, one of either kind, cancel the tokens at random instants, and unpark actors that wait for something else.
//! 3. Where all operations of a primitive end by themselves, some run in no frame or in a shield ([`Actor::either`],
//!    [`Patients`]): a wake-up that a cancelled waiter has taken along lets them hang, and the watchdog says whose.
//! 4. The table is gone through on runtimes of all kinds, one a test, and each book of each goes on until [`SHARE`] operations
//!    have ended. Twice `GT_STRESS_SECS` (1 unless given) is how long a test lasts at least.

#![cfg_attr(
    not(feature = "net"),
    allow(unused, reason = "the books of streams use it")
)]

mod books;
mod flows;
#[cfg(feature = "net")]
mod streams;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use greenthread::cancel::{self, Cancelled, Token};
use greenthread::channel;
use greenthread::runtime::{Builder, Driver, Runtime};
use greenthread::sync::mpsc;
use greenthread::thread::{self, Thread};
use greenthread::time::{self, Duration, Instant};

use crate::common::{Rng, green, hooked, stress_time, wait_until, watchdog};

const ACTORS: usize = 8;
/// So many operations of each book are ended on each runtime: tests times books times this is ten thousand.
const SHARE: usize = 45;
/// A token for each actor, one for each actor's second thread, and three for all.
const TOKENS: usize = 2 * ACTORS + 3;

/// A primitive, and what its users know of it.
trait Book: Send + Sync {
    /// What one thread does for as long as the actor goes on.
    fn act(&self, actor: &mut Actor);
    /// All threads are home.
    fn close(&self);
}

type Page = (&'static str, fn() -> Arc<dyn Book>, fn() -> bool);

fn always() -> bool {
    true
}

/// By name, and where frames end what it does.
const BOOKS: &[Page] = &[
    (
        "bounded(0)",
        || flows::of_channel(channel::bounded(0)),
        always,
    ),
    (
        "bounded(2)",
        || flows::of_channel(channel::bounded(2)),
        always,
    ),
    (
        "unbounded",
        || flows::of_channel(channel::unbounded()),
        always,
    ),
    ("select", flows::of_select, always),
    (
        "mpsc",
        || flows::of_mpsc(mpsc::channel(), mpsc::Sender::send),
        always,
    ),
    (
        "sync_channel",
        || flows::of_mpsc(mpsc::sync_channel(1), mpsc::SyncSender::send),
        always,
    ),
    ("condvar", flows::of_condvar, always),
    ("park", flows::of_unparks, always),
    ("semaphore", books::semaphore, always),
    ("locks", books::locks, always),
    ("barrier", books::barrier, always),
    ("wait group", books::wait_group, always),
    ("join", books::join, always),
    ("join in a scope", books::join_in_scope, always),
    ("trees", books::trees, always),
    ("group", books::group, always),
    ("on_cancel", books::on_cancel, always),
    ("statics", books::statics, always),
    ("sleep", books::sleep, always),
    ("coroutine", books::coroutine, always),
    ("dataflow", books::dataflow, always),
    #[cfg(feature = "net")]
    ("own net", || streams::of(streams::own_net, false), always),
    #[cfg(feature = "net")]
    ("own pipe", || streams::of(streams::own_pipe, false), green),
    #[cfg(feature = "net")]
    ("std's net", || streams::of(streams::stds_net, true), hooked),
    #[cfg(feature = "net")]
    (
        "std's pipe",
        || streams::of(streams::stds_pipe, false),
        hooked,
    ),
];

/// What all threads at one book share.
struct Control {
    stop: AtomicBool,
    home: AtomicBool,
    ended: AtomicUsize,
    done: AtomicUsize,
    tokens: [Mutex<Token>; TOKENS],
    threads: [OnceLock<Thread>; ACTORS],
}

struct Actor {
    index: usize,
    rng: Rng,
    control: Arc<Control>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing unwinds under it")
}

fn in_token<T>(token: &Token, f: impl FnOnce() -> T) -> Option<T> {
    let result = token.run(f);
    assert!(result.is_ok() || token.is_cancelled(), "who has cancelled?");
    result.ok()
}

fn in_limit<T>(limit: Duration, f: impl FnOnce() -> T) -> Option<T> {
    let ends = Instant::now() + limit;
    let result = time::timeout_at(ends, f);
    assert!(result.is_ok() || Instant::now() >= ends, "early");
    result.ok()
}

fn in_shield<T>(limit: Duration, f: impl FnOnce() -> T) -> Option<T> {
    let begun = Instant::now();
    let result = cancel::shield(limit, f);
    assert!(result.is_ok() || begun.elapsed() >= limit, "early");
    result.ok()
}

impl Actor {
    fn goes_on(&self) -> bool {
        !self.control.stop.load(SeqCst)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.rng.below(n) == 0
    }

    fn micros(&mut self, most: usize) -> Duration {
        Duration::from_micros(self.rng.below(most) as u64)
    }

    /// An own limit for a call that takes one.
    fn limit(&mut self) -> Option<Duration> {
        self.one_in(4).then(|| self.micros(300))
    }

    /// A second thread of this actor.
    fn second(&mut self) -> Actor {
        Actor {
            index: self.index + ACTORS,
            rng: self.rng.fork(),
            control: self.control.clone(),
        }
    }

    fn dawdle(&mut self) {
        match self.rng.below(20) {
            0..3 => thread::yield_now(),
            3 => thread::sleep(self.micros(200)),
            4 => {
                let end = Instant::now() + self.micros(200);
                while Instant::now() < end {}
            }
            _ => {}
        }
    }

    fn token(&mut self) -> Token {
        let shared = self.rng.below(3);
        match self.one_in(2) {
            true => lock(&self.control.tokens[2 * ACTORS + shared]).clone(),
            false => {
                let token = Token::new();
                *lock(&self.control.tokens[self.index]) = token.clone();
                token
            }
        }
    }

    fn has_ended(&self) {
        self.control.ended.fetch_add(1, SeqCst);
    }

    /// Calls `f` in frames that end sooner or later. `None`: it has unwound.
    fn framed<T>(&mut self, f: impl FnOnce() -> T) -> Option<T> {
        let (token, limit, now) = (self.token(), self.micros(400), Duration::ZERO);
        let far = [4 * limit, Duration::from_secs(1000)][self.rng.below(2)];
        let result = match self.rng.below(9) {
            0..2 => in_token(&token, f),
            2 => in_limit(limit, f),
            3 => in_limit(far, || in_token(&token, f)).flatten(),
            4 => in_token(&token, || in_limit(limit, f)).flatten(),
            5 => in_token(&token, || in_shield(limit, f)).flatten(),
            6 => in_limit(now, f),
            7 => in_limit(now, || in_shield(limit, || in_token(&token, f)).flatten()).flatten(),
            _ => {
                let shielded = || in_shield(Duration::MAX, || in_token(&token, f));
                in_limit(now, shielded).expect("a shield").flatten()
            }
        };
        match result {
            Some(_) => _ = self.control.done.fetch_add(1, SeqCst),
            None => self.has_ended(),
        }
        result
    }

    /// The same, or without an end: for what comes to its own.
    fn either<T>(&mut self, f: impl FnOnce() -> T) -> Option<T> {
        match self.rng.below(12) {
            0 => Some(f()),
            1 => Some(patiently(f)),
            _ => self.framed(f),
        }
    }

    /// Calls `f` with the time for which it is to wait: some microseconds, or, in frames, for ever.
    fn waits<T>(&mut self, f: impl FnOnce(Duration) -> T) -> Option<T> {
        let time = self.micros(300);
        match self.one_in(3) {
            true => self.framed(|| f(Duration::MAX)),
            false => self.either(|| f(time)),
        }
    }
}

/// Users of a primitive who wait without an end. Who has given up lets one of them go first, and so does not find by itself
/// what it has taken from them: a wake-up that went along with it shows.
#[derive(Default)]
struct Patients {
    waiting: AtomicUsize,
    served: AtomicUsize,
}

impl Patients {
    /// [`Actor::either`], for calls whose result says whether the caller was `served`.
    fn either<T>(
        &self,
        actor: &mut Actor,
        f: impl FnOnce() -> T,
        served: impl FnOnce(&T) -> bool,
    ) -> Option<T> {
        let before = self.served.load(SeqCst);
        let result = if actor.one_in(6) {
            self.waiting.fetch_add(1, SeqCst);
            let result = patiently(f);
            self.waiting.fetch_sub(1, SeqCst);
            Some(result)
        } else {
            actor.framed(f)
        };
        if result.as_ref().is_some_and(served) {
            self.served.fetch_add(1, SeqCst);
        } else {
            while self.waiting.load(SeqCst) > 0 && self.served.load(SeqCst) == before {
                thread::yield_now();
            }
        }
        result
    }
}

/// In a shield within a frame that has ended.
fn patiently<T>(f: impl FnOnce() -> T) -> T {
    let result = in_limit(Duration::ZERO, || in_shield(Duration::MAX, f));
    result.flatten().expect("a shield ends nothing")
}

fn cancels(mut rng: Rng, control: &Control) {
    while !control.home.load(SeqCst) {
        let slot = &control.tokens[rng.below(TOKENS)];
        std::mem::take(&mut *lock(slot)).cancel();
        if let Some(thread) = control.threads[rng.below(ACTORS)].get() {
            thread.unpark();
        }
        match rng.below(4) {
            0 => thread::yield_now(),
            1 => {}
            _ => thread::sleep(Duration::from_micros(rng.below(200) as u64)),
        }
    }
}

/// Starts a kernel thread or one of the runtime, and returns what joins it.
fn start(
    runtime: &Runtime,
    is_kernel: bool,
    body: impl FnOnce() + Send + 'static,
) -> Box<dyn FnOnce() -> std::thread::Result<()>> {
    if is_kernel {
        let handle = std::thread::spawn(body);
        Box::new(|| handle.join())
    } else {
        let handle = runtime.spawn(body);
        Box::new(|| handle.join())
    }
}

fn ledger(test: &'static str, builder: Builder, hogs: usize) {
    let (runtime, mut rng) = (builder.build().unwrap(), Rng::new(test));
    let over = Arc::new(AtomicBool::new(false));
    let hogs = (0..hogs).map(|_| {
        let over = over.clone();
        runtime.spawn(move || while !over.load(SeqCst) {})
    });
    let hogs: Vec<_> = hogs.collect();
    for (name, make, _) in BOOKS.iter().filter(|(_, _, ends)| ends()) {
        let _w = watchdog(format!("ledger::{test}, {name}").leak());
        let (book, begun) = (make(), Instant::now());
        let control = Arc::new(Control {
            stop: AtomicBool::new(false),
            home: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            tokens: Default::default(),
            threads: Default::default(),
        });
        let cancellers = [false, true].map(|is_kernel| {
            let (control, rng) = (control.clone(), rng.fork());
            start(&runtime, is_kernel, move || cancels(rng, &control))
        });
        let actors: Vec<_> = (0..ACTORS)
            .map(|index| {
                let (book, control, rng) = (book.clone(), control.clone(), rng.fork());
                start(&runtime, index < 2, move || {
                    let _ = control.threads[index].set(thread::current());
                    book.act(&mut Actor {
                        index,
                        rng,
                        control,
                    });
                })
            })
            .collect();
        let least = 2 * stress_time() / BOOKS.len() as u32;
        wait_until(|| control.ended.load(SeqCst) >= SHARE && begun.elapsed() >= least);
        control.stop.store(true, SeqCst);
        let ends: Vec<_> = actors.into_iter().map(|join| join()).collect();
        control.home.store(true, SeqCst);
        cancellers.into_iter().for_each(|join| join().unwrap());
        if let Some(payload) = ends.into_iter().find_map(Result::err) {
            resume_unwind(payload);
        }
        book.close();
        let (ended, done) = (&control.ended, &control.done);
        println!(
            "{name}: {ended:?} ended, {done:?} not, {:?}",
            begun.elapsed()
        );
    }
    let parked: Vec<_> = (0..20).map(|_| runtime.spawn(thread::park)).collect();
    runtime.cancel_all();
    for thread in parked {
        let payload = thread.join().expect_err("nobody unparks it");
        assert!(payload.is::<Cancelled>());
    }
    over.store(true, SeqCst);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    runtime.shutdown();
}

/// Two processors, and this.
fn with(test: &'static str, change: impl FnOnce(Builder) -> Builder) {
    ledger(test, change(Runtime::builder().processors(2)), 0);
}

#[test]
fn one_processor() {
    with("one_processor", |builder| builder.processors(1));
}

#[test]
fn two_processors() {
    with("two_processors", |builder| builder);
}

#[test]
fn by_epoll() {
    with("by_epoll", |builder| builder.driver(Driver::Epoll));
}

#[test]
fn by_the_ring() {
    with("by_the_ring", |builder| builder.driver(Driver::IoUring));
}

#[test]
fn every_policy() {
    for policy in [
        "work-stealing",
        "relaxed-fifo",
        "least-loaded",
        "priority",
        "global-queue",
    ] {
        with(policy, |builder| builder.policy_named(policy));
    }
}

/// Beside threads that compute and never wait.
#[test]
fn beside_hogs() {
    let builder = Runtime::builder().processors(2);
    ledger(
        "beside_hogs",
        builder.time_slice(Duration::from_micros(100)),
        2,
    );
}
