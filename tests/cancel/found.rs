//! What went wrong once: frames beside timers, forks, coroutines, destructors, the ends of threads and of runtimes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use greenthread::cancel::{self, Cancelled, Token};
use greenthread::coroutine::{Coroutine, Yielder};
use greenthread::runtime::Runtime;
use greenthread::sync::{Mutex, Semaphore};
use greenthread::time::{self, Duration, Elapsed, Instant};
use greenthread::{channel, dataflow, thread};

use crate::common::{both, watchdog};

const SOON: Duration = Duration::from_millis(5);

/// A wait whose end is not the frame's, so that the frame's timer stays armed after it.
fn wait_once() {
    let me = thread::current();
    let other = thread::spawn(move || me.unpark());
    thread::park();
    other.join().unwrap();
}

/// A lock's own limit is served although the frame's timer is armed; also if they are equal.
#[test]
fn a_lock_has_its_own_limit() {
    let _w = watchdog("found::a_lock_has_its_own_limit");
    both(|| {
        let mutex = Mutex::new(());
        let _guard = mutex.lock().unwrap();
        let ends = Instant::now() + 20 * SOON;
        let result = time::timeout_at(ends, || {
            wait_once();
            for _ in 0..3 {
                assert!(mutex.try_lock_for(SOON / 5).is_err());
            }
            wait_once();
            assert!(mutex.try_lock_until(ends).is_err());
            thread::park();
        });
        assert_eq!(result, Err(Elapsed));
    });
}

#[test]
fn messages_of_timers_are_not_lost() {
    let _w = watchdog("found::messages_of_timers_are_not_lost");
    both(|| {
        let after = channel::after(4 * SOON);
        // Beside others it may be late, and has the message itself.
        let early = time::timeout(SOON, || after.recv());
        assert!(early.is_ok() || after.recv_timeout(Duration::from_secs(60)).is_ok());
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_child_leaves_its_parents_frames() {
    let _w = watchdog("found::a_child_leaves_its_parents_frames");
    let stop = Arc::new(AtomicBool::new(false));
    let token = Token::new();
    // They hold the lock of the token's list now and then.
    let others = [0, 1].map(|_| {
        let (token, stop) = (token.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(SeqCst) {
                let _ = token.run(|| ());
            }
        })
    });
    let forks = move || {
        for _ in 0..50 {
            // SAFETY: the child makes calls that are its own.
            let fork = || unsafe { libc::fork() };
            let frames = || time::timeout(Duration::from_secs(60), fork);
            match token.run(frames).unwrap().unwrap() {
                0 => {
                    let _ = token.run(|| time::timeout(SOON, || ()));
                    // SAFETY: the child ends.
                    unsafe { libc::_exit(0) }
                }
                child => {
                    let mut status = 0;
                    // SAFETY: a valid place.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    assert_eq!(status, 0);
                }
            }
        }
    };
    thread::spawn(forks).join().unwrap();
    stop.store(true, SeqCst);
    for other in others {
        other.join().unwrap();
    }
}

type OfUnit = Yielder<(), ()>;

/// A scope's threads look at their frames while the coroutine that has opened it is suspended.
#[test]
fn a_suspended_coroutine_is_in_no_frames() {
    let _w = watchdog("found::a_suspended_coroutine_is_in_no_frames");
    both(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = stop.clone();
        let mut coroutine = Coroutine::new(move |yielder: &OfUnit, ()| {
            thread::scope(|s| {
                s.spawn(|| {
                    while !stops.load(SeqCst) {
                        assert!(!cancel::is_cancelled());
                        thread::yield_now();
                    }
                });
                yielder.suspend(());
            })
        });
        let token = Token::new();
        assert!(token.run(|| coroutine.resume(()).as_yield()).is_ok());
        token.cancel();
        drop(token);
        // The memory of the frames is used for others.
        for _ in 0..100 {
            std::hint::black_box([0x41_u8; 4096]);
            thread::yield_now();
        }
        stop.store(true, SeqCst);
        coroutine.resume(());
    });
}

#[test]
fn a_coroutine_has_the_limit_of_each_resume() {
    let _w = watchdog("found::a_coroutine_has_the_limit_of_each_resume");
    both(|| {
        let mut coroutine = Coroutine::new(|yielder: &OfUnit, ()| {
            Token::new().run(|| yielder.suspend(())).unwrap();
            thread::park();
        });
        coroutine.resume(());
        let result = time::timeout(SOON, || {
            coroutine.resume(());
        });
        assert_eq!(result, Err(Elapsed));
    });
}

/// A token is cancelled while a coroutine is resumed, or begins.
#[test]
fn a_coroutine_hears_of_its_callers_token() {
    let _w = watchdog("found::a_coroutine_hears_of_its_callers_token");
    both(|| {
        for round in 0..400 {
            let (go, token) = (AtomicBool::new(false), Token::new());
            let is_new = round % 2 == 0;
            let mut coroutine = Coroutine::new(move |yielder: &OfUnit, ()| {
                if !is_new {
                    yielder.suspend(());
                }
                loop {
                    thread::park();
                }
            });
            if !is_new {
                coroutine.resume(());
            }
            thread::scope(|s| {
                s.spawn(|| {
                    while !go.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    (0..37 * round % 1_000).for_each(|_| std::hint::spin_loop());
                    token.cancel();
                });
                let result = token.run(|| {
                    go.store(true, SeqCst);
                    coroutine.resume(());
                });
                assert!(result.is_err());
            });
        }
    });
}

/// Destructors wait: of thread-locals of a cancelled thread, of results that nobody wants.
#[test]
fn destructors_are_not_unwound() {
    let _w = watchdog("found::destructors_are_not_unwound");
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(SOON);
            // A thread that unwinds waits on.
            if !thread::panicking() {
                assert_eq!(time::timeout(SOON, thread::park), Err(Elapsed));
            }
            DROPPED.fetch_add(1, SeqCst);
        }
    }
    thread_local!(static LOCAL: Slow = const { Slow });
    both(|| {
        let before = DROPPED.load(SeqCst);
        let has_local = thread::spawn(|| {
            LOCAL.with(|_| ());
            thread::park();
        });
        has_local.cancel();
        assert!(has_local.join().is_err());
        let has_result = thread::spawn(|| Slow);
        while !has_result.is_finished() {
            thread::yield_now();
        }
        let dropped = time::timeout_at(Instant::now(), || drop(has_result));
        assert_eq!(dropped, Ok(()));
        let ended = Arc::new(Semaphore::new(0));
        let ends = ended.clone();
        let detached = thread::spawn(move || {
            let _slow = Slow;
            struct Ends(Arc<Semaphore>);
            impl Drop for Ends {
                fn drop(&mut self) {
                    self.0.add_permits(1);
                }
            }
            let _ends = Ends(ends);
            thread::park();
        });
        detached.cancel();
        drop(detached);
        ended.acquire().forget();
        while DROPPED.load(SeqCst) < before + 3 {
            thread::yield_now();
        }
    });
}

#[test]
fn a_thread_that_was_cancelled_opens_a_scope() {
    let _w = watchdog("found::a_thread_that_was_cancelled_opens_a_scope");
    both(|| {
        let go = Arc::new(AtomicBool::new(false));
        let goes = go.clone();
        let owner = thread::spawn(move || {
            while !goes.load(SeqCst) {
                std::thread::yield_now();
            }
            thread::scope(|s| {
                s.spawn(thread::park);
            });
        });
        owner.cancel();
        go.store(true, SeqCst);
        assert!(owner.join().unwrap_err().is::<Cancelled>());
    });
}

/// What a scope returns is not whole if one of its threads was ended by something that is not the owner's.
#[test]
fn a_scope_tells_that_a_thread_was_ended() {
    let _w = watchdog("found::a_scope_tells_that_a_thread_was_ended");
    both(|| {
        let scope = || {
            thread::scope(|s| {
                s.spawn(|| {
                    let token = Token::new();
                    token.cancel();
                    let cancelled = token.run(thread::park).unwrap_err();
                    resume_unwind(Box::new(cancelled))
                });
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(scope)).unwrap_err();
        assert!(payload.is::<Cancelled>());
    });
}

/// A thread is refused now and then, in many frames: that is no loop which overlooks errors.
#[test]
fn refusals_are_counted_in_one_frame() {
    let _w = watchdog("found::refusals_are_counted_in_one_frame");
    both(|| {
        let begin = Instant::now();
        for _ in 0..100 {
            assert_eq!(time::timeout_at(Instant::now(), thread::park), Err(Elapsed));
            thread::spawn(|| time::timeout_at(Instant::now(), thread::park))
                .join()
                .unwrap()
                .unwrap_err();
        }
        // The pauses of so many would be 20 seconds.
        assert!(begin.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn runtimes_are_cancelled_while_threads_are_spawned() {
    let _w = watchdog("found::runtimes_are_cancelled_while_threads_are_spawned");
    for round in 0..40 {
        let runtime = Runtime::builder().processors(2).build().unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                (0..97 * round % 3_000).for_each(|_| std::hint::spin_loop());
                runtime.cancel_all();
            });
            for _ in 0..30 {
                runtime.spawn(|| thread::scope(|s| drop(s.spawn(thread::park))));
            }
        });
        runtime.shutdown();
    }
}

/// Scopes whose owner is no thread of it end, too; and nodes are computed that do not wait.
#[test]
fn the_default_runtime_is_cancelled() {
    crate::common::alone!();
    let _w = watchdog("found::the_default_runtime_is_cancelled");
    let scope = || {
        thread::scope(|s| {
            s.spawn(thread::park);
            Runtime::global().cancel_all();
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(scope)).is_err());
    for _ in 0..5 {
        let values: Vec<_> = (0..40).map(|i| dataflow::call((), move |()| i)).collect();
        assert!(
            values
                .iter()
                .enumerate()
                .all(|(i, value)| value.get() == Ok(&i))
        );
    }
}
