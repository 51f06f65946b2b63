//! Signal handlers call libc, as they may: they wake threads, write, close what threads wait for. They do so in the
//! middle of the scheduler, or on a green thread's stack, and must neither enter the scheduler nor leave their kernel
//! thread. Threads with a mask of their own are no handlers, and park.

#![cfg(all(feature = "unmodified", target_os = "linux"))]

use crate::common;
use crate::common::*;
#[path = "../support/filter.rs"]
mod filter;

use filter::Filter;
use greenthread::runtime::Runtime;
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::*};
use std::time::Duration;

/// What the waiters wait for: it never changes.
static WORD: AtomicU32 = AtomicU32::new(0);
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static WOKEN: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicBool = AtomicBool::new(false);

const SIGNALS: usize = 20_000;

fn futex(operation: i32, value: i32) -> i64 {
    // SAFETY: a valid word, and no time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            WORD.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            0usize,
        )
    }
}

extern "C" fn wake_all(_: i32) {
    futex(libc::FUTEX_WAKE, i32::MAX);
    HANDLED.fetch_add(1, Relaxed);
}

/// Sends the signal to each kernel thread of the process in turn, but not to its own.
fn signal_all() {
    // SAFETY: a system call of numbers.
    let (process, own) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    while HANDLED.load(Relaxed) < SIGNALS {
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let id: i64 = task.file_name().to_str().unwrap().parse().unwrap();
            if id != own {
                // SAFETY: the signal has a handler; the thread may be gone.
                unsafe { libc::syscall(libc::SYS_tgkill, process, id, libc::SIGUSR1) };
            }
        }
    }
}

fn install(handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: a zeroed action is valid; the handlers make async-signal-safe calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART | flags;
        let none = std::ptr::null_mut();
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, none), 0);
    }
}

#[test]
fn a_handler_wakes_while_the_scheduler_runs() {
    const NAME: &str = "handlers::a_handler_wakes_while_the_scheduler_runs";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    install(wake_all, 0);
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let waiters = (0..50).map(|_| {
        runtime.spawn(|| {
            while !OVER.load(SeqCst) {
                futex(libc::FUTEX_WAIT, 0);
                WOKEN.fetch_add(1, Relaxed);
            }
        })
    });
    let waiters: Vec<_> = waiters.collect();
    // They keep the scheduler busy: yields, wake-ups, spawns.
    let busy = (0..8).map(|_| {
        runtime.spawn(|| {
            while !OVER.load(SeqCst) {
                let (sender, receiver) = greenthread::channel::bounded(1);
                let other = greenthread::spawn(move || sender.send(1).unwrap());
                greenthread::yield_now();
                assert_eq!(receiver.recv(), Ok(1));
                other.join().unwrap();
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    std::thread::spawn(signal_all).join().unwrap();
    OVER.store(true, SeqCst);
    for thread in busy {
        thread.join().unwrap();
    }
    for thread in waiters {
        while !thread.is_finished() {
            futex(libc::FUTEX_WAKE, i32::MAX);
            std::thread::yield_now();
        }
        thread.join().unwrap();
    }
    assert!(WOKEN.load(Relaxed) > 0);
    runtime.shutdown();
}

/// A descriptor that handlers write to.
static TARGET: AtomicI32 = AtomicI32::new(-1);

/// Calls that are async-signal-safe and hooked.
extern "C" fn call_much(_: i32) {
    let (fd, byte) = (TARGET.load(Relaxed), b"x".as_ptr().cast());
    // SAFETY: valid places, an open descriptor; `errno` is given back.
    unsafe {
        let place = libc::__errno_location();
        let before = *place;
        libc::write(fd, byte, 1);
        let mut none = libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        };
        libc::poll(&mut none, 1, 0);
        let moment = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1,
        };
        libc::nanosleep(&moment, std::ptr::null_mut());
        *place = before;
    }
    HANDLED.fetch_add(1, Relaxed);
}

/// Threads that compute and signal themselves, until `count` handlers have run.
fn raise_beside_hogs(count: usize) {
    let slice = Duration::from_millis(1);
    let runtime = Runtime::builder().processors(4).time_slice(slice);
    let runtime = runtime.build().unwrap();
    let raiser = |i: u64| {
        move || {
            let mut sum = 0_u64;
            while HANDLED.load(Relaxed) < count {
                // SAFETY: the signal has a handler.
                unsafe { libc::raise(libc::SIGUSR1) };
                for n in 0..1000 + i {
                    sum = black_box(sum + n);
                }
            }
        }
    };
    let threads: Vec<_> = (0..16).map(|i| runtime.spawn(raiser(i))).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
}

#[test]
fn a_handler_calls_libc_beside_hogs() {
    const NAME: &str = "handlers::a_handler_calls_libc_beside_hogs";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        // A pipe that refuses RWF_NOWAIT is one of Linux before 6.4.
        let refused = [libc::SYS_preadv2, libc::SYS_pwritev2];
        let old = Filter::new().refuse_all(&refused, libc::EOPNOTSUPP);
        for case in ["null", "null on the alternate stack", "file", "pipe"] {
            assert_code(&child(NAME, case), 0);
        }
        let mut command = child_command(NAME, "pipe");
        old.impose_on(&mut command);
        return assert_code(&command.output().unwrap(), 0);
    };
    let on_stack = case.contains("alternate");
    install(call_much, if on_stack { libc::SA_ONSTACK } else { 0 });
    let directory = common::directory::Directory::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let path = match case.as_str() {
        "file" => directory.path("written"),
        _ => "/dev/null".into(),
    };
    let file = std::fs::File::create(path).unwrap();
    let fd = if case == "pipe" {
        writer.as_raw_fd()
    } else {
        file.as_raw_fd()
    };
    TARGET.store(fd, Relaxed);
    let drain = std::thread::spawn(|| std::io::copy(&mut { reader }, &mut std::io::sink()));
    raise_beside_hogs(20_000);
    drop(writer);
    drain.join().unwrap().unwrap();
}

const PAIRS: usize = 4;
static SOCKETS: [AtomicI32; PAIRS] = [const { AtomicI32::new(-1) }; PAIRS];
static WAITS: AtomicUsize = AtomicUsize::new(0);

/// Shuts down, and replaces, what threads wait for: those look again.
extern "C" fn shut_all(_: i32) {
    for (i, fd) in SOCKETS.iter().map(|fd| fd.load(Relaxed)).enumerate() {
        // SAFETY: numbers of open sockets. One that is not connected cannot be shut down, but its threads look again;
        // so do those of one that is replaced by itself.
        unsafe {
            let place = libc::__errno_location();
            let before = *place;
            match i % 2 {
                0 => libc::shutdown(fd, libc::SHUT_RD),
                _ => libc::dup2(TARGET.load(Relaxed), fd),
            };
            *place = before;
        }
    }
    HANDLED.fetch_add(1, Relaxed);
}

fn socket() -> i32 {
    // SAFETY: plain calls, and a time for the kernel to read.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: 200,
        };
        let option = (&raw const time).cast();
        let set = libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVTIMEO, option, 16);
        assert_eq!(set, 0);
        socket
    }
}

#[test]
fn a_handler_shuts_what_threads_wait_for() {
    const NAME: &str = "handlers::a_handler_shuts_what_threads_wait_for";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    SOCKETS
        .iter()
        .for_each(|place| place.store(socket(), Relaxed));
    TARGET.store(socket(), Relaxed);
    install(shut_all, 0);
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let waiter = |i: usize| {
        move || {
            let mut byte = 0_u8;
            while !OVER.load(SeqCst) {
                let fd = SOCKETS[i % PAIRS].load(Relaxed);
                // SAFETY: room for a byte.
                unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, 0) };
                WAITS.fetch_add(1, Relaxed);
            }
        }
    };
    let waiters: Vec<_> = (0..4 * PAIRS).map(|i| runtime.spawn(waiter(i))).collect();
    std::thread::spawn(signal_all).join().unwrap();
    // They go on.
    let before = WAITS.load(SeqCst);
    wait_until(|| WAITS.load(SeqCst) > before + 100);
    OVER.store(true, SeqCst);
    waiters
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    runtime.shutdown();
}

/// Shuts down or closes a connection for which a thread waits for good. In the first case it must hear of it; in the second it goes on
/// with the connection, as one that is blocked in the kernel does, even if another file has the number.
#[test]
fn who_waits_hears_what_a_handler_has_shut() {
    const NAME: &str = "handlers::who_waits_hears_what_a_handler_has_shut";
    let _w = watchdog(NAME);
    let Some(case) = child_case(NAME) else {
        for case in ["shutdown", "close", "close_range", "close_range by number"] {
            assert_code(&child(NAME, case), 0);
        }
        return;
    };
    if !hooked() {
        return;
    }
    extern "C" fn shut(_: i32) {
        // SAFETY: the descriptor is open.
        unsafe { libc::shutdown(TARGET.load(Relaxed), libc::SHUT_RD) };
    }
    extern "C" fn close(_: i32) {
        // SAFETY: as above; nobody else closes it.
        unsafe { libc::close(TARGET.load(Relaxed)) };
    }
    extern "C" fn close_range(_: i32) {
        let fd = TARGET.load(Relaxed) as u32;
        // SAFETY: as above.
        unsafe { libc::close_range(fd, fd, 0) };
    }
    extern "C" fn by_number(_: i32) {
        let fd = TARGET.load(Relaxed);
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_close_range, fd, fd, 0) };
    }
    install(
        match case.as_str() {
            "shutdown" => shut as extern "C" fn(i32),
            "close" => close,
            "close_range by number" => by_number,
            _ => close_range,
        },
        0,
    );
    let runtime = Runtime::builder().processors(2).build().unwrap();
    for _ in 0..50 {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        TARGET.store(fd, SeqCst);
        std::mem::forget(ours);
        let parked = runtime.metrics().parked_calls;
        let waiter = runtime.spawn(move || {
            let mut byte = 0_u8;
            // SAFETY: room for a byte.
            let read = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
            (read, std::io::Error::last_os_error().raw_os_error())
        });
        wait_until(|| runtime.metrics().parked_calls > parked);
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGUSR1) };
        let is_closed = case != "shutdown";
        let _other = is_closed.then(|| std::fs::File::open("/").unwrap());
        if is_closed {
            theirs.write_all(b"x").unwrap();
        }
        let (read, error) = waiter.join().unwrap();
        assert_eq!(read, is_closed.into(), "{error:?}");
        match is_closed {
            // Nobody has it any more.
            true => assert_eq!(theirs.read(&mut [0]).unwrap(), 0),
            // SAFETY: it is open, and nobody else's.
            false => drop(unsafe { libc::close(fd) }),
        }
    }
    runtime.shutdown();
}

#[test]
fn threads_with_masks_park_beside_a_handler() {
    const NAME: &str = "handlers::threads_with_masks_park_beside_a_handler";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    if !hooked() {
        return;
    }
    extern "C" fn nothing(_: i32) {}
    install(nothing, 0);
    let runtime = Runtime::builder().processors(2).build().unwrap();
    let sleepers: Vec<_> = (0..500)
        .map(|_| {
            runtime.spawn(|| {
                // SAFETY: an initialised set, of the calling thread.
                unsafe {
                    let mut set = std::mem::zeroed();
                    libc::sigemptyset(&mut set);
                    libc::sigaddset(&mut set, libc::SIGUSR2);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                }
                while !OVER.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            })
        })
        .collect();
    wait_until(|| runtime.metrics().parked_calls > 1_000);
    let metrics = runtime.metrics();
    let kernel_threads = metrics.kernel_threads - metrics.parked_kernel_threads;
    OVER.store(true, SeqCst);
    sleepers
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(kernel_threads <= 20, "{kernel_threads} kernel threads");
}
