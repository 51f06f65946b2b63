//! Preemption is by signal, and a signal cuts system calls short. No program may notice.
//!
//! The idea: threads with time slices of 100 µs compute for about as long and then make a call, so
//! that the signal often comes when they are entering it. What comes back is counted: no call fails
//! with EINTR, no write of a blocking descriptor is a part, but for those that the program's own
//! signals interrupt.

mod common;
#[path = "support/unhooked.rs"]
mod unhooked;

use common::*;
use greenthread::runtime::{Mode, Runtime};
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Whether the runtime can mend a call of libc's: glibc 2.41 and newer leave nothing on aarch64 from which the
/// first argument could be told, unless the call comes by a function of the feature `unmodified`.
fn is_mended() -> bool {
    // SAFETY: libc's own text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut numbers = version
        .to_str()
        .unwrap()
        .split('.')
        .map(|n| n.parse().unwrap());
    let version: [u32; 2] = [numbers.next().unwrap(), numbers.next().unwrap()];
    let keeps = cfg!(any(target_arch = "x86_64", feature = "unmodified"));
    let is_mended = keeps || version < [2, 41];
    if !is_mended {
        println!("skipped: this libc's interrupted calls cannot be mended on aarch64");
    }
    is_mended
}

fn runtime() -> Runtime {
    Runtime::builder()
        .processors(2)
        .time_slice(Duration::from_micros(100))
        .build()
        .expect("a runtime")
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

fn compute(rounds: usize) {
    for i in 0..rounds {
        black_box(i);
    }
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Makes the `n`th call: one that waits a little for nothing; `quiet` has a time-out. Returns errno, or 0.
fn wait(n: usize, epoll: i32, quiet: &UnixStream) -> i32 {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 20_000,
    };
    // SAFETY: no descriptors but our own, valid places and times.
    let result = unsafe {
        match n % 7 {
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
            _ => libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &pause, null_mut()),
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
    let _w = watchdog("calls_that_wait_do_not_fail");
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
                    error => panic!("call {} failed: {error}", n % 7),
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
    let _w = watchdog("a_call_is_repeated_as_it_was_or_not_at_all");
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
    const NAME: &str = "the_programs_own_signals_interrupt";
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

/// Lets four threads at once transfer for two seconds, and returns how many transfers there were and
/// how many were a part.
fn parts(transfer: fn() -> Box<dyn FnMut() -> usize + Send>) -> (usize, usize) {
    const THREADS: usize = 4;
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let end = Instant::now() + Duration::from_secs(2);
    let body = move || {
        let mut transfer = transfer();
        let (mut all, mut parts) = (0, 0);
        while Instant::now() < end {
            compute(all % 97 * 2_000);
            all += 1;
            parts += usize::from(transfer() != MIB);
        }
        (all, parts)
    };
    let threads: Vec<_> = (0..THREADS).map(|_| runtime.spawn(body)).collect();
    let sum = |sum: (usize, usize), add: (usize, usize)| (sum.0 + add.0, sum.1 + add.1);
    let sum = threads
        .into_iter()
        .map(|t| t.join().unwrap())
        .fold((0, 0), sum);
    drop(hogs);
    runtime.shutdown();
    println!("{sum:?}");
    sum
}

/// Reads all, and checks it: bytes of one transfer count from 0.
fn drain(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let (mut buffer, mut at) = (vec![0; 100_000], 0);
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let right = |(i, byte): (usize, &u8)| *byte == pattern((at + i) % MIB);
            assert!(
                buffer[..length].iter().enumerate().all(right),
                "lost or twice"
            );
            at += length;
        }
        assert_eq!(at % MIB, 0, "a part is missing");
    });
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

fn data() -> Vec<u8> {
    (0..MIB).map(pattern).collect()
}

/// Writes that are whole, or the reader complains: a part would be followed by the beginning.
fn writer(mut to: impl Write + Send + 'static) -> Box<dyn FnMut() -> usize + Send> {
    let data = data();
    Box::new(move || to.write(&data).expect("somebody reads"))
}

#[test]
fn a_write_to_a_unix_stream_is_whole() {
    let _w = watchdog("a_write_to_a_unix_stream_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = UnixStream::pair().unwrap();
        drain(b);
        writer(a)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_write_to_a_pipe_is_whole() {
    let _w = watchdog("a_write_to_a_pipe_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (reader, writer_end) = std::io::pipe().unwrap();
        drain(reader);
        writer(writer_end)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_write_to_a_connection_is_whole() {
    let _w = watchdog("a_write_to_a_connection_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = tcp_pair();
        drain(b);
        writer(a)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_write_from_several_buffers_is_whole() {
    let _w = watchdog("a_write_from_several_buffers_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (mut a, b) = UnixStream::pair().unwrap();
        drain(b);
        let data = data();
        Box::new(move || {
            let (x, rest) = data.split_at(MIB / 3);
            let (y, z) = rest.split_at(17);
            let buffers = [x, &[], y, z].map(std::io::IoSlice::new);
            a.write_vectored(&buffers).expect("somebody reads")
        })
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_message_is_sent_whole() {
    let _w = watchdog("a_message_is_sent_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = tcp_pair();
        drain(b);
        let mut data = data();
        Box::new(move || {
            let (x, y) = data.split_at_mut(MIB / 3);
            let mut buffers = [x, y].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            // SAFETY: all zero is a message without anything; the buffers outlive the call.
            let sent = unsafe {
                let mut message: libc::msghdr = zeroed();
                (message.msg_iov, message.msg_iovlen) = (buffers.as_mut_ptr(), buffers.len());
                libc::sendmsg(a.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
            };
            usize::try_from(sent).expect("somebody reads")
        })
    });
    assert_eq!(parts, 0, "of {all} messages");
}

#[test]
fn waiting_for_all_gets_all() {
    let _w = watchdog("waiting_for_all_gets_all");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, mut b) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let data = data();
            let mut n = 0;
            while b.write_all(&data[..MIB / 3 + n % 7]).is_ok() {
                n += 1;
            }
        });
        let mut buffer = vec![0u8; MIB];
        Box::new(move || {
            let at = buffer.as_mut_ptr().cast();
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::recv(a.as_raw_fd(), at, MIB, libc::MSG_WAITALL) };
            usize::try_from(got).expect("somebody writes")
        })
    });
    assert_eq!(parts, 0, "of {all}");
}

/// What stays: no descriptor that must not wait, and no datagram, is waited for.
#[test]
fn parts_that_are_right_stay_parts() {
    let _w = watchdog("parts_that_are_right_stay_parts");
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let body = || {
        let end = Instant::now() + Duration::from_secs(1);
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        let (x, y) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut buffer = vec![7u8; MIB];
        while Instant::now() < end {
            while (&a).write(&buffer).is_ok() {}
            let mut left = [0; 50_000];
            assert!((&b).read(&mut left).unwrap() > 0);
            assert_eq!(x.send(b"a datagram").unwrap(), 10);
            let at = buffer.as_mut_ptr().cast();
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::recv(y.as_raw_fd(), at, MIB, libc::MSG_WAITALL) };
            assert_eq!(got, 10);
        }
        drop(OwnedFd::from(b));
        assert!((&a).write(&buffer).is_err());
    };
    let threads: Vec<_> = (0..4).map(|_| runtime.spawn(body)).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    drop(hogs);
    runtime.shutdown();
}

#[test]
fn a_reader_that_leaves_ends_a_write() {
    let _w = watchdog("a_reader_that_leaves_ends_a_write");
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let body = || {
        let data = data();
        for _ in 0..100 {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            let reader = std::thread::spawn(move || b.read_exact(&mut [0; 400_000]).unwrap());
            let mut written = 0;
            while let Ok(length) = a.write(&data) {
                written += length;
            }
            reader.join().unwrap();
            assert!((400_000..2 * MIB).contains(&written), "{written}");
        }
    };
    let threads: Vec<_> = (0..4).map(|_| runtime.spawn(body)).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    if runtime.mode() == Mode::Green {
        assert!(runtime.metrics().preemptions > 0);
    }
    drop(hogs);
    runtime.shutdown();
}
