//! The threads' primitives of C answer as POSIX and glibc say: mistakes, time-outs, once, fork, cancellation, C11, C++.

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
use std::panic::{AssertUnwindSafe, catch_unwind};
#[test]
fn mutexes_of_all_kinds_answer() {
    let _w = watchdog("pthread_answers::mutexes_of_all_kinds_answer");
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
    let _w = watchdog("pthread_answers::times_run_out");
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

#[cfg(feature = "observe")]
#[test]
fn a_reader_queues_behind_a_writer_that_is_preferred() {
    let _w = watchdog("a_reader_queues_behind_a_writer");
    if !hooked() {
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
            let thread = runtime.spawn(move || {
                match writes {
                    true => pthread_rwlock_wrlock(lock.at()),
                    false => pthread_rwlock_rdlock(lock.at()),
                };
                order.lock().unwrap().push(name);
                pthread_rwlock_unlock(lock.at());
            });
            // `Metrics::parked_calls` counts a call that is about to park: the thread need not be in the queue yet.
            let id = Some(thread.thread().id());
            wait_until(|| {
                let dump = greenthread::observe::dump();
                dump.threads()
                    .any(|thread| thread.id() == id && thread.state() == State::Parked)
            });
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

#[test]
fn readers_go_on_when_a_writer_of_libcs_gives_up() {
    let _w = watchdog("pthread_answers::readers_go_on_when_a_writer_of_libcs_gives_up");
    let lock = Arc::new(rwlock(WRITERS));
    // SAFETY: a valid lock.
    unsafe {
        pthread_rwlock_rdlock(lock.at());
        let writer = std::thread::spawn({
            let lock = lock.clone();
            let time = after(CLOCK_REALTIME, Duration::from_millis(500));
            move || pthread_rwlock_timedwrlock(lock.at(), &time)
        });
        // As soon as it waits, the lock is refused to readers.
        wait_until(|| match pthread_rwlock_tryrdlock(lock.at()) {
            0 => pthread_rwlock_unlock(lock.at()) != 0,
            answer => answer == EBUSY,
        });
        let reader = greenthread::spawn({
            let lock = lock.clone();
            move || {
                (
                    pthread_rwlock_rdlock(lock.at()),
                    pthread_rwlock_unlock(lock.at()),
                )
            }
        });
        assert_eq!(writer.join().unwrap(), ETIMEDOUT);
        assert_eq!(reader.join().unwrap(), (0, 0));
        assert_eq!(pthread_rwlock_unlock(lock.at()), 0);
    }
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
    storm("pthread_answers::once_calls_once", GREEN, KERNEL, |_| {
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
    const NAME: &str = "pthread_answers::a_forked_child_uses_them_alone";
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
    let _w = watchdog("pthread_answers::a_kernel_thread_is_cancelled_in_its_wait");
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
    storm("pthread_answers::c11_has_them_too", 2, 0, |i| {
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
