//! Per-thread state of C and of other crates belongs to the green thread as well.
//!
//! The idea: errno, pthread keys, crossbeam-epoch's pin, rand's generator and parking_lot's queues
//! all hang off the thread pointer. Code that was never written for green threads must not notice
//! that they move or are preempted.

#![cfg(green)] // elsewhere it is the kernel thread's

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{Mode, Runtime};
use rand::RngExt as _;
use std::collections::HashSet;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn errno_place() -> *mut i32 {
    // SAFETY: takes nothing; the place lives as long as the calling thread.
    unsafe { libc::__errno_location() }
}

fn errno() -> i32 {
    // SAFETY: the place belongs to the calling thread alone.
    unsafe { errno_place().read_volatile() }
}

fn set_errno(value: i32) {
    // SAFETY: as in `errno`.
    unsafe { errno_place().write_volatile(value) }
}

#[test]
fn errno_stays_across_yields() {
    let _w = watchdog("foreign::errno_stays_across_yields");
    let places = Mutex::new(HashSet::new());
    let present = AtomicUsize::new(0);
    thread::scope(|s| {
        for i in 1..=64 {
            let (places, present) = (&places, &present);
            s.spawn(move || {
                let place = errno_place() as usize;
                assert!(
                    places.lock().unwrap().insert(place),
                    "two live threads share errno"
                );
                present.fetch_add(1, SeqCst);
                wait_until(|| present.load(SeqCst) == 64);
                for n in 0..200 {
                    set_errno(i * 1000 + n);
                    thread::yield_now();
                    assert_eq!(errno(), i * 1000 + n);
                    assert_eq!(errno_place() as usize, place);
                }
            });
        }
    });
}

#[test]
fn errno_stays_across_preemption() {
    let _w = watchdog("foreign::errno_stays_across_preemption");
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(slice)
        .build()
        .expect("a runtime");
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..6)
        .map(|i| {
            let stop = stop.clone();
            runtime.spawn(move || {
                let place = errno_place() as usize;
                let (mut checks, mut value) = (0u64, 0);
                while checks == 0 || !stop.load(Relaxed) {
                    value = (value + 6) % 6000 + i;
                    set_errno(value);
                    for _ in 0..1000 {
                        assert_eq!(errno(), value);
                        assert_eq!(errno_place() as usize, place);
                        checks += 1;
                    }
                }
                checks
            })
        })
        .collect();
    if runtime.mode() == Mode::Green {
        wait_until(|| runtime.metrics().preemptions >= 100);
    }
    stop.store(true, Relaxed);
    hogs.into_iter()
        .for_each(|h| assert!(h.join().unwrap() > 0));
    runtime.shutdown();
}

#[test]
fn a_failed_call_reports_its_own_error() {
    let _w = watchdog("foreign::a_failed_call_reports_its_own_error");
    thread::scope(|s| {
        for i in 0..32 {
            s.spawn(move || {
                for _ in 0..200 {
                    let (path, kind) = match i % 2 {
                        0 => ("/nonexistent", std::io::ErrorKind::NotFound),
                        _ => ("/dev/null/x", std::io::ErrorKind::NotADirectory),
                    };
                    assert_eq!(std::fs::metadata(path).unwrap_err().kind(), kind);
                    thread::yield_now();
                }
            });
        }
    });
}

static DESTROYED: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Destroys a boxed count of lives; with lives left it puts the value back once more, as POSIX
/// allows.
extern "C" fn destroy(value: *mut c_void) {
    DESTROYED.fetch_add(1, SeqCst);
    let lives = value.cast::<usize>();
    // SAFETY: only values that came from `Box::into_raw` are stored under the key, and each is
    // passed here as their owner.
    unsafe {
        if *lives > 1 {
            *lives -= 1;
            thread::yield_now(); // still a green thread like any other
            assert_eq!(libc::pthread_setspecific(KEY.load(SeqCst) as u32, value), 0);
        } else {
            drop(Box::from_raw(lives));
        }
    }
}

#[test]
fn pthread_keys() {
    let _w = watchdog("foreign::pthread_keys");
    let mut key = 0;
    // SAFETY: `key` is a valid place and `destroy` what the key's values need.
    let created = unsafe { libc::pthread_key_create(&mut key, Some(destroy)) };
    assert_eq!(created, 0);
    KEY.store(key as usize, SeqCst);
    let get = move || {
        // SAFETY: the key exists until the end of this test.
        unsafe { libc::pthread_getspecific(key) }
    };
    for round in 1..=3 {
        // later rounds find recycled blocks
        let handles: Vec<_> = (0..100)
            .map(|i| {
                thread::spawn(move || {
                    assert!(get().is_null(), "a fresh thread has no value");
                    let value = Box::into_raw(Box::new(1usize + i % 3)).cast::<c_void>();
                    // SAFETY: the key exists, and `destroy` expects such values.
                    assert_eq!(unsafe { libc::pthread_setspecific(key, value) }, 0);
                    for _ in 0..50 {
                        thread::yield_now();
                        assert_eq!(get(), value);
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|h| h.join().unwrap());
        let once_each: usize = (0..100).map(|i| 1 + i % 3).sum();
        assert_eq!(
            DESTROYED.load(SeqCst),
            once_each * round,
            "all destroyed before join returns"
        );
    }
    assert!(get().is_null());
    // SAFETY: no thread uses the key any more.
    assert_eq!(unsafe { libc::pthread_key_delete(key) }, 0);
}

#[test]
fn crossbeam_epoch_pins_the_green_thread() {
    struct Freed(Arc<AtomicUsize>);
    impl Drop for Freed {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let _w = watchdog("foreign::crossbeam_epoch_pins_the_green_thread");
    let freed = Arc::new(AtomicUsize::new(0));
    let shared = crossbeam_epoch::Atomic::new((0u64, Freed(freed.clone())));
    let writes = 16 * 50;
    thread::scope(|s| {
        for i in 0..32 {
            let (shared, freed) = (&shared, &freed);
            s.spawn(move || {
                for n in 0..50u64 {
                    assert!(!crossbeam_epoch::is_pinned());
                    let guard = crossbeam_epoch::pin();
                    let seen = shared.load(Acquire, &guard);
                    // SAFETY: pinned, so what was loaded is not freed yet.
                    let value = unsafe { seen.deref() }.0;
                    for _ in 0..5 {
                        thread::yield_now();
                        assert!(crossbeam_epoch::is_pinned());
                    }
                    // SAFETY: as above; the pin must hold across the yields.
                    assert_eq!(unsafe { seen.deref() }.0, value);
                    if i % 2 == 0 {
                        let new = crossbeam_epoch::Owned::new((n, Freed(freed.clone())));
                        let old = shared.swap(new, AcqRel, &guard);
                        // SAFETY: `old` was swapped out by this thread only, and later readers
                        // cannot reach it.
                        unsafe { guard.defer_destroy(old) };
                    }
                    drop(guard);
                    thread::yield_now();
                }
            });
        }
    });
    // Every value but the last is freed in the end: no thread that is gone still holds an epoch
    // back.
    wait_until(|| {
        crossbeam_epoch::pin().flush();
        freed.load(SeqCst) == writes
    });
    // SAFETY: nobody else is left.
    drop(unsafe { shared.into_owned() });
    assert_eq!(freed.load(SeqCst), writes + 1);
}

#[test]
fn rands_generator_is_each_threads_own() {
    let _w = watchdog("foreign::rands_generator_is_each_threads_own");
    let all = Mutex::new(HashSet::new());
    thread::scope(|s| {
        for _ in 0..32 {
            s.spawn(|| {
                let mut mine = rand::rng(); // an Rc to a thread-local, held across switches
                for _ in 0..200 {
                    let drawn: u64 = mine.random();
                    assert!(
                        all.lock().unwrap().insert(drawn),
                        "two threads drew the same number"
                    );
                    thread::yield_now();
                    black_box(rand::rng().random_range(0..10));
                }
            });
        }
    });
    assert_eq!(all.into_inner().unwrap().len(), 32 * 200);
}

#[test]
fn parking_lot_parks_green_threads() {
    let _w = watchdog("foreign::parking_lot_parks_green_threads");
    let (sum, inside) = (parking_lot::Mutex::new(0), AtomicUsize::new(0));
    let (owner, turn) = (
        parking_lot::ReentrantMutex::new(()),
        parking_lot::Condvar::new(),
    );
    thread::scope(|s| {
        for i in 0..16 {
            let (sum, inside, owner, turn) = (&sum, &inside, &owner, &turn);
            s.spawn(move || {
                // In turn: each waits for the ones before it.
                let mut count = sum.lock();
                turn.wait_while(&mut count, |count| *count != i);
                *count += 1;
                drop(count);
                turn.notify_all();
                for _ in 0..50 {
                    let outer = owner.lock();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two threads hold the lock");
                    thread::yield_now();
                    let inner = owner.lock();
                    thread::yield_now();
                    assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                    drop((inner, outer));
                    let mut count = sum.lock();
                    let before = *count;
                    thread::yield_now();
                    *count = before; // nobody else was in between
                }
            });
        }
    });
    assert_eq!(*sum.lock(), 16);
}

#[test]
fn user_ids_change_in_every_kernel_thread() {
    let _w = watchdog("foreign::user_ids_change_in_every_kernel_thread");
    let stop = Arc::new(AtomicBool::new(false));
    let spin = |n: usize| {
        let stop = stop.clone();
        move || {
            while !stop.load(Relaxed) {
                match n % 2 {
                    0 => black_box(()),
                    _ => thread::yield_now(),
                }
            }
        }
    };
    let spinners: Vec<_> = (0..4).map(|n| thread::spawn(spin(n))).collect();
    // To the ids that we have: allowed to everybody, and libc asks every kernel thread all the same.
    // SAFETY: no preconditions.
    let change = || unsafe { libc::setresuid(libc::getuid(), libc::geteuid(), !0) };
    for _ in 0..50 {
        assert_eq!(change(), 0);
        assert_eq!(thread::spawn(change).join().unwrap(), 0);
    }
    stop.store(true, Relaxed);
    spinners
        .into_iter()
        .for_each(|spinner| spinner.join().unwrap());
}

#[test]
fn pthreads_know_the_stack_of_a_green_thread() {
    let bounds = || {
        let local = 0u8;
        // SAFETY: valid places; the attributes are initialised by the call and destroyed after it.
        unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(
                libc::pthread_getattr_np(libc::pthread_self(), &mut attributes),
                0
            );
            let (mut bottom, mut size) = (std::ptr::null_mut(), 0);
            assert_eq!(
                libc::pthread_attr_getstack(&attributes, &mut bottom, &mut size),
                0
            );
            libc::pthread_attr_destroy(&mut attributes);
            let start = bottom as usize;
            (start..start + size).contains(&(&raw const local as usize))
        }
    };
    assert!(thread::spawn(bounds).join().unwrap());
    assert!(bounds());
}

#[test]
fn a_thread_starts_with_its_creators_signal_mask() {
    fn is_blocked() -> bool {
        // SAFETY: valid places; a null set only reads.
        unsafe {
            let mut mask = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
            libc::sigismember(&mask, libc::SIGUSR2) == 1
        }
    }
    let block_and_spawn = || {
        // SAFETY: a valid, initialised set.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        }
        thread::spawn(is_blocked).join().unwrap()
    };
    assert!(!thread::spawn(is_blocked).join().unwrap());
    assert!(thread::spawn(block_and_spawn).join().unwrap());
    assert!(std::thread::spawn(block_and_spawn).join().unwrap());
    assert!(
        !thread::spawn(is_blocked).join().unwrap(),
        "the others' masks are their own"
    );
}

#[test]
fn libc_knows_the_name_of_a_green_thread() {
    let asked = thread::Builder::new()
        .name("a name longer than libc keeps".into())
        .spawn(|| {
            let mut name = [0u8; 16];
            // SAFETY: a buffer of that length.
            let error = unsafe {
                libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len())
            };
            (error, name)
        });
    assert_eq!(asked.unwrap().join().unwrap(), (0, *b"a name longer t\0"));
}

/// A green thread can detach itself, as a pthread that could be joined: nothing of it goes to others before
/// it ends.
#[test]
fn who_detaches_itself_keeps_its_stack() {
    let _w = watchdog("foreign::who_detaches_itself_keeps_its_stack");
    if !green() {
        return; // std could not join the thread
    }
    const PTHREADS: usize = 50;
    let detach = || {
        // SAFETY: the thread's own name.
        let own = unsafe { libc::pthread_self() };
        type Detach = unsafe extern "C" fn(libc::pthread_t) -> i32;
        // SAFETY: nobody joins this thread by its pthread name. libc's own function is what C's
        // `thrd_detach` comes to, whoever else has that name; it may find the thread detached already.
        unsafe {
            assert_eq!(libc::pthread_detach(own), 0);
            let real = libc::dlsym(libc::RTLD_NEXT, c"pthread_detach".as_ptr());
            std::mem::transmute::<*mut c_void, Detach>(real)(own);
        }
        own
    };
    for _ in 0..3 {
        let stop = AtomicBool::new(false);
        thread::scope(|s| {
            let own = s.spawn(|| {
                let own = detach();
                // Stacks that libc has to spare go to these.
                let pthreads: Vec<_> = (0..PTHREADS)
                    .map(|_| {
                        let stop = &stop as *const AtomicBool as usize;
                        std::thread::spawn(move || {
                            // SAFETY: the flag outlives the threads, which are joined.
                            let stop = unsafe { &*(stop as *const AtomicBool) };
                            while !stop.load(Relaxed) {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            // SAFETY: the thread's own name.
                            unsafe { libc::pthread_self() }
                        })
                    })
                    .collect();
                stop.store(true, Relaxed);
                let names = pthreads.into_iter().map(|pthread| pthread.join().unwrap());
                (own, names.collect::<Vec<_>>())
            });
            let (own, names) = own.join().unwrap();
            assert!(
                !names.contains(&own),
                "a pthread has a green thread's control block"
            );
        });
    }
}
