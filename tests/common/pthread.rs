//! C's objects for the tests of threads' primitives: made as C makes them, shared by reference, and called as
//! C code calls them, through `extern "C"`.

use super::*;
#[allow(unused_imports)] // every test file uses its own part of this
pub use libc::*;
pub use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
pub use std::ptr;
pub use std::sync::Arc;
#[allow(unused_imports)] // the same
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
pub use std::time::Duration;

unsafe extern "C-unwind" {
    pub fn pthread_mutex_clocklock(
        m: *mut pthread_mutex_t,
        c: clockid_t,
        t: *const timespec,
    ) -> c_int;
    pub fn pthread_cond_clockwait(
        c: *mut pthread_cond_t,
        m: *mut pthread_mutex_t,
        clock: clockid_t,
        t: *const timespec,
    ) -> c_int;
    pub fn pthread_rwlock_timedrdlock(l: *mut pthread_rwlock_t, t: *const timespec) -> c_int;
    pub fn pthread_rwlock_timedwrlock(l: *mut pthread_rwlock_t, t: *const timespec) -> c_int;
    pub fn pthread_rwlock_clockwrlock(
        l: *mut pthread_rwlock_t,
        c: clockid_t,
        t: *const timespec,
    ) -> c_int;
    pub fn pthread_rwlockattr_setkind_np(a: *mut pthread_rwlockattr_t, kind: c_int) -> c_int;
    pub fn sem_clockwait(s: *mut sem_t, c: clockid_t, t: *const timespec) -> c_int;
    pub fn pthread_once(control: *mut c_int, f: extern "C-unwind" fn()) -> c_int;
    pub fn mtx_lock(m: *mut pthread_mutex_t) -> c_int;
    pub fn mtx_unlock(m: *mut pthread_mutex_t) -> c_int;
    pub fn mtx_timedlock(m: *mut pthread_mutex_t, t: *const timespec) -> c_int;
    pub fn cnd_wait(c: *mut pthread_cond_t, m: *mut pthread_mutex_t) -> c_int;
    pub fn cnd_signal(c: *mut pthread_cond_t) -> c_int;
}

/// An object of C's, which threads share.
pub struct Shared<T>(pub UnsafeCell<T>);

// SAFETY: C's functions synchronise; the counters are under their locks.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(UnsafeCell::new(value))
    }
    pub fn at(&self) -> *mut T {
        self.0.get()
    }
}

impl Shared<u64> {
    /// Not in one step: a second thread here would be noticed.
    pub fn add(&self) {
        // SAFETY: under a lock.
        unsafe {
            let value = self.at().read_volatile();
            std::hint::spin_loop();
            self.at().write_volatile(value + 1);
        }
    }
    pub fn value(&self) -> u64 {
        // SAFETY: as above, or alone.
        unsafe { self.at().read_volatile() }
    }
}

pub type Mutex = Shared<pthread_mutex_t>;
pub type Cond = Shared<pthread_cond_t>;
pub type RwLock = Shared<pthread_rwlock_t>;
pub type Sem = Shared<sem_t>;
pub type Barrier = Shared<pthread_barrier_t>;

pub fn mutex() -> Mutex {
    Shared::new(PTHREAD_MUTEX_INITIALIZER)
}

pub fn mutex_of(kind: c_int) -> Mutex {
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

pub fn cond() -> Cond {
    Shared::new(PTHREAD_COND_INITIALIZER)
}

pub fn cond_by(clock: clockid_t) -> Cond {
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

pub const READERS: c_int = 0;
pub const WRITERS: c_int = 2;

pub fn rwlock(kind: c_int) -> RwLock {
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

pub fn sem(value: u32) -> Sem {
    // SAFETY: a valid place.
    unsafe {
        let sem = Shared::new(std::mem::zeroed());
        assert_eq!(sem_init(sem.at(), 0, value), 0);
        sem
    }
}

pub fn barrier(count: u32) -> Barrier {
    // SAFETY: a valid place.
    unsafe {
        let barrier = Shared::new(std::mem::zeroed());
        assert_eq!(pthread_barrier_init(barrier.at(), ptr::null(), count), 0);
        barrier
    }
}

/// The time in a while, by a clock.
pub fn after(clock: clockid_t, wait: Duration) -> timespec {
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

pub const SHORT: Duration = Duration::from_millis(3);
pub const LONG: Duration = Duration::from_secs(1_000);

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

pub fn runtime(processors: usize) -> Runtime {
    let runtime = Runtime::builder()
        .processors(processors)
        .time_slice(Duration::from_micros(100));
    runtime.build().unwrap()
}

/// Runs `body` in so many green threads and kernel threads at the same time, and gives each its number.
pub fn storm(test: &'static str, green: usize, kernel: usize, body: impl Fn(usize) + Send + Sync) {
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

pub const GREEN: usize = 1_000;
pub const KERNEL: usize = 3;
pub const ALL: u64 = (GREEN + KERNEL) as u64;
pub const TURNS: u64 = 30;
/// On one processor, then on two.
pub const RUNS: u64 = 2;
