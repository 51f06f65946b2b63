//! Sleeps of code that has never heard of green threads: `nanosleep`, `clock_nanosleep`, `usleep`, `sleep`,
//! and std's.
//!
//! A thousand green threads sleep at once: on few kernel threads, and none for too short a time.
#![cfg(feature = "unmodified")]

use crate::common::*;
use greenthread as thread;
use greenthread::runtime::Runtime;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

const SLEEPERS: u32 = 1_000;

fn time(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
    libc::timespec { tv_sec, tv_nsec }
}

fn timespec(duration: Duration) -> libc::timespec {
    time(duration.as_secs() as i64, duration.subsec_nanos().into())
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = time(0, 0);
    // SAFETY: a valid place.
    assert_eq!(unsafe { libc::clock_gettime(clock, &mut now) }, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// Sleeps for `pause`, in one of several ways, and says whether that was long enough.
fn sleep(way: u32, pause: Duration) -> bool {
    const CLOCKS: [libc::clockid_t; 3] = [
        libc::CLOCK_MONOTONIC,
        libc::CLOCK_REALTIME,
        libc::CLOCK_BOOTTIME,
    ];
    let start = Instant::now();
    let clock = CLOCKS[way as usize % 3];
    let end = read(clock) + pause;
    // SAFETY: valid places, and numbers.
    let result = unsafe {
        match way % 5 {
            0 => libc::nanosleep(&timespec(pause), null_mut()),
            1 => libc::clock_nanosleep(clock, 0, &timespec(pause), null_mut()),
            2 => libc::usleep(pause.as_micros() as u32),
            3 => {
                std::thread::sleep(pause);
                0
            }
            _ => {
                let until = timespec(end);
                let result = libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &until, null_mut());
                return result == 0 && read(clock) >= end;
            }
        }
    };
    result == 0 && start.elapsed() >= pause
}

#[test]
fn a_thousand_sleep_at_once() {
    const NAME: &str = "sleep::a_thousand_sleep_at_once";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    static ASLEEP: AtomicUsize = AtomicUsize::new(0);
    let sleepers = (0..SLEEPERS).map(|n| {
        thread::spawn(move || {
            ASLEEP.fetch_add(1, Relaxed);
            // Short ones, and one so long that all sleep together.
            let is_long_enough = sleep(n, Duration::from_micros(u64::from(n) * 7))
                && sleep(n / 5, Duration::from_millis(300));
            // SAFETY: a number.
            is_long_enough && unsafe { libc::sleep(u32::from(n % 100 == 0)) == 0 }
        })
    });
    let start = Instant::now();
    let sleepers: Vec<_> = sleepers.collect();
    wait_until(|| ASLEEP.load(Relaxed) == SLEEPERS as usize);
    let metrics = Runtime::global().metrics();
    // But for those that are idle, made ahead of need.
    let count = metrics.kernel_threads - metrics.parked_kernel_threads;
    let is_right = sleepers.into_iter().all(|sleeper| sleeper.join().unwrap());
    println!("{count} kernel threads, {:?}", start.elapsed());
    assert!(is_right, "a sleep was too short, or failed");
    assert!(count < 10 || !hooked(), "{count} kernel threads");
}

/// A library's clocks, which stands before libc: the boot clock is ahead by `suspended` seconds, as if the worker had been
/// suspended for so long.
const CLOCKS: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
_Atomic long suspended = 0;
int clock_gettime(clockid_t clock, struct timespec *time) {
    int answer = syscall(SYS_clock_gettime, clock, time);
    if (answer == 0 && clock == CLOCK_BOOTTIME) time->tv_sec += suspended;
    return answer;
}
"#;

/// The path of that library.
fn clocks() -> String {
    let path = format!(
        "{}/clocks-{}",
        env!("CARGO_TARGET_TMPDIR"),
        std::process::id()
    );
    let (source, object) = (format!("{path}.c"), format!("{path}.so"));
    std::fs::write(&source, CLOCKS).unwrap();
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o", &object, &source]);
    assert!(cc.status().expect("the C compiler").success());
    object
}

/// The boot clock goes on while the worker is suspended, and the others, by which a thread is woken, do not.
#[test]
fn a_sleep_by_the_boot_clock_counts_suspension() {
    const NAME: &str = "sleep::a_sleep_by_the_boot_clock_counts_suspension";
    const LONG: Duration = Duration::from_secs(3_600);
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        let out = child_with(NAME, "", &[("LD_PRELOAD", &clocks())]);
        return assert_code(&out, 0);
    }
    if !hooked() {
        return; // the kernel's clock goes on as it is
    }
    // SAFETY: the library has that variable.
    let suspended = unsafe {
        let place = libc::dlsym(libc::RTLD_DEFAULT, c"suspended".as_ptr());
        assert!(!place.is_null());
        &*place.cast::<AtomicU64>()
    };
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let sleepers = [0, libc::TIMER_ABSTIME].map(|flags| {
        runtime.spawn(move || {
            let clock = libc::CLOCK_BOOTTIME;
            let since = if flags == 0 {
                Duration::ZERO
            } else {
                read(clock)
            };
            // SAFETY: a valid time.
            unsafe { libc::clock_nanosleep(clock, flags, &timespec(since + LONG), null_mut()) }
        })
    });
    wait_until(|| runtime.metrics().parked_calls >= 2);
    suspended.store(LONG.as_secs(), Relaxed);
    for sleeper in sleepers {
        assert_eq!(sleeper.join().unwrap(), 0);
    }
    runtime.shutdown();
}

/// Values that are not accepted, and sleeps that are over.
#[test]
fn results_are_the_kernels() {
    let _w = watchdog("sleep::results_are_the_kernels");
    both(|| {
        let bad = [time(-1, 0), time(0, -1), time(0, 1_000_000_000)];
        // SAFETY: valid places, and null where the call refuses it.
        unsafe {
            for bad in &bad {
                assert_eq!(
                    (libc::nanosleep(bad, null_mut()), errno()),
                    (-1, libc::EINVAL)
                );
                for flags in [0, libc::TIMER_ABSTIME] {
                    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
                        let result = libc::clock_nanosleep(clock, flags, bad, null_mut());
                        assert_eq!(result, libc::EINVAL);
                    }
                }
            }
            let past = time(1, 0);
            for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
                let flags = libc::TIMER_ABSTIME;
                assert_eq!(libc::clock_nanosleep(clock, flags, &past, null_mut()), 0);
            }
            assert_eq!(
                (libc::nanosleep(null(), null_mut()), errno()),
                (-1, libc::EFAULT)
            );
            let clock = libc::CLOCK_MONOTONIC;
            let result = libc::clock_nanosleep(clock, 0, null(), null_mut());
            assert_eq!(result, libc::EFAULT);
            let result = libc::clock_nanosleep(1234, 0, &time(0, 1), null_mut());
            assert_eq!(result, libc::EINVAL);
            assert_eq!(libc::nanosleep(&time(0, 0), null_mut()), 0);
            assert_eq!((libc::usleep(0), libc::sleep(0)), (0, 0));
        }
    });
}
