//! The threads' primitives of C and crowds: a thousand green threads that wait for one object hold no kernel
//! thread.

#![cfg(all(
    feature = "unmodified",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use crate::common::pthread::*;
use crate::common::*;
#[cfg(feature = "observe")]
use greenthread::observe::State;
use std::mem::MaybeUninit;
/// A thousand green threads wait in `wait`, and hold no kernel thread; then `let_go` ends all waits.
fn crowd(test: &'static str, wait: impl Fn() + Send + Sync + 'static, let_go: impl Fn()) {
    let _w = watchdog(test);
    let runtime = runtime(2);
    let before = runtime.metrics().parked_calls;
    let wait = Arc::new(wait);
    let threads: Vec<_> = (0..GREEN)
        .map(|_| {
            let wait = wait.clone();
            runtime.spawn(move || wait())
        })
        .collect();
    if hooked() {
        wait_until(|| runtime.metrics().parked_calls - before >= GREEN as u64);
        hold_no_kernel_thread(&runtime);
    }
    let_go();
    for thread in threads {
        thread.join().unwrap();
    }
    runtime.shutdown();
}

#[test]
fn a_crowd_at_a_mutex() {
    let lock = Arc::new(mutex());
    let inside = lock.clone();
    // SAFETY: a valid mutex.
    unsafe {
        pthread_mutex_lock(lock.at());
        crowd(
            "pthread_crowds::a_crowd_at_a_mutex",
            move || {
                pthread_mutex_lock(inside.at());
                pthread_mutex_unlock(inside.at());
            },
            || assert_eq!(pthread_mutex_unlock(lock.at()), 0),
        );
    }
}

#[test]
fn a_crowd_at_a_mutex_with_which_a_kernel_thread_waits() {
    let objects = Arc::new((mutex(), cond(), AtomicBool::new(false)));
    let waiter = std::thread::spawn({
        let objects = objects.clone();
        // SAFETY: valid objects.
        move || unsafe {
            let (lock, signal, over) = &*objects;
            pthread_mutex_lock(lock.at());
            while !over.load(SeqCst) {
                pthread_cond_wait(signal.at(), lock.at());
            }
            pthread_mutex_unlock(lock.at());
        }
    });
    let inside = objects.clone();
    // SAFETY: valid objects.
    unsafe {
        pthread_mutex_lock(objects.0.at());
        crowd(
            "pthread_crowds::a_crowd_at_a_mutex_with_which_a_kernel_thread_waits",
            move || {
                pthread_mutex_lock(inside.0.at());
                pthread_mutex_unlock(inside.0.at());
            },
            || {
                assert_eq!(pthread_mutex_unlock(objects.0.at()), 0);
            },
        );
        pthread_mutex_lock(objects.0.at());
        objects.2.store(true, SeqCst);
        pthread_cond_broadcast(objects.1.at());
        pthread_mutex_unlock(objects.0.at());
    }
    waiter.join().unwrap();
}

/// A kernel thread that waits on a condition has unlocked the mutex long ago: nobody needs a kernel thread to wait for
/// that.
#[cfg(feature = "observe")]
#[test]
fn an_idle_wait_makes_no_lock_block() {
    let _w = watchdog("pthread_crowds::an_idle_wait_makes_no_lock_block");
    if !hooked() {
        return;
    }
    let objects = Arc::new((mutex(), cond(), AtomicBool::new(false)));
    // SAFETY: valid objects.
    unsafe {
        let (lock, signal, waits) = &*objects;
        let idle = std::thread::spawn({
            let objects = objects.clone();
            move || {
                let (lock, signal, waits) = &*objects;
                pthread_mutex_lock(lock.at());
                waits.store(true, SeqCst);
                while waits.load(SeqCst) {
                    pthread_cond_wait(signal.at(), lock.at());
                }
                pthread_mutex_unlock(lock.at());
            }
        });
        wait_until(|| waits.load(SeqCst));
        pthread_mutex_lock(lock.at()); // it has unlocked it
        let runtime = runtime(2);
        let threads: Vec<_> = (0..10)
            .map(|_| {
                let objects = objects.clone();
                let take = move || {
                    let lock = &objects.0;
                    (
                        pthread_mutex_lock(lock.at()),
                        pthread_mutex_unlock(lock.at()),
                    )
                };
                runtime.spawn(take)
            })
            .collect();
        let in_state = |state: State| {
            let dump = greenthread::observe::dump();
            let is_one = |id| {
                threads
                    .iter()
                    .any(|thread| Some(thread.thread().id()) == id)
            };
            dump.threads()
                .filter(|t| is_one(t.id()) && t.state() == state)
                .count()
        };
        wait_until(|| in_state(State::Parked) + in_state(State::Blocked) == threads.len());
        assert_eq!(in_state(State::Blocked), 0);
        assert_eq!(pthread_mutex_unlock(lock.at()), 0);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), (0, 0));
        }
        runtime.shutdown();
        pthread_mutex_lock(lock.at());
        waits.store(false, SeqCst);
        pthread_cond_signal(signal.at());
        pthread_mutex_unlock(lock.at());
        idle.join().unwrap();
    }
}

#[test]
fn a_crowd_at_a_condition() {
    let objects = Arc::new((mutex(), cond(), AtomicBool::new(false)));
    let inside = objects.clone();
    crowd(
        "pthread_crowds::a_crowd_at_a_condition",
        // SAFETY: valid objects.
        move || unsafe {
            let (lock, signal, over) = &*inside;
            pthread_mutex_lock(lock.at());
            while !over.load(SeqCst) {
                assert_eq!(pthread_cond_wait(signal.at(), lock.at()), 0);
            }
            pthread_mutex_unlock(lock.at());
        },
        // SAFETY: valid objects.
        || unsafe {
            let (lock, signal, over) = &*objects;
            pthread_mutex_lock(lock.at());
            over.store(true, SeqCst);
            pthread_mutex_unlock(lock.at());
            assert_eq!(pthread_cond_broadcast(signal.at()), 0);
        },
    );
}

#[test]
fn a_crowd_at_a_reader_writer_lock() {
    let lock = Arc::new(rwlock(READERS));
    let (inside, number) = (lock.clone(), AtomicUsize::new(0));
    // SAFETY: a valid lock.
    unsafe {
        pthread_rwlock_wrlock(lock.at());
        crowd(
            "pthread_crowds::a_crowd_at_a_reader_writer_lock",
            move || {
                match number.fetch_add(1, Relaxed) % 2 {
                    0 => pthread_rwlock_rdlock(inside.at()),
                    _ => pthread_rwlock_wrlock(inside.at()),
                };
                pthread_rwlock_unlock(inside.at());
            },
            || assert_eq!(pthread_rwlock_unlock(lock.at()), 0),
        );
    }
}

#[test]
fn a_crowd_at_a_semaphore() {
    let places = Arc::new(sem(0));
    let inside = places.clone();
    crowd(
        "pthread_crowds::a_crowd_at_a_semaphore",
        // SAFETY: a valid semaphore.
        move || assert_eq!(unsafe { sem_wait(inside.at()) }, 0),
        || {
            for _ in 0..GREEN {
                // SAFETY: a valid semaphore.
                assert_eq!(unsafe { sem_post(places.at()) }, 0);
            }
        },
    );
}

#[test]
fn a_semaphore_is_posted_in_handlers() {
    const NAME: &str = "pthread_crowds::a_semaphore_is_posted_in_handlers";
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    // The handler comes wherever threads wait for this semaphore and post others of the same table.
    static PLACES: std::sync::OnceLock<Sem> = std::sync::OnceLock::new();
    static POSTS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn post(_: c_int) {
        // SAFETY: a valid semaphore.
        unsafe { sem_post(PLACES.get().unwrap().at()) };
        POSTS.fetch_add(1, SeqCst);
    }
    PLACES.get_or_init(|| sem(0));
    let mut action = MaybeUninit::<sigaction>::zeroed();
    // SAFETY: a handler that makes async-signal-safe calls.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = post as *const () as usize;
        (*action.as_mut_ptr()).sa_flags = SA_RESTART;
        assert_eq!(sigaction(SIGUSR1, action.as_ptr(), ptr::null_mut()), 0);
    }
    const TAKERS: usize = 20;
    const EACH: usize = 50;
    static OVER: AtomicBool = AtomicBool::new(false);
    let runtime = runtime(2);
    let other = Arc::new(sem(1));
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let other = other.clone();
            runtime.spawn(move || {
                while !OVER.load(SeqCst) {
                    // SAFETY: a valid semaphore.
                    unsafe {
                        assert_eq!(sem_wait(other.at()), 0);
                        greenthread::yield_now();
                        assert_eq!(sem_post(other.at()), 0);
                    }
                }
            })
        })
        .collect();
    let takers: Vec<_> = (0..TAKERS)
        .map(|_| {
            runtime.spawn(|| {
                for _ in 0..EACH {
                    // SAFETY: a valid semaphore.
                    assert_eq!(unsafe { sem_wait(PLACES.get().unwrap().at()) }, 0);
                }
            })
        })
        .collect();
    for sent in 1..=TAKERS * EACH {
        // SAFETY: the process's own signal.
        unsafe { kill(getpid(), SIGUSR1) };
        while POSTS.load(SeqCst) < sent {
            std::thread::yield_now();
        }
    }
    for thread in takers {
        thread.join().unwrap();
    }
    OVER.store(true, SeqCst);
    for thread in busy {
        thread.join().unwrap();
    }
    runtime.shutdown();
}

#[test]
fn a_crowd_at_a_barrier() {
    let all = Arc::new(barrier(GREEN as u32 + 1));
    let inside = all.clone();
    // SAFETY: a valid barrier.
    let wait = |all: &Barrier| unsafe {
        pthread_barrier_wait(all.at());
    };
    crowd(
        "pthread_crowds::a_crowd_at_a_barrier",
        move || wait(&inside),
        || wait(&all),
    );
    // SAFETY: nobody uses it any more.
    assert_eq!(unsafe { pthread_barrier_destroy(all.at()) }, 0);
}

#[test]
fn a_crowd_joins() {
    let _w = watchdog("pthread_crowds::a_crowd_joins");
    let over = Arc::new(AtomicBool::new(false));
    const THREADS: usize = 50;
    let runtime = runtime(2);
    let joining: Vec<_> = (0..THREADS)
        .map(|i| {
            let over = over.clone();
            let thread = std::thread::spawn(move || {
                wait_until(|| over.load(SeqCst));
                i
            });
            runtime.spawn(move || thread.join().unwrap())
        })
        .collect();
    if hooked() {
        wait_until(|| runtime.metrics().parked_calls >= THREADS as u64);
        hold_no_kernel_thread(&runtime);
    }
    over.store(true, SeqCst);
    for (i, thread) in joining.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), i);
    }
    runtime.shutdown();
}

#[test]
fn join_answers() {
    let _w = watchdog("pthread_crowds::join_answers");
    extern "C" fn body(argument: *mut c_void) -> *mut c_void {
        std::thread::sleep(Duration::from_millis(argument as u64));
        argument
    }
    both(|| {
        for wait in [0_usize, 5] {
            // SAFETY: valid places.
            unsafe {
                let (mut thread, mut result) = (0, ptr::null_mut());
                let argument = wait as *mut c_void;
                assert_eq!(pthread_create(&mut thread, ptr::null(), body, argument), 0);
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(pthread_join(thread, &mut result), 0);
                assert_eq!(result, argument);
            }
        }
        // SAFETY: the thread's own name.
        let own = unsafe { pthread_join(pthread_self(), ptr::null_mut()) };
        assert_eq!(own, EDEADLK);
    });
}
