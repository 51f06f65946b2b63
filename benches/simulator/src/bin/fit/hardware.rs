//! Memory and the kernel: kernel threads, each on a CPU of its own.

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

use greenthread::policy::Lock;

use crate::{Apart, LOCKINGS, quartile, typical};

/// Nanoseconds that one call takes.
pub(crate) fn each(count: u32, mut call: impl FnMut(&AtomicU32)) -> f64 {
    let word = Apart(AtomicU32::new(0));
    let start = Instant::now();
    for _ in 0..count {
        call(black_box(&word.0));
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// The round trip of a baton between two CPUs, with so many lines besides that each of the two
/// writes. Who waits does not pause: a hypervisor may take a loop of pauses for a lock's, and take the
/// CPU away.
pub(crate) fn ping_pong(lines: usize) -> f64 {
    const TRIPS: u32 = 2_000;
    typical(|| {
        let baton = Apart(AtomicU32::new(0));
        let cargo: Vec<Apart<AtomicU64>> = (0..lines).map(|_| Apart::default()).collect();
        let play = |side: u32| {
            pin(side as usize);
            let start = Instant::now();
            for turn in 0..TRIPS {
                while baton.0.load(Acquire) != 2 * turn + side {}
                for line in &cargo {
                    line.0.store(line.0.load(Relaxed) + 1, Relaxed);
                }
                baton.0.store(2 * turn + side + 1, Release);
            }
            start.elapsed().as_nanos() as f64 / f64::from(TRIPS)
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| play(1));
            scope.spawn(|| play(0)).join().unwrap();
            other.join().unwrap()
        })
    })
}

/// Nanoseconds between two read-modify-writes of one word by two CPUs that do nothing else.
pub(crate) fn contended() -> f64 {
    const TIMES: u32 = 100_000;
    typical(|| {
        let word = Apart(AtomicU32::new(0));
        let line = Barrier::new(2);
        let play = |cpu| {
            pin(cpu);
            line.wait();
            let start = Instant::now();
            // Whoever is first goes on until the other is done: both are at it all the time.
            while word.0.load(Relaxed) < 2 * TIMES {
                for _ in 0..16 {
                    word.0.fetch_add(1, Relaxed);
                }
            }
            start.elapsed().as_nanos() as f64 / f64::from(2 * TIMES)
        };
        thread::scope(|scope| {
            let both = [0, 1].map(|cpu| scope.spawn(move || play(cpu)));
            both.map(|one| one.join().unwrap())
                .into_iter()
                .fold(0.0, f64::max)
        })
    })
}

/// What a futex call takes that wakes somebody on another CPU, and until that one runs.
pub(crate) fn wake() -> (f64, f64) {
    const TIMES: usize = 4_000;
    const ASLEEP: Duration = Duration::from_micros(50);
    let word = Apart(AtomicU32::new(0));
    let woken_at = Apart(AtomicU64::new(0));
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    let (mut calls, mut latencies) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for turn in 1..=TIMES as u32 {
                while word.0.load(Acquire) != turn {
                    futex_wait(&word.0, turn - 1);
                }
                woken_at.0.store(now(), Release);
            }
        });
        let waker = scope.spawn(|| {
            pin(0);
            for turn in 1..=TIMES as u32 {
                let until = Instant::now() + ASLEEP;
                while Instant::now() < until {
                    spin_loop();
                }
                woken_at.0.store(0, Relaxed);
                word.0.store(turn, Release);
                let before = now();
                futex_wake(&word.0);
                calls.push((now() - before) as f64);
                while woken_at.0.load(Acquire) == 0 {
                    spin_loop();
                }
                latencies.push(woken_at.0.load(Relaxed).saturating_sub(before) as f64);
            }
        });
        waker.join().unwrap();
    });
    (quartile(&mut calls), quartile(&mut latencies))
}

fn futex_wait(word: &AtomicU32, expected: u32) {
    futex(word, libc::FUTEX_WAIT, expected);
}

pub(crate) fn futex_wake(word: &AtomicU32) {
    futex(word, libc::FUTEX_WAKE, 1);
}

/// The system call itself: `libc::syscall` is greenthread's in this program, which keeps kernel threads
/// that wait at addresses in a table of its own.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: a futex call on a living word, without a time limit; the kernel clobbers these registers.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex => _,
            in("rdi") word.as_ptr(),
            in("rsi") operation | libc::FUTEX_PRIVATE_FLAG,
            in("rdx") value,
            in("r10") 0,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
}

/// The caller stays on one CPU.
pub(crate) fn pin(cpu: usize) {
    // SAFETY: the set is a plain bit set, and the calling thread's own.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// Nanoseconds between two lockings by so many kernel threads that do nothing else.
pub(crate) fn locked(threads: usize) -> f64 {
    typical(|| {
        let lock = Apart(Lock::new(0_u64));
        let line = Barrier::new(threads);
        let play = |cpu| {
            pin(cpu);
            line.wait();
            let start = Instant::now();
            for _ in 0..LOCKINGS {
                *lock.0.lock() += 1;
            }
            start.elapsed().as_nanos() as f64
        };
        let longest = thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|cpu| scope.spawn(move || play(cpu)))
                .collect();
            all.into_iter()
                .map(|one| one.join().unwrap())
                .fold(0.0, f64::max)
        });
        longest / (LOCKINGS * threads as u64) as f64
    })
}
