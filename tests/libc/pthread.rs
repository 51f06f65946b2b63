//! The threads' primitives of C in storms: green threads and kernel threads on the same objects, on one processor and on
//! two, with a preemption every 100 µs. What must come out is counted.

#![cfg(all(
    feature = "unmodified",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use crate::common::pthread::*;
use crate::common::*;

#[test]
fn mutexes_exclude() {
    let lock = mutex();
    let counter = Shared::new(0_u64);
    storm("pthread::mutexes_exclude", GREEN, KERNEL, |_| {
        for turn in 0..TURNS {
            // SAFETY: a valid mutex.
            unsafe {
                let far = after(CLOCK_MONOTONIC, LONG);
                assert_eq!(
                    match turn % 3 {
                        0 => pthread_mutex_lock(lock.at()),
                        1 => pthread_mutex_clocklock(lock.at(), CLOCK_MONOTONIC, &far),
                        _ => pthread_mutex_timedlock(lock.at(), &after(CLOCK_REALTIME, LONG)),
                    },
                    0
                );
                counter.add();
                if turn % 8 == 0 {
                    greenthread::yield_now(); // others find it taken
                }
                assert_eq!(pthread_mutex_unlock(lock.at()), 0);
            }
        }
    });
    assert_eq!(counter.value(), ALL * TURNS * RUNS);
}

#[test]
fn mutexes_exclude_with_time_limits() {
    let lock = mutex();
    let counter = Shared::new(0_u64);
    let got = AtomicUsize::new(0);
    storm(
        "pthread::mutexes_exclude_with_time_limits",
        300,
        KERNEL,
        |i| {
            for turn in 0..TURNS {
                let limit = Duration::from_micros((i as u64 * 7 + turn * 13) % 500);
                // SAFETY: a valid mutex.
                unsafe {
                    match pthread_mutex_timedlock(lock.at(), &after(CLOCK_REALTIME, limit)) {
                        0 => {
                            counter.add();
                            got.fetch_add(1, Relaxed);
                            greenthread::yield_now();
                            assert_eq!(pthread_mutex_unlock(lock.at()), 0);
                        }
                        answer => assert_eq!(answer, ETIMEDOUT),
                    }
                }
            }
        },
    );
    assert_eq!(counter.value(), got.load(Relaxed) as u64);
    assert!(counter.value() > 0);
}

/// A ring of places under a mutex, with two condition variables, as every program has one.
struct Ring {
    lock: Mutex,
    filled: Cond,
    emptied: Cond,
    items: Shared<Vec<u64>>,
}

impl Ring {
    fn new() -> Ring {
        Ring {
            lock: mutex(),
            filled: cond(),
            emptied: cond(),
            items: Shared::new(Vec::new()),
        }
    }

    unsafe fn put(&self, item: u64) {
        // SAFETY: the items are under the lock.
        unsafe {
            assert_eq!(pthread_mutex_lock(self.lock.at()), 0);
            while (*self.items.at()).len() >= 4 {
                assert_eq!(pthread_cond_wait(self.emptied.at(), self.lock.at()), 0);
            }
            (*self.items.at()).push(item);
            assert_eq!(pthread_cond_signal(self.filled.at()), 0);
            assert_eq!(pthread_mutex_unlock(self.lock.at()), 0);
        }
    }

    unsafe fn take(&self, turn: u64) -> u64 {
        // SAFETY: as above.
        unsafe {
            assert_eq!(pthread_mutex_lock(self.lock.at()), 0);
            while (*self.items.at()).is_empty() {
                let answer = match turn % 2 {
                    0 => pthread_cond_wait(self.filled.at(), self.lock.at()),
                    _ => {
                        let limit = after(CLOCK_REALTIME, Duration::from_micros(200));
                        pthread_cond_timedwait(self.filled.at(), self.lock.at(), &limit)
                    }
                };
                assert!(
                    answer == 0 || answer == ETIMEDOUT && turn % 2 == 1,
                    "{answer}"
                );
            }
            let item = (*self.items.at()).pop().unwrap();
            assert_eq!(pthread_mutex_unlock(self.lock.at()), 0);
            assert_eq!(pthread_cond_signal(self.emptied.at()), 0); // beyond the lock, which is allowed
            item
        }
    }
}

fn producers_and_consumers(test: &'static str, green: usize, kernel: usize) {
    let ring = Ring::new();
    let sum = AtomicUsize::new(0);
    storm(test, green, kernel, |i| {
        for turn in 0..TURNS {
            // SAFETY: the ring lives as long as the storm.
            unsafe {
                match i % 2 {
                    0 => ring.put(i as u64 + turn),
                    _ => {
                        sum.fetch_add(ring.take(turn) as usize, Relaxed);
                    }
                }
            }
        }
    });
    let put = |i: usize| (0..TURNS as usize).map(move |turn| i + turn).sum::<usize>();
    let expected: usize = (0..green + kernel).step_by(2).map(put).sum();
    assert_eq!(sum.load(Relaxed), expected * RUNS as usize);
}

#[test]
fn items_pass_between_green_threads() {
    producers_and_consumers("pthread::items_pass_between_green_threads", GREEN, 0);
}

#[test]
fn items_pass_between_all() {
    producers_and_consumers("pthread::items_pass_between_all", GREEN, 4);
}

#[test]
fn items_pass_from_few_to_few() {
    producers_and_consumers("pthread::items_pass_from_few_to_few", 2, 2);
}

#[test]
fn a_kernel_thread_that_waits_unlocks_for_green_ones() {
    // Each wait of the kernel thread is an unlock of which the table learns nothing.
    let (lock, signal) = (mutex(), cond());
    let (turn, over) = (Shared::new(0_u64), AtomicUsize::new(0));
    const GREEN: usize = 20;
    storm("a_kernel_thread_that_waits", GREEN, 2, |i| {
        // SAFETY: valid objects.
        unsafe {
            if i < 2 {
                pthread_mutex_lock(lock.at());
                while over.load(SeqCst) % GREEN != 0 || over.load(SeqCst) == 0 {
                    pthread_cond_wait(signal.at(), lock.at());
                    if over.load(SeqCst) % GREEN == 0 {
                        break;
                    }
                }
                pthread_mutex_unlock(lock.at());
                return;
            }
            for _ in 0..300 {
                pthread_mutex_lock(lock.at());
                turn.add();
                pthread_cond_broadcast(signal.at()); // the kernel threads come, and wait again
                if turn.value() % 3 == 0 {
                    greenthread::yield_now();
                }
                pthread_mutex_unlock(lock.at());
            }
            pthread_mutex_lock(lock.at());
            over.fetch_add(1, SeqCst);
            pthread_cond_broadcast(signal.at());
            pthread_mutex_unlock(lock.at());
        }
    });
    assert_eq!(turn.value(), GREEN as u64 * 300 * RUNS);
}

fn readers_and_writers(test: &'static str, kind: c_int) {
    let lock = rwlock(kind);
    let (one, other) = (Shared::new(0_u64), Shared::new(0_u64));
    storm(test, GREEN, KERNEL, |i| {
        for turn in 0..TURNS {
            // SAFETY: a valid lock; what is under it.
            unsafe {
                let far = after(CLOCK_REALTIME, LONG);
                if (i as u64 + turn).is_multiple_of(5) {
                    let answer = match turn % 3 {
                        0 => pthread_rwlock_wrlock(lock.at()),
                        1 => pthread_rwlock_timedwrlock(lock.at(), &far),
                        _ => loop {
                            let near = after(CLOCK_MONOTONIC, Duration::from_micros(300));
                            match pthread_rwlock_clockwrlock(lock.at(), CLOCK_MONOTONIC, &near) {
                                ETIMEDOUT => {}
                                answer => break answer,
                            }
                        },
                    };
                    assert_eq!(answer, 0);
                    one.add();
                    if turn % 2 == 0 {
                        greenthread::yield_now();
                    }
                    other.add();
                } else {
                    let answer = match turn % 2 {
                        0 => pthread_rwlock_rdlock(lock.at()),
                        _ => pthread_rwlock_timedrdlock(lock.at(), &far),
                    };
                    assert_eq!(answer, 0);
                    assert_eq!(one.value(), other.value());
                    if turn % 4 == 0 {
                        greenthread::yield_now();
                    }
                }
                assert_eq!(pthread_rwlock_unlock(lock.at()), 0);
            }
        }
    });
    let writes = (0..ALL).map(|i| {
        (0..TURNS)
            .filter(|turn| (i + turn).is_multiple_of(5))
            .count() as u64
    });
    assert_eq!(one.value(), writes.sum::<u64>() * RUNS);
}

#[test]
fn readers_share_and_writers_exclude() {
    readers_and_writers("pthread::readers_share_and_writers_exclude", READERS);
}

#[test]
fn readers_share_and_writers_exclude_where_those_are_preferred() {
    readers_and_writers("readers_share_and_writers_exclude_where", WRITERS);
}

#[test]
fn semaphores_count() {
    let places = sem(3);
    let inside = AtomicUsize::new(0);
    storm("pthread::semaphores_count", GREEN, KERNEL, |_| {
        for turn in 0..TURNS {
            // SAFETY: a valid semaphore.
            unsafe {
                let answer = match turn % 3 {
                    0 => sem_wait(places.at()),
                    1 => sem_timedwait(places.at(), &after(CLOCK_REALTIME, LONG)),
                    _ => sem_clockwait(places.at(), CLOCK_MONOTONIC, &after(CLOCK_MONOTONIC, LONG)),
                };
                assert_eq!(answer, 0);
                assert!(inside.fetch_add(1, SeqCst) < 3);
                if turn % 3 == 0 {
                    greenthread::yield_now();
                }
                inside.fetch_sub(1, SeqCst);
                assert_eq!(sem_post(places.at()), 0);
            }
        }
    });
    let mut value = 0;
    // SAFETY: a valid semaphore.
    unsafe { sem_getvalue(places.at(), &mut value) };
    assert_eq!(value, 3);
}

#[test]
fn barriers_let_all_go_together() {
    let all = barrier(ALL as u32);
    let (come, serial) = (AtomicUsize::new(0), AtomicUsize::new(0));
    storm(
        "pthread::barriers_let_all_go_together",
        GREEN,
        KERNEL,
        |_| {
            for _ in 0..TURNS {
                let before = come.fetch_add(1, SeqCst);
                // SAFETY: a valid barrier.
                match unsafe { pthread_barrier_wait(all.at()) } {
                    0 => {}
                    PTHREAD_BARRIER_SERIAL_THREAD => {
                        serial.fetch_add(1, SeqCst);
                    }
                    answer => panic!("{answer}"),
                }
                // All of this thread's round have come.
                let round = before / ALL as usize;
                assert!(come.load(SeqCst) >= (round + 1) * ALL as usize);
            }
        },
    );
    assert_eq!(serial.load(SeqCst) as u64, TURNS * RUNS);
}

#[test]
fn a_barrier_ends_when_the_last_has_left() {
    // The first to return destroys it, and overwrites the memory.
    let _w = watchdog("pthread::a_barrier_ends_when_the_last_has_left");
    let runtime = runtime(2);
    for turn in 0..200 {
        let one = Arc::new(barrier(8));
        let first = Arc::new(AtomicBool::new(true));
        let body = move |one: Arc<Barrier>, first: Arc<AtomicBool>| {
            // SAFETY: a valid barrier, and its memory.
            unsafe {
                pthread_barrier_wait(one.at());
                if first.swap(false, SeqCst) {
                    assert_eq!(pthread_barrier_destroy(one.at()), 0);
                    one.at()
                        .cast::<u8>()
                        .write_bytes(0xa5, size_of::<pthread_barrier_t>());
                }
            }
        };
        let spawn = |_| {
            let (one, first) = (one.clone(), first.clone());
            runtime.spawn(move || body(one, first))
        };
        let green: Vec<_> = (0..8 - turn % 2).map(spawn).collect();
        if turn % 2 == 1 {
            body(one.clone(), first.clone());
        }
        for thread in green {
            thread.join().unwrap();
        }
        // SAFETY: nobody uses it any more.
        let bytes = unsafe { std::slice::from_raw_parts(one.at().cast::<u8>(), 32) };
        assert!(bytes.iter().all(|&byte| byte == 0xa5), "{bytes:x?}");
    }
    runtime.shutdown();
}
