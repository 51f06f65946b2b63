//! Tokens, groups, threads that are cancelled, and what scopes inherit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use greenthread::cancel::{self, Cancelled, Token};
use greenthread::runtime::Runtime;
use greenthread::sync::{Condvar, Mutex, Semaphore};
use greenthread::time::{self, Duration, Elapsed};
use greenthread::{channel, thread};

use crate::common::{both, watchdog};

const SOON: Duration = Duration::from_millis(5);

#[test]
fn a_token_ends_waits_of_any_thread() {
    let _w = watchdog("tokens::a_token_ends_waits_of_any_thread");
    both(|| {
        let token = Token::new();
        let (_s, r) = channel::unbounded::<()>();
        let begun = Semaphore::new(0);
        thread::scope(|s| {
            for i in 0..200 {
                let (token, r, begun) = (&token, &r, &begun);
                s.spawn(move || {
                    let result = token.run(|| {
                        begun.add_permits(1);
                        match i % 4 {
                            0 => drop(r.recv()),
                            1 => thread::park(),
                            2 => thread::sleep(Duration::MAX),
                            _ => drop(thread::scope(|s| s.spawn(thread::park).join())),
                        }
                    });
                    assert!(result.unwrap_err().location().is_some());
                });
            }
            begun.acquire_many(200).forget();
            token.cancel();
        });
        assert!(token.is_cancelled() && token.clone().run(thread::park).is_err());
    });
}

#[test]
fn a_thread_is_cancelled() {
    let _w = watchdog("tokens::a_thread_is_cancelled");
    both(|| {
        let parked = thread::spawn(|| {
            thread::scope(|s| {
                s.spawn(|| thread::scope(|s| drop(s.spawn(thread::park))));
            });
        });
        thread::sleep(SOON);
        parked.cancel();
        assert!(parked.join().unwrap_err().is::<Cancelled>());
        // Before it has begun, and after it has ended.
        let new = thread::spawn(thread::park);
        new.cancel();
        assert!(new.join().is_err());
        let over = thread::spawn(|| 7);
        while !over.is_finished() {
            thread::yield_now();
        }
        over.cancel();
        assert_eq!(over.join().unwrap(), 7);
    });
}

#[test]
fn scopes_inherit_and_spawns_do_not() {
    let _w = watchdog("tokens::scopes_inherit_and_spawns_do_not");
    both(|| {
        let free = Arc::new(Semaphore::new(0));
        let other = free.clone();
        let (mut deadline, mut plain) = (None, None);
        let result = time::timeout(SOON, || {
            thread::scope(|s| {
                deadline = s.spawn(cancel::deadline).join().unwrap();
                plain = Some(thread::spawn(move || {
                    other.acquire().forget();
                    cancel::deadline()
                }));
                s.spawn(thread::park);
                s.spawn(|| thread::scope(|s| drop(s.spawn(thread::park))));
            })
        });
        assert_eq!(result, Err(Elapsed));
        assert!(deadline.is_some());
        free.add_permits(1);
        assert_eq!(plain.unwrap().join().unwrap(), None);
    });
}

/// The owner computes meanwhile.
#[test]
fn threads_of_scopes_end_before_their_owner_waits() {
    let _w = watchdog("tokens::threads_of_scopes_end_before_their_owner_waits");
    both(|| {
        let token = Token::new();
        let (ended, begun) = (AtomicUsize::new(0), AtomicUsize::new(0));
        struct End<'a>(&'a AtomicUsize);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        thread::scope(|outer| {
            let owner = outer.spawn(|| {
                token.run(|| {
                    thread::scope(|s| {
                        for _ in 0..150 {
                            s.spawn(|| {
                                let _end = End(&ended);
                                begun.fetch_add(1, SeqCst);
                                thread::park();
                            });
                        }
                        while ended.load(SeqCst) < 150 {
                            thread::yield_now();
                        }
                        7
                    })
                })
            });
            while begun.load(SeqCst) < 150 {
                thread::yield_now();
            }
            token.cancel();
            assert!(owner.join().unwrap().is_err());
        });
    });
}

#[test]
fn a_panic_ends_the_group() {
    let _w = watchdog("tokens::a_panic_ends_the_group");
    both(|| {
        let (_s, r) = channel::unbounded::<()>();
        let group = || {
            cancel::group(|group| {
                for _ in 0..10 {
                    group.spawn(|| r.recv());
                }
                group.spawn(|| {
                    thread::sleep(SOON);
                    std::panic::resume_unwind(Box::new(7))
                });
                r.recv().is_ok()
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(group)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7));
        let own = || {
            cancel::group(|group| {
                group.spawn(thread::park);
                std::panic::resume_unwind(Box::new(8))
            })
        };
        let payload = catch_unwind(AssertUnwindSafe(own)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&8));
    });
}

#[test]
fn a_group_is_cancelled() {
    let _w = watchdog("tokens::a_group_is_cancelled");
    both(|| {
        let late = AtomicBool::new(false);
        let value = cancel::group(|group| {
            group.spawn(thread::park);
            group.cancel();
            group.spawn(|| {
                late.store(true, SeqCst);
                thread::park();
            });
            7
        });
        assert!(value == 7 && late.load(SeqCst));
        let unwound = catch_unwind(|| {
            cancel::group(|group| {
                group.spawn(|| group.cancel());
                thread::park();
            })
        });
        assert!(unwound.unwrap_err().is::<Cancelled>());
        let result = time::timeout(SOON, || {
            cancel::group(|group| drop(group.spawn(thread::park)))
        });
        assert_eq!(result, Err(Elapsed));
    });
}

#[test]
fn a_condvar_ends_while_its_mutex_is_held_for_ever() {
    let _w = watchdog("tokens::a_condvar_ends_while_its_mutex_is_held_for_ever");
    both(|| {
        let (mutex, condvar, token) = (Mutex::new(false), Condvar::new(), Token::new());
        thread::scope(|s| {
            let waiter = s.spawn(|| {
                token.run(|| {
                    let mut guard = mutex.lock().unwrap();
                    *guard = true;
                    drop(condvar.wait(guard));
                })
            });
            let guard = loop {
                let guard = mutex.lock().unwrap();
                if *guard {
                    break guard;
                }
                drop(guard);
                thread::yield_now();
            };
            token.cancel();
            assert!(waiter.join().unwrap().is_err());
            drop(guard);
        });
        assert!(!mutex.is_poisoned());
    });
}

#[test]
fn on_cancel_stops_what_frames_do_not_end() {
    let _w = watchdog("tokens::on_cancel_stops_what_frames_do_not_end");
    both(|| {
        for late in [false, true] {
            let (sender, receiver) = std::sync::mpsc::channel::<u32>();
            let sender = std::sync::Mutex::new(Some(sender));
            let result = time::timeout(if late { SOON } else { Duration::ZERO }, || {
                cancel::on_cancel(|| drop(sender.lock().unwrap().take()), || receiver.recv())
            });
            assert!(result.unwrap().is_err());
        }
        let stopped = AtomicBool::new(false);
        assert_eq!(cancel::on_cancel(|| stopped.store(true, SeqCst), || 7), 7);
        assert!(!stopped.load(SeqCst));
    });
}

#[test]
fn a_runtime_is_cancelled() {
    let _w = watchdog("tokens::a_runtime_is_cancelled");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let other = thread::spawn(thread::park);
    let all: Vec<_> = (0..300).map(|_| runtime.spawn(thread::park)).collect();
    runtime.cancel_all();
    let late = runtime.spawn(thread::park);
    assert!(all.into_iter().all(|thread| thread.join().is_err()));
    assert!(late.join().is_err());
    assert!(!other.is_finished());
    other.thread().unpark();
    other.join().unwrap();
    runtime.shutdown();
}

#[test]
fn coroutines_are_in_their_callers_frames() {
    let _w = watchdog("tokens::coroutines_are_in_their_callers_frames");
    both(|| {
        use greenthread::coroutine::Coroutine;
        let unwound = Arc::new(AtomicUsize::new(0));
        struct Unwound(Arc<AtomicUsize>);
        impl Drop for Unwound {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let waits = || {
            let unwound = unwound.clone();
            Coroutine::new(
                move |yielder: &greenthread::coroutine::Yielder<(), Option<_>>, ()| {
                    let _unwound = Unwound(unwound);
                    let limits: [_; 2] = std::array::from_fn(|_| {
                        yielder.suspend(cancel::deadline());
                        cancel::deadline()
                    });
                    time::timeout(Duration::from_secs(1000), || {
                        yielder.suspend(cancel::deadline());
                        thread::park()
                    })
                    .map(|()| limits)
                },
            )
        };
        // The limits are those of whoever resumes it.
        let mut coroutine = waits();
        let first = time::timeout(Duration::from_secs(500), || coroutine.resume(()).as_yield());
        assert!(first.unwrap().unwrap().is_some());
        assert!(coroutine.resume(()).as_yield().unwrap().is_none());
        let inner = time::timeout(Duration::from_secs(500), || coroutine.resume(()).as_yield());
        let far = std::time::Instant::now() + Duration::from_secs(600);
        assert!(inner.unwrap().unwrap().unwrap() < far);
        let ended = time::timeout(SOON, || {
            coroutine.resume(());
        });
        assert_eq!((ended, unwound.load(SeqCst)), (Err(Elapsed), 1));
        // By a token, at every stage.
        for turns in 0..4 {
            let token = Token::new();
            let begun = AtomicBool::new(false);
            thread::scope(|s| {
                let resumes = s.spawn(|| {
                    let mut coroutine = waits();
                    for _ in 0..turns {
                        coroutine.resume(());
                    }
                    begun.store(true, SeqCst);
                    let result = token.run(|| {
                        if turns == 0 {
                            let parks =
                                |_: &greenthread::coroutine::Yielder<(), ()>, ()| thread::park();
                            Coroutine::new(parks).resume(());
                        }
                        while coroutine.resume(()).as_yield().is_some() {}
                    });
                    result.is_err()
                });
                while !begun.load(SeqCst) {
                    thread::yield_now();
                }
                token.cancel();
                assert!(resumes.join().unwrap());
            });
        }
    });
}

#[test]
fn nodes_are_in_the_frames_of_their_calls() {
    let _w = watchdog("tokens::nodes_are_in_the_frames_of_their_calls");
    both(|| {
        use greenthread::dataflow;
        let token = Token::new();
        let (value, next) = token
            .run(|| {
                let value = dataflow::call((), |()| thread::park());
                let next = dataflow::call((&value,), |(_,)| 7);
                (value, next)
            })
            .unwrap();
        assert_eq!(time::timeout(SOON, || value.get().is_ok()), Err(Elapsed));
        token.cancel();
        assert!(value.get().is_err() && next.get().is_err());
        let limited = time::timeout(SOON, || dataflow::call((), |()| thread::park())).unwrap();
        assert!(limited.get().is_err());
    });
}

#[test]
fn statics_are_made_whatever_ends() {
    let _w = watchdog("tokens::statics_are_made_whatever_ends");
    both(|| {
        let lazy = greenthread::sync::LazyLock::new(|| {
            thread::sleep(SOON);
            7
        });
        assert_eq!(time::timeout_at(std::time::Instant::now(), || *lazy), Ok(7));
    });
}
