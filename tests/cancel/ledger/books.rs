//! What is taken comes back, rounds are whole, threads end with their scopes, and what is made is made once.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

use greenthread::cancel::{self, Cancelled};
use greenthread::coroutine::{Coroutine, CoroutineResult, Yielder};
use greenthread::dataflow;
use greenthread::sync::{self, Barrier, Semaphore, WaitGroup};
use greenthread::thread;
use greenthread::time::{Duration, Instant, Interval};

use super::{ACTORS, Actor, Book, Patients, in_limit, lock, patiently};
use crate::common::wait_until;

/// A book whose threads all do the same, again and again, with what they share.
struct Rounds<S> {
    shared: S,
    act: fn(&S, &mut Actor),
    close: fn(&S),
}

impl<S: Send + Sync> Book for Rounds<S> {
    fn act(&self, actor: &mut Actor) {
        while actor.goes_on() {
            (self.act)(&self.shared, actor);
            actor.dawdle();
        }
    }

    fn close(&self) {
        (self.close)(&self.shared);
    }
}

fn rounds<S: Send + Sync + 'static>(
    shared: S,
    act: fn(&S, &mut Actor),
    close: fn(&S),
) -> Arc<dyn Book> {
    Arc::new(Rounds { shared, act, close })
}

/// Counts so many until it is dropped, also while its thread unwinds.
struct Count<'a>(&'a AtomicUsize, usize);

impl<'a> Count<'a> {
    fn new(counter: &'a AtomicUsize, n: usize) -> Count<'a> {
        counter.fetch_add(n, SeqCst);
        Count(counter, n)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, SeqCst);
    }
}

const PERMITS: usize = 4;

pub fn semaphore() -> Arc<dyn Book> {
    type Shared = (Arc<Semaphore>, AtomicUsize, Patients);
    let act = |(semaphore, held, patients): &Shared, actor: &mut Actor| {
        let (n, limit, time) = (1 + actor.rng.below(3), actor.limit(), actor.micros(60));
        let is_owned = actor.one_in(3);
        let hold = || {
            let _held = Count::new(held, n);
            assert!(held.load(SeqCst) <= PERMITS);
            thread::sleep(time);
        };
        let acquire = || match limit {
            Some(limit) => {
                let permits = semaphore.acquire_many_timeout(n, limit);
                permits.iter().for_each(|_| hold());
                permits.is_some()
            }
            None if is_owned => {
                let _permits = semaphore.clone().acquire_many_owned(n);
                hold();
                true
            }
            None => {
                let _permits = semaphore.acquire_many(n);
                hold();
                true
            }
        };
        patients.either(actor, acquire, |is_served| *is_served);
        if actor.one_in(8) {
            // Whoever comes after it waits until it has given up.
            let never = actor.framed(|| semaphore.acquire_many(PERMITS + 1).forget());
            assert!(never.is_none());
        }
    };
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let shared = (semaphore, AtomicUsize::new(0), Patients::default());
    rounds(shared, act, |(semaphore, held, _)| {
        assert_eq!(held.load(SeqCst), 0);
        assert!(semaphore.try_acquire_many(PERMITS).is_some());
    })
}

/// Waits for locks do not end. Whoever unwinds with a guard, and only he, leaves poison, and nobody who only reads.
pub fn locks() -> Arc<dyn Book> {
    #[derive(Default)]
    struct Shared {
        mutex: sync::Mutex<usize>,
        lock: sync::RwLock<usize>,
        changes: [AtomicUsize; 2],
        unwound: [AtomicBool; 2],
    }
    fn unpoisoned<T>(result: sync::LockResult<T>) -> T {
        result.unwrap_or_else(sync::PoisonError::into_inner)
    }
    let act = |shared: &Shared, actor: &mut Actor| {
        let (which, time) = (actor.rng.below(3), actor.micros(40));
        let (waits, holds) = (actor.one_in(3), Cell::new(false));
        let hold = |count: Option<&mut usize>| {
            holds.set(true);
            if let Some(count) = count {
                *count += 1;
                shared.changes[which].fetch_add(1, SeqCst);
            }
            if waits {
                thread::sleep(time);
            }
            holds.set(false);
        };
        let ended = actor.framed(|| match which {
            0 => hold(Some(&mut *unpoisoned(shared.mutex.lock()))),
            1 => hold(Some(&mut *unpoisoned(shared.lock.write()))),
            _ => {
                let _guard = unpoisoned(shared.lock.read());
                hold(None);
            }
        });
        assert!(ended.is_some() || holds.get(), "a lock does not unwind");
        if ended.is_none() && which < 2 {
            shared.unwound[which].store(true, SeqCst);
        }
    };
    rounds(Shared::default(), act, |shared| {
        let poisoned = [shared.mutex.is_poisoned(), shared.lock.is_poisoned()];
        let count = *unpoisoned(shared.mutex.lock());
        let counts = [count, *unpoisoned(shared.lock.write())];
        for i in 0..2 {
            assert_eq!(poisoned[i], shared.unwound[i].load(SeqCst));
            assert_eq!(counts[i], shared.changes[i].load(SeqCst));
        }
    })
}

/// Whole rounds pass, each with one leader, and those that have unwound have not arrived.
pub fn barrier() -> Arc<dyn Book> {
    const SEATS: usize = 3;
    struct Shared {
        barrier: Barrier,
        passed: AtomicUsize,
        led: AtomicUsize,
    }
    impl Shared {
        fn has_passed(&self, is_leader: Option<bool>) {
            if let Some(is_leader) = is_leader {
                self.passed.fetch_add(1, SeqCst);
                self.led.fetch_add(usize::from(is_leader), SeqCst);
            }
        }

        /// So many threads come, and those that wait too long leave. Returns how many have passed.
        fn meet(&self, n: usize, limit: Duration) -> usize {
            let before = self.passed.load(SeqCst);
            let wait = || in_limit(limit, || self.barrier.wait().is_leader());
            thread::scope(|s| {
                (0..n).for_each(|_| _ = s.spawn(|| self.has_passed(wait())));
            });
            self.passed.load(SeqCst) - before
        }
    }
    let act = |shared: &Shared, actor: &mut Actor| {
        let passed = actor.framed(|| shared.barrier.wait().is_leader());
        shared.has_passed(passed);
    };
    let (passed, led) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let barrier = Barrier::new(SEATS);
    let shared = Shared {
        barrier,
        passed,
        led,
    };
    rounds(shared, act, |shared| {
        assert_eq!(shared.meet(SEATS - 1, Duration::from_micros(500)), 0);
        assert_eq!(shared.meet(SEATS, Duration::from_secs(1 << 40)), SEATS);
        let (passed, led) = (shared.passed.load(SeqCst), shared.led.load(SeqCst));
        assert_eq!(passed, led * SEATS);
    })
}

/// Half of the actors make groups, and wait for the handles that the others drop, or wait with themselves.
pub fn wait_group() -> Arc<dyn Book> {
    let (handles, owners) = (Mutex::default(), AtomicUsize::new(ACTORS / 2));
    Arc::new(Groups { handles, owners })
}

struct Groups {
    handles: Mutex<Vec<Handle>>,
    owners: AtomicUsize,
}

struct Handle {
    group: WaitGroup,
    /// How many handles there are that nobody waits with.
    others: Arc<AtomicUsize>,
    waits: bool,
}

impl Book for Groups {
    fn act(&self, actor: &mut Actor) {
        if actor.index.is_multiple_of(2) {
            while actor.goes_on() {
                let n = 1 + actor.rng.below(3);
                let (group, others) = (WaitGroup::new(), Arc::new(AtomicUsize::new(n)));
                let handles = (0..=n).map(|i| Handle {
                    group: group.clone(),
                    others: others.clone(),
                    waits: i == 0,
                });
                lock(&self.handles).extend(handles);
                let waited = actor.either(|| group.wait());
                assert!(waited.is_none() || others.load(SeqCst) == 0);
                actor.dawdle();
            }
            self.owners.fetch_sub(1, SeqCst);
            return;
        }
        loop {
            let is_last = self.owners.load(SeqCst) == 0;
            let handle = lock(&self.handles).pop();
            match handle {
                None if is_last => break,
                None => thread::yield_now(),
                Some(handle) if handle.waits => {
                    let waited = actor.framed(|| handle.group.wait());
                    assert!(waited.is_none() || handle.others.load(SeqCst) == 0);
                }
                Some(handle) => _ = handle.others.fetch_sub(1, SeqCst),
            }
            actor.dawdle();
        }
    }

    fn close(&self) {}
}

/// Every thread ends, and its value is had, or dropped.
pub fn join() -> Arc<dyn Book> {
    let act = |alive: &Arc<()>, actor: &mut Actor| {
        let (time, alive) = (actor.micros(300), alive.clone());
        let handle = thread::spawn(move || {
            thread::sleep(time);
            (time, alive)
        });
        let is_cancelled = actor.one_in(3);
        if is_cancelled {
            actor.dawdle();
            handle.cancel();
        }
        match actor.either(|| handle.join()) {
            Some(Ok(value)) => assert_eq!(value.0, time),
            Some(Err(payload)) => {
                assert!(is_cancelled && payload.is::<Cancelled>());
                actor.has_ended();
            }
            None => {}
        }
    };
    rounds(Arc::default(), act, |alive| {
        wait_until(|| Arc::strong_count(alive) == 1);
    })
}

/// The thread is in the frames of who joins it, and may borrow.
pub fn join_in_scope() -> Arc<dyn Book> {
    let act = |_: &(), actor: &mut Actor| {
        let running = AtomicUsize::new(0);
        let body = |time| {
            let _running = Count::new(&running, 1);
            thread::sleep(time);
            7
        };
        let joined = actor.waits(|time| thread::scope(|s| s.spawn(|| body(time)).join()));
        assert_eq!(running.load(SeqCst), 0);
        match joined {
            Some(Ok(value)) => assert_eq!(value, 7),
            Some(Err(payload)) => assert!(payload.is::<Cancelled>()),
            None => {}
        }
    };
    rounds((), act, |()| {})
}

/// Scopes three deep, each of two threads. They have come to their end all, or their owner has unwound.
pub fn trees() -> Arc<dyn Book> {
    fn tree(depth: usize, leaf: &(dyn Fn() + Sync), running: &AtomicUsize) {
        let _running = Count::new(running, 1);
        if depth == 0 {
            return leaf();
        }
        thread::scope(|s| {
            (0..2).for_each(|_| _ = s.spawn(|| tree(depth - 1, leaf, running)));
        });
    }
    let act = |_: &(), actor: &mut Actor| {
        let (running, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let leaf = |time| {
            thread::sleep(time);
            done.fetch_add(1, SeqCst);
        };
        let all = actor.waits(|time| tree(3, &|| leaf(time), &running));
        assert_eq!(running.load(SeqCst), 0);
        assert_eq!(all.is_some(), done.load(SeqCst) == 8);
    };
    rounds((), act, |()| {})
}

/// Groups are cancelled from inside and from outside, and somebody may panic: then that is what comes out.
pub fn group() -> Arc<dyn Book> {
    let act = |_: &(), actor: &mut Actor| {
        let (running, panicked) = (&AtomicUsize::new(0), &AtomicBool::new(false));
        let (time, way) = (actor.micros(200), actor.rng.below(3));
        let family = || {
            cancel::group(|group| {
                for is_first in [true, false, false] {
                    group.spawn(move || {
                        let _running = Count::new(running, 1);
                        if is_first && way < 2 {
                            thread::sleep(time);
                            if way == 0 {
                                group.cancel();
                            } else {
                                panicked.store(true, SeqCst);
                                resume_unwind(Box::new(7));
                            }
                        }
                        thread::sleep(Duration::MAX);
                    });
                }
                thread::sleep(Duration::MAX);
            });
        };
        let payload = actor.framed(|| {
            let payload = catch_unwind(AssertUnwindSafe(family)).unwrap_err();
            if payload.is::<Cancelled>() {
                // Of a frame outside, perhaps.
                cancel::check();
            }
            payload
        });
        assert_eq!(running.load(SeqCst), 0);
        match payload {
            Some(payload) if payload.is::<Cancelled>() => assert_eq!(way, 0),
            Some(payload) => assert_eq!(payload.downcast_ref(), Some(&7)),
            None => assert!(!panicked.load(SeqCst), "a panic was hidden"),
        }
    };
    rounds((), act, |()| {})
}

/// What `on_cancel` calls is called once, and may borrow.
pub fn on_cancel() -> Arc<dyn Book> {
    let act = |_: &(), actor: &mut Actor| {
        let (gate, stops) = (Semaphore::new(0), AtomicUsize::new(0));
        let stop = || {
            thread::yield_now();
            stops.fetch_add(1, SeqCst);
            gate.add_permits(1);
        };
        let wait = || cancel::shield(Duration::MAX, || gate.acquire().forget()).unwrap();
        let stopped = actor.framed(|| cancel::on_cancel(stop, wait));
        assert!(stopped.is_some() && stops.load(SeqCst) == 1);
        assert_eq!(gate.available_permits(), 0);
        actor.has_ended();
    };
    rounds((), act, |()| {})
}

/// Initialisers run once, to their end, whatever ends, and who has come for the value has it.
pub fn statics() -> Arc<dyn Book> {
    type Runs = Arc<[AtomicUsize; 3]>;
    type Lazy = sync::LazyLock<usize, Box<dyn FnOnce() -> usize + Send>>;
    struct Static(sync::Once, sync::OnceLock<usize>, Lazy, Runs);
    fn init(runs: &AtomicUsize) -> usize {
        thread::sleep(Duration::from_micros(100));
        runs.fetch_add(1, SeqCst) + 7
    }
    let act = |newest: &Mutex<Option<Arc<Static>>>, actor: &mut Actor| {
        let make = || {
            let runs = Runs::default();
            let his = runs.clone();
            let lazy = Lazy::new(Box::new(move || init(&his[2])));
            Arc::new(Static(sync::Once::new(), sync::OnceLock::new(), lazy, runs))
        };
        let made = {
            let mut newest = lock(newest);
            if actor.one_in(10) {
                *newest = None;
            }
            newest.get_or_insert_with(make).clone()
        };
        let Static(once, cell, lazy, runs) = &*made;
        let (which, has_come) = (actor.rng.below(3), Cell::new(false));
        actor.framed(|| {
            match which {
                0 => once.call_once(|| _ = init(&runs[0])),
                1 => assert_eq!(*cell.get_or_init(|| init(&runs[1])), 7),
                _ => assert_eq!(**lazy, 7),
            }
            has_come.set(true);
            cancel::check();
        });
        assert!(has_come.get() && runs[which].load(SeqCst) == 1);
    };
    rounds(Mutex::default(), act, |_| {})
}

/// Nobody wakes up early, and an interval stays in step.
pub fn sleep() -> Arc<dyn Book> {
    let act = |_: &(), actor: &mut Actor| {
        let (start, period) = (Instant::now(), Duration::from_micros(200));
        let (mut interval, mut last) = (Interval::starting_at(start, period), start);
        for _ in 0..10 {
            let (begun, time) = (Instant::now(), actor.micros(300));
            let slept = actor.either(|| thread::sleep(time));
            assert!(slept.is_none() || begun.elapsed() >= time);
            let slept = actor.framed(|| thread::sleep(Duration::MAX));
            assert!(slept.is_none());
            if let Some(tick) = actor.either(|| interval.tick()) {
                assert!(last < tick && tick <= Instant::now());
                assert_eq!((tick - start).as_nanos() % period.as_nanos(), 0);
                last = tick;
            }
        }
    };
    rounds((), act, |()| {})
}

/// Coroutines yield every number until they unwind, and then they are over. Each step is in frames of its own.
pub fn coroutine() -> Arc<dyn Book> {
    let act = |alive: &Arc<()>, actor: &mut Actor| {
        let (alive, mut numbers) = (alive.clone(), 0..20);
        let body = move |yielder: &Yielder<Duration, u32>, mut time| {
            let _alive = alive;
            for number in 0..20 {
                thread::spawn(thread::yield_now).join().unwrap();
                thread::sleep(time);
                time = yielder.suspend(number);
            }
        };
        let mut generator = Coroutine::new(body);
        // Some are dropped in the middle.
        while !actor.one_in(6) && !generator.is_done() {
            match actor.waits(|time| generator.resume(time)) {
                Some(CoroutineResult::Yield(number)) => {
                    assert_eq!(numbers.next(), Some(number));
                    assert!(!generator.is_done());
                }
                Some(CoroutineResult::Return(())) => assert_eq!(numbers.next(), None),
                None => assert!(generator.is_done()),
            }
        }
    };
    rounds(Arc::default(), act, |alive| {
        assert_eq!(Arc::strong_count(alive), 1);
    })
}

/// A node runs once, or, if a frame round its call has ended, perhaps not to its end. Its value comes in any case.
pub fn dataflow() -> Arc<dyn Book> {
    let act = |alive: &Arc<()>, actor: &mut Actor| {
        let runs = Arc::new(AtomicUsize::new(0));
        let make = |time| {
            let (runs, alive) = (runs.clone(), alive.clone());
            let first = dataflow::call((), move |()| {
                let _alive = alive;
                thread::sleep(time);
                runs.fetch_add(1, SeqCst)
            });
            dataflow::call((&first,), |(runs,)| runs + 7)
        };
        let (time, made) = (actor.micros(200), OnceLock::new());
        let is_inside = actor.one_in(2);
        if !is_inside {
            let _ = made.set(make(time));
        }
        let got = actor.waits(|time| made.get_or_init(|| make(time)).get().copied());
        let value = patiently(|| made.get().unwrap().get().copied());
        assert!(value == Ok(7) || is_inside && value.is_err());
        assert!(got.is_none() || got == Some(value.clone()));
        assert_eq!(runs.load(SeqCst), usize::from(value.is_ok()));
    };
    rounds(Arc::default(), act, |alive| {
        wait_until(|| Arc::strong_count(alive) == 1);
    })
}
