//! Preemption is by signal, and a signal cuts system calls short. No program may notice.
//!
//! The idea: threads with time slices of 100 µs compute for about as long and then make a call that waits, so
//! that the signal often comes when they are entering it. What comes back is counted: no call fails
//! with EINTR, but for those that the program's own signals interrupt.

use crate::common::*;
use crate::interruptions::*;
use greenthread::runtime::Runtime;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Of the calls that [`wait`] makes. The last, which is made by its number, is mended by our `syscall` only.
const KINDS: usize = match cfg!(feature = "unmodified") {
    true => 8,
    false => 7,
};

/// Makes the `n`th call: one that waits a little for nothing; `quiet` has a time-out. Returns errno, or 0.
fn wait(n: usize, epoll: i32, quiet: &UnixStream) -> i32 {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: no descriptors but our own, valid places and times.
    let result = unsafe {
        match n % KINDS {
            0 => libc::poll(null_mut(), 0, 1),
            1 => {
                let mut time = libc::timeval {
                    tv_sec: 0,
                    tv_usec: 20,
                };
                libc::select(0, null_mut(), null_mut(), null_mut(), &mut time)
            }
            2 => libc::nanosleep(&pause, null_mut()),
            3 => libc::epoll_wait(epoll, &mut zeroed(), 1, 1),
            4 => libc::ppoll(null_mut(), 0, &pause, std::ptr::null()),
            5 => {
                assert_eq!(
                    libc::read(quiet.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1),
                    -1
                );
                match error() {
                    libc::EAGAIN => 0, // in time
                    error => error,
                }
            }
            6 => libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &pause, null_mut()),
            _ => {
                // Not private, so that it is the kernel's.
                let word = AtomicI32::new(0);
                let waited = libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAIT, 0, &pause);
                assert_eq!(waited, -1);
                match error() {
                    libc::ETIMEDOUT => 0, // in time
                    error => error,
                }
            }
        }
    };
    match result {
        0 => 0,
        -1 => error(),
        error => error, // of clock_nanosleep
    }
}

#[test]
fn calls_that_wait_do_not_fail() {
    const CALLS: usize = 24_000;
    if !is_mended() {
        return;
    }
    let _w = watchdog("interrupted::calls_that_wait_do_not_fail");
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let (left, failed) = (
        Arc::new(AtomicUsize::new(CALLS)),
        Arc::new(AtomicUsize::new(0)),
    );
    let waiter = |i: usize| {
        let (left, failed) = (left.clone(), failed.clone());
        move || {
            // SAFETY: no preconditions.
            let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            assert!(epoll >= 0);
            let (quiet, _open) = UnixStream::pair().unwrap();
            let timeout = Some(Duration::from_millis(1));
            quiet.set_read_timeout(timeout).unwrap();
            let mut n = i;
            while left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok()
            {
                compute(n % 97 * 2_000);
                match wait(n, epoll, &quiet) {
                    0 => {}
                    libc::EINTR => drop(failed.fetch_add(1, Relaxed)),
                    error => panic!("call {} failed: {error}", n % KINDS),
                }
                n += 1;
            }
            // SAFETY: ours.
            unsafe { libc::close(epoll) };
        }
    };
    let waiters: Vec<_> = (0..64).map(|i| runtime.spawn(waiter(i))).collect();
    waiters.into_iter().for_each(|w| w.join().unwrap());
    drop(hogs);
    let failed = failed.load(Relaxed);
    assert_eq!(failed, 0, "of {CALLS} calls so many failed with EINTR");
    runtime.shutdown();
}

unsafe extern "C" {
    fn semtimedop(
        set: i32,
        operations: *mut libc::sembuf,
        count: usize,
        time: *const libc::timespec,
    ) -> i32;
}

/// A call that the kernel never makes again by itself, and whose function in libc leaves its first argument, on aarch64,
/// only in the register that the result overwrites. It may fail with EINTR there, but no other call may be made of it.
#[test]
fn a_call_is_repeated_as_it_was_or_not_at_all() {
    const CALLS: usize = 8_000;
    let _w = watchdog("interrupted::a_call_is_repeated_as_it_was_or_not_at_all");
    // SAFETY: no preconditions.
    let set = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
    assert!(set >= 0, "{}", error());
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let waiter = |first: usize| {
        move || {
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 20_000,
            };
            let mut take = libc::sembuf {
                sem_num: 0,
                sem_op: -1,
                sem_flg: 0,
            };
            let errors = (first..first + CALLS / 64).map(|n| {
                compute(n % 97 * 2_000);
                // SAFETY: valid places.
                assert_eq!(unsafe { semtimedop(set, &mut take, 1, &time) }, -1);
                error()
            });
            errors.collect::<Vec<_>>()
        }
    };
    let waiters: Vec<_> = (0..64).map(|i| runtime.spawn(waiter(i))).collect();
    let joined = waiters.into_iter().map(|w| w.join().unwrap());
    let errors: Vec<i32> = joined.flatten().collect();
    drop(hogs);
    // SAFETY: ours.
    unsafe { libc::semctl(set, 0, libc::IPC_RMID) };
    let is_lost = cfg!(target_arch = "aarch64");
    let count = |error: i32| errors.iter().filter(|&&e| e == error).count();
    let (in_time, interrupted) = (count(libc::EAGAIN), count(libc::EINTR));
    println!("{in_time} calls ended in time, {interrupted} were interrupted");
    assert!(interrupted == 0 || is_lost);
    assert_eq!(in_time + interrupted, errors.len(), "{errors:?}");
    runtime.shutdown();
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: i32) {
    HANDLED.fetch_add(1, SeqCst);
}

#[test]
fn the_programs_own_signals_interrupt() {
    const NAME: &str = "interrupted::the_programs_own_signals_interrupt";
    const SIGNALS: usize = 200;
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "only"), 0);
    }
    // SAFETY: all zero is a valid sigaction, then filled in; the handler counts, no more.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let tid = Arc::new(AtomicI32::new(0));
    let interrupted = Arc::new(AtomicUsize::new(0));
    let waiter = runtime.spawn({
        let (tid, interrupted) = (tid.clone(), interrupted.clone());
        move || {
            while interrupted.load(SeqCst) < SIGNALS {
                let _here = greenthread::lock_kernel_thread();
                tid.store(gettid(), SeqCst);
                // SAFETY: no descriptors; for ever.
                let result = unsafe { libc::poll(null_mut(), 0, -1) };
                assert_eq!((result, error()), (-1, libc::EINTR));
                interrupted.fetch_add(1, SeqCst);
            }
        }
    });
    while interrupted.load(SeqCst) < SIGNALS {
        let tid = tid.load(SeqCst);
        // SAFETY: a plain system call; the thread may be gone.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
        std::thread::sleep(Duration::from_micros(200));
    }
    waiter.join().unwrap();
    assert!(HANDLED.load(SeqCst) > 0);
    drop(hogs);
    runtime.shutdown();
}

/// A system call by the test's own assembly: the crate cannot know which one it was.
fn by_hand(number: libc::c_long, [a, b, c, d]: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the callers' arguments are valid places, or counts of nothing.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("syscall", inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") 0,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("svc 0", in("x8") number, inlateout("x0") a as isize => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") 0, options(nostack));
    }
    result
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static INTERRUPTED: AtomicUsize = AtomicUsize::new(0);
static WRITES: AtomicUsize = AtomicUsize::new(0);
static SHORT: AtomicUsize = AtomicUsize::new(0);

/// Whether there have been enough calls.
fn is_over() -> bool {
    CALLS.load(Relaxed) >= 1_500
}

/// Waits 3 ms, again and again, and computes for so long between two waits.
fn waits_and_computes(between: Duration) {
    while !is_over() {
        // The call leaves the rest of the time there.
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: 3_000_000,
        };
        let start = std::time::Instant::now();
        while start.elapsed() < between {
            compute(100);
        }
        CALLS.fetch_add(1, Relaxed);
        match by_hand(libc::SYS_ppoll, [0, 0, (&raw const pause).addr(), 0]) {
            0 => {}
            -4 => drop(INTERRUPTED.fetch_add(1, Relaxed)),
            other => panic!("{other}"),
        }
    }
}

fn writes_to(pipe: std::io::PipeWriter) {
    let data = vec![7_u8; 300_000];
    while !is_over() {
        WRITES.fetch_add(1, Relaxed);
        let (fd, at) = (pipe.as_raw_fd() as usize, data.as_ptr().addr());
        let written = by_hand(libc::SYS_write, [fd, at, data.len(), 0]);
        SHORT.fetch_add((written != data.len() as isize).into(), Relaxed);
    }
}

/// Threads that make calls of their own assembly, beside hogs. Nobody can mend such a call, so the threads are not
/// signalled in one, as far as can be told; before that was so, an eighth of the calls was cut short.
#[test]
fn hardly_any_call_of_own_assembly_is_interrupted() {
    let _w = watchdog("interrupted::hardly_any_call_of_own_assembly_is_interrupted");
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(2).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let hogs = [Hogs::new(&runtime), Hogs::new(&runtime)];
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut all: Vec<_> = (0..12)
        .map(|i| runtime.spawn(move || waits_and_computes(i * slice)))
        .collect();
    all.push(runtime.spawn(|| writes_to(writer)));
    all.push(runtime.spawn(move || {
        std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    }));
    all.into_iter().for_each(|one| one.join().unwrap());
    drop(hogs);
    let [calls, interrupted, writes, short] =
        [&CALLS, &INTERRUPTED, &WRITES, &SHORT].map(|count| count.load(Relaxed));
    println!("{interrupted} of {calls} calls, {short} of {writes} writes were cut short");
    assert!(interrupted <= calls / 100 && short <= 1 + writes / 100);
}
