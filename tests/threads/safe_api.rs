//! A program that means no good, and has no unsafe code: it leaks what it can, panics in every
//! callback, and uses everything from several threads and runtimes.
//!
//! The idea: *actors*, green threads of three runtimes and kernel threads, do one random thing after
//! the other with what is public in `coroutine`, `dataflow`, `channel`, `scope`, `runtime` and
//! `policy`. What they make they may leave in a pile that all share, so things are used, dropped and
//! forgotten by other threads than those that made them.
//!
//! What must hold: the process lives; all actors end; and every [`Canary`], of which values consist,
//! is dropped once at most and whole. Who may wait for ever by contract (for what somebody has
//! forgotten) is a thread that nobody waits for, on a runtime that is not shut down.

#![forbid(unsafe_code)]

#[path = "../support/safe_acts.rs"]
mod safe_acts;
#[path = "../support/safe_canary.rs"]
mod safe_canary;

use crate::checking_allocator::CHECKS;
use crate::common::alone;
use crate::safe::{Rng, is_green, watchdog};
use greenthread::channel::{self, Receiver, Select, Sender, bounded, unbounded};
use greenthread::coroutine::{Coroutine, CoroutineResult, Yielder};
use greenthread::dataflow::{self, Value};
use greenthread::policy::*;
use greenthread::runtime::Runtime;
use greenthread::{JoinHandle, Thread};
use safe_canary::{BORN, Canary, DEAD};
use std::any::Any;
use std::cell::RefCell;
use std::mem::{forget, take};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ACTORS: usize = 8;
const ACTS: usize = 1_000;
const MOMENT: Duration = Duration::from_micros(100);

/// Nothing is left in the hands of who dies.
impl Drop for Act<'_> {
    fn drop(&mut self) {
        self.pile_up();
    }
}

/// Things that lie about.
enum Thing {
    Coroutine(Coroutine<Canary, Canary, Canary>),
    Generator(Coroutine<(), Canary, ()>),
    Sender(Sender<Canary>),
    Receiver(Receiver<Canary>),
    Value(Value<Canary>),
    Values(Value<Value<Canary>>),
    Handle(JoinHandle<Canary>),
    Thread(Thread),
}

#[derive(Default)]
struct Pile(Mutex<Vec<Thing>>);

/// An actor at work.
struct Act<'a> {
    rng: Rng,
    world: &'a Arc<World>,
    hands: Vec<Thing>,
}

struct World {
    pile: Pile,
    runtimes: Vec<Runtime>,
    locks: [Lock<Canary>; 2],
    acts: AtomicUsize,
}

/// What panics of the library say, each of which the user has asked for.
const EXPECTED: [&str; 7] = [
    "a coroutine suspended itself when it was dropped",
    "a coroutine was resumed after it had ended",
    "dropped `SelectedOperation` without completing",
    "that wasn't selected",
    "Runtime::shutdown was called on one of the runtime's own threads",
    "it would wait for itself",
    "a scoped thread panicked",
];

fn is_expected(payload: &(dyn Any + Send)) -> bool {
    let said = payload.downcast_ref::<String>().map(String::as_str);
    let said = said.or(payload.downcast_ref::<&str>().copied());
    payload.is::<Killed>()
        || said.is_some_and(|said| EXPECTED.iter().any(|part| said.contains(part)))
}

fn die() -> ! {
    panic_any(Killed)
}

/// A panic of the test's own.
struct Killed;

fn keep_quiet_about_what_is_expected() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_expected(info.payload()) {
            loud(info);
        }
    }));
}

/// Runs `body` and survives it, if it dies as planned.
fn survive<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) if is_expected(&*payload) => None,
        Err(payload) => resume_unwind(payload),
    }
}

impl Act<'_> {
    fn chance(&mut self, one_of: usize) -> bool {
        self.rng.below(one_of) == 0
    }

    fn canary(&mut self) -> Canary {
        let mut canary = Canary::new(self.rng.below(1000));
        canary.deadly = self.chance(8);
        canary
    }

    /// Puts down some of what is in the hands.
    fn pile_up(&mut self) {
        let mut pile = self.world.pile.0.lock().unwrap_or_else(|e| e.into_inner());
        pile.append(&mut self.hands);
        // Not more than can be looked through.
        let surplus = pile.len().saturating_sub(200);
        let surplus: Vec<_> = pile.drain(..surplus).collect();
        drop(pile);
        for thing in surplus {
            survive(|| drop(thing));
        }
    }

    fn pick_up(&mut self) -> Option<Thing> {
        let mut pile = self.world.pile.0.lock().unwrap_or_else(|e| e.into_inner());
        if pile.is_empty() {
            return None;
        }
        let at = self.rng.below(pile.len());
        Some(pile.swap_remove(at))
    }

    fn put(&mut self, thing: Thing) {
        self.hands.push(thing);
        if self.hands.len() > 4 {
            self.pile_up();
        }
    }

    /// Kept, dropped here, dropped on another thread, or forgotten.
    fn be_done_with(&mut self, thing: Thing) {
        match self.rng.below(8) {
            0 => forget(thing),
            1 | 2 => _ = survive(|| drop(thing)),
            3 => self.elsewhere(move || drop(thing)),
            _ => self.put(thing),
        }
    }

    /// On a thread of some runtime, or a kernel thread, that nobody waits for.
    fn elsewhere(&mut self, body: impl FnOnce() + Send + 'static) {
        let body = move || _ = survive(body);
        match self.rng.below(4) {
            0 => drop(greenthread::spawn(body)),
            1 => drop(std::thread::spawn(body)),
            n => drop(self.world.runtimes[n - 2].spawn(body)),
        }
    }

    fn act(&mut self) {
        self.world.acts.fetch_add(1, Relaxed);
        match self.rng.below(11) {
            0 => self.make_coroutine(),
            1 => self.make_values(),
            2 => self.make_channel(),
            3 => self.select(),
            4 => self.scope(),
            5 => self.runtime(),
            6 => self.lock(),
            7 => self.thread(),
            _ => {
                if let Some(thing) = self.pick_up() {
                    self.use_thing(thing);
                }
            }
        }
    }

    // ---- scopes, threads, locks ----

    fn scope(&mut self) {
        let mut canaries: Vec<_> = (0..3).map(Canary::new).collect();
        let shared = Canary::new(9);
        let (mut rng, mut inner) = (self.rng.fork(), self.rng.fork());
        survive(|| {
            greenthread::scope(|scope| {
                for canary in &mut canaries {
                    let fate = rng.below(6);
                    let shared = &shared;
                    let handle = scope.spawn(move || {
                        canary.guts = vec![0];
                        shared.check();
                        match fate {
                            0 => die(),
                            1 => greenthread::yield_now(),
                            2 => greenthread::sleep(MOMENT),
                            _ => {}
                        }
                        canary.check();
                        &*canary
                    });
                    match rng.below(4) {
                        0 => drop(handle.join().map(Canary::check)),
                        1 => drop(handle.join_timeout(MOMENT)),
                        2 => drop(handle),
                        _ => drop(scope.spawn(move || drop(handle.join()))),
                    }
                }
                if inner.below(4) == 0 {
                    die();
                }
                // Somebody else's scope in the middle.
                greenthread::scope(|other| {
                    other.spawn(|| shared.check());
                    scope.spawn(|| shared.check());
                });
            });
        });
        canaries.iter().for_each(Canary::check);
        drop((canaries, shared));
    }

    fn thread(&mut self) {
        thread_local! {
            static OWN: RefCell<Vec<Canary>> = const { RefCell::new(Vec::new()) };
        }
        let (seed, mut rng) = (self.rng.below(100), self.rng.fork());
        let body = move || {
            OWN.with_borrow_mut(|own| own.push(Canary::new(seed)));
            match rng.below(7) {
                0 => die(),
                1 => greenthread::park_timeout(MOMENT),
                2 => forget(greenthread::lock_kernel_thread()),
                3 => greenthread::blocking(|| drop(catch_unwind(|| die()))),
                4 => greenthread::blocking(|| die()),
                5 => {
                    let lock = Lock::new(());
                    forget(lock.lock());
                    greenthread::yield_now();
                }
                _ => set_priority(Priority::new(rng.below(5) as u64)),
            }
            OWN.with_borrow(|own| own.iter().for_each(Canary::check));
            Canary::new(seed)
        };
        let handle = match self.rng.below(4) {
            0 => greenthread::spawn(body),
            n => self.world.runtimes[n - 1].spawn(body),
        };
        self.put(Thing::Thread(handle.thread().clone()));
        self.be_done_with(Thing::Handle(handle));
    }

    fn lock(&mut self) {
        let lock = &self.world.locks[self.rng.below(2)];
        let fresh = Canary::new(self.rng.below(50));
        let old = {
            let mut guard = lock.lock();
            std::mem::replace(&mut *guard, fresh)
        };
        old.check();
        if self.chance(4) {
            // Unlocked in a panic.
            survive(|| {
                let _guard = lock.lock();
                die()
            });
        }
        drop(old);
    }

    fn runtime(&mut self) {
        match self.rng.below(6) {
            0 => {
                // From one of its own threads.
                let world = self.world.clone();
                let at = self.rng.below(world.runtimes.len());
                let own = Runtime::builder().processors(1 + at).build().unwrap();
                let own = Arc::new(own);
                let its = own.clone();
                let thread = own.spawn(move || {
                    let another = greenthread::spawn(|| ());
                    // It is not the last handle, perhaps.
                    let handle = Arc::try_unwrap(its);
                    let ended = survive(|| handle.map(Runtime::shutdown));
                    assert!(!matches!(ended, Some(Ok(()))), "it has waited for itself");
                    another.join().unwrap();
                });
                if self.chance(2) {
                    drop(own);
                }
                thread.join().unwrap();
            }
            1 => {
                let own = Runtime::builder()
                    .processors(1 + self.rng.below(3))
                    .policy(InOrder::default())
                    .build()
                    .unwrap();
                let threads: Vec<_> = (0..5).map(|i| own.spawn(move || Canary::new(i))).collect();
                for thread in threads {
                    match self.chance(3) {
                        true => forget(thread),
                        false => thread.join().unwrap().check(),
                    }
                }
                match self.chance(3) {
                    true => {}
                    false => own.shutdown(),
                }
            }
            2 => forget(Runtime::builder().policy(LeastLoaded::new())),
            _ => {
                let runtime = &self.world.runtimes[self.rng.below(3)];
                runtime.set_processors(1 + self.rng.below(4)).unwrap();
                assert!(!runtime.metrics().processors.is_empty() || !is_green());
            }
        }
    }

    // ---- things of others ----

    fn use_thing(&mut self, thing: Thing) {
        match thing {
            Thing::Coroutine(coroutine) => match self.chance(4) {
                // Moved, resumed and dropped elsewhere.
                true => {
                    let (input, mut coroutine) = (self.canary(), coroutine);
                    self.elsewhere(move || drop(coroutine.resume(input)));
                }
                false => self.resume(coroutine),
            },
            Thing::Generator(mut generator) => {
                survive(|| generator.by_ref().take(2).for_each(|canary| canary.check()));
                self.be_done_with(Thing::Generator(generator));
            }
            Thing::Sender(sender) => {
                let canary = self.canary();
                survive(|| drop(sender.send_timeout(canary, MOMENT)));
                let _ = sender.is_full();
                self.be_done_with(Thing::Sender(sender));
            }
            Thing::Receiver(receiver) => {
                let mut rng = self.rng.fork();
                survive(|| {
                    greenthread::select! {
                        recv(receiver) -> canary => match rng.below(4) {
                            0 => die(),
                            _ => canary.iter().for_each(Canary::check),
                        },
                        recv(channel::after(MOMENT)) -> _ => {}
                    }
                    receiver
                        .try_iter()
                        .take(3)
                        .for_each(|canary| canary.check());
                });
                self.be_done_with(Thing::Receiver(receiver));
            }
            Thing::Value(value) => {
                if self.chance(2)
                    && let Ok(canary) = value.get()
                {
                    canary.check();
                }
                self.be_done_with(Thing::Value(value));
            }
            Thing::Values(values) => {
                self.put(Thing::Value(values.flatten()));
                if let Some(Ok(value)) = values.try_get() {
                    let value = value.clone();
                    self.be_done_with(Thing::Value(value));
                }
                self.be_done_with(Thing::Values(values));
            }
            Thing::Handle(handle) => match self.rng.below(4) {
                0 => drop(survive(|| handle.join().map(|canary| canary.check()))),
                1 => match handle.join_timeout(MOMENT) {
                    Ok(result) => drop(result.map(|canary| canary.check())),
                    Err(handle) => self.be_done_with(Thing::Handle(handle)),
                },
                2 => {
                    // A future that is polled once, and then left.
                    let mut future = Box::pin(handle.into_future());
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    let _ = future.as_mut().poll(&mut context);
                    match self.chance(2) {
                        true => forget(future),
                        false => drop(future),
                    }
                }
                _ => self.be_done_with(Thing::Handle(handle)),
            },
            Thing::Thread(thread) => thread.unpark(),
        }
    }
}

/// A policy of the test's own.
#[derive(Default)]
struct InOrder(Lock<Queue>);

impl Policy for InOrder {
    fn ready(&self, thread: Ready, _: Readied, _: Option<&Seat>) -> ForOthers {
        self.0.lock().push(thread);
        ForOthers::Work
    }
    fn next(&self, _: &Seat, _: Others) -> Option<Next> {
        self.0.lock().pop().map(Next::from)
    }
    fn len(&self, processor: Option<usize>) -> usize {
        processor.map_or_else(|| self.0.lock().len(), |_| 0)
    }
}

fn main_of_an_actor(world: Arc<World>, rng: Rng) {
    let mut act = Act {
        rng,
        world: &world,
        hands: Vec::new(),
    };
    for _ in 0..ACTS {
        survive(|| act.act());
    }
}

#[test]
fn safe_code_does_its_worst() {
    alone!();
    CHECKS.store(false, Relaxed);
    const TEST: &str = "safe_api::safe_code_does_its_worst";
    let _w = watchdog(TEST);
    keep_quiet_about_what_is_expected();
    let mut rng = Rng::new(TEST);
    let builder = || Runtime::builder().time_slice(Duration::from_micros(200));
    let world = Arc::new(World {
        pile: Pile::default(),
        runtimes: vec![
            builder().processors(1).build().unwrap(),
            builder()
                .processors(2)
                .policy(RelaxedFifo::new())
                .build()
                .unwrap(),
            builder()
                .processors(3)
                .policy(InOrder::default())
                .build()
                .unwrap(),
        ],
        locks: [1, 2].map(|seed| Lock::new(Canary::new(seed))),
        acts: AtomicUsize::new(0),
    });
    let mut kernel = Vec::new();
    let mut green = Vec::new();
    for actor in 0..ACTORS {
        let (rng, its) = (rng.fork(), world.clone());
        let body = move || main_of_an_actor(its, rng);
        match actor % 4 {
            3 => kernel.push(std::thread::spawn(body)),
            runtime => green.push(world.runtimes[runtime].spawn(body)),
        }
    }
    kernel.into_iter().for_each(|actor| actor.join().unwrap());
    green.into_iter().for_each(|actor| actor.join().unwrap());
    let rest = take(&mut *world.pile.0.lock().unwrap_or_else(|e| e.into_inner()));
    rest.into_iter()
        .for_each(|thing| _ = survive(|| drop(thing)));
    assert_eq!(world.acts.load(SeqCst), ACTORS * ACTS);
    let (born, dead) = (BORN.load(SeqCst), DEAD.load(SeqCst));
    println!("{born} canaries, {} of them forgotten", born - dead);
    assert!(dead <= born && dead > born / 2, "{dead} of {born}");
    // The runtimes have threads that wait for what was forgotten.
    forget(world);
}
