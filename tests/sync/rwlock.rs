//! `sync::RwLock`: readers together, writers alone, poisoning by writers only, downgrading, time
//! limits, and that nobody starves.
//!
//! The idea: as in `mutex.rs`.

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use greenthread::sync::{Barrier, RwLock, RwLockWriteGuard, TryLockError};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

#[test]
fn readers_share_and_writers_do_not() {
    let _w = watchdog("rwlock::readers_share_and_writers_do_not");
    both(|| {
        let shared = Arc::new((RwLock::new(1), Barrier::new(20)));
        let read = |shared: Arc<(RwLock<i32>, Barrier)>| {
            move || {
                let guard = shared.0.read().unwrap();
                shared.1.wait(); // all have it at once
                *guard
            }
        };
        let kernel = std::thread::spawn(read(shared.clone()));
        let readers: Vec<_> = (0..19)
            .map(|_| thread::spawn(read(shared.clone())))
            .collect();
        assert_eq!(
            readers.into_iter().map(|r| r.join().unwrap()).sum::<i32>(),
            19
        );
        assert_eq!(kernel.join().unwrap(), 1);
        let lock = &shared.0;
        let (one, two) = (lock.read().unwrap(), lock.try_read().unwrap());
        assert!(matches!(lock.try_write(), Err(TryLockError::WouldBlock)));
        drop(one);
        assert!(lock.try_write().is_err());
        drop(two);
        let mut writer = lock.try_write().unwrap();
        assert!(lock.try_write().is_err());
        assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
        *writer = 2;
        drop(writer);
        assert_eq!(*lock.try_read().unwrap(), 2);
    });
}

#[test]
fn a_writer_that_panics_poisons_a_reader_does_not() {
    let _w = watchdog("rwlock::a_writer_that_panics_poisons_a_reader_does_not");
    both(|| {
        let mut lock = RwLock::new(1);
        catch_unwind(|| {
            let _guard = lock.read().unwrap();
            resume_unwind(Box::new(()));
        })
        .unwrap_err();
        assert!(!lock.is_poisoned());
        catch_unwind(|| {
            let guard = RwLockWriteGuard::downgrade(lock.write().unwrap());
            assert_eq!(*guard, 1);
            resume_unwind(Box::new(()));
        })
        .unwrap_err();
        assert!(!lock.is_poisoned());
        catch_unwind(|| {
            let _guard = lock.write().unwrap();
            resume_unwind(Box::new(()));
        })
        .unwrap_err();
        assert!(lock.is_poisoned());
        assert_eq!(**lock.read().unwrap_err().get_ref(), 1);
        assert_eq!(**lock.write().unwrap_err().get_ref(), 1);
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(
            lock.try_write_for(Duration::ZERO),
            Err(TryLockError::Poisoned(_))
        ));
        assert_eq!(*lock.get_mut().unwrap_err().into_inner(), 1);
        lock.clear_poison();
        *lock.write().unwrap() = 3;
        assert_eq!(*lock.get_mut().unwrap(), 3);
        assert_eq!(lock.into_inner().unwrap(), 3);
    });
}

#[test]
fn no_writer_between_writing_and_the_downgraded_read() {
    let _w = watchdog("rwlock::no_writer_between_writing_and_the_downgraded_read");
    both(|| {
        let lock = Arc::new(RwLock::new(0usize));
        let writers: Vec<_> = (0..8)
            .map(|_| lock.clone())
            .map(|lock| {
                thread::spawn(move || {
                    for _ in 0..200 {
                        let mut writer = lock.write().unwrap();
                        *writer += 1;
                        let written = *writer;
                        let reader = RwLockWriteGuard::downgrade(writer);
                        if written % 16 == 0 {
                            thread::yield_now();
                        }
                        assert_eq!(*reader, written);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(*lock.read().unwrap(), 1600);
    });
}

#[test]
fn a_downgrade_lets_waiting_readers_in() {
    let _w = watchdog("rwlock::a_downgrade_lets_waiting_readers_in");
    both(|| {
        let shared = Arc::new((RwLock::new(0), Barrier::new(11)));
        let mut writer = shared.0.write().unwrap();
        let readers: Vec<_> = (0..10)
            .map(|_| shared.clone())
            .map(|shared| {
                thread::spawn(move || {
                    let guard = shared.0.read().unwrap();
                    shared.1.wait();
                    *guard
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(2)); // most are in the queue by now
        *writer = 5;
        let reader = RwLockWriteGuard::downgrade(writer);
        shared.1.wait(); // they all read while this one does
        assert_eq!(
            readers.into_iter().map(|r| r.join().unwrap()).sum::<i32>(),
            50
        );
        drop(reader);
        assert!(shared.0.try_write().is_ok());
    });
}

#[test]
fn time_limits() {
    let _w = watchdog("rwlock::time_limits");
    both(|| {
        let lock = Arc::new(RwLock::new(0));
        let limit = Duration::from_millis(3);
        let late = |try_it: &dyn Fn() -> bool| {
            let start = Instant::now();
            assert!(!try_it());
            assert!(start.elapsed() >= limit);
        };
        let reader = lock.read().unwrap();
        late(&|| lock.try_write_for(limit).is_ok());
        late(&|| lock.try_write_until(Instant::now() + limit).is_ok());
        assert_eq!(*lock.try_read_for(Duration::ZERO).unwrap(), 0);
        drop(reader);
        let writer = lock.write().unwrap();
        late(&|| lock.try_read_for(limit).is_ok());
        late(&|| lock.try_read_until(Instant::now() + limit).is_ok());
        late(&|| lock.try_write_for(limit).is_ok());
        assert!(lock.try_read_for(Duration::ZERO).is_err());
        let theirs = lock.clone();
        let far = Instant::now() + Duration::from_secs(1 << 33);
        let waits = thread::spawn(move || {
            drop(theirs.try_read_for(Duration::MAX).unwrap());
            drop(theirs.try_read_until(far).unwrap());
            *theirs.try_write_until(far).unwrap() += 1;
            *theirs.try_write_for(Duration::MAX).unwrap() += 1;
        });
        thread::sleep(Duration::from_millis(1));
        drop(writer);
        waits.join().unwrap();
        assert_eq!(*lock.read().unwrap(), 2);
    });
}

/// A writer waits so long that readers queue behind it; then it gives up, and they must not go on
/// waiting for the reader that it waited for.
#[test]
fn a_writer_that_gives_up_leaves_nothing_behind() {
    let _w = watchdog("rwlock::a_writer_that_gives_up_leaves_nothing_behind");
    both(|| {
        let shared = Arc::new((RwLock::new(7), AtomicBool::new(false)));
        let first = shared.0.read().unwrap();
        let theirs = shared.clone();
        let writer = thread::spawn(move || {
            let limit = Duration::from_millis(30);
            assert!(theirs.0.try_write_for(limit).is_err());
            theirs.1.store(true, SeqCst);
        });
        // Readers go on coming, until one finds the writer waiting too long, and queues behind it.
        let readers: Vec<_> = (0..4)
            .map(|_| shared.clone())
            .map(|shared| {
                thread::spawn(move || {
                    while !shared.1.load(SeqCst) {
                        assert_eq!(*shared.0.read().unwrap(), 7);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|r| r.join().unwrap());
        writer.join().unwrap();
        assert_eq!(*shared.0.try_read().expect("nobody waits"), 7);
        drop(first);
        assert!(shared.0.try_write().is_ok());
    });
}

#[test]
fn kernel_and_green_threads_mixed() {
    const TURNS: usize = 200;
    let _w = watchdog("rwlock::kernel_and_green_threads_mixed");
    let mut rng = Rng::new("rwlock::kernel_and_green_threads_mixed");
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .unwrap();
    // Two numbers that are equal whenever nobody writes.
    let lock = Arc::new(RwLock::new((0usize, 0usize)));
    let written = Arc::new(AtomicUsize::new(0));
    let work = |mut rng: Rng| {
        let (lock, written) = (lock.clone(), written.clone());
        move || {
            for _ in 0..TURNS {
                let limit = Duration::from_micros(rng.below(500) as u64);
                let pause = rng.below(200);
                let dwell = || (0..pause).for_each(|_| std::hint::spin_loop());
                let writer = match rng.below(8) {
                    0 => lock.try_write_for(limit).ok(),
                    1 => lock.try_write().ok(),
                    2 => lock.write().ok(),
                    kind => {
                        let reader = match kind {
                            3 => lock.try_read_for(limit).ok(),
                            4 => lock.try_read().ok(),
                            _ => lock.read().ok(),
                        };
                        if let Some(reader) = reader {
                            dwell();
                            assert_eq!(reader.0, reader.1);
                            if pause == 0 {
                                thread::yield_now();
                            }
                        }
                        continue;
                    }
                };
                let Some(mut writer) = writer else { continue };
                assert_eq!(writer.0, writer.1);
                writer.0 += 1;
                dwell();
                if pause == 0 {
                    thread::yield_now();
                }
                writer.1 += 1;
                written.fetch_add(1, Relaxed);
                if pause.is_multiple_of(2) {
                    let number = writer.1;
                    let reader = RwLockWriteGuard::downgrade(writer);
                    dwell();
                    assert_eq!((reader.0, reader.1), (number, number));
                }
            }
        }
    };
    let green: Vec<_> = (0..200).map(|_| runtime.spawn(work(rng.fork()))).collect();
    let kernel: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(work(rng.fork())))
        .collect();
    green.into_iter().for_each(|h| h.join().unwrap());
    kernel.into_iter().for_each(|h| h.join().unwrap());
    let numbers = *lock.try_write().expect("nobody holds it");
    let written = written.load(Relaxed);
    assert_eq!(numbers, (written, written));
}

fn busy(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Hogs hold the lock all the time, in turns of 50 µs that overlap if they are readers'. One of the
/// other kind gets it all the same.
fn one_among_hogs(hogs_write: bool) {
    let shared = Arc::new((RwLock::new(()), AtomicUsize::new(0), AtomicBool::new(false)));
    let hog = || {
        let shared = shared.clone();
        move || {
            let (lock, turns, stop) = &*shared;
            let turn = Duration::from_micros(50);
            while !stop.load(Relaxed) {
                if hogs_write {
                    let _guard = lock.write().unwrap();
                    busy(turn);
                } else {
                    let _guard = lock.read().unwrap();
                    // Sometimes it gives way while it reads, so that another one's read overlaps.
                    busy(turn);
                    thread::yield_now();
                }
                turns.fetch_add(1, Relaxed);
            }
        }
    };
    let green: Vec<_> = (0..4).map(|_| thread::spawn(hog())).collect();
    let kernel: Vec<_> = (0..2).map(|_| std::thread::spawn(hog())).collect();
    let (lock, turns, stop) = &*shared;
    wait_until(|| turns.load(Relaxed) > 50);
    let mut waited: Vec<usize> = (0..20)
        .map(|_| {
            let before = turns.load(Relaxed);
            wait_until(|| turns.load(Relaxed) > before); // they are at it again
            let before = turns.load(Relaxed);
            match hogs_write {
                true => drop(lock.read().unwrap()),
                false => drop(lock.write().unwrap()),
            }
            turns.load(Relaxed) - before
        })
        .collect();
    stop.store(true, Relaxed);
    green.into_iter().for_each(|h| h.join().unwrap());
    kernel.into_iter().for_each(|h| h.join().unwrap());
    waited.sort();
    println!("turns of others before one's own (hogs write: {hogs_write}): {waited:?}");
    assert!(waited[10] < 1000, "{waited:?}");
}

#[test]
fn a_writer_does_not_starve() {
    let _w = watchdog("rwlock::a_writer_does_not_starve");
    both(|| one_among_hogs(false));
}

#[test]
fn a_reader_does_not_starve() {
    let _w = watchdog("rwlock::a_reader_does_not_starve");
    both(|| one_among_hogs(true));
}
