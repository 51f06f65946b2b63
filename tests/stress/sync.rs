//! A storm for each lock and for the condition variable (see `support/storm.rs`): 2 kernel threads,
//! 200 green threads, preemption every 100 µs, time-outs, stray unparks. Each counts what must not
//! change: how many are inside, what has been given and taken. Afterwards each is used once more,
//! and must be as new.
//!
//! `GT_STRESS_SECS` seconds each (1 unless given). `GT_SEED` repeats a run's choices.
//! `gates.rs` has what is not a lock, `channel.rs` the channels.

use crate::support::storm::{Actor, storm_with};
use greenthread::sync::{Condvar, Mutex, MutexGuard, RwLock};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Two numbers that only a torn critical section tells apart.
type Pair = (u64, u64);

#[derive(Default)]
struct Locked {
    mutex: Mutex<Pair>,
    inside: AtomicBool,
    entered: AtomicU64,
}

impl Locked {
    fn enter(&self, actor: &mut Actor, mut pair: MutexGuard<'_, Pair>, stay: Duration) {
        actor.at();
        assert!(!self.inside.swap(true, Relaxed), "two are inside");
        pair.0 += 1;
        actor.dawdle();
        if stay > Duration::ZERO {
            greenthread::sleep(stay);
        }
        pair.1 += 1;
        assert_eq!(pair.0, pair.1);
        self.entered.fetch_add(1, Relaxed);
        assert!(self.inside.swap(false, Relaxed), "two were inside");
    }

    /// As new, and everybody counted.
    fn check(self) -> u64 {
        let entered = self.entered.into_inner();
        for _ in 0..2 {
            let pair = self.mutex.try_lock().expect("nobody holds it");
            assert_eq!(*pair, (entered, entered));
            assert!(self.mutex.try_lock().is_err());
        }
        let long = Duration::from_secs(3_600);
        drop(self.mutex.try_lock_for(long).expect("nobody holds it"));
        assert!(!self.mutex.is_poisoned());
        assert_eq!(self.mutex.into_inner().unwrap(), (entered, entered));
        entered
    }
}

#[test]
fn mutex() {
    let act = |s: &Locked, actor: &mut Actor| {
        while actor.goes_on() {
            let mutex = &s.mutex;
            let guard = match actor.rng.below(6) {
                0 => Some(mutex.lock().unwrap()),
                1 => mutex.try_lock().ok(),
                2 => mutex.try_lock_for(Duration::MAX).ok(),
                3 => actor.timed_until(|deadline| mutex.try_lock_until(deadline).ok()),
                _ => actor.timed(|timeout| mutex.try_lock_for(timeout).ok()),
            };
            if let Some(guard) = guard {
                s.enter(actor, guard, Duration::ZERO);
            } else {
                actor.dawdle();
            }
        }
    };
    let show = |s: &Locked| format!("{:?}, inside {:?}", s.mutex, s.inside);
    assert!(storm_with("sync::mutex", Locked::default(), act, show).check() > 0);
}

/// Whoever holds it sleeps about as long as it takes a waiter to starve, and about as long as the
/// waiters' patience: the lock is handed to waiters while they give up. The kernel threads and a
/// few others take it again at once, as often as they can.
#[test]
fn mutex_handed_to_waiters_that_give_up() {
    let act = |s: &Locked, actor: &mut Actor| {
        while actor.goes_on() {
            if actor.index < 6 {
                s.enter(actor, s.mutex.lock().unwrap(), Duration::ZERO);
                continue;
            }
            let patience = Duration::from_micros(500) + actor.rng.micros_below(2_000);
            if let Ok(guard) = s.mutex.try_lock_for(patience) {
                let stay = match actor.rng.below(4) {
                    0 => Duration::from_micros(500) + actor.rng.micros_below(1_000),
                    _ => Duration::ZERO,
                };
                s.enter(actor, guard, stay);
            }
        }
    };
    let show = |s: &Locked| format!("{:?}, inside {:?}", s.mutex, s.inside);
    let s = storm_with("mutex, giving up", Locked::default(), act, show);
    assert!(s.check() > 0);
}

#[test]
fn rwlock() {
    #[derive(Default)]
    struct Shared {
        lock: RwLock<Pair>,
        /// Readers inside, or -1: a writer.
        inside: AtomicIsize,
        written: AtomicU64,
        together: AtomicU64,
    }
    fn read(s: &Shared, actor: &mut Actor, pair: &Pair) {
        actor.at();
        let others = s.inside.fetch_add(1, Relaxed);
        assert!(others >= 0, "a reader beside a writer");
        s.together.fetch_max(others as u64 + 1, Relaxed);
        let before = *pair;
        actor.dawdle();
        assert_eq!((before.0, before), (before.1, *pair));
        assert!(s.inside.fetch_sub(1, Relaxed) > 0);
    }
    fn write(s: &Shared, actor: &mut Actor, pair: &mut Pair) {
        actor.at();
        assert_eq!(s.inside.swap(-1, Relaxed), 0, "a writer beside another");
        pair.0 += 1;
        actor.dawdle();
        pair.1 += 1;
        assert_eq!(pair.0, pair.1);
        s.written.fetch_add(1, Relaxed);
        assert_eq!(s.inside.swap(0, Relaxed), -1);
    }
    let act = |s: &Shared, actor: &mut Actor| {
        while actor.goes_on() {
            let lock = &s.lock;
            if !actor.one_in(3) {
                let guard = match actor.rng.below(5) {
                    0 | 1 => Some(lock.read().unwrap()),
                    2 => lock.try_read().ok(),
                    3 => actor.timed_until(|deadline| lock.try_read_until(deadline).ok()),
                    _ => actor.timed(|timeout| lock.try_read_for(timeout).ok()),
                };
                guard.inspect(|pair| read(s, actor, pair));
                continue;
            }
            let guard = match actor.rng.below(5) {
                0 | 1 => Some(lock.write().unwrap()),
                2 => lock.try_write().ok(),
                3 => actor.timed_until(|deadline| lock.try_write_until(deadline).ok()),
                _ => actor.timed(|timeout| lock.try_write_for(timeout).ok()),
            };
            if let Some(mut pair) = guard {
                write(s, actor, &mut pair);
            }
        }
    };
    let show = |s: &Shared| format!("{:?}, inside {:?}", s.lock, s.inside);
    let s = storm_with("sync::rwlock", Shared::default(), act, show);
    let written = s.written.into_inner();
    assert!(written > 0 && s.together.into_inner() > 1);
    let pair = s.lock.try_read().expect("no writer");
    assert!(s.lock.try_write().is_err() && s.lock.try_read().is_ok());
    assert_eq!(*pair, (written, written));
    drop(pair);
    let pair = s.lock.try_write().expect("nobody holds it");
    assert!(s.lock.try_write().is_err() && s.lock.try_read().is_err());
    drop(pair);
    assert_eq!(s.lock.into_inner().unwrap(), (written, written));
}

#[derive(Default)]
struct Tokens {
    /// Tokens there are, and whether it is over.
    state: Mutex<(u64, bool)>,
    /// Told of each token.
    more: Condvar,
    /// Told when tokens have been taken.
    fewer: Condvar,
    made: AtomicU64,
    taken: AtomicU64,
}

/// A pool of tokens, at most ten in it. Half of the actors make some, half take some.
#[test]
fn condvar() {
    let act = |s: &Tokens, actor: &mut Actor| {
        let most = 10;
        while actor.goes_on() {
            let make = actor.index.is_multiple_of(2);
            let (here, there) = if make {
                (&s.fewer, &s.more)
            } else {
                (&s.more, &s.fewer)
            };
            let blocked = |state: &mut (u64, bool)| {
                !state.1 && if make { state.0 == most } else { state.0 == 0 }
            };
            let mut state = s.state.lock().unwrap();
            match actor.rng.below(5) {
                0 => state = here.wait_while(state, |state| blocked(state)).unwrap(),
                1 => {
                    while blocked(&mut state) {
                        state = here.wait(state).unwrap();
                    }
                }
                2 => {
                    while blocked(&mut state) {
                        state = here.wait_timeout(state, Duration::MAX).unwrap().0;
                    }
                }
                3 => {
                    let (start, timeout) = (Instant::now(), actor.timeout());
                    let (guard, result) = here.wait_timeout(state, timeout).unwrap();
                    assert!(!result.timed_out() || start.elapsed() >= timeout);
                    state = guard;
                }
                _ => {
                    let timeout = actor.timeout();
                    let wait = here.wait_timeout_while(state, timeout, |state| blocked(state));
                    let (guard, result) = wait.unwrap();
                    state = guard;
                    assert_eq!(result.timed_out(), blocked(&mut state));
                }
            }
            if !blocked(&mut state) && !state.1 {
                if make {
                    state.0 += 1;
                    s.made.fetch_add(1, Relaxed);
                } else {
                    state.0 -= 1;
                    s.taken.fetch_add(1, Relaxed);
                }
                if actor.one_in(2) {
                    drop(state);
                    there.notify_one();
                } else {
                    there.notify_one();
                    drop(state);
                }
                if actor.one_in(50) {
                    s.more.notify_all();
                    s.fewer.notify_all();
                }
            } else {
                drop(state);
                // Whoever was told and did not heed it passes it on.
                here.notify_one();
            }
            actor.dawdle();
        }
        s.state.lock().unwrap().1 = true;
        s.more.notify_all();
        s.fewer.notify_all();
    };
    let show = |s: &Tokens| format!("{:?}, {:?} made, {:?} taken", s.state, s.made, s.taken);
    let s = storm_with("sync::condvar", Tokens::default(), act, show);
    let (made, taken) = (s.made.into_inner(), s.taken.into_inner());
    assert!(taken > 0);
    let state = s.state.try_lock().expect("nobody holds it");
    assert_eq!(state.0, made - taken);
    s.more.notify_one(); // to nobody, and not kept
    let (state, result) = s.more.wait_timeout(state, Duration::ZERO).unwrap();
    assert!(result.timed_out());
    drop(state);
}

/// A notification goes to a waiter that has not given up: one that says it has timed out has not
/// been told, and may leave without looking. If it were wrong about that, the token would stay, and
/// the four plain waiters and the one that makes tokens would wait for ever.
#[test]
fn condvar_notification_never_goes_to_one_that_timed_out() {
    let act = |s: &Tokens, actor: &mut Actor| {
        // The plain waiters stay until the maker says that there will be no more.
        let mut over = false;
        while actor.goes_on() || (actor.index < 5 && actor.index != 2 && !over) {
            if actor.index == 2 {
                let mut state = s.state.lock().unwrap();
                assert_eq!(state.0, 0);
                state.0 = 1;
                s.made.fetch_add(1, Relaxed);
                if actor.one_in(2) {
                    drop(state);
                    s.more.notify_one();
                    state = s.state.lock().unwrap();
                } else {
                    s.more.notify_one();
                }
                while state.0 == 1 {
                    actor.at();
                    state = s.fewer.wait(state).unwrap();
                }
                continue;
            }
            let mut state = s.state.lock().unwrap();
            if actor.index < 5 {
                while state.0 == 0 && !state.1 {
                    state = s.more.wait(state).unwrap();
                }
                over = state.1;
            } else {
                let timeout = actor.rng.micros_below(400);
                let (guard, result) = s.more.wait_timeout(state, timeout).unwrap();
                if result.timed_out() {
                    continue;
                }
                state = guard;
            }
            if state.0 == 1 {
                state.0 = 0;
                s.taken.fetch_add(1, Relaxed);
                s.fewer.notify_one();
            }
        }
        if actor.index == 2 {
            s.state.lock().unwrap().1 = true;
            s.more.notify_all();
        }
    };
    let show = |s: &Tokens| format!("{:?}, {:?} made, {:?} taken", s.state, s.made, s.taken);
    let s = storm_with("condvar, timing out", Tokens::default(), act, show);
    assert_eq!(s.made.into_inner(), s.taken.into_inner());
}
