//! A storm for each thing that threads meet or pass at: barrier, once and its cells, semaphore,
//! wait group (see `support/storm.rs`). Each counts what must not change: who leads, how often
//! something ran, how many permits are out, how much is done. Afterwards each must be as new.
//!
//! `GT_STRESS_SECS` seconds each (1 unless given). `GT_SEED` repeats a run's choices.

use crate::support::storm::{Actor, actors, burn, storm, storm_with};
use greenthread::sync::{Barrier, LazyLock, Once, OnceLock, Semaphore, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

#[test]
fn barrier() {
    struct Shared {
        barrier: Barrier,
        arrived: AtomicUsize,
        leaders: AtomicUsize,
        over: AtomicBool,
    }
    let act = |s: &Shared, actor: &mut Actor| {
        for round in 1.. {
            let goes_on = actor.goes_on();
            s.arrived.fetch_add(1, Relaxed);
            actor.dawdle();
            if s.barrier.wait().is_leader() {
                assert_eq!(
                    s.arrived.load(Relaxed),
                    round * actors(),
                    "not all are here"
                );
                assert_eq!(s.leaders.fetch_add(1, Relaxed), round - 1, "two leaders");
                s.over.store(!goes_on, Relaxed);
            }
            actor.at();
            s.barrier.wait();
            assert_eq!(s.leaders.load(Relaxed), round, "no leader");
            if s.over.load(Relaxed) {
                return;
            }
            // Nobody may begin the next round while others still look.
            s.barrier.wait();
        }
    };
    let shared = Shared {
        barrier: Barrier::new(actors()),
        arrived: AtomicUsize::new(0),
        leaders: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    };
    let s = storm("gates::barrier", shared, act);
    assert!(s.leaders.into_inner() > 0);
    assert!(Barrier::new(1).wait().is_leader());
}

/// Cells that many race to fill. Actor 2 goes through all of them, then puts new ones there.
#[test]
fn once() {
    struct Cell {
        once: Once,
        done: AtomicUsize,
        lock: OnceLock<Box<usize>>,
        lazy: LazyLock<Box<u64>, Box<dyn FnOnce() -> Box<u64> + Send>>,
        lazily: Arc<AtomicUsize>,
    }
    fn slowly() {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        match TURN.fetch_add(1, Relaxed) % 4 {
            0 => greenthread::yield_now(),
            1 => greenthread::sleep(Duration::from_micros(50)),
            2 => burn(Duration::from_micros(150)),
            _ => {}
        }
    }
    fn cell() -> Cell {
        let lazily = Arc::new(AtomicUsize::new(0));
        let counts = lazily.clone();
        Cell {
            once: Once::new(),
            done: AtomicUsize::new(0),
            lock: OnceLock::new(),
            lazy: LazyLock::new(Box::new(move || {
                slowly();
                counts.fetch_add(1, Relaxed);
                Box::new(42)
            })),
            lazily,
        }
    }
    struct Shared {
        cells: std::sync::Mutex<Arc<Vec<Cell>>>,
        batches: AtomicUsize,
    }
    let act = |s: &Shared, actor: &mut Actor| {
        while actor.goes_on() || actor.index == 2 {
            let last = !actor.goes_on();
            let cells = s.cells.lock().unwrap().clone();
            for cell in cells.iter() {
                actor.at();
                // Those that only wait rely on actor 2.
                match if actor.index == 2 {
                    0
                } else {
                    actor.rng.below(4)
                } {
                    0 => cell.once.call_once(|| {
                        slowly();
                        cell.done.fetch_add(1, Relaxed);
                    }),
                    1 => cell.once.call_once_force(|state| {
                        assert!(!state.is_poisoned());
                        cell.done.fetch_add(1, Relaxed);
                    }),
                    2 => cell.once.wait(),
                    _ => cell.once.wait_force(),
                }
                assert!(cell.once.is_completed());
                assert_eq!(cell.done.load(Relaxed), 1);
                let index = actor.index;
                match if index == 2 { 0 } else { actor.rng.below(4) } {
                    0 | 1 => {
                        let mut mine = false;
                        let found = cell.lock.get_or_init(|| {
                            slowly();
                            mine = true;
                            Box::new(index)
                        });
                        assert!(!mine || **found == index);
                    }
                    2 => match cell.lock.set(Box::new(index)) {
                        Ok(()) => assert_eq!(**cell.lock.get().unwrap(), index),
                        Err(value) => assert_eq!(*value, index),
                    },
                    _ => assert!(**cell.lock.wait() < actors()),
                }
                assert_eq!(**cell.lazy, 42);
                assert_eq!(cell.lazily.load(Relaxed), 1);
            }
            if actor.index == 2 {
                if last {
                    return;
                }
                let fresh = Arc::new((0..50).map(|_| cell()).collect());
                *s.cells.lock().unwrap() = fresh;
                s.batches.fetch_add(1, Relaxed);
            } else {
                actor.dawdle();
            }
        }
    };
    let shared = Shared {
        cells: std::sync::Mutex::new(Arc::new((0..50).map(|_| cell()).collect())),
        batches: AtomicUsize::new(0),
    };
    let s = storm("gates::once", shared, act);
    let cells = Arc::into_inner(s.cells.into_inner().unwrap()).unwrap();
    for cell in cells {
        assert!(
            cell.lock
                .into_inner()
                .is_some_and(|index| *index < actors())
        );
        assert_eq!(Arc::strong_count(&cell.lazily), 1, "what it ran is dropped");
    }
}

/// Ten permits. Some ask for many at once, and give up; that must not keep others out.
#[test]
fn semaphore() {
    const PERMITS: usize = 10;
    struct Shared {
        semaphore: Arc<Semaphore>,
        taken: AtomicUsize,
        most: AtomicUsize,
    }
    fn hold(s: &Shared, actor: &mut Actor, permits: usize) {
        actor.at();
        let taken = s.taken.fetch_add(permits, Relaxed) + permits;
        assert!(taken <= PERMITS, "{taken} permits of {PERMITS}");
        s.most.fetch_max(taken, Relaxed);
        actor.dawdle();
        s.taken.fetch_sub(permits, Relaxed);
    }
    let act = |s: &Shared, actor: &mut Actor| {
        let semaphore = &s.semaphore;
        while actor.goes_on() {
            let n = 1 + actor.rng.below(PERMITS as u64) as usize;
            let permit = match actor.rng.below(9) {
                0 | 1 => Some(semaphore.acquire()),
                2 => Some(semaphore.acquire_many(n)),
                3 => semaphore.try_acquire_many(n),
                4 => actor.timed(|timeout| semaphore.acquire_timeout(timeout)),
                5 => actor.timed_until(|deadline| semaphore.acquire_deadline(deadline)),
                6 | 7 => actor.timed(|timeout| semaphore.acquire_many_timeout(n, timeout)),
                _ => {
                    let permit = semaphore.clone().acquire_many_owned(n);
                    hold(s, actor, permit.num_permits());
                    None
                }
            };
            if let Some(permit) = permit {
                hold(s, actor, permit.num_permits());
            }
        }
    };
    let shared = Shared {
        semaphore: Arc::new(Semaphore::new(PERMITS)),
        taken: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    };
    let show = |s: &Shared| format!("{} there", s.semaphore.available_permits());
    let s = storm_with("gates::semaphore", shared, act, show);
    assert_eq!(s.taken.into_inner(), 0);
    assert_eq!(s.semaphore.available_permits(), PERMITS);
    assert!(s.most.into_inner() > 1);
    let all = s
        .semaphore
        .try_acquire_many(PERMITS)
        .expect("all are there");
    assert!(s.semaphore.try_acquire().is_none());
    drop(all);
    assert!(s.semaphore.try_acquire().is_some());
    Arc::into_inner(s.semaphore).expect("nobody has it");
}

/// Half of the actors hand out work and wait until it is done; the others do it.
#[test]
fn wait_group() {
    type Job = (WaitGroup, Arc<AtomicUsize>);
    struct Shared {
        jobs: std::sync::Mutex<Vec<Job>>,
        waiting: AtomicUsize,
        rounds: AtomicUsize,
    }
    let act = |s: &Shared, actor: &mut Actor| {
        if actor.index.is_multiple_of(2) {
            while actor.goes_on() {
                let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
                let jobs = actor.rng.below(5) as usize;
                let work = (0..jobs).map(|_| (group.clone(), done.clone()));
                s.jobs.lock().unwrap().extend(work);
                if actor.one_in(3) {
                    if actor
                        .timed(|timeout| group.wait_timeout(timeout).then_some(()))
                        .is_none()
                    {
                        continue;
                    }
                } else {
                    group.wait();
                }
                assert_eq!(done.load(Relaxed), jobs);
                s.rounds.fetch_add(1, Relaxed);
            }
            s.waiting.fetch_sub(1, Relaxed);
        } else {
            while actor.goes_on() || s.waiting.load(Relaxed) > 0 {
                let job = s.jobs.lock().unwrap().pop();
                if let Some((group, done)) = job {
                    actor.dawdle();
                    done.fetch_add(1, Relaxed);
                    drop(group);
                } else {
                    greenthread::sleep(actor.rng.micros_below(300));
                }
            }
        }
    };
    let shared = Shared {
        jobs: std::sync::Mutex::default(),
        waiting: AtomicUsize::new(actors() / 2),
        rounds: AtomicUsize::new(0),
    };
    let s = storm("wait group", shared, act);
    assert!(s.rounds.into_inner() > 0);
    for (group, done) in s.jobs.into_inner().unwrap() {
        done.fetch_add(1, Relaxed);
        drop(group); // of somebody who gave up
    }
    WaitGroup::new().wait();
}
