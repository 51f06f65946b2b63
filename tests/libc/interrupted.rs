//! Preemption is by signal, and a signal can cut system calls short. No hooked call shows that; without the feature
//! `unmodified`, and where the hooks are off, a call fails with EINTR or does a part, as POSIX allows, and does
//! nothing else.
//!
//! The idea: threads with time slices of 100 µs compute for about as long and then make a call that waits, or a large
//! write, so that the signal often comes when they are in it. What comes back is counted.

use crate::common::*;
use greenthread::runtime::Runtime;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

fn runtime() -> Runtime {
    let slice = Duration::from_micros(100);
    let builder = Runtime::builder().processors(2).time_slice(slice);
    builder.build().expect("a runtime")
}

/// Two threads that compute until they are dropped: somebody always waits.
struct Hogs<'a>(&'a Runtime, Arc<AtomicBool>);

impl<'a> Hogs<'a> {
    fn new(runtime: &'a Runtime) -> Hogs<'a> {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..2 {
            let stop = stop.clone();
            runtime.spawn(move || while !stop.load(Relaxed) {});
        }
        Hogs(runtime, stop)
    }
}

impl Drop for Hogs<'_> {
    fn drop(&mut self) {
        self.1.store(true, Relaxed);
        println!("{} preemptions", self.0.metrics().preemptions);
    }
}

fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

/// Computes for up to two time slices.
fn compute_a_while(n: usize) {
    compute(Duration::from_micros(2 * (n as u64 % 97)));
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

unsafe extern "C" {
    fn semtimedop(
        set: i32,
        operations: *mut libc::sembuf,
        count: usize,
        time: *const libc::timespec,
    ) -> i32;
}

/// What the calls of [`wait`] wait for in vain.
struct Quiet {
    epoll: i32,
    semaphores: i32,
    /// With a time-out.
    socket: UnixStream,
    _open: UnixStream,
    /// Another mask than the thread has: a call with it is made in the kernel, hooked or not.
    mask: libc::sigset_t,
}

impl Quiet {
    fn new() -> Quiet {
        let (socket, open) = UnixStream::pair().unwrap();
        let timeout = Some(Duration::from_millis(1));
        socket.set_read_timeout(timeout).unwrap();
        // SAFETY: no preconditions; all zero is a set.
        unsafe {
            let mut mask = zeroed();
            libc::sigaddset(&mut mask, libc::SIGUSR2);
            let quiet = Quiet {
                epoll: libc::epoll_create1(libc::EPOLL_CLOEXEC),
                semaphores: libc::semget(libc::IPC_PRIVATE, 1, 0o600),
                socket,
                _open: open,
                mask,
            };
            assert!(quiet.epoll >= 0 && quiet.semaphores >= 0, "{}", error());
            quiet
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe {
            libc::close(self.epoll);
            libc::semctl(self.semaphores, 0, libc::IPC_RMID);
        }
    }
}

/// Of the calls that [`wait`] makes.
const KINDS: usize = 15;

/// Makes the `n`th call: one that waits a little for nothing. Returns errno, or 0 if it has ended in time.
fn wait(n: usize, quiet: &Quiet) -> i32 {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    let mut time = libc::timeval {
        tv_sec: 0,
        tv_usec: 20,
    };
    let mut take = libc::sembuf {
        sem_num: 0,
        sem_op: -1,
        sem_flg: 0,
    };
    // Not private, so that it is the kernel's.
    let word = AtomicI32::new(0);
    let none = null_mut();
    // SAFETY: no descriptors but our own, valid places and times.
    let result = unsafe {
        match n % KINDS {
            0 => libc::poll(null_mut(), 0, 1),
            1 => libc::poll(null_mut(), 0, 0),
            2 => libc::ppoll(null_mut(), 0, &pause, null()),
            3 => libc::ppoll(null_mut(), 0, &pause, &quiet.mask),
            4 => libc::select(0, none, none, none, &mut time),
            5 => libc::pselect(0, none, none, none, &pause, &quiet.mask),
            6 => libc::epoll_wait(quiet.epoll, &mut zeroed(), 1, 1),
            7 => libc::epoll_pwait(quiet.epoll, &mut zeroed(), 1, 1, &quiet.mask),
            8 => libc::nanosleep(&pause, null_mut()),
            9 => libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &pause, null_mut()),
            10 => libc::clock_nanosleep(libc::CLOCK_PROCESS_CPUTIME_ID, 0, &pause, null_mut()),
            11 => libc::read(quiet.socket.as_raw_fd(), [0_u8].as_mut_ptr().cast(), 1) as i32,
            12 => semtimedop(quiet.semaphores, &mut take, 1, &pause),
            13 => libc::sigtimedwait(&quiet.mask, null_mut(), &pause),
            _ => libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAIT, 0, &pause) as i32,
        }
    };
    match result {
        0 => 0,
        -1 => match error() {
            libc::EAGAIN | libc::ETIMEDOUT => 0,
            error => error,
        },
        error => error, // of clock_nanosleep
    }
}

/// Makes many calls that wait, on many threads, each by `how`. Returns how many have failed with EINTR; none fails with
/// another error.
fn failed(how: fn(&dyn Fn() -> i32) -> i32) -> usize {
    const CALLS: usize = 24_000;
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let left = Arc::new(AtomicUsize::new(CALLS));
    let waiter = |first: usize| {
        let left = left.clone();
        move || {
            let quiet = Quiet::new();
            let take = |left: usize| left.checked_sub(1);
            let is_due = || left.fetch_update(Relaxed, Relaxed, take).is_ok();
            let errors = (first..).take_while(|_| is_due()).map(|n| {
                compute_a_while(n);
                let error = how(&|| wait(n, &quiet));
                assert!([0, libc::EINTR].contains(&error), "{}: {error}", n % KINDS);
                error
            });
            errors.filter(|&error| error != 0).count()
        }
    };
    let waiters: Vec<_> = (0..64).map(|i| runtime.spawn(waiter(i))).collect();
    let failed = waiters.into_iter().map(|w| w.join().unwrap()).sum();
    drop(hogs);
    println!("{failed} of {CALLS} calls failed with EINTR");
    runtime.shutdown();
    failed
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handler(_: i32) {
    HANDLED.fetch_add(1, SeqCst);
}

/// From now on the program handles a signal.
fn handle() {
    // SAFETY: all zero is a valid sigaction, then filled in; the handler counts, no more.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
    }
}

#[test]
#[cfg(feature = "unmodified")]
fn calls_that_wait_do_not_fail() {
    const NAME: &str = "interrupted::calls_that_wait_do_not_fail";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "only"), 0);
    }
    handle();
    assert_eq!(failed(|call| call()), 0);
}

#[test]
fn calls_of_libc_fail_with_eintr_at_most() {
    let _w = watchdog("interrupted::calls_of_libc_fail_with_eintr_at_most");
    failed(|call| greenthread::unhooked(call));
}

/// Lets threads write to pipes for a second, each write by `how`, and checks what comes. Returns how many writes have
/// done a part.
fn parts(how: fn(&dyn Fn() -> isize) -> isize) -> usize {
    const LENGTH: usize = 1 << 20;
    let pattern = |at: usize| (at % 251) as u8;
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let end = Instant::now() + Duration::from_secs(1);
    let body = move || {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let (mut buffer, mut at) = (vec![0; 100_000], 0);
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                let is_right = |(i, byte): (usize, &u8)| *byte == pattern((at + i) % LENGTH);
                let mut come = buffer[..length].iter().enumerate();
                assert!(come.all(is_right), "lost or twice");
                at += length;
            }
            assert_eq!(at % LENGTH, 0, "a part is missing");
        });
        let data: Vec<u8> = (0..LENGTH).map(pattern).collect();
        let (mut all, mut parts) = (0, 0);
        while Instant::now() < end {
            compute_a_while(all);
            all += 1;
            let (fd, at) = (writer.as_raw_fd(), data.as_ptr());
            // SAFETY: a buffer of that length.
            let written = how(&|| unsafe { libc::write(fd, at.cast(), LENGTH) });
            let written = usize::try_from(written).expect("somebody reads");
            parts += usize::from(written != LENGTH);
            (&writer).write_all(&data[written..]).unwrap();
        }
        drop(writer);
        reader.join().unwrap();
        parts
    };
    let threads: Vec<_> = (0..4).map(|_| runtime.spawn(body)).collect();
    let parts = threads.into_iter().map(|t| t.join().unwrap()).sum();
    drop(hogs);
    println!("{parts} writes did a part");
    runtime.shutdown();
    parts
}

#[test]
#[cfg(feature = "unmodified")]
fn a_write_is_whole() {
    let _w = watchdog("interrupted::a_write_is_whole");
    assert_eq!(parts(|write| write()), 0);
}

#[test]
fn a_write_of_libc_does_a_part_at_most() {
    let _w = watchdog("interrupted::a_write_of_libc_does_a_part_at_most");
    parts(|write| greenthread::unhooked(write));
}

#[test]
fn the_programs_own_signals_interrupt() {
    const NAME: &str = "interrupted::the_programs_own_signals_interrupt";
    const SIGNALS: usize = 200;
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, "only"), 0);
    }
    handle();
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let tid = Arc::new(AtomicI32::new(0));
    let interrupted = Arc::new(AtomicUsize::new(0));
    let waiter = runtime.spawn({
        let (tid, interrupted) = (tid.clone(), interrupted.clone());
        move || {
            let quiet = Quiet::new();
            while interrupted.load(SeqCst) < SIGNALS {
                let _here = greenthread::lock_kernel_thread();
                tid.store(gettid(), SeqCst);
                // SAFETY: no descriptors; for ever.
                let result = unsafe { libc::ppoll(null_mut(), 0, null(), &quiet.mask) };
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
        compute(between);
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
