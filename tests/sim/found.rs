//! Faults that reviewers of `sim` have found in it.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenthread::sim::{self, Builder, FailureKind, Isolation, Strategy};
use greenthread::{scope, spawn, yield_now};

use crate::support::fails;

/// A process that a run has left a thread in runs no other seed, and counts as none that it has not run.
#[test]
fn leftovers_in_a_batch() {
    let failure = fails(Builder::new().isolation(Isolation::Batch), || {
        spawn(greenthread::park);
        assert_ne!(sim::random() % 8, 0, "by chance");
    });
    assert!(failure.to_string().contains("by chance"), "{failure}");
    let builder = Builder::new().seeds(50).isolation(Isolation::Batch);
    let ended = builder.run(|| _ = spawn(greenthread::park)).unwrap();
    assert_eq!(ended.seeds, 50);
}

/// More than a pipe takes: nobody reads while the run runs.
#[test]
fn a_failure_that_says_much() {
    let failure = fails(Builder::new(), || {
        (0..5000).for_each(|line| eprintln!("{line}: {:60}", "text"));
        (0..5000).for_each(|line| println!("{line}: {:60}", "text"));
        panic!("in the end");
    });
    assert_eq!(failure.kind(), FailureKind::Panic, "{failure}");
    assert!(failure.to_string().contains("\n4999: text"), "{failure}");
}

/// What is made before the check has its chance from the process, which is the same for each seed.
#[test]
fn a_map_from_before_the_check() {
    let map: HashMap<u32, ()> = (0..50).map(|key| (key, ())).collect();
    let body = move || {
        for key in map.keys() {
            if key % 3 == 0 {
                yield_now();
            }
        }
        let first = *map.keys().next().unwrap();
        (0..first).for_each(|_| yield_now());
    };
    Builder::new().seeds(10).repeats(body).unwrap();
}

/// Seeds that run side by side have the same descriptors.
#[test]
fn numbers_of_descriptors() {
    let body = || {
        let (out, _into) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&out);
        (0..number).for_each(|_| yield_now());
    };
    let builder = Builder::new().seeds(200).isolation(Isolation::EachSeed);
    builder.repeats(body).unwrap();
}

/// The result of a thread that nobody joins is dropped by the thread, and takes its points.
#[test]
fn a_detached_result_has_points() {
    crate::support::needs_points!();
    struct Twice(Arc<[AtomicU32; 2]>);
    impl Drop for Twice {
        fn drop(&mut self) {
            self.0.iter().for_each(|word| word.store(1, SeqCst));
        }
    }
    let failure = fails(Builder::new(), || {
        let words: Arc<[AtomicU32; 2]> = Arc::default();
        let result = Twice(words.clone());
        drop(spawn(|| result));
        for _ in 0..6 {
            let [one, other] = [0, 1].map(|place| words[place].load(SeqCst));
            assert!(one <= other, "between the stores");
        }
    });
    assert!(failure.to_string().contains("between"), "{failure}");
}

/// It waits in its destructor by looking.
#[test]
fn destructors_that_wait() {
    crate::support::needs_points!();
    struct Waits(Arc<AtomicBool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            while !self.0.load(SeqCst) {
                std::hint::spin_loop();
            }
        }
    }
    Builder::new().seeds(30).check(|| {
        let is_ready: Arc<AtomicBool> = Arc::default();
        let opens = is_ready.clone();
        let opener = spawn(move || opens.store(true, SeqCst));
        let result = Waits(is_ready.clone());
        drop(spawn(|| result));
        let payload = Waits(is_ready);
        drop(spawn(|| std::panic::resume_unwind(Box::new(payload))));
        opener.join().unwrap();
    });
}

/// A store stands apart from what comes behind it.
#[test]
fn a_point_behind_a_store() {
    crate::support::needs_points!();
    static OPEN: AtomicBool = AtomicBool::new(false);
    static SEEN: Mutex<bool> = Mutex::new(false);
    // `Relaxed` in place of plain memory, which a test may not race for; its points are left out.
    struct Plain(core::cell::UnsafeCell<u32>);
    // SAFETY: one kernel thread runs all.
    unsafe impl Sync for Plain {}
    static PLAIN: Plain = Plain(core::cell::UnsafeCell::new(0));
    let failure = fails(Builder::new(), || {
        OPEN.store(false, Relaxed);
        *SEEN.lock().unwrap() = false;
        // SAFETY: as above.
        unsafe { PLAIN.0.get().write(0) };
        let writer = spawn(|| {
            OPEN.store(true, SeqCst);
            // SAFETY: as above.
            unsafe { PLAIN.0.get().write(7) };
        });
        if OPEN.load(SeqCst) {
            // SAFETY: as above.
            assert_eq!(unsafe { PLAIN.0.get().read() }, 7, "too early");
        }
        writer.join().unwrap();
    });
    assert!(failure.to_string().contains("too early"), "{failure}");
}

/// C's attempts are points, and its spin locks let others run.
#[test]
fn locks_of_c_that_do_not_park() {
    let lock = || Box::leak(Box::new(libc::PTHREAD_MUTEX_INITIALIZER)) as *mut _ as usize;
    let failure = fails(Builder::new().strategy(Strategy::Random), move || {
        let mutex = lock();
        let call = |function: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32| {
            // SAFETY: the mutex lives for ever.
            unsafe { function(mutex as *mut _) }
        };
        let owner = spawn(move || {
            // SAFETY: as above.
            unsafe {
                libc::pthread_mutex_lock(mutex as *mut _);
                libc::pthread_mutex_unlock(mutex as *mut _);
            }
        });
        let ended = call(libc::pthread_mutex_trylock);
        if ended == 0 {
            call(libc::pthread_mutex_unlock);
        }
        owner.join().unwrap();
        assert_eq!(ended, 0, "it was locked");
    });
    assert!(failure.to_string().contains("was locked"), "{failure}");
    Builder::new().seeds(50).check(|| {
        let lock = Box::leak(Box::new(0)) as *mut libc::pthread_spinlock_t as usize;
        // SAFETY: the lock lives for ever.
        unsafe { libc::pthread_spin_init(lock as *mut _, 0) };
        let within = AtomicU32::new(0);
        scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    // SAFETY: as above.
                    unsafe { libc::pthread_spin_lock(lock as *mut _) };
                    assert_eq!(within.fetch_add(1, SeqCst), 0);
                    yield_now();
                    within.fetch_sub(1, SeqCst);
                    // SAFETY: as above.
                    unsafe { libc::pthread_spin_unlock(lock as *mut _) };
                });
            }
        });
    });
}

/// Who polls under a lock changes something each time, and is no reason for time to pass slowly.
#[test]
fn polling_under_a_lock() {
    let builder = Builder::new().seeds(6).stalls(0).max_points(1_000_000);
    builder.check(|| {
        let is_done: Arc<Mutex<bool>> = Arc::default();
        let done = is_done.clone();
        spawn(move || {
            std::thread::sleep(Duration::from_secs(60));
            *done.lock().unwrap() = true;
        });
        while !*is_done.lock().unwrap() {
            std::thread::yield_now();
        }
        assert!(sim::elapsed() >= Duration::from_secs(60));
    });
}

/// A pool's kernel thread lives on in the runs that come after the one that has made it: these are not repeatable, either.
#[test]
fn a_pool_of_kernel_threads_in_a_static() {
    use std::sync::OnceLock;
    use std::sync::mpsc::{Sender, channel};
    static POOL: OnceLock<Mutex<Sender<Sender<u32>>>> = OnceLock::new();
    let builder = Builder::new().seeds(20).allow_kernel_threads();
    let ended = builder.run(|| {
        let pool = POOL.get_or_init(|| {
            let (sender, jobs) = channel::<Sender<u32>>();
            std::thread::spawn(move || jobs.iter().for_each(|job| _ = job.send(7)));
            Mutex::new(sender)
        });
        let (sender, answer) = channel();
        pool.lock().unwrap().send(sender).unwrap();
        assert_eq!(answer.recv(), Ok(7));
    });
    let summary = ended.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!summary.is_repeatable);
}
