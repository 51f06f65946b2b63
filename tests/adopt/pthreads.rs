//! Pthreads that are green threads, as C sees them: the races of create, join, detach and the end; signals and cancellation; and
//! each of these beside hogs, fork, resizing, the end of a runtime, other drivers and modes.

use crate::adopted::adopted;
use crate::common::*;
use greenthread::runtime::{Mode, Runtime};
use libc::{c_int, c_void, pthread_t};
use std::cell::Cell;
use std::hint::spin_loop;
use std::io::{ErrorKind, Read, Write};
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn pthread_clockjoin_np(
        thread: pthread_t,
        place: *mut *mut c_void,
        clock: c_int,
        time: *const libc::timespec,
    ) -> c_int;
    fn pthread_attr_setdetachstate(attributes: *mut libc::pthread_attr_t, state: c_int) -> c_int;
}

/// The result of a cancelled thread.
const CANCELED: usize = usize::MAX;

/// Starts a pthread that runs `main`, and returns its result.
fn start<F: FnOnce() -> usize + Send + 'static>(is_detached: bool, main: F) -> pthread_t {
    extern "C-unwind" fn run<F: FnOnce() -> usize>(main: *mut c_void) -> *mut c_void {
        // SAFETY: the box from below.
        unsafe { Box::from_raw(main.cast::<F>())() as *mut c_void }
    }
    let main = Box::into_raw(Box::new(main)).cast();
    let mut thread = 0;
    // SAFETY: the attributes are initialised first. The function may unwind: libc's type does not say so.
    unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        pthread_attr_setdetachstate(attributes.as_mut_ptr(), c_int::from(is_detached));
        type Run = extern "C" fn(*mut c_void) -> *mut c_void;
        let run =
            std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> *mut c_void, Run>(run::<F>);
        let made = libc::pthread_create(&mut thread, attributes.as_ptr(), run, main);
        assert_eq!(made, 0);
    }
    thread
}

fn join(thread: pthread_t) -> usize {
    let mut result = null_mut();
    // SAFETY: a thread that nobody has joined or detached.
    assert_eq!(unsafe { libc::pthread_join(thread, &mut result) }, 0);
    result as usize
}

/// The number of rounds of a test that lives of their number: `GT_ROUNDS`.
fn rounds(usual: usize) -> usize {
    let asked = std::env::var("GT_ROUNDS").ok();
    asked.map_or(usual, |rounds| rounds.parse().expect("GT_ROUNDS: a number"))
}

/// In every order of the end with join, try, timed join and detach, by the creator and by others: each thread runs once, each
/// result comes to its joiner, and at the end no green thread is left.
#[test]
fn created_joined_and_detached() {
    alone!();
    let _w = watchdog("created_joined_and_detached");
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let rounds = rounds(20_000);
    let mut rng = Rng::new("created_joined_and_detached");
    adopted(|| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let mut rng = rng.fork();
                thread::spawn(move || (0..rounds / 4).for_each(|round| one(&mut rng, round)))
            })
            .collect();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
    wait_until(|| RAN.load(SeqCst) == rounds / 4 * 4);
    wait_until(|| Runtime::global().metrics().live_threads == 0);

    fn one(rng: &mut Rng, round: usize) {
        let yields = rng.below(3);
        let main = move || {
            (0..yields).for_each(|_| thread::yield_now());
            RAN.fetch_add(1, SeqCst);
            round
        };
        let how = rng.below(8);
        let thread = start(how == 0, main);
        let pause = |times: usize| (0..times).for_each(|_| thread::yield_now());
        let mut result = null_mut();
        // SAFETY: each of these is done once, and the thread is named no more after it.
        unsafe {
            match how {
                0 => {}
                1 => assert_eq!(libc::pthread_detach(thread), 0),
                2 => {
                    pause(rng.below(4));
                    assert_eq!(libc::pthread_detach(thread), 0);
                }
                3 => loop {
                    match libc::pthread_tryjoin_np(thread, &mut result) {
                        0 => break assert_eq!(result as usize, round),
                        error => assert_eq!(error, libc::EBUSY),
                    }
                    thread::yield_now();
                },
                4 => {
                    let past: libc::timespec = zeroed();
                    let clock = libc::CLOCK_MONOTONIC;
                    while pthread_clockjoin_np(thread, &mut result, clock, &past) != 0 {
                        thread::yield_now();
                    }
                    assert_eq!(result as usize, round);
                }
                5 => {
                    let joiner = thread::spawn(move || join(thread));
                    assert_eq!(joiner.join().unwrap(), round);
                }
                6 => {
                    pause(rng.below(4));
                    assert_eq!(join(thread), round);
                }
                _ => assert_eq!(join(thread), round),
            }
        }
    }
}

/// What a wrong order gets is libc's answer.
#[test]
fn mistakes_have_errors() {
    let _w = watchdog("mistakes_have_errors");
    adopted(|| {
        let (go, gone) = mpsc::channel::<()>();
        let thread = start(false, move || gone.recv().map_or(1, |()| 2));
        // SAFETY: the thread lives, and the places are ours.
        unsafe {
            assert_eq!(libc::pthread_tryjoin_np(thread, null_mut()), libc::EBUSY);
            let past: libc::timespec = zeroed();
            let timed = pthread_clockjoin_np(thread, null_mut(), libc::CLOCK_MONOTONIC, &past);
            assert_eq!(timed, libc::ETIMEDOUT);
            let odd = pthread_clockjoin_np(thread, null_mut(), libc::CLOCK_BOOTTIME, &past);
            assert_eq!(odd, libc::EINVAL);
            assert_eq!(libc::pthread_kill(thread, 0), 0);
            assert_eq!(libc::pthread_kill(thread, 65), libc::EINVAL);
            go.send(()).unwrap();
            assert_eq!(join(thread), 2);
            let itself = start(false, || {
                libc::pthread_join(libc::pthread_self(), null_mut()) as usize
            });
            assert_eq!(join(itself), libc::EDEADLK as usize);
            let (go, gone) = mpsc::channel::<()>();
            let detached = start(true, move || gone.recv().map_or(1, |()| 2));
            assert_eq!(libc::pthread_join(detached, null_mut()), libc::EINVAL);
            assert_eq!(libc::pthread_detach(detached), libc::EINVAL);
            go.send(()).unwrap();
            let ended = start(false, || 7);
            wait_until(|| libc::pthread_kill(ended, 0) == 0);
            assert_eq!(join(ended), 7);
        }
    });
}

/// A thread whose attributes ask the kernel for something is a kernel thread.
#[test]
fn a_stack_of_the_programs_own_is_a_kernel_threads() {
    let _w = watchdog("a_stack_of_the_programs_own_is_a_kernel_threads");
    extern "C" fn number(_: *mut c_void) -> *mut c_void {
        // SAFETY: it takes nothing.
        unsafe { libc::gettid() as usize as *mut c_void }
    }
    adopted(|| {
        // SAFETY: the stack is there until the thread was joined.
        unsafe {
            let (mut thread, mut attributes) = (0, MaybeUninit::uninit());
            libc::pthread_attr_init(attributes.as_mut_ptr());
            assert_eq!(
                libc::pthread_create(&mut thread, attributes.as_ptr(), number, null_mut()),
                0
            );
            assert_eq!(join(thread) >= 1 << 29, green());
            let size = 256 << 10;
            let stack = libc::mmap(
                null_mut(),
                size,
                3,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_eq!(
                libc::pthread_attr_setstack(attributes.as_mut_ptr(), stack, size),
                0
            );
            assert_eq!(
                libc::pthread_create(&mut thread, attributes.as_ptr(), number, null_mut()),
                0
            );
            assert!(join(thread) < 1 << 29);
        }
    });
}

/// How often the handler has run on the thread that [`signal_until`] signals.
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static TARGET: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// How often it has run on this thread.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn handler(_: c_int) {
    MINE.set(MINE.get() + 1);
    // SAFETY: it takes nothing.
    if unsafe { libc::pthread_self() } as usize == TARGET.load(SeqCst) {
        HANDLED.fetch_add(1, SeqCst);
    }
}

fn handle(flags: c_int) {
    // SAFETY: a valid action.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
}

/// Sends SIGUSR1 until the handler has run `times` times: a thread that is not in its call yet gets another one. Returns how many.
fn signal_until(thread: pthread_t, times: usize) -> usize {
    TARGET.store(thread as usize, SeqCst);
    HANDLED.store(0, SeqCst);
    let mut sent = 0;
    wait_until(|| {
        // SAFETY: the thread lives until it is joined.
        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        sent += 1;
        HANDLED.load(SeqCst) >= times
    });
    sent
}

#[test]
fn signals_reach_their_thread() {
    alone!();
    let _w = watchdog("signals_reach_their_thread");
    if !hooked() {
        return;
    }
    handle(0);
    adopted(|| {
        // A hog, beside others.
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |stop: Arc<AtomicBool>| {
            start(false, move || {
                while !stop.load(SeqCst) {
                    spin_loop();
                }
                MINE.get()
            })
        };
        let hogs: Vec<_> = (0..4).map(|_| hog(stop.clone())).collect();
        let sent: Vec<_> = hogs[1..].iter().map(|&hog| signal_until(hog, 3)).collect();
        // One that reads, and is interrupted each time.
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let interrupted = Arc::new(AtomicUsize::new(0));
        let count = interrupted.clone();
        let thread = start(false, move || {
            loop {
                match reader.read(&mut [0]) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {
                        _ = count.fetch_add(1, SeqCst)
                    }
                    answer => break answer.unwrap(),
                }
            }
        });
        wait_until(|| {
            signal_until(thread, 1);
            interrupted.load(SeqCst) >= 3
        });
        writer.write_all(b"x").unwrap();
        assert_eq!(join(thread), 1);
        // One that waits for a lock, which goes on.
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let other = lock.clone();
        let thread = start(false, move || {
            drop(other.lock().unwrap());
            5
        });
        signal_until(thread, 3);
        drop(held);
        assert_eq!(join(thread), 5);
        stop.store(true, SeqCst);
        let mut handled = hogs.into_iter().map(join);
        assert_eq!(handled.next(), Some(0), "nobody has signalled it");
        for (handled, sent) in handled.zip(sent) {
            assert!((3..=sent).contains(&handled), "{handled} of {sent}");
        }
    });
}

/// A signal that the thread blocks waits until it does so no more, or fetches it.
#[test]
fn a_blocked_signal_waits() {
    alone!();
    let _w = watchdog("a_blocked_signal_waits");
    if !hooked() {
        return;
    }
    handle(0);
    adopted(|| {
        let (begun, go, done) = (
            Arc::new(Barrier::new(2)),
            Arc::new(Barrier::new(2)),
            Arc::new(Barrier::new(2)),
        );
        let others = (begun.clone(), go.clone(), done.clone());
        let thread = start(false, move || {
            let (begun, go, done) = others;
            // SAFETY: a set and places of ours.
            unsafe {
                let mut set = zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR1);
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, null_mut());
                begun.wait();
                go.wait();
                let mut pending = zeroed();
                libc::sigpending(&mut pending);
                assert_eq!(libc::sigismember(&pending, libc::SIGUSR1), 1);
                assert_eq!(MINE.get(), 0);
                let mut number = 0;
                assert_eq!(libc::sigwait(&set, &mut number), 0);
                assert_eq!(number, libc::SIGUSR1);
                done.wait();
                go.wait();
                assert_eq!(MINE.get(), 0);
                libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, null_mut());
                MINE.get()
            }
        });
        begun.wait();
        // SAFETY: the thread lives.
        let send = || assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
        send();
        go.wait();
        done.wait();
        send();
        go.wait();
        assert_eq!(join(thread), 1);
    });
}

/// A thread that is cancelled where it waits drops what it has, and its joiner hears of it.
#[test]
fn cancelled_where_they_wait() {
    alone!();
    let _w = watchdog("cancelled_where_they_wait");
    if !hooked() {
        return;
    }
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Held;
    impl Drop for Held {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, SeqCst);
        }
    }
    unsafe extern "C-unwind" {
        fn read(fd: c_int, place: *mut c_void, size: usize) -> isize;
        fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
        fn sem_wait(semaphore: *mut libc::sem_t) -> c_int;
        fn pause() -> c_int;
    }
    let (reader, _writer) = std::io::pipe().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&reader);
    // SAFETY: places of ours, and an open descriptor.
    let waits: [fn(c_int); 4] = [
        |fd| unsafe { _ = read(fd, [0_u8].as_mut_ptr().cast(), 1) },
        |_| unsafe {
            _ = nanosleep(
                &libc::timespec {
                    tv_sec: 1_000_000,
                    tv_nsec: 0,
                },
                null_mut(),
            )
        },
        |_| unsafe {
            let mut semaphore = zeroed();
            libc::sem_init(&mut semaphore, 0, 0);
            sem_wait(&mut semaphore);
        },
        |_| unsafe { _ = pause() },
    ];
    adopted(|| {
        for round in 0..20 {
            for wait in waits {
                let (tell, told) = mpsc::channel();
                let before = DROPPED.load(SeqCst);
                let thread = start(false, move || {
                    let _held = Held;
                    tell.send(()).unwrap();
                    wait(fd);
                    3
                });
                told.recv().unwrap();
                (0..round % 5).for_each(|_| thread::yield_now());
                // SAFETY: the thread lives until it is joined.
                assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
                assert_eq!(join(thread), CANCELED);
                assert_eq!(DROPPED.load(SeqCst), before + 1);
            }
        }
    });
}

/// While the number of processors changes, and from the threads of a runtime that ends.
#[test]
fn beside_resizing_and_the_end_of_a_runtime() {
    let _w = watchdog("beside_resizing_and_the_end_of_a_runtime");
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let left = runtime.spawn(|| {
        adopted(|| {
            let all: Vec<_> = (0..500)
                .map(|i| {
                    thread::spawn(move || {
                        thread::yield_now();
                        thread::spawn(move || i).join().unwrap()
                    })
                })
                .collect();
            let sum: usize = all.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(sum, 499 * 500 / 2);
            start(false, || 9)
        })
    });
    (0..40).for_each(|i| {
        runtime.set_processors(1 + i % 4).unwrap();
        thread::sleep(Duration::from_millis(1));
    });
    let left = left.join().unwrap();
    runtime.shutdown();
    // Its pthread outlives it.
    assert_eq!(join(left), 9);
}

/// In a forked child threads are kernel threads, and the thread that has forked goes on.
#[test]
fn in_a_forked_child() {
    const NAME: &str = "pthreads::in_a_forked_child";
    let _w = watchdog("in_a_forked_child");
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "case"), 0);
    }
    adopted(|| {
        let thread = start(false, || {
            // SAFETY: the child makes threads, which is more than POSIX lets it do.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let code = join(start(false, || 21));
                // SAFETY: a number.
                unsafe { libc::_exit(code as c_int) };
            }
            let mut status = 0;
            // SAFETY: a place of ours.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            libc::WEXITSTATUS(status) as usize
        });
        assert_eq!(join(thread), 21);
    });
    std::process::exit(0);
}

/// All checks of std's threads, in other modes of the process.
#[test]
fn in_other_modes() {
    let _w = watchdog("in_other_modes");
    for (variable, value) in [
        ("GREENTHREAD_DRIVER", "io_uring"),
        ("GREENTHREAD_PROCS", "1"),
        ("GREENTHREAD_MODE", "kernel"),
        ("GREENTHREAD_POLICY", "global-queue"),
    ] {
        let out = child_with("checks_on_adopted_threads", "", &[(variable, value)]);
        assert_code(&out, 0);
    }
    // By the variable alone, without a call of `adopt`.
    let out = child_with(
        "checks_on_stds_threads",
        "",
        &[("GREENTHREAD_PTHREADS", "on")],
    );
    assert_code(&out, 0);
}

#[test]
fn where_it_cannot_be_it_says_so() {
    const NAME: &str = "pthreads::where_it_cannot_be_it_says_so";
    let _w = watchdog("where_it_cannot_be_it_says_so");
    if child_case(NAME).is_some() {
        let answer = greenthread::thread::adopt(|| panic!("it was called"));
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        println!("{error}");
        std::process::exit(0);
    }
    if Runtime::global().mode() == Mode::Green {
        let out = child_with(NAME, "case", &[("GREENTHREAD_UNMODIFIED", "off")]);
        assert_code(&out, 0);
        let told = String::from_utf8_lossy(&out.stdout);
        assert!(told.contains("GREENTHREAD_UNMODIFIED is off"), "{told}");
    }
}

/// Beside the crate's own and std's, within one run: at most five times as long, and a twentieth.
#[test]
fn they_are_cheap() {
    alone!();
    let _w = watchdog("they_are_cheap");
    if !green() || cfg!(debug_assertions) {
        return;
    }
    let nanos = |rounds: u32, each: fn()| {
        let begun = Instant::now();
        (0..rounds).for_each(|_| each());
        begun.elapsed().as_nanos() as f64 / f64::from(rounds)
    };
    let ratios = adopted(|| {
        let all = thread::spawn(move || {
            let mut ratios: Vec<f64> = (0..15)
                .map(|_| {
                    let adopted = nanos(2_000, || thread::spawn(|| ()).join().unwrap());
                    adopted / nanos(2_000, || greenthread::spawn(|| ()).join().unwrap())
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            ratios[7]
        });
        all.join().unwrap()
    });
    println!("{ratios:.1} times the crate's own");
    assert!(ratios < 5.0, "{ratios}");
}
