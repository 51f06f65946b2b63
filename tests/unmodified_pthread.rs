//! The threads' primitives of C, called from green threads and from kernel threads.
//!
//! The idea: the functions are libc's by their types, and called through `extern "C"` as C code calls
//! them. Storms count what must come out, on one processor and on two, with a preemption every 100 µs, and
//! with kernel threads on the same objects. Crowds are a thousand green threads that wait for one object: they must hold no kernel
//! thread. The rest compares answers with those that POSIX and glibc give.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

mod common;

use common::directory::Directory;
use common::*;
use greenthread::runtime::Runtime;
use libc::*;
use std::cell::UnsafeCell;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

unsafe extern "C-unwind" {
    fn pthread_mutex_clocklock(m: *mut pthread_mutex_t, c: clockid_t, t: *const timespec) -> c_int;
    fn pthread_cond_clockwait(
        c: *mut pthread_cond_t,
        m: *mut pthread_mutex_t,
        clock: clockid_t,
        t: *const timespec,
    ) -> c_int;
    fn pthread_rwlock_timedrdlock(l: *mut pthread_rwlock_t, t: *const timespec) -> c_int;
    fn pthread_rwlock_timedwrlock(l: *mut pthread_rwlock_t, t: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(
        l: *mut pthread_rwlock_t,
        c: clockid_t,
        t: *const timespec,
    ) -> c_int;
    fn pthread_rwlockattr_setkind_np(a: *mut pthread_rwlockattr_t, kind: c_int) -> c_int;
    fn sem_clockwait(s: *mut sem_t, c: clockid_t, t: *const timespec) -> c_int;
    fn pthread_once(control: *mut c_int, f: extern "C-unwind" fn()) -> c_int;
    fn mtx_lock(m: *mut pthread_mutex_t) -> c_int;
    fn mtx_unlock(m: *mut pthread_mutex_t) -> c_int;
    fn mtx_timedlock(m: *mut pthread_mutex_t, t: *const timespec) -> c_int;
    fn cnd_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int;
    fn cnd_signal(c: *mut pthread_cond_t) -> c_int;
}

/// An object of C's, which threads share.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: C's functions synchronise; the counters are under their locks.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn new(value: T) -> Shared<T> {
        Shared(UnsafeCell::new(value))
    }
    fn at(&self) -> *mut T {
        self.0.get()
    }
}

impl Shared<u64> {
    /// Not in one step: a second thread here would be noticed.
    fn add(&self) {
        // SAFETY: under a lock.
        unsafe {
            let value = self.at().read_volatile();
            std::hint::spin_loop();
            self.at().write_volatile(value + 1);
        }
    }
    fn value(&self) -> u64 {
        // SAFETY: as above, or alone.
        unsafe { self.at().read_volatile() }
    }
}

type Mutex = Shared<pthread_mutex_t>;
type Cond = Shared<pthread_cond_t>;
type RwLock = Shared<pthread_rwlock_t>;
type Sem = Shared<sem_t>;
type Barrier = Shared<pthread_barrier_t>;

fn mutex() -> Mutex {
    Shared::new(PTHREAD_MUTEX_INITIALIZER)
}

fn mutex_of(kind: c_int) -> Mutex {
    let mutex = mutex();
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: valid places.
    unsafe {
        pthread_mutexattr_init(attributes.as_mut_ptr());
        assert_eq!(pthread_mutexattr_settype(attributes.as_mut_ptr(), kind), 0);
        assert_eq!(pthread_mutex_init(mutex.at(), attributes.as_ptr()), 0);
    }
    mutex
}

fn cond() -> Cond {
    Shared::new(PTHREAD_COND_INITIALIZER)
}

fn cond_by(clock: clockid_t) -> Cond {
    let cond = cond();
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: valid places.
    unsafe {
        pthread_condattr_init(attributes.as_mut_ptr());
        assert_eq!(pthread_condattr_setclock(attributes.as_mut_ptr(), clock), 0);
        assert_eq!(pthread_cond_init(cond.at(), attributes.as_ptr()), 0);
    }
    cond
}

const READERS: c_int = 0;
const WRITERS: c_int = 2;

fn rwlock(kind: c_int) -> RwLock {
    let lock = Shared::new(PTHREAD_RWLOCK_INITIALIZER);
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: valid places.
    unsafe {
        pthread_rwlockattr_init(attributes.as_mut_ptr());
        assert_eq!(
            pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), kind),
            0
        );
        assert_eq!(pthread_rwlock_init(lock.at(), attributes.as_ptr()), 0);
    }
    lock
}

fn sem(value: u32) -> Sem {
    // SAFETY: a valid place.
    unsafe {
        let sem = Shared::new(std::mem::zeroed());
        assert_eq!(sem_init(sem.at(), 0, value), 0);
        sem
    }
}

fn barrier(count: u32) -> Barrier {
    // SAFETY: a valid place.
    unsafe {
        let barrier = Shared::new(std::mem::zeroed());
        assert_eq!(pthread_barrier_init(barrier.at(), ptr::null(), count), 0);
        barrier
    }
}

/// The time in a while, by a clock.
fn after(clock: clockid_t, wait: Duration) -> timespec {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place.
    unsafe { clock_gettime(clock, &mut time) };
    let nanos = time.tv_nsec as u64 + wait.as_nanos() as u64;
    time.tv_sec += (nanos / 1_000_000_000) as i64;
    time.tv_nsec = (nanos % 1_000_000_000) as i64;
    time
}

const SHORT: Duration = Duration::from_millis(3);
const LONG: Duration = Duration::from_secs(1_000);

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

fn runtime(processors: usize) -> Runtime {
    let runtime = Runtime::builder()
        .processors(processors)
        .time_slice(Duration::from_micros(100));
    runtime.build().unwrap()
}

/// Runs `body` in so many green threads and kernel threads at the same time, and gives each its number.
fn storm(test: &'static str, green: usize, kernel: usize, body: impl Fn(usize) + Send + Sync) {
    let _w = watchdog(test);
    for processors in [1, 2] {
        let runtime = runtime(processors);
        // SAFETY: all threads are joined before this returns, or the process ends by the panic.
        let body: Arc<dyn Fn(usize) + Send + Sync> = unsafe {
            std::mem::transmute::<
                Arc<dyn Fn(usize) + Send + Sync + '_>,
                Arc<dyn Fn(usize) + Send + Sync + 'static>,
            >(Arc::new(&body))
        };
        let kernel: Vec<_> = (0..kernel)
            .map(|i| {
                let body = body.clone();
                std::thread::spawn(move || body(i))
            })
            .collect();
        let first = kernel.len();
        let green: Vec<_> = (0..green)
            .map(|i| {
                let body = body.clone();
                runtime.spawn(move || body(first + i))
            })
            .collect();
        for thread in green {
            thread.join().unwrap();
        }
        for thread in kernel {
            thread.join().unwrap();
        }
        runtime.shutdown();
    }
}

const GREEN: usize = 1_000;
const KERNEL: usize = 3;
const ALL: u64 = (GREEN + KERNEL) as u64;
const TURNS: u64 = 30;
/// On one processor, then on two.
const RUNS: u64 = 2;

#[test]
fn mutexes_exclude() {
    let lock = mutex();
    let counter = Shared::new(0_u64);
    storm("mutexes_exclude", GREEN, KERNEL, |_| {
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
    storm("mutexes_exclude_with_time_limits", 300, KERNEL, |i| {
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
    });
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
    producers_and_consumers("items_pass_between_green_threads", GREEN, 0);
}

#[test]
fn items_pass_between_all() {
    producers_and_consumers("items_pass_between_all", GREEN, 4);
}

#[test]
fn items_pass_from_few_to_few() {
    producers_and_consumers("items_pass_from_few_to_few", 2, 2);
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
    readers_and_writers("readers_share_and_writers_exclude", READERS);
}

#[test]
fn readers_share_and_writers_exclude_where_those_are_preferred() {
    readers_and_writers("readers_share_and_writers_exclude_where", WRITERS);
}

#[test]
fn semaphores_count() {
    let places = sem(3);
    let inside = AtomicUsize::new(0);
    storm("semaphores_count", GREEN, KERNEL, |_| {
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
    storm("barriers_let_all_go_together", GREEN, KERNEL, |_| {
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
    });
    assert_eq!(serial.load(SeqCst) as u64, TURNS * RUNS);
}

#[test]
fn a_barrier_ends_when_the_last_has_left() {
    // The first to return destroys it, and overwrites the memory.
    let _w = watchdog("a_barrier_ends_when_the_last_has_left");
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

/// Waits until few kernel threads are busy or blocked. Idle ones may be there, for later.
fn hold_no_kernel_thread(runtime: &Runtime) {
    wait_until(|| {
        let metrics = runtime.metrics();
        metrics.kernel_threads - metrics.parked_kernel_threads < 10
    });
}

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
    if green() {
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
            "a_crowd_at_a_mutex",
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
            "a_crowd_at_a_mutex_with_which_a_kernel_thread_waits",
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

#[test]
fn a_crowd_at_a_condition() {
    let objects = Arc::new((mutex(), cond(), AtomicBool::new(false)));
    let inside = objects.clone();
    crowd(
        "a_crowd_at_a_condition",
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
            "a_crowd_at_a_reader_writer_lock",
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
        "a_crowd_at_a_semaphore",
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
    const NAME: &str = "a_semaphore_is_posted_in_handlers";
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
    crowd("a_crowd_at_a_barrier", move || wait(&inside), || wait(&all));
    // SAFETY: nobody uses it any more.
    assert_eq!(unsafe { pthread_barrier_destroy(all.at()) }, 0);
}

#[test]
fn a_crowd_joins() {
    let _w = watchdog("a_crowd_joins");
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
    if green() {
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
    let _w = watchdog("join_answers");
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

#[test]
fn mutexes_of_all_kinds_answer() {
    let _w = watchdog("mutexes_of_all_kinds_answer");
    // SAFETY: valid mutexes.
    both(|| unsafe {
        let checking = mutex_of(PTHREAD_MUTEX_ERRORCHECK);
        assert_eq!(pthread_mutex_lock(checking.at()), 0);
        assert_eq!(pthread_mutex_lock(checking.at()), EDEADLK);
        assert_eq!(
            pthread_mutex_timedlock(checking.at(), &after(CLOCK_REALTIME, LONG)),
            EDEADLK
        );
        assert_eq!(pthread_mutex_trylock(checking.at()), EBUSY);
        let other = std::thread::scope(|s| {
            s.spawn(|| {
                (
                    pthread_mutex_unlock(checking.at()),
                    pthread_mutex_trylock(checking.at()),
                )
            })
            .join()
            .unwrap()
        });
        assert_eq!(other, (EPERM, EBUSY));
        assert_eq!(pthread_mutex_unlock(checking.at()), 0);
        assert_eq!(pthread_mutex_unlock(checking.at()), EPERM);
        assert_eq!(pthread_cond_wait(cond().at(), checking.at()), EPERM);

        let recursive = Arc::new(mutex_of(PTHREAD_MUTEX_RECURSIVE));
        for _ in 0..3 {
            assert_eq!(pthread_mutex_lock(recursive.at()), 0);
        }
        let contender = greenthread::spawn({
            let recursive = recursive.clone();
            move || {
                (
                    pthread_mutex_lock(recursive.at()),
                    pthread_mutex_unlock(recursive.at()),
                )
            }
        });
        for _ in 0..3 {
            greenthread::sleep(Duration::from_millis(1));
            assert!(!contender.is_finished());
            assert_eq!(pthread_mutex_unlock(recursive.at()), 0);
        }
        assert_eq!(contender.join().unwrap(), (0, 0));
        assert_eq!(pthread_mutex_unlock(recursive.at()), EPERM);

        // libc's alone.
        let mut attributes = MaybeUninit::uninit();
        pthread_mutexattr_init(attributes.as_mut_ptr());
        pthread_mutexattr_setpshared(attributes.as_mut_ptr(), PTHREAD_PROCESS_SHARED);
        let shared = Arc::new(mutex());
        assert_eq!(pthread_mutex_init(shared.at(), attributes.as_ptr()), 0);
        assert_eq!(pthread_mutex_lock(shared.at()), 0);
        let contender = greenthread::spawn({
            let shared = shared.clone();
            move || {
                (
                    pthread_mutex_lock(shared.at()),
                    pthread_mutex_unlock(shared.at()),
                )
            }
        });
        greenthread::sleep(Duration::from_millis(2));
        assert_eq!(pthread_mutex_unlock(shared.at()), 0);
        assert_eq!(contender.join().unwrap(), (0, 0));
    });
}

#[test]
fn times_run_out() {
    let _w = watchdog("times_run_out");
    // SAFETY: valid objects.
    both(|| unsafe {
        let (real, steady) = (CLOCK_REALTIME, CLOCK_MONOTONIC);
        let past = timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let before = timespec {
            tv_sec: -1,
            tv_nsec: 0,
        };
        let odd = timespec {
            tv_sec: 1,
            tv_nsec: 1_000_000_000,
        };

        let lock = Arc::new(mutex());
        // Another thread holds it.
        let (stop, holder) = {
            let lock = lock.clone();
            let (locked, is_locked) = std::sync::mpsc::channel();
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let body = move || {
                pthread_mutex_lock(lock.at());
                locked.send(()).unwrap();
                let _ = stopped.recv();
                pthread_mutex_unlock(lock.at());
            };
            let holder = std::thread::spawn(body);
            is_locked.recv().unwrap();
            (stop, holder)
        };
        assert_eq!(
            pthread_mutex_timedlock(lock.at(), &after(real, SHORT)),
            ETIMEDOUT
        );
        assert_eq!(pthread_mutex_timedlock(lock.at(), &past), ETIMEDOUT);
        assert_eq!(pthread_mutex_timedlock(lock.at(), &before), ETIMEDOUT);
        assert_eq!(pthread_mutex_timedlock(lock.at(), &odd), EINVAL);
        let limit = after(steady, SHORT);
        assert_eq!(
            pthread_mutex_clocklock(lock.at(), steady, &limit),
            ETIMEDOUT
        );
        assert!(after(steady, Duration::ZERO).tv_nsec != limit.tv_nsec);
        assert_eq!(
            pthread_mutex_clocklock(lock.at(), CLOCK_BOOTTIME, &limit),
            EINVAL
        );
        drop(stop);
        holder.join().unwrap();
        assert_eq!(pthread_mutex_timedlock(lock.at(), &past), 0); // free, so the time does not matter

        // It is locked afterwards.
        for (clock, signal) in [
            (real, cond()),
            (real, cond_by(real)),
            (steady, cond_by(steady)),
        ] {
            let (at, lock) = (signal.at(), lock.at());
            assert_eq!(
                pthread_cond_timedwait(at, lock, &after(clock, SHORT)),
                ETIMEDOUT
            );
            assert_eq!(pthread_mutex_trylock(lock), EBUSY);
            assert_eq!(pthread_cond_timedwait(at, lock, &odd), EINVAL);
            assert_eq!(
                pthread_cond_clockwait(at, lock, steady, &after(steady, SHORT)),
                ETIMEDOUT
            );
            assert_eq!(
                pthread_cond_clockwait(at, lock, real, &after(real, SHORT)),
                ETIMEDOUT
            );
            assert_eq!(
                pthread_cond_clockwait(at, lock, CLOCK_BOOTTIME, &past),
                EINVAL
            );
            assert_eq!(pthread_cond_destroy(at), 0);
        }
        assert_eq!(pthread_mutex_unlock(lock.at()), 0);

        for kind in [READERS, WRITERS] {
            let shared = rwlock(kind);
            assert_eq!(pthread_rwlock_rdlock(shared.at()), 0);
            assert_eq!(
                pthread_rwlock_timedwrlock(shared.at(), &after(real, SHORT)),
                ETIMEDOUT
            );
            let limit = after(steady, SHORT);
            assert_eq!(
                pthread_rwlock_clockwrlock(shared.at(), steady, &limit),
                ETIMEDOUT
            );
            assert_eq!(pthread_rwlock_timedrdlock(shared.at(), &past), 0);
            pthread_rwlock_unlock(shared.at());
            pthread_rwlock_unlock(shared.at());
            assert_eq!(pthread_rwlock_wrlock(shared.at()), 0);
            assert_eq!(pthread_rwlock_wrlock(shared.at()), EDEADLK);
            assert_eq!(pthread_rwlock_rdlock(shared.at()), EDEADLK);
            pthread_rwlock_unlock(shared.at());
        }

        let none = sem(0);
        assert_eq!(sem_timedwait(none.at(), &after(real, SHORT)), -1);
        assert_eq!(errno(), ETIMEDOUT);
        assert_eq!(sem_clockwait(none.at(), steady, &after(steady, SHORT)), -1);
        assert_eq!(errno(), ETIMEDOUT);
        assert_eq!(sem_timedwait(none.at(), &odd), -1);
        assert_eq!(errno(), EINVAL);
        assert_eq!(sem_trywait(none.at()), -1);
        assert_eq!(errno(), EAGAIN);
        let mut one = std::mem::zeroed();
        assert_eq!(pthread_barrier_init(&mut one, ptr::null(), 0), EINVAL);

        // As C11 says it.
        assert_eq!(mtx_lock(lock.at()), 0);
        let other = {
            let lock = lock.clone();
            greenthread::spawn(move || mtx_timedlock(lock.at(), &after(CLOCK_REALTIME, SHORT)))
        };
        assert_eq!(other.join().unwrap(), 4);
        assert_eq!(mtx_unlock(lock.at()), 0);
    });
}

#[test]
fn a_reader_queues_behind_a_writer_that_is_preferred() {
    let _w = watchdog("a_reader_queues_behind_a_writer");
    if !green() {
        return;
    }
    let runtime = runtime(1);
    let lock = Arc::new(rwlock(WRITERS));
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    // SAFETY: a valid lock.
    unsafe {
        pthread_rwlock_rdlock(lock.at());
        let start = |name: &'static str, writes: bool| {
            let (lock, order) = (lock.clone(), order.clone());
            let before = runtime.metrics().parked_calls;
            let thread = runtime.spawn(move || {
                match writes {
                    true => pthread_rwlock_wrlock(lock.at()),
                    false => pthread_rwlock_rdlock(lock.at()),
                };
                order.lock().unwrap().push(name);
                pthread_rwlock_unlock(lock.at());
            });
            wait_until(|| runtime.metrics().parked_calls > before);
            thread
        };
        let threads = [start("writer", true), start("reader", false)];
        assert!(order.lock().unwrap().is_empty());
        pthread_rwlock_unlock(lock.at());
        for thread in threads {
            thread.join().unwrap();
        }
    }
    assert_eq!(*order.lock().unwrap(), ["writer", "reader"]);
    runtime.shutdown();
}

static ONCE_CALLS: AtomicUsize = AtomicUsize::new(0);
extern "C-unwind" fn once_body() {
    ONCE_CALLS.fetch_add(1, SeqCst);
    for _ in 0..10 {
        greenthread::yield_now();
    }
}

#[test]
fn once_calls_once() {
    let control = Shared::new(0);
    storm("once_calls_once", GREEN, KERNEL, |_| {
        // SAFETY: a valid word.
        assert_eq!(unsafe { pthread_once(control.at(), once_body) }, 0);
        assert_eq!(ONCE_CALLS.load(SeqCst), 1);
    });
    assert_eq!(control.0.into_inner(), 2); // as glibc says it
}

static TRIES: AtomicUsize = AtomicUsize::new(0);
extern "C-unwind" fn unwinds_at_first() {
    greenthread::sleep(Duration::from_millis(1));
    if TRIES.fetch_add(1, SeqCst) < 5 {
        std::panic::resume_unwind(Box::new("no"));
    }
}

#[test]
fn once_is_tried_again_after_an_unwinding() {
    let control = Shared::new(0);
    let unwound = AtomicUsize::new(0);
    storm("once_is_tried_again", 50, KERNEL, |_| {
        // SAFETY: a valid word.
        let call = || unsafe { pthread_once(control.at(), unwinds_at_first) };
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(answer) => assert_eq!(answer, 0),
            Err(_) => {
                unwound.fetch_add(1, SeqCst);
            }
        }
    });
    assert_eq!((TRIES.load(SeqCst), unwound.load(SeqCst)), (6, 5));
}

#[test]
fn a_forked_child_uses_them_alone() {
    const NAME: &str = "a_forked_child_uses_them_alone";
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    static CONTROL: Shared<c_int> = Shared(UnsafeCell::new(0));
    static STARTED: AtomicBool = AtomicBool::new(false);
    static STOP: AtomicBool = AtomicBool::new(false);
    extern "C-unwind" fn slow() {
        let is_first = !STARTED.swap(true, SeqCst);
        while is_first && !STOP.load(SeqCst) {
            greenthread::sleep(Duration::from_millis(1));
        }
    }
    let lock = Arc::new(mutex());
    // SAFETY: valid objects; the child makes no other calls.
    unsafe {
        let once = greenthread::spawn(|| pthread_once(CONTROL.at(), slow));
        wait_until(|| STARTED.load(SeqCst));
        pthread_mutex_lock(lock.at());
        let waiter = greenthread::spawn({
            let lock = lock.clone();
            move || {
                (
                    pthread_mutex_lock(lock.at()),
                    pthread_mutex_unlock(lock.at()),
                )
            }
        });
        greenthread::sleep(Duration::from_millis(2));
        let parent = fork();
        if parent == 0 {
            alarm(20);
            let mut good = pthread_mutex_unlock(lock.at()) == 0;
            good &= pthread_once(CONTROL.at(), slow) == 0; // the caller is not in this process
            let places = sem(0);
            good &= sem_post(places.at()) == 0 && sem_wait(places.at()) == 0;
            good &= pthread_barrier_wait(barrier(1).at()) == PTHREAD_BARRIER_SERIAL_THREAD;
            _exit(if good { 7 } else { 8 });
        }
        let mut status = 0;
        assert_eq!(waitpid(parent, &mut status, 0), parent);
        assert_eq!(
            (WIFEXITED(status), WEXITSTATUS(status)),
            (true, 7),
            "{status:x}"
        );
        STOP.store(true, SeqCst);
        pthread_mutex_unlock(lock.at());
        assert_eq!(once.join().unwrap(), 0);
        assert_eq!(waiter.join().unwrap(), (0, 0));
    }
}

#[test]
fn a_kernel_thread_is_cancelled_in_its_wait() {
    let _w = watchdog("a_kernel_thread_is_cancelled_in_its_wait");
    struct Objects(Mutex, Cond, Sem, AtomicBool);
    extern "C-unwind" fn in_condition(objects: *mut c_void) -> *mut c_void {
        // SAFETY: the objects outlive the thread.
        unsafe {
            let objects = &*objects.cast::<Objects>();
            pthread_mutex_lock(objects.0.at());
            objects.3.store(true, SeqCst);
            loop {
                pthread_cond_wait(objects.1.at(), objects.0.at());
            }
        }
    }
    extern "C-unwind" fn in_semaphore(objects: *mut c_void) -> *mut c_void {
        // SAFETY: as above.
        unsafe {
            let objects = &*objects.cast::<Objects>();
            objects.3.store(true, SeqCst);
            loop {
                sem_wait(objects.2.at());
            }
        }
    }
    unsafe extern "C" {
        fn pthread_cancel(thread: pthread_t) -> c_int;
    }
    for body in [in_condition, in_semaphore] {
        let objects = Objects(mutex(), cond(), sem(0), AtomicBool::new(false));
        let (mut thread, mut result) = (0, ptr::null_mut());
        // SAFETY: the thread is joined here; a function that unwinds has the type of one that does not.
        unsafe {
            let body = std::mem::transmute::<
                extern "C-unwind" fn(*mut c_void) -> *mut c_void,
                extern "C" fn(*mut c_void) -> *mut c_void,
            >(body);
            let argument = (&raw const objects).cast_mut().cast();
            assert_eq!(pthread_create(&mut thread, ptr::null(), body, argument), 0);
            wait_until(|| objects.3.load(SeqCst));
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(pthread_cancel(thread), 0);
            assert_eq!(pthread_join(thread, &mut result), 0);
        }
        assert_eq!(result as isize, -1); // PTHREAD_CANCELED
    }
}

#[test]
fn c11_has_them_too() {
    let (lock, signal) = (mutex(), cond());
    let turn = Shared::new(0_u64);
    storm("c11_has_them_too", 2, 0, |i| {
        for _ in 0..500 {
            // SAFETY: valid objects.
            unsafe {
                assert_eq!(mtx_lock(lock.at()), 0);
                while turn.value() % 2 != i as u64 {
                    assert_eq!(cnd_wait(signal.at(), lock.at()), 0);
                }
                turn.add();
                assert_eq!(cnd_signal(signal.at()), 0);
                assert_eq!(mtx_unlock(lock.at()), 0);
            }
        }
    });
    assert_eq!(turn.value(), 1_000 * RUNS);
}

/// C++ in a shared library that knows nothing of green threads.
const LIBRARY: &str = r#"
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>

static std::mutex lock;
static std::condition_variable changed;
static std::condition_variable_any changed_any;
static std::shared_mutex shared;
static std::once_flag once;
static long turn, tries;

extern "C" long pass(long who, long all, long turns) {
    long waited = 0;
    for (long i = 0; i < turns; i++) {
        std::unique_lock<std::mutex> guard(lock);
        while (turn % all != who) { waited++; changed.wait(guard); }
        turn++;
        changed.notify_all();
    }
    return waited;
}

extern "C" long hold(long (*wait)()) {
    std::unique_lock<std::shared_mutex> guard(shared);
    return wait();
}

extern "C" long look(void) {
    std::shared_lock<std::shared_mutex> guard(shared);
    return turn;
}

extern "C" long times_out(void) {
    std::unique_lock<std::mutex> guard(lock);
    return changed_any.wait_for(guard, std::chrono::milliseconds(2)) == std::cv_status::timeout;
}

extern "C" long begin(void) {
    try {
        std::call_once(once, [] { if (++tries < 4) throw std::runtime_error("not yet"); });
    } catch (std::runtime_error &) {
        return 1;
    }
    return 0;
}
"#;

#[test]
fn a_library_of_cpp_parks() {
    let _w = watchdog("a_library_of_cpp_parks");
    let directory = Directory::new();
    let source = directory.file("library.cpp", LIBRARY.as_bytes());
    let library = directory.path("library.so");
    let compiled = std::process::Command::new("c++")
        .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return println!("skipped: no C++ compiler");
    }
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library with functions of these types.
    unsafe {
        let library = dlopen(path.as_ptr(), RTLD_NOW);
        assert!(!library.is_null());
        let find = |name: &std::ffi::CStr| {
            let found = dlsym(library, name.as_ptr());
            assert!(!found.is_null());
            found
        };
        type Pass = extern "C" fn(c_long, c_long, c_long) -> c_long;
        type Hold = extern "C" fn(extern "C" fn() -> c_long) -> c_long;
        type Plain = extern "C" fn() -> c_long;
        let pass = std::mem::transmute::<*mut c_void, Pass>(find(c"pass"));
        let hold = std::mem::transmute::<*mut c_void, Hold>(find(c"hold"));
        let look = std::mem::transmute::<*mut c_void, Plain>(find(c"look"));
        let times_out = std::mem::transmute::<*mut c_void, Plain>(find(c"times_out"));
        let begin = std::mem::transmute::<*mut c_void, Plain>(find(c"begin"));

        let runtime = runtime(2);
        let passing: Vec<_> = (0..100)
            .map(|i| runtime.spawn(move || pass(i, 100, 10)))
            .collect();
        let waited: i64 = passing
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        let metrics = runtime.metrics();
        if green() {
            let parked = metrics.parked_calls as i64;
            assert!(parked >= waited, "{parked} of {waited}");
        }
        static HELD: AtomicBool = AtomicBool::new(false);
        static STOP: AtomicBool = AtomicBool::new(false);
        extern "C" fn wait() -> c_long {
            HELD.store(true, SeqCst);
            wait_until(|| STOP.load(SeqCst));
            1
        }
        let holder = runtime.spawn(move || hold(wait));
        wait_until(|| HELD.load(SeqCst));
        let before = runtime.metrics().parked_calls;
        let looking: Vec<_> = (0..100).map(|_| runtime.spawn(move || look())).collect();
        if green() {
            wait_until(|| runtime.metrics().parked_calls - before >= 100);
            hold_no_kernel_thread(&runtime);
        }
        STOP.store(true, SeqCst);
        assert_eq!(holder.join().unwrap(), 1);
        for thread in looking {
            assert_eq!(thread.join().unwrap(), 1_000);
        }
        assert_eq!(runtime.spawn(move || times_out()).join().unwrap(), 1);
        let beginning: Vec<_> = (0..50).map(|_| runtime.spawn(move || begin())).collect();
        let failed: i64 = beginning
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        assert_eq!(failed, 3);
        runtime.shutdown();
    }
}
