//! Frames inside of others, where another thread is about: coroutines and their scopes, destructors, handlers, and timers that
//! fire just then. Each went wrong once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use greenthread::cancel::{self, Token};
use greenthread::coroutine::{Coroutine, Yielder};
use greenthread::runtime::Runtime;
use greenthread::sync::Mutex;
use greenthread::time::{self, Duration, Elapsed, Instant};
use greenthread::{channel, thread};

use crate::common::{both, watchdog};

const SOON: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_secs(1000);

type OfUnit = Yielder<(), ()>;

fn spin(turns: usize) {
    (0..turns).for_each(|_| std::hint::spin_loop());
}

/// Calls `begun` when `token`'s frame is about to be waited in, and cancels it `turns` after that.
fn cancel_about(turns: usize, wait: impl FnOnce(Token, &AtomicBool) + Send + 'static) {
    let (token, begun) = (Token::new(), Arc::new(AtomicBool::new(false)));
    let (inner, begins) = (token.clone(), begun.clone());
    let waits = thread::spawn(move || wait(inner, &begins));
    while !begun.load(SeqCst) {
        thread::yield_now();
    }
    spin(turns);
    token.cancel();
    waits.join().unwrap();
}

// ==== coroutines ====

/// The threads of a scope in a coroutine end with the frames of whoever waits for it.
#[test]
fn scopes_in_coroutines_end() {
    let _w = watchdog("nested::scopes_in_coroutines_end");
    both(|| {
        let result = time::timeout(SOON, || {
            let mut coroutine = Coroutine::new(|_: &OfUnit, ()| {
                thread::scope(|s| {
                    s.spawn(thread::park);
                    s.spawn(|| cancel::group(|group| group.spawn(thread::park).join().is_ok()));
                });
            });
            coroutine.resume(());
        });
        assert_eq!(result, Err(Elapsed));
    });
}

/// The threads of a scope in a coroutine that is suspended are in nobody's frames.
#[test]
fn scopes_in_suspended_coroutines_go_on() {
    let _w = watchdog("nested::scopes_in_suspended_coroutines_go_on");
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(AtomicUsize::new(0));
    let looks = Arc::new(AtomicUsize::new(0));
    let (stops, sees, counts) = (stop.clone(), seen.clone(), looks.clone());
    let mut coroutine = Coroutine::new(move |yielder: &OfUnit, ()| {
        thread::scope(|s| {
            s.spawn(|| {
                while !stops.load(SeqCst) {
                    sees.fetch_add(usize::from(cancel::is_cancelled()), SeqCst);
                    counts.fetch_add(1, SeqCst);
                    thread::yield_now();
                }
            });
            yielder.suspend(());
        });
    });
    let (sender, receiver) = channel::bounded(1);
    let first = thread::spawn(move || {
        coroutine.resume(());
        sender.send(coroutine).unwrap();
        thread::park();
    });
    let mut coroutine = receiver.recv().unwrap();
    let look = || {
        let before = looks.load(SeqCst);
        while looks.load(SeqCst) < before + 100 {
            thread::yield_now();
        }
    };
    first.cancel();
    look();
    assert!(first.join().is_err());
    look();
    stop.store(true, SeqCst);
    coroutine.resume(());
    assert_eq!(seen.load(SeqCst), 0, "seen in frames of others");
}

/// All threads of the runtime are cancelled whose thread resumes a coroutine of another one.
#[test]
fn a_coroutine_of_another_runtime_ends() {
    let _w = watchdog("nested::a_coroutine_of_another_runtime_ends");
    let on_one = || Runtime::builder().processors(1).build().unwrap();
    let (own, other) = (on_one(), on_one());
    let begin = || {
        let mut coroutine = Coroutine::new(|yielder: &OfUnit, ()| {
            yielder.suspend(());
            thread::park();
        });
        coroutine.resume(());
        coroutine
    };
    let mut coroutine = other.spawn(begin).join().unwrap();
    let resumes = own.spawn(move || coroutine.resume(()));
    own.cancel_all();
    assert!(resumes.join().is_err());
    own.shutdown();
    other.shutdown();
}

/// In an ended frame a coroutine that need not wait is not refused its turns.
#[test]
fn generators_go_on() {
    let _w = watchdog("nested::generators_go_on");
    both(|| {
        let count = time::timeout_at(Instant::now(), || {
            let numbers = Coroutine::new(|yielder: &Yielder<(), u32>, ()| {
                (0..30).for_each(|number| yielder.suspend(number));
            });
            numbers.count()
        });
        assert_eq!(count, Ok(30));
    });
}

/// Coroutines change threads and runtimes, in frames that end, and everything ends.
#[test]
fn coroutines_change_threads() {
    const ROUNDS: usize = 3_000;
    let _w = watchdog("nested::coroutines_change_threads");
    let next = |rng: &mut u64| {
        *rng = rng
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *rng
    };
    let make = move || {
        Coroutine::new(move |yielder: &Yielder<u64, ()>, seed: u64| {
            let mut rng = seed;
            loop {
                for _ in 0..3 {
                    let dice = next(&mut rng);
                    let limit = Duration::from_micros(dice >> 33 & 255);
                    match dice >> 60 {
                        0..3 => thread::park_timeout(limit),
                        3..6 => drop(time::timeout(limit, thread::park)),
                        6..8 => drop(cancel::shield(limit, thread::park)),
                        8..10 => thread::yield_now(),
                        10..12 => drop(time::timeout(LONG, || thread::park_timeout(limit))),
                        12 if cancel::deadline().is_some() => thread::park(),
                        13 => drop(Token::new().run(|| yielder.suspend(()))),
                        _ => cancel::check(),
                    }
                }
                yielder.suspend(());
            }
        })
    };
    let on = |processors| Runtime::builder().processors(processors).build().unwrap();
    let runtimes = [on(2), on(1)];
    let pool = Arc::new(Mutex::new((0..8).map(|_| make()).collect::<Vec<_>>()));
    let tokens = Arc::new([(); 4].map(|()| Mutex::new(Token::new())));
    let resumes = Arc::new(AtomicUsize::new(0));
    let workers = (0..6_u64).map(|number| {
        let (pool, tokens, resumes) = (pool.clone(), tokens.clone(), resumes.clone());
        let work = move || {
            let mut rng = number * 7919 + 1;
            while resumes.fetch_add(1, SeqCst) < ROUNDS {
                let dice = next(&mut rng);
                let Some(mut coroutine) = pool.lock().unwrap().pop() else {
                    thread::yield_now();
                    continue;
                };
                let limit = Duration::from_micros(dice >> 40 & 1023);
                let token = tokens[(dice >> 37 & 3) as usize].lock().unwrap().clone();
                let mut is_alive = false;
                let mut go = || {
                    is_alive = false;
                    coroutine.resume(dice);
                    is_alive = true;
                };
                let result = catch_unwind(AssertUnwindSafe(|| match dice >> 61 {
                    0 | 1 => drop(time::timeout(limit, &mut go)),
                    2 | 3 => drop(token.run(&mut go)),
                    4 => drop(time::timeout(limit, || token.run(&mut go))),
                    5 => drop(token.run(|| cancel::shield(limit, &mut go))),
                    6 => drop(time::timeout(limit, || {
                        thread::scope(|s| s.spawn(go).join())
                    })),
                    _ => drop(token.run(|| time::timeout(Duration::from_millis(1), &mut go))),
                }));
                let whole = is_alive && result.is_ok();
                pool.lock()
                    .unwrap()
                    .push(if whole { coroutine } else { make() });
            }
        };
        match number {
            0..3 => runtimes[0].spawn(work),
            3 | 4 => runtimes[1].spawn(work),
            _ => thread::spawn(work),
        }
    });
    let workers: Vec<_> = workers.collect();
    for number in (0..4).cycle() {
        if workers.iter().all(|worker| worker.is_finished()) {
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
        let token = std::mem::take(&mut *tokens[number].lock().unwrap());
        token.cancel();
    }
    for worker in workers {
        worker.join().unwrap();
    }
    pool.lock().unwrap().clear();
    runtimes.into_iter().for_each(Runtime::shutdown);
}

// ==== destructors ====

/// Waits in its destructor for other threads, which wait themselves.
struct Waits(fn());

impl Drop for Waits {
    fn drop(&mut self) {
        (self.0)();
    }
}

const WAYS: [fn(); 3] = [
    || {
        thread::scope(|s| {
            s.spawn(|| thread::sleep(SOON));
        });
    },
    || {
        cancel::group(|group| {
            group.spawn(|| thread::sleep(SOON));
        });
    },
    || {
        let coroutine = Coroutine::new(|yielder: &OfUnit, ()| {
            thread::sleep(SOON);
            yielder.suspend(());
        });
        assert_eq!(coroutine.count(), 1);
    },
];

#[test]
fn destructors_wait_for_other_threads() {
    let _w = watchdog("nested::destructors_wait_for_other_threads");
    both(|| {
        for way in WAYS {
            let result = time::timeout(SOON, || {
                let _waits = Waits(way);
                thread::park();
            });
            assert_eq!(result, Err(Elapsed));
        }
    });
}

#[test]
fn destructors_of_thread_locals_wait_for_other_threads() {
    thread_local!(static WAITS: Waits = const { Waits(|| WAYS.iter().for_each(|way| way())) });
    let _w = watchdog("nested::destructors_of_thread_locals_wait_for_other_threads");
    both(|| {
        let cancelled = thread::spawn(|| {
            WAITS.with(|_| ());
            thread::park();
        });
        cancelled.cancel();
        assert!(cancelled.join().is_err());
    });
}

/// A token is cancelled in whose frame the destructor of a thread's result is about to wait.
#[test]
fn tokens_in_destructors() {
    struct Result(Token, Arc<AtomicBool>);
    impl Drop for Result {
        fn drop(&mut self) {
            let wait = || {
                self.1.store(true, SeqCst);
                thread::park();
            };
            assert!(self.0.run(wait).is_err());
        }
    }
    let _w = watchdog("nested::tokens_in_destructors");
    both(|| {
        for round in 0..300 {
            let (token, begun) = (Token::new(), Arc::new(AtomicBool::new(false)));
            let result = Result(token.clone(), begun.clone());
            let drops = thread::spawn(move || {
                let ended = thread::spawn(move || result);
                while !ended.is_finished() {
                    thread::yield_now();
                }
                let _ = time::timeout_at(Instant::now(), || drop(ended));
            });
            while !begun.load(SeqCst) {
                thread::yield_now();
            }
            spin(round * 7 % 100);
            token.cancel();
            drops.join().unwrap();
        }
    });
}

// ==== timers that fire just then ====

/// A thread is told in vain when its limit is about to pass.
#[test]
fn told_in_vain() {
    let _w = watchdog("nested::told_in_vain");
    for round in 0..2_000 {
        cancel_about(round * 7 % 1000, |token, begun| {
            let wait = || {
                begun.store(true, SeqCst);
                cancel::shield(Duration::from_micros(100), thread::park)
            };
            assert!(!matches!(token.run(wait), Ok(Ok(()))));
        });
    }
}

/// A wait has the very limit of a frame that it does not see, and the frame's timer fires just before it begins.
#[test]
fn the_limit_of_a_frame_outside_a_shield() {
    let _w = watchdog("nested::the_limit_of_a_frame_outside_a_shield");
    both(|| {
        let (_sender, receiver) = channel::unbounded::<()>();
        for round in 0..2_000 {
            let at = Instant::now() + Duration::from_micros(60);
            let _ = time::timeout_at(at, || {
                thread::park_timeout(Duration::from_nanos(1));
                cancel::shield(Duration::MAX, || {
                    let begin = at - Duration::from_nanos(round * 37 % 3000);
                    while Instant::now() < begin {
                        std::hint::spin_loop();
                    }
                    assert!(receiver.recv_deadline(at).is_err());
                })
            });
        }
    });
}

// ==== refusals ====

/// Each frame's first refusal is its own: what was refused in frames that are left does not count.
#[test]
fn refusals_in_many_frames() {
    let _w = watchdog("nested::refusals_in_many_frames");
    both(|| {
        let begin = Instant::now();
        thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..1000 {
                    assert!(time::timeout_at(Instant::now(), thread::park).is_err());
                }
            });
        });
        // With a pause each from the ninth on it is a hundred seconds.
        assert!(begin.elapsed() < Duration::from_secs(20));
    });
}

/// A thread that was cancelled, and overlooks that in frames of its own, does not take a CPU.
#[test]
#[cfg(feature = "net")]
fn a_cancelled_thread_overlooks_it() {
    let _w = watchdog("nested::a_cancelled_thread_overlooks_it");
    const ROUNDS: usize = 14;
    let waits = thread::spawn(|| {
        let listener = greenthread::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            let _ = time::timeout(LONG, || listener.accept().map(drop));
        }
        begin.elapsed()
    });
    waits.cancel();
    // The wait that was under way when it was cancelled may count, or not: from the ninth on 1, 2, 4, 8, 16 ms.
    let took = waits.join().unwrap();
    assert!(took >= Duration::from_millis(31), "{took:?}");
}

// ==== kernel threads, children ====

/// A handler waits while its kernel thread is about to wait in a frame.
#[test]
#[cfg(target_os = "linux")]
fn handlers_wait_on_kernel_threads() {
    extern "C" fn handler(_: i32) {
        let wait = || thread::sleep(Duration::from_micros(300));
        let _ = cancel::shield(Duration::MAX, wait);
    }
    let _w = watchdog("nested::handlers_wait_on_kernel_threads");
    // SAFETY: the handler waits, where nothing that it needs is under way.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    for round in 0..500 {
        let (token, id, is_over) = (Token::new(), AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            let waits = s.spawn(|| {
                let (_sender, receiver) = channel::unbounded::<()>();
                let wait = || {
                    // SAFETY: a plain call.
                    id.store(unsafe { libc::pthread_self() } as usize, SeqCst);
                    receiver.recv()
                };
                let _ = token.run(wait);
                is_over.store(true, SeqCst);
            });
            while id.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            spin(round * 7 % 400);
            let thread = id.load(SeqCst) as libc::pthread_t;
            // SAFETY: nobody has joined it.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            spin(1000);
            token.cancel();
            waits.join().unwrap();
        });
        assert!(is_over.load(SeqCst));
    }
}

/// A forked child cancels a token in whose frames threads of its parent are.
#[test]
#[cfg(target_os = "linux")]
fn a_child_cancels() {
    let _w = watchdog("nested::a_child_cancels");
    let (token, stop) = (Token::new(), Arc::new(AtomicBool::new(false)));
    let others = [0, 1].map(|_| {
        let (token, stop) = (token.clone(), stop.clone());
        std::thread::spawn(move || {
            while !stop.load(SeqCst) {
                let _ = token.run(|| ());
            }
        })
    });
    let inner = token.clone();
    let forks = move || {
        for _ in 0..50 {
            // SAFETY: the child makes calls that are its own.
            match unsafe { libc::fork() } {
                0 => {
                    inner.cancel();
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
    greenthread::spawn(forks).join().unwrap();
    stop.store(true, SeqCst);
    for other in others {
        other.join().unwrap();
    }
}

// ==== beside all the rest ====

/// A thread is cancelled as it ends; the next one, which has its record, waits undisturbed.
#[test]
fn a_record_is_used_again() {
    let _w = watchdog("nested::a_record_is_used_again");
    both(|| {
        for round in 0..1_000 {
            let (sender, receiver) = channel::bounded(1);
            let ends = thread::spawn(thread::yield_now);
            let canceller = thread::spawn(move || {
                spin(round * 7 % 300);
                ends.cancel();
                ends.join().is_ok()
            });
            spin(round * 11 % 300);
            let waits = thread::spawn(move || receiver.recv());
            let _ = canceller.join().unwrap();
            sender.send(round).unwrap();
            assert_eq!(waits.join().unwrap(), Ok(round));
        }
    });
}

/// Limits, tokens and groups beside hogs, signals of the program's, forks and other numbers of processors; then the runtime ends.
#[test]
#[cfg(target_os = "linux")]
fn beside_all() {
    extern "C" fn handler(_: i32) {
        let wait = || thread::park_timeout(Duration::from_micros(50));
        let _ = cancel::shield(Duration::MAX, wait);
    }
    const ROUNDS: usize = 200;
    let _w = watchdog("nested::beside_all");
    // SAFETY: the handler waits, where nothing that it needs is under way.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    let runtime = Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100));
    let runtime = Arc::new(runtime.build().unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let hog = runtime.spawn(move || {
        while !over.load(SeqCst) {
            spin(100);
        }
    });
    let workers = [0, 1, 2].map(|number| {
        let resizes = runtime.clone();
        runtime.spawn(move || {
            for round in 0..ROUNDS {
                let token = Token::new();
                let (inner, limit) = (token.clone(), Duration::from_micros(round as u64 % 300));
                let canceller = thread::spawn(move || inner.cancel());
                let waits = || -> Result<(), Elapsed> {
                    time::timeout(limit, || {
                        loop {
                            thread::park();
                        }
                    })
                };
                assert!(!matches!(token.run(waits), Ok(Ok(()))));
                canceller.join().unwrap();
                let value = cancel::group(|group| {
                    group.spawn(thread::park);
                    group.cancel();
                    group.spawn(|| thread::sleep(LONG));
                    round
                });
                assert_eq!(value, round);
                match number {
                    0 => drop(resizes.set_processors(1 + round % 3)),
                    // SAFETY: a signal that has a handler.
                    1 => drop(token.run(|| unsafe { libc::raise(libc::SIGUSR2) })),
                    _ if round % 20 == 0 => {
                        // SAFETY: the child ends; a valid place.
                        unsafe {
                            match libc::fork() {
                                0 => libc::_exit(0),
                                child => drop(libc::waitpid(child, &mut 0, 0)),
                            }
                        }
                    }
                    _ => {}
                }
            }
        })
    });
    for worker in workers {
        worker.join().unwrap();
    }
    is_over.store(true, SeqCst);
    hog.join().unwrap();
    runtime.spawn(thread::park);
    runtime.cancel_all();
    Arc::into_inner(runtime).unwrap().shutdown();
}
