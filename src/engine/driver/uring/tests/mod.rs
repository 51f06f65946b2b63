//! The ring alone, without the network's types. Where there is no io_uring the tests pass by.
//!
//! A test that concerns the whole process runs in a process of its own (`alone`).

mod batch;
mod operations;
mod process;
mod races;

use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use io_uring::{opcode, types};

use super::*;
use crate::engine::sys::clock;

fn transfer(
    fd: BorrowedFd<'_>,
    mut transfer: Transfer<'_, '_>,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    // SAFETY: the memory that the entry points to is borrowed until this returns.
    unsafe { perform(transfer.entry(fd.as_raw_fd(), flags), limit) }
}

fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: i32, limit: Limit) -> io::Result<usize> {
    transfer(fd, Transfer::Recv(buffer), flags, limit)
}

fn send(fd: BorrowedFd<'_>, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
    transfer(fd, Transfer::Send(buffer), flags, limit)
}

/// A ring's answer.
fn done(operation: Operation<'_>) -> io::Result<usize> {
    operate(operation).unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOSYS)))
}

fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], at: i64) -> io::Result<usize> {
    done(Operation::Read(fd, buffer, at))
}

fn write_at(fd: BorrowedFd<'_>, buffer: &[u8], at: i64) -> io::Result<usize> {
    done(Operation::Write(fd, buffer, at))
}

fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    done(Operation::Sync { fd, data_only }).map(drop)
}

fn wait_ready(fd: BorrowedFd<'_>, direction: Direction, limit: Limit) -> io::Result<()> {
    let source = Source::new(fd.try_clone_to_owned()?);
    super::wait(&source, direction, limit)
}

/// Aborts the process unless it is dropped within a minute and a half.
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

#[derive(Clone)]
struct Random(fastrand::Rng);

impl Random {
    fn new(test: &str) -> Random {
        let seed = std::env::var("GT_SEED").ok().and_then(|s| s.parse().ok());
        let seed = seed.unwrap_or(0x5eed);
        println!("{test}: GT_SEED={seed}");
        Random(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }

    fn fork(&mut self) -> Random {
        Random(self.0.fork())
    }
}

/// Whether there is a ring to test.
fn ring() -> bool {
    let there = Keeper::get().is_some();
    if !there {
        println!("no io_uring here: nothing is tested");
    }
    there
}

/// Runs the bodies on green threads, or on kernel threads; returns when all are over.
fn run(green: bool, bodies: Vec<Box<dyn FnOnce() + Send>>) {
    if green {
        let all: Vec<_> = bodies.into_iter().map(crate::spawn).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    } else {
        let all: Vec<_> = bodies.into_iter().map(std::thread::spawn).collect();
        all.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn recv_into(socket: &UnixStream, buffer: &mut [u8], limit: Limit) -> io::Result<usize> {
    recv(socket.as_fd(), buffer, 0, limit)
}

fn soon(micros: u64) -> Limit {
    Limit::Until(clock::now() + micros * 1000)
}

fn expired<T>(answer: &io::Result<T>) -> bool {
    matches!(answer, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Makes a file of `length` bytes, without a name; the byte at n is `(n / 4096 + n) as u8`.
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

/// Runs a test again in a process of its own. There it returns the requested case.
fn alone(test: &str, case: &str) -> Option<String> {
    if std::env::var("GT_CHILD").as_deref() == Ok(test) {
        return std::env::var("GT_CASE").ok();
    }
    let name = format!("engine::driver::uring::tests::process::{test}");
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
