//! Files: the ring does the few operations that are known to wait for a disk, if the cluster has a
//! ring. Every other operation is the system call of its name ([`may_block`]): nearly every such
//! call finds its data in memory, and then the ring would save nothing.
//!
//! | operation | |
//! |---|---|
//! | read at an offset | one system call for cached bytes, which cannot block (`preadv2`, `RWF_NOWAIT`); the ring for others |
//! | read or write at an offset with `O_DIRECT` | the ring |
//! | sync | the ring |
//! | anything else, or where there is no ring | the system call |
//!
//! | [`Nature`] | |
//! |---|---|
//! | `UNKNOWN` | no call has asked yet |
//! | `CACHED` | a regular file |
//! | `DIRECT` | a file opened with `O_DIRECT`: there is no page cache, and `RWF_NOWAIT` would wait |
//! | `PLAIN` | not a regular file, or its file system has no such call |
//!
//! Invariants:
//! 1. The kernel keeps a file's position. A call that moves the position is never an operation of
//!    the ring: the ring reads the position, transfers, and sets the position without the lock that
//!    `read(2)` and `write(2)` hold meanwhile. Other handles, other descriptors and other processes
//!    use the same position.
//! 2. A read of a regular file is as long as std's: if the page cache has only a part of the bytes,
//!    the ring reads the others. A shorter read has met the end of the file.
//!
//! Memory orderings: Relaxed; the nature is a hint and guards nothing.

use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd};
use std::{fs::File, os::unix::fs::FileExt};

use super::{Operation, operate};
use crate::engine::atomic::{AtomicU8, Ordering};
use crate::engine::sched::{current, current::may_block};
use crate::engine::sys::{self, mm};

/// The kind of a file.
#[derive(Debug)]
pub(crate) struct Nature(AtomicU8);

impl Nature {
    const UNKNOWN: u8 = 0;
    const CACHED: u8 = 1;
    const DIRECT: u8 = 2;
    const PLAIN: u8 = 3;

    pub(crate) const fn new() -> Nature {
        Nature(AtomicU8::new(Nature::UNKNOWN))
    }

    fn of(&self, file: &File) -> u8 {
        match self.0.load(Ordering::Relaxed) {
            Nature::UNKNOWN => {
                // SAFETY: the call only asks for flags.
                let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
                let kind = match file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    true if flags & libc::O_DIRECT != 0 => Nature::DIRECT,
                    true => Nature::CACHED,
                    false => Nature::PLAIN,
                };
                self.0.store(kind, Ordering::Relaxed);
                kind
            }
            kind => kind,
        }
    }

    /// Reads at `offset`; the file's position does not change.
    pub(crate) fn read_at(&self, file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        if let Ok(start) = i64::try_from(offset)
            && current::green().is_some()
            && !buffer.is_empty()
        {
            let mut kind = self.of(file);
            while kind == Nature::CACHED {
                let at = start.saturating_add(done as i64);
                match read_cached(file, &mut buffer[done..], at) {
                    Ok(0) => return Ok(done),
                    Ok(n) => done += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // Either the file system does not support the flag, or the plain call will report the same error.
                    Err(_) => {
                        kind = Nature::PLAIN;
                        self.0.store(kind, Ordering::Relaxed);
                    }
                }
                // A read that the page cache has cut short ends at the end of a page; any other ends with the file.
                let is_end = !(offset + done as u64).is_multiple_of(mm::page() as u64);
                if done == buffer.len() || done != 0 && is_end {
                    return Ok(done);
                }
            }
            if kind != Nature::PLAIN {
                let at = start.saturating_add(done as i64);
                let operation = Operation::Read(file.as_fd(), &mut buffer[done..], at);
                if let Some(rest) = operate(operation) {
                    return with(done, rest);
                }
            }
        }
        let at = offset.saturating_add(done as u64);
        with(done, may_block(|| file.read_at(&mut buffer[done..], at)))
    }

    /// Writes at `offset`; the file's position does not change.
    pub(crate) fn write_at(&self, file: &File, buffer: &[u8], offset: u64) -> io::Result<usize> {
        if let Ok(at) = i64::try_from(offset)
            && current::green().is_some()
            && self.of(file) == Nature::DIRECT
            && let Some(answer) = operate(Operation::Write(file.as_fd(), buffer, at))
        {
            return answer;
        }
        may_block(|| file.write_at(buffer, offset))
    }

    /// Waits until the written data is on the disk.
    pub(crate) fn sync(file: &File, data_only: bool) -> io::Result<()> {
        let fd = file.as_fd();
        if let Some(answer) = operate(Operation::Sync { fd, data_only }) {
            return answer.map(drop);
        }
        may_block(|| match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        })
    }
}

/// The answer of a read that has brought `done` bytes, and then `rest`.
fn with(done: usize, rest: io::Result<usize>) -> io::Result<usize> {
    match rest {
        Err(_) if done != 0 => Ok(done),
        rest => rest.map(|rest| done + rest),
    }
}

/// Reads bytes from the page cache, up to the first that is missing; fails with `WouldBlock` if
/// that is the first byte of all. Not by way of libc, whose call is a cancellation point: that costs
/// a twentieth of the read.
fn read_cached(file: &File, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    let vector = IoSliceMut::new(buffer);
    let (number, fd, vector) = (libc::SYS_preadv2, file.as_raw_fd(), &raw const vector);
    // SAFETY: the call gets one vector, of writable memory. (The offset has one register on 64 bits.)
    let read = unsafe { sys::syscall!(number, fd, vector, 1, offset, 0, libc::RWF_NOWAIT) };
    read.map_err(io::Error::from_raw_os_error)
}
