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

/// A thread that works keeps time from passing for one that polls.
#[test]
fn polling_beside_work() {
    crate::support::needs_points!();
    let works = || {
        let lock: Arc<Mutex<u64>> = Arc::default();
        move || (0..100_000).for_each(|_| *lock.lock().unwrap() += 1)
    };
    let builder = Builder::new()
        .seeds(12)
        .stalls(0)
        .max_time(Duration::from_secs(60));
    builder.check(move || {
        let is_done: Arc<AtomicBool> = Arc::default();
        let (work, done) = (works(), is_done.clone());
        spawn(move || {
            work();
            done.store(true, SeqCst);
        });
        while !is_done.load(SeqCst) {
            yield_now();
        }
    });
    let builder = Builder::new().seeds(12).stalls(0);
    builder.check(move || {
        let (answer, answers) = std::sync::mpsc::channel();
        let is_done: Arc<AtomicBool> = Arc::default();
        let (work, done) = (works(), is_done.clone());
        spawn(move || {
            work();
            answer.send(()).unwrap();
            done.store(true, SeqCst);
        });
        spawn(move || {
            while !is_done.load(SeqCst) {
                yield_now();
            }
        });
        answers
            .recv_timeout(Duration::from_secs(60))
            .expect("it takes less than a second");
    });
}

/// The run that is traced has the descriptors of the one that has failed.
#[test]
fn descriptors_of_a_failing_run() {
    let builder = Builder::new().isolation(Isolation::EachSeed);
    let failure = fails(builder, || {
        let (out, _into) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&out);
        assert_ne!(sim::random() % 8, 0, "descriptor {number}");
    });
    assert!(
        failure.to_string().contains("fails alone: yes"),
        "{failure}"
    );
    let said = failure.to_string();
    let number = said
        .split("descriptor ")
        .nth(1)
        .and_then(|rest| rest.split('\n').next());
    let number: i32 = number.unwrap().parse().unwrap();
    let same = move || {
        let (out, _into) = std::io::pipe().unwrap();
        assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&out), number);
    };
    let builder = Builder::new().seeds(20).isolation(Isolation::EachSeed);
    builder.check(same);
}

/// Conditions of C end without reason, too, and give the mutex away meanwhile.
#[test]
fn conditions_of_c() {
    struct Gate(libc::pthread_mutex_t, libc::pthread_cond_t, bool);
    let run = |waits_once: bool| {
        let gate = Gate(
            libc::PTHREAD_MUTEX_INITIALIZER,
            libc::PTHREAD_COND_INITIALIZER,
            false,
        );
        let gate = Box::leak(Box::new(gate)) as *mut Gate as usize;
        // SAFETY: the gate lives for ever, and what is in it is used under its mutex.
        let opener = spawn(move || unsafe {
            let gate = gate as *mut Gate;
            libc::pthread_mutex_lock(&raw mut (*gate).0);
            (*gate).2 = true;
            libc::pthread_cond_signal(&raw mut (*gate).1);
            libc::pthread_mutex_unlock(&raw mut (*gate).0);
        });
        // SAFETY: as above.
        unsafe {
            let gate = gate as *mut Gate;
            libc::pthread_mutex_lock(&raw mut (*gate).0);
            while !(*gate).2 {
                libc::pthread_cond_wait(&raw mut (*gate).1, &raw mut (*gate).0);
                if waits_once {
                    break;
                }
            }
            assert!((*gate).2, "it is closed");
            libc::pthread_mutex_unlock(&raw mut (*gate).0);
        }
        opener.join().unwrap();
    };
    Builder::new()
        .seeds(50)
        .spurious(1)
        .check(move || run(false));
    let failure = fails(Builder::new(), move || run(true));
    assert!(failure.to_string().contains("it is closed"), "{failure}");
}

/// Outside of checks nothing has changed: a bad path is an error, and so it is inside.
#[test]
fn paths_that_are_none() {
    let opens = || {
        // SAFETY: the kernel checks the path.
        let opened = unsafe { libc::open(core::ptr::null(), libc::O_RDONLY) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((opened, error), (-1, Some(libc::EFAULT)));
    };
    sim::check(3, opens);
    opens();
    spawn(opens).join().unwrap();
}

/// The variable by which a server knows what it is for is not for its children.
#[test]
fn children_are_no_servers() {
    sim::check(3, || assert_eq!(std::env::var_os("GREENTHREAD_SIM"), None));
}
