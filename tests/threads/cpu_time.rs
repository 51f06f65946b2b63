//! The CPU time of a green thread is its own: it never goes backwards, wherever the thread runs; it grows while the thread
//! computes, and nobody else's time is in it.

use crate::common::*;
use greenthread as thread;
#[cfg(feature = "observe")]
use greenthread::observe::State;
use greenthread::runtime::Runtime;
use libc::{CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID, clockid_t};
use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;

/// What a clock shows, in nanoseconds, or the error.
fn clock(clock: clockid_t) -> Result<u64, c_int> {
    // SAFETY: a valid place.
    unsafe {
        let mut time: libc::timespec = zeroed();
        match libc::clock_gettime(clock, &mut time) {
            0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
        }
    }
}

fn own() -> u64 {
    clock(CLOCK_THREAD_CPUTIME_ID).unwrap()
}

fn process() -> u64 {
    clock(CLOCK_PROCESS_CPUTIME_ID).unwrap()
}

/// The same by `getrusage`: the user's part and the system's, in microseconds.
fn usage() -> [u64; 2] {
    // SAFETY: a valid place.
    unsafe {
        let mut usage: libc::rusage = zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        [micros(usage.ru_utime), micros(usage.ru_stime)]
    }
}

/// Computes until the own clock shows so much more.
fn compute(nanos: u64) {
    let end = own() + nanos;
    while own() < end {
        std::hint::black_box((0..1_000_u64).fold(0, |sum, n| sum ^ n));
    }
}

fn gives_way(i: usize) {
    match i % 4 {
        0 => thread::sleep(Duration::from_micros(50)),
        1 => thread::blocking(|| std::thread::sleep(Duration::from_micros(50))),
        2 => drop(thread::spawn(|| ()).join()),
        _ => thread::yield_now(),
    }
}

fn slicing(processors: usize) -> Runtime {
    let builder = Runtime::builder().processors(processors);
    let builder = builder.time_slice(Duration::from_millis(1));
    builder.build().unwrap()
}

/// Threads that compute, give way, block and are preempted: each one's clocks only go forwards, and together
/// they have not used more than the process.
#[test]
fn it_goes_forwards_and_adds_up() {
    let _w = watchdog("cpu_time::it_goes_forwards_and_adds_up");
    for processors in [1, 2] {
        let runtime = slicing(processors);
        let before = process();
        let threads: Vec<_> = (0..8)
            .map(|i| {
                runtime.spawn(move || {
                    let (first, [mut user, mut system]) = (own(), usage());
                    let mut last = first;
                    for n in 0..60 {
                        compute(MILLISECOND / 4);
                        gives_way(i + n);
                        let now = own();
                        assert!(now >= last + MILLISECOND / 4, "{last} {now}");
                        last = now;
                        let [now_user, now_system] = usage();
                        assert!(now_user >= user && now_system >= system, "getrusage");
                        (user, system) = (now_user, now_system);
                    }
                    let own = last - first;
                    // The kernel's own figures are some milliseconds late.
                    let told = (user + system) * 1_000;
                    assert!(told + 20 * MILLISECOND >= own, "{told} of {own}");
                    own
                })
            })
            .collect();
        let sum: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        let all = process() - before;
        assert!(sum <= all, "{sum} of {all}");
        runtime.shutdown();
    }
}

/// A thread that sleeps beside one that computes uses next to nothing.
#[test]
fn others_time_is_not_in_it() {
    let _w = watchdog("cpu_time::others_time_is_not_in_it");
    let runtime = slicing(1);
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = stop.clone();
        runtime.spawn(move || {
            let first = own();
            while !stop.load(Relaxed) {
                std::hint::black_box((0..1_000_u64).fold(0, |sum, n| sum ^ n));
            }
            own() - first
        })
    };
    let sleeper = runtime.spawn(|| {
        let first = own();
        (0..50).for_each(|_| thread::sleep(Duration::from_millis(2)));
        own() - first
    });
    let slept = sleeper.join().unwrap();
    stop.store(true, Relaxed);
    let computed = hog.join().unwrap();
    assert!(slept < computed / 4, "{slept} asleep, {computed} computing");
    runtime.shutdown();
}

/// What a thread uses in the kernel, or without its processor, is its own.
#[test]
fn it_grows_without_a_processor() {
    let _w = watchdog("cpu_time::it_grows_without_a_processor");
    both(|| {
        let first = own();
        thread::blocking(|| {
            let end = clock(CLOCK_MONOTONIC).unwrap() + 30 * MILLISECOND;
            let file = std::fs::File::open("/dev/zero").unwrap();
            while clock(CLOCK_MONOTONIC).unwrap() < end {
                let mut bytes = [0; 1 << 16];
                std::io::Read::read(&mut &file, &mut bytes).unwrap();
            }
        });
        assert!(own() > first);
    });
}

fn clock_of(thread: usize) -> clockid_t {
    let mut clock = 0;
    // SAFETY: the thread lives.
    let answer = unsafe { libc::pthread_getcpuclockid(thread as libc::pthread_t, &mut clock) };
    assert_eq!(answer, 0);
    clock
}

/// A thread's clock, read by another thread.
#[test]
fn another_threads_clock() {
    let _w = watchdog("cpu_time::another_threads_clock");
    both(|| {
        let (tell, told) = std::sync::mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let body = {
            let stop = stop.clone();
            move || {
                // SAFETY: it has no arguments.
                tell.send(unsafe { libc::pthread_self() } as usize).unwrap();
                for n in 0.. {
                    std::hint::black_box((0..100_000_u64).fold(0, |sum, n| sum ^ n));
                    gives_way(n);
                    if stop.load(Relaxed) {
                        break;
                    }
                }
                own()
            }
        };
        let other = thread::spawn(body);
        let others = clock_of(told.recv().unwrap());
        let (mut last, mut grown) = (clock(others).unwrap(), 0);
        wait_until(|| {
            let now = clock(others).unwrap();
            assert!(now >= last, "{last} {now}");
            grown += now - last;
            last = now;
            grown > 5 * MILLISECOND
        });
        stop.store(true, Relaxed);
        assert!(other.join().unwrap() >= last);
        if green() {
            // Another thread may have its room, and the clock, for a while.
            wait_until(|| clock(others).is_err_and(|error| error == libc::EINVAL));
        }

        // The caller's own, by that number.
        // SAFETY: it has no arguments; the places are valid, or null.
        let by_number = unsafe {
            let by_number = clock_of(libc::pthread_self() as usize);
            let mut time: libc::timespec = zeroed();
            assert_eq!(libc::clock_getres(by_number, &mut time), 0);
            assert_eq!((time.tv_sec, time.tv_nsec), (0, 1));
            let sleep = libc::clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &time, &mut zeroed());
            assert_eq!(sleep, libc::EINVAL);
            by_number
        };
        let before = own();
        compute(MILLISECOND);
        assert!(clock(by_number).unwrap() >= before + MILLISECOND);
    });
}

#[test]
fn bad_places_are_errors() {
    let _w = watchdog("cpu_time::bad_places_are_errors");
    both(|| {
        let nowhere = std::ptr::without_provenance_mut::<libc::timespec>(8);
        own();
        // SAFETY: the kernel finds that the places are not there.
        unsafe {
            assert_eq!(libc::clock_gettime(CLOCK_THREAD_CPUTIME_ID, nowhere), -1);
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, nowhere.cast()), -1);
            let error = std::io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        }
        assert_eq!(clock(77), Err(libc::EINVAL));
        assert_eq!(clock(-1), Err(libc::EINVAL));
    });
}

/// Libraries ask for the system call by its number.
#[cfg(feature = "unmodified")]
#[test]
fn by_number() {
    let _w = watchdog("cpu_time::by_number");
    both(|| {
        // SAFETY: valid places.
        let raw = || unsafe {
            let mut time: libc::timespec = zeroed();
            let clock = CLOCK_THREAD_CPUTIME_ID;
            assert_eq!(libc::syscall(libc::SYS_clock_gettime, clock, &mut time), 0);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        let mut last = own();
        for n in 0..20 {
            gives_way(n);
            let now = raw();
            assert!(now >= last);
            last = own();
            assert!(last >= now);
        }
    });
}

static EARLY: AtomicUsize = AtomicUsize::new(0);

/// Runs before `main`, and perhaps before libc's function was found.
extern "C" fn early() {
    let all = [
        CLOCK_MONOTONIC,
        CLOCK_THREAD_CPUTIME_ID,
        CLOCK_PROCESS_CPUTIME_ID,
    ];
    let right = all
        .into_iter()
        .filter(|&id| clock(id).is_ok_and(|time| time != 0));
    EARLY.store(right.count(), Relaxed);
}

#[used]
// SAFETY: the section of functions that are called at the start; this one has their type.
#[unsafe(link_section = ".init_array")]
static CALL_EARLY: extern "C" fn() = early;

/// Before `main`, in a forked child, and in a signal handler, whatever that has interrupted.
#[test]
fn clocks_are_right_everywhere() {
    const NAME: &str = "cpu_time::clocks_are_right_everywhere";
    let Some(_) = child_case(NAME) else {
        return assert_code(&child(NAME, "all"), 0);
    };
    assert_eq!(EARLY.load(Relaxed), 3);
    both(|| {
        compute(MILLISECOND);
        // SAFETY: the child makes async-signal-safe calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let first = own();
                let [user, system] = usage();
                compute(MILLISECOND);
                let is_right = own() >= first + MILLISECOND && user + system < 1_000_000;
                libc::_exit(c_int::from(!is_right));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
        }
    });

    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    static WRONG: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: c_int) {
        // SAFETY: the thread's own word.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        let is_right = clock(CLOCK_MONOTONIC).is_ok() && clock(CLOCK_THREAD_CPUTIME_ID).is_ok();
        WRONG.fetch_add(usize::from(!is_right), Relaxed);
        CAUGHT.fetch_add(1, Relaxed);
        // SAFETY: as above.
        unsafe { *errno = before };
    }
    let runtime = slicing(2);
    // SAFETY: a handler of the right type, and a timer of the process.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as extern "C" fn(c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut());
        let often = libc::timeval {
            tv_sec: 0,
            tv_usec: 500,
        };
        let timer = libc::itimerval {
            it_interval: often,
            it_value: often,
        };
        libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
    }
    let threads: Vec<_> = (0..8)
        .map(|i| {
            runtime.spawn(move || {
                let mut last = own();
                for n in 0.. {
                    gives_way(i + n);
                    compute(MILLISECOND / 20);
                    let now = own();
                    assert!(now >= last);
                    last = now;
                    if CAUGHT.load(Relaxed) >= 200 {
                        break;
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(WRONG.load(Relaxed), 0);
    std::process::exit(0);
}

/// A report shows the time of threads that have asked, and measures nobody.
#[cfg(feature = "observe")]
#[test]
fn reports_show_it() {
    let _w = watchdog("cpu_time::reports_show_it");
    if !green() {
        return;
    }
    let (stop, stopped) = greenthread::channel::unbounded::<()>();
    let spawn = |name: &str, asks: bool| {
        let stopped = stopped.clone();
        let body = move || {
            if asks {
                compute(3 * MILLISECOND);
            }
            let _ = stopped.recv();
        };
        thread::Builder::new().name(name.into()).spawn(body)
    };
    let threads = [
        spawn("one that asks", true),
        spawn("one that does not", false),
    ];
    let seen = |name: &str| {
        let dump = greenthread::observe::dump();
        let report = dump.threads().find(|report| report.name() == Some(name));
        report.map(|report| (report.state(), report.cpu_time()))
    };
    wait_until(|| {
        let states = ["one that asks", "one that does not"].map(seen);
        states
            .iter()
            .all(|seen| seen.is_some_and(|(state, _)| state == State::Parked))
    });
    let time = seen("one that asks").unwrap().1.unwrap();
    assert!(time >= Duration::from_millis(3), "{time:?}");
    assert_eq!(seen("one that does not").unwrap().1, None);
    let text = greenthread::observe::dump().to_string();
    assert!(text.contains(" of CPU time"), "{text}");
    drop(stop);
    threads.into_iter().for_each(|t| t.unwrap().join().unwrap());
}
