//! The ring alone, without the network's types. Where there is no io_uring the tests pass by.
//!
//! Whatever concerns the whole process runs in one of its own (`alone`).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use io_uring::{opcode, types};

use super::keeper::Keeper;
use super::*;
use crate::sys::clock;

fn transfer(
    fd: BorrowedFd<'_>,
    mut transfer: Transfer<'_>,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    // SAFETY: what the entry points to is borrowed until this returns.
    unsafe { perform(transfer.entry(fd.as_raw_fd(), flags), limit) }
}

fn recv(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    transfer(fd, Transfer::Recv(buffer), flags, limit)
}

fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: Option<i64>) -> io::Result<usize> {
    file::read(fd, &mut [IoSliceMut::new(buffer)], offset)
}

fn send(fd: BorrowedFd<'_>, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
    transfer(fd, Transfer::Send(buffer), flags, limit)
}

fn wait_ready(fd: BorrowedFd<'_>, direction: Direction, limit: Limit) -> io::Result<()> {
    let source = Source::new(fd.try_clone_to_owned()?);
    Uring.wait(&source, direction, limit)
}

/// Aborts if it is not dropped within a minute and a half.
struct Watchdog(#[allow(dead_code)] mpsc::Sender<()>);

fn watchdog(test: &'static str) -> Watchdog {
    let (alive, over) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if over.recv_timeout(Duration::from_secs(90)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("watchdog: test {test} hangs, aborting");
            std::process::abort();
        }
    });
    Watchdog(alive)
}

/// SplitMix64.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn new(test: &str) -> Random {
        let seed = std::env::var("GT_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(0x5eed);
        println!("{test}: GT_SEED={seed}");
        Random(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn fork(&mut self) -> Random {
        Random(self.below(u64::MAX))
    }
}

/// Whether the test is worthwhile.
fn ring() -> bool {
    let there = available();
    if !there {
        println!("no io_uring here: nothing is tested");
    }
    there
}

/// The bodies on green threads, or on kernel threads; returns when all are over.
fn run(green: bool, bodies: Vec<Box<dyn FnOnce() + Send>>) {
    if green {
        let all: Vec<_> = bodies.into_iter().map(crate::spawn).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    } else {
        let all: Vec<_> = bodies.into_iter().map(std::thread::spawn).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn bytes(buffer: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: for these tests: only whole bytes are written to it.
    unsafe { &mut *(std::ptr::from_mut(buffer) as *mut [MaybeUninit<u8>]) }
}

fn recv_into(socket: &UnixStream, buffer: &mut [u8], limit: Limit) -> io::Result<usize> {
    recv(socket.as_fd(), bytes(buffer), 0, limit)
}

fn soon(micros: u64) -> Limit {
    Limit::Until(clock::now() + micros * 1000)
}

fn expired<T>(answer: &io::Result<T>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A file of so many bytes, without a name; the byte at n is `(n / 4096 + n) as u8`.
fn temporary_file(length: usize, flags: i32) -> (std::path::PathBuf, std::fs::File) {
    use std::os::unix::fs::OpenOptionsExt;
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("greenthread-ring-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let content: Vec<u8> = (0..length).map(byte_at).collect();
    std::fs::write(&path, content).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(flags);
    let file = file.open(&path).unwrap();
    (path, file)
}

fn byte_at(at: usize) -> u8 {
    (at / 4096 + at) as u8
}

/// Runs a test again in a process of its own. There it says what case is asked for.
fn alone(test: &str, case: &str) -> Option<String> {
    if std::env::var("GT_CHILD").as_deref() == Ok(test) {
        return std::env::var("GT_CASE").ok();
    }
    let name = format!("driver::uring::tests::{test}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env("GT_CHILD", test)
        .env("GT_CASE", case)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{case}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    None
}

#[test]
fn what_comes_later_is_received() {
    let _watchdog = watchdog("what_comes_later_is_received");
    if !ring() {
        return;
    }
    for green in [true, false] {
        let (here, there) = UnixStream::pair().unwrap();
        let is_in = Arc::new(AtomicBool::new(false));
        let reader = {
            let is_in = is_in.clone();
            Box::new(move || {
                let mut buffer = [0; 8];
                is_in.store(true, Release);
                assert_eq!(recv_into(&here, &mut buffer, Limit::Forever).unwrap(), 5);
                assert_eq!(&buffer, b"hello\0\0\0");
                // The end.
                assert_eq!(recv_into(&here, &mut buffer, Limit::Forever).unwrap(), 0);
            })
        };
        let writer = Box::new(move || {
            while !is_in.load(Acquire) {
                crate::yield_now();
            }
            crate::sleep(Duration::from_millis(5));
            assert_eq!(send(there.as_fd(), b"hello", 0, Limit::Forever).unwrap(), 5);
        });
        run(green, vec![reader, writer]);
    }
}

#[test]
fn errors_are_the_system_calls() {
    let _watchdog = watchdog("errors_are_the_system_calls");
    if !ring() {
        return;
    }
    let code = |error: io::Error| error.raw_os_error().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    let broken = send(here.as_fd(), b"x", 0, Limit::Forever).unwrap_err();
    assert_eq!(code(broken), libc::EPIPE);
    let (_path, file) = temporary_file(1, 0);
    let no_socket = recv(file.as_fd(), bytes(&mut [0]), 0, Limit::Forever).unwrap_err();
    assert_eq!(code(no_socket), libc::ENOTSOCK);
    let missing = file::open(c"/there/is/no/such/file", libc::O_RDONLY, 0).unwrap_err();
    assert_eq!(code(missing), libc::ENOENT);
    // SAFETY: an address that nobody may write to.
    let nowhere = unsafe { std::slice::from_raw_parts_mut(16 as *mut u8, 8) };
    let fault = read_at(file.as_fd(), nowhere, Some(0)).unwrap_err();
    assert_eq!(code(fault), libc::EFAULT);
    std::fs::remove_file(_path).unwrap();
}

#[test]
fn waits_for_readiness() {
    let _watchdog = watchdog("waits_for_readiness");
    if !ring() {
        return;
    }
    crate::spawn(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        wait_ready(here.as_fd(), Direction::Write, Limit::Forever).unwrap();
        assert!(expired(&wait_ready(
            here.as_fd(),
            Direction::Read,
            soon(1000)
        )));
        assert!(expired(&wait_ready(
            here.as_fd(),
            Direction::Read,
            Limit::Until(0)
        )));
        let waiting = crate::spawn(move || {
            wait_ready(here.as_fd(), Direction::Read, Limit::Forever).unwrap();
        });
        crate::sleep(Duration::from_millis(2));
        there.write_all(b"x").unwrap();
        waiting.join().unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn messages_carry_addresses() {
    let _watchdog = watchdog("messages_carry_addresses");
    if !ring() {
        return;
    }
    let (here, there) = UnixDatagram::pair().unwrap();
    let mut parts = [b"he".as_slice(), b"llo"].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let mut into = [0u8; 4];
    let mut into_part = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: zeroed messages are valid, and point to what lives until the end.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        let sent = transfer(
            here.as_fd(),
            Transfer::SendMessage(&message),
            0,
            Limit::Forever,
        );
        assert_eq!(sent.unwrap(), 5);
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut into_part;
        message.msg_iovlen = 1;
        let got = transfer(
            there.as_fd(),
            Transfer::RecvMessage(&mut message),
            libc::MSG_TRUNC,
            Limit::Forever,
        );
        assert_eq!(got.unwrap(), 5);
        assert_ne!(message.msg_flags & libc::MSG_TRUNC, 0);
    }
    assert_eq!(&into, b"hell");
}

#[test]
fn files_are_read_and_written() {
    let _watchdog = watchdog("files_are_read_and_written");
    if !ring() {
        return;
    }
    let (path, _) = temporary_file(10_000, 0);
    let named = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    crate::spawn(move || {
        let opened = file::open(&named, libc::O_RDWR | libc::O_CLOEXEC, 0).unwrap();
        let opened = opened.as_fd();
        let mut buffer = [0; 20_000];
        let length = read_at(opened, &mut buffer, Some(3)).unwrap();
        assert_eq!(length, 9_997);
        assert!((0..length).all(|i| buffer[i] == byte_at(i + 3)));
        assert_eq!(
            file::write(opened, &[IoSlice::new(b"green")], Some(9_998)).unwrap(),
            5
        );
        file::sync(opened, true).unwrap();
        file::sync(opened, false).unwrap();
        assert_eq!(file::statx(&named, 0).unwrap().stx_size, 10_003);
        // From the position, twice.
        for expected in [0, 4] {
            assert_eq!(read_at(opened, &mut buffer[..4], None).unwrap(), 4);
            assert!((0..4).all(|i| buffer[i] == byte_at(expected + i)));
        }
    })
    .join()
    .unwrap();
    assert!(std::fs::read(&path).unwrap().ends_with(b"green"));
    std::fs::remove_file(path).unwrap();
}

/// A stream of numbered bytes is read with time-outs that come just when bytes do: every byte is
/// received once. Around and in the buffers of those reads that timed out nothing changes later.
#[test]
fn time_outs_race_with_data() {
    let _watchdog = watchdog("time_outs_race_with_data");
    if !ring() {
        return;
    }
    const BYTES: usize = 6_000;
    let mut random = Random::new("time_outs_race_with_data");
    for green in [true, false] {
        let (timed_out, received) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..4 {
            let (here, there) = UnixStream::pair().unwrap();
            let (mut own, mut others) = (random.fork(), random.fork());
            let (timed_out, received) = (timed_out.clone(), received.clone());
            bodies.push(Box::new(move || {
                const CANARY: u8 = 0xa5;
                let mut rooms = [[CANARY; 96]; 8];
                let (mut next, mut round) = (0, 0);
                while next < BYTES {
                    round += 1;
                    let room = &mut rooms[round % 8];
                    // None of the last eight reads wrote to it after it returned.
                    assert!(room.iter().all(|&byte| byte == CANARY));
                    let limit = soon(own.below(120));
                    let answer = recv_into(&here, &mut room[32..64], limit);
                    let length = match answer {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            timed_out.fetch_add(1, Relaxed);
                            0
                        }
                        answer => answer.unwrap(),
                    };
                    for &byte in &room[32..32 + length] {
                        assert_eq!(byte, (next % 251) as u8, "lost or doubled");
                        next += 1;
                    }
                    received.fetch_add(usize::from(length > 0), Relaxed);
                    room[32..32 + length].fill(CANARY);
                }
                assert_eq!(next, BYTES);
                assert_eq!(recv_into(&here, &mut [0], Limit::Forever).unwrap(), 0);
            }));
            bodies.push(Box::new(move || {
                let mut next = 0;
                while next < BYTES {
                    let count = (1 + others.below(3) as usize).min(BYTES - next);
                    let part: Vec<u8> = (next..next + count).map(|i| (i % 251) as u8).collect();
                    let sent = send(there.as_fd(), &part, 0, Limit::Forever).unwrap();
                    next += sent;
                    let until = clock::now() + others.below(120_000);
                    while clock::now() < until {
                        crate::yield_now();
                    }
                }
            }));
        }
        run(green, bodies);
        println!("green {green}: {timed_out:?} timed out, {received:?} received");
        assert!(timed_out.load(Relaxed) > 0 && received.load(Relaxed) > 0);
    }
}

/// Everything at once, 200 threads, over the process's ring and over one that is always full.
fn storm(keeper: &'static Keeper, green: bool, rounds: usize, mut random: Random) {
    const THREADS: usize = 200;
    let (path, file) = temporary_file(1 << 20, 0);
    let file = Arc::new(file);
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    let perform = move |entry, limit| {
        // SAFETY: the callers below lend what lives until it returns.
        unsafe { operation::perform(keeper, entry, limit) }
    };
    let receive = move |socket: &UnixStream, buffer: &mut [u8], limit| {
        let (place, length) = (buffer.as_mut_ptr(), buffer.len() as u32);
        let entry = opcode::Recv::new(types::Fd(socket.as_raw_fd()), place, length);
        perform(entry.build(), limit)
    };
    for _ in 0..THREADS / 2 {
        let (left, right) = UnixStream::pair().unwrap();
        for (starts, socket) in [(true, left), (false, right)] {
            let (file, mut random) = (file.clone(), random.fork());
            bodies.push(Box::new(move || {
                let (silent, _peer) = UnixStream::pair().unwrap();
                let transmit = |from: &[u8]| {
                    let mut done = 0;
                    while done < from.len() {
                        let rest = &from[done..];
                        let (place, length) = (rest.as_ptr(), rest.len() as u32);
                        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), place, length);
                        done += perform(entry.build(), Limit::Forever).unwrap();
                    }
                };
                let collect = |mut into: &mut [u8], random: &mut Random| {
                    while !into.is_empty() {
                        let limit = match random.below(4) {
                            0 => soon(random.below(200)),
                            _ => Limit::Forever,
                        };
                        match receive(&socket, into, limit) {
                            Ok(length) => into = &mut into[length..],
                            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                        }
                    }
                };
                for round in 0..rounds {
                    let expected: Vec<u8> = (0..64).map(|i| (i * 7 + round) as u8).collect();
                    let mut got = [0; 64];
                    if starts {
                        transmit(&expected);
                        collect(&mut got, &mut random);
                    } else {
                        collect(&mut got, &mut random);
                        transmit(&got);
                    }
                    assert_eq!(got[..], expected);
                    match random.below(4) {
                        0 => {
                            let at = random.below(1 << 20) as usize;
                            let (place, length) = (got.as_mut_ptr(), got.len() as u32);
                            let entry =
                                opcode::Read::new(types::Fd(file.as_raw_fd()), place, length);
                            let entry = entry.offset(at as u64).build();
                            let length = perform(entry, Limit::Forever).unwrap();
                            assert_eq!(length, got.len().min((1 << 20) - at));
                            assert!((0..length).all(|i| got[i] == byte_at(at + i)));
                        }
                        1 => {
                            let mut buffer = [7; 16];
                            let limit = soon(random.below(300));
                            assert!(expired(&receive(&silent, &mut buffer, limit)));
                            assert_eq!(buffer, [7; 16]);
                        }
                        _ => {}
                    }
                }
            }));
        }
    }
    run(green, bodies);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_storm() {
    let _watchdog = watchdog("a_storm");
    if !ring() {
        return;
    }
    let mut random = Random::new("a_storm");
    for green in [true, false] {
        storm(keeper::get().unwrap(), green, 50, random.fork());
    }
}

/// Two entries and sixteen completions for 200 threads: both queues overflow.
#[test]
fn a_storm_over_a_small_ring() {
    let _watchdog = watchdog("a_storm_over_a_small_ring");
    if !ring() {
        return;
    }
    let mut random = Random::new("a_storm_over_a_small_ring");
    let small = Keeper::start(2).unwrap();
    for green in [true, false] {
        storm(small, green, 30, random.fork());
    }
    // A hundred completions at once.
    let (here, there) = UnixStream::pair().unwrap();
    let all: Vec<_> = (0..100)
        .map(|_| {
            let here = here.try_clone().unwrap();
            crate::spawn(move || {
                let mut byte = 0u8;
                let entry = opcode::Recv::new(types::Fd(here.as_raw_fd()), &mut byte, 1);
                // SAFETY: the byte lives until it returns.
                unsafe { operation::perform(small, entry.build(), Limit::Forever) }.unwrap()
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    drop(there);
    for thread in all {
        assert_eq!(thread.join().unwrap(), 0);
    }
}

/// An operation goes on whatever becomes of the kernel thread that it was begun on.
#[test]
fn a_blocked_machine_strands_nothing() {
    let _watchdog = watchdog("a_blocked_machine_strands_nothing");
    if !ring() {
        return;
    }
    const BLOCKED: usize = 8;
    let (mut pipe_out, mut pipe_in) = io::pipe().unwrap();
    let (here, mut there) = UnixStream::pair().unwrap();
    let under_way = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..16)
        .map(|_| {
            let (here, under_way) = (here.try_clone().unwrap(), under_way.clone());
            crate::spawn(move || {
                under_way.fetch_add(1, Relaxed);
                recv_into(&here, &mut [0], Limit::Forever).unwrap()
            })
        })
        .collect();
    while under_way.load(Relaxed) < 16 {
        std::thread::yield_now();
    }
    // Every kernel thread that has submitted something blocks, and nobody says so.
    let blocked: Vec<_> = (0..BLOCKED)
        .map(|_| {
            let (pipe, under_way) = (pipe_out.try_clone().unwrap(), under_way.clone());
            crate::spawn(move || {
                under_way.fetch_add(1, Relaxed);
                // SAFETY: a valid buffer.
                unsafe { libc::read(pipe.as_raw_fd(), [0u8].as_mut_ptr().cast(), 1) }
            })
        })
        .collect();
    while under_way.load(Relaxed) < 16 + BLOCKED {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    there.write_all(&[1; 16]).unwrap();
    for thread in waiting {
        assert_eq!(thread.join().unwrap(), 1);
    }
    pipe_in.write_all(&[1; BLOCKED]).unwrap();
    for thread in blocked {
        assert_eq!(thread.join().unwrap(), 1);
    }
    drop(pipe_in);
    assert_eq!(pipe_out.read(&mut [0]).unwrap(), 0);
}

#[test]
fn all_of_a_descriptor_are_cancelled() {
    let _watchdog = watchdog("all_of_a_descriptor_are_cancelled");
    if !ring() {
        return;
    }
    let (here, _there) = UnixStream::pair().unwrap();
    let (other, mut others) = UnixStream::pair().unwrap();
    let over = Arc::new(AtomicUsize::new(0));
    let spawn = |socket: &UnixStream| {
        let (socket, over) = (socket.try_clone().unwrap(), over.clone());
        crate::spawn(move || {
            let answer = recv_into(&socket, &mut [0], Limit::Forever);
            over.fetch_add(1, Relaxed);
            answer
        })
    };
    let waiting: Vec<_> = (0..5).map(|_| spawn(&here)).collect();
    let not_concerned = spawn(&other);
    let mut ended = 0;
    while ended < 5 {
        ended += cancel_all(here.as_fd()).unwrap();
        std::thread::yield_now();
    }
    for thread in waiting {
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }
    assert_eq!(over.load(Relaxed), 5);
    others.write_all(b"x").unwrap();
    assert_eq!(not_concerned.join().unwrap().unwrap(), 1);
}

/// Refuses `io_uring_setup` to the calling kernel thread and those that it makes.
fn forbid(errno: u32) {
    let statement = |code: u32, jump_false: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | errno,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a valid program.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn a_kernel_that_forbids_it_is_no_error() {
    for errno in [libc::ENOSYS, libc::EPERM, libc::EINVAL] {
        let Some(errno) = alone("a_kernel_that_forbids_it_is_no_error", &errno.to_string()) else {
            continue;
        };
        forbid(errno.parse().unwrap());
        assert!(!available() && !available());
        let (here, _there) = UnixStream::pair().unwrap();
        let error = recv_into(&here, &mut [0], Limit::Forever).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
        return;
    }
}

#[test]
fn a_forked_child_has_none() {
    let _watchdog = watchdog("a_forked_child_has_none");
    if !ring() || alone("a_forked_child_has_none", "").is_none() {
        return;
    }
    // SAFETY: the child looks, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(i32::from(available()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
    }
    assert!(available());
}

/// How often the keeper has gone to sleep.
fn sleeps_of_the_keeper() -> u64 {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).unwrap() != "gt-ring\n" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let switches = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .map(|line| line.split('\t').nth(1).unwrap().parse::<u64>().unwrap());
        return switches.sum();
    }
    panic!("there is no keeper");
}

#[test]
fn an_idle_process_does_not_wake() {
    let _watchdog = watchdog("an_idle_process_does_not_wake");
    if !ring() || alone("an_idle_process_does_not_wake", "").is_none() {
        return;
    }
    let (here, _there) = UnixStream::pair().unwrap();
    let mine = here.try_clone().unwrap();
    // One operation is in flight, one has been cancelled.
    crate::spawn(move || recv_into(&mine, &mut [0], Limit::Forever));
    assert!(expired(&recv_into(&here, &mut [0], soon(1000))));
    std::thread::sleep(Duration::from_millis(50));
    let before = sleeps_of_the_keeper();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(sleeps_of_the_keeper(), before);
}

/// Random 4 KiB reads past the page cache by 128 green threads: through the ring, and as announced
/// blocking calls. `GT_CASE` picks one of them, for `strace -f -c`.
#[test]
#[ignore = "a measurement"]
fn measure_random_reads() {
    const THREADS: usize = 128;
    const LENGTH: usize = 256 << 20;
    const READS: usize = 300;
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    type Way = fn(BorrowedFd<'_>, &mut [u8], u64) -> io::Result<usize>;
    let ring: Way = |fd, buffer, at| read_at(fd, buffer, Some(at as i64));
    let blocking: Way = |fd, buffer, at| {
        let (fd, place, length) = (fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
        // SAFETY: a buffer of that length.
        let read = || unsafe { libc::pread(fd, place.cast(), length, at as libc::off_t) };
        crate::driver::source::answer(crate::blocking(read))
    };
    let only = std::env::var("GT_CASE").ok();
    let ways = [("ring", ring), ("blocking", blocking)];
    let ways = ways.map(|way| only.iter().all(|only| only == way.0).then_some(way));
    let (path, file) = temporary_file(LENGTH, libc::O_DIRECT);
    file.sync_all().unwrap();
    let file = Arc::new(file);
    for (name, way) in ways.into_iter().cycle().take(6).flatten() {
        let mut random = Random(1);
        let (start, cpu) = (
            Instant::now(),
            clock::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID),
        );
        let all: Vec<_> = (0..THREADS)
            .map(|_| {
                let (file, mut random) = (file.clone(), random.fork());
                crate::spawn(move || {
                    let mut page = Box::new(Page([0; 4096]));
                    for _ in 0..READS {
                        let at = random.below((LENGTH / 4096) as u64) * 4096;
                        assert_eq!(way(file.as_fd(), &mut page.0, at).unwrap(), 4096);
                        assert_eq!(page.0[5], byte_at(at as usize + 5));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        let cpu = clock::cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID) - cpu;
        let count = (THREADS * READS) as f64;
        println!(
            "{name}: {:.1} thousand reads a second, {:.1} us of CPU each",
            count / start.elapsed().as_secs_f64() / 1000.0,
            cpu as f64 / 1000.0 / count
        );
    }
    std::fs::remove_file(path).unwrap();
}
