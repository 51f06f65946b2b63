//! Files: the few operations that the ring takes over where a cluster has it, because they are known
//! to wait for a disk. All else is the system call of that name ([`may_block`]): nearly every one finds
//! what it needs in memory, and then there is nothing to be saved.
//!
//! | operation | where there is a ring |
//! |---|---|
//! | read at an offset | one system call takes what is in the page cache (`preadv2` with `RWF_NOWAIT`); the ring reads the rest |
//! | read or write at an offset with `O_DIRECT` | the ring |
//! | sync | the ring |
//! | anything else | the system call |
//!
//! | [`Nature`] | |
//! |---|---|
//! | `UNKNOWN` | nobody has asked yet |
//! | `CACHED` | a regular file |
//! | `DIRECT` | one with `O_DIRECT`: there is no page cache, and `RWF_NOWAIT` would wait |
//! | `PLAIN` | no regular file, or its file system has no such call |
//!
//! Invariants:
//! 1. A position is the kernel's. What moves one is never an operation of the ring, which reads it,
//!    transfers, and sets it without the lock that `read(2)` and `write(2)` hold meanwhile: other
//!    handles, other descriptors and other processes use the same one.
//! 2. A read of a regular file is as long as std's: what the page cache has only a part of is
//!    completed. A shorter one has met the end of the file.
//!
//! Memory orderings: Relaxed; the nature is a hint and guards nothing.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use super::source::answer;
use super::{by_ring, has_ring_for_files, uring};
use crate::engine::atomic::{AtomicU8, Ordering};
use crate::engine::sched::announce::may_block;

/// Reads that the page cache cuts short end where a page does.
const PAGE: u64 = 4096;

/// What kind of file it is.
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
                let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
                let kind = match (is_regular, is_direct(file)) {
                    (true, false) => Nature::CACHED,
                    (true, true) => Nature::DIRECT,
                    (false, _) => Nature::PLAIN,
                };
                self.0.store(kind, Ordering::Relaxed);
                kind
            }
            kind => kind,
        }
    }
}

fn is_direct(file: &File) -> bool {
    // SAFETY: only asks.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) & libc::O_DIRECT != 0 }
}

/// Reads at `offset`; the file's position stays.
pub(crate) fn read_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    nature: &Nature,
) -> io::Result<usize> {
    let mut done = 0;
    if let Ok(start) = i64::try_from(offset)
        && has_ring_for_files()
        && !buffer.is_empty()
    {
        let mut kind = nature.of(file);
        while kind == Nature::CACHED {
            let at = start.saturating_add(done as i64);
            match may_block(|| read_cached(file, &mut buffer[done..], at)) {
                Ok(0) => return Ok(done),
                Ok(n) => done += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Not for this file system, or the plain call says why.
                Err(_) => {
                    kind = Nature::PLAIN;
                    nature.0.store(kind, Ordering::Relaxed);
                }
            }
            let is_end = !(offset + done as u64).is_multiple_of(PAGE);
            if done == buffer.len() || done != 0 && is_end {
                return Ok(done);
            }
        }
        if kind != Nature::PLAIN {
            let at = start.saturating_add(done as i64);
            let rest = by_ring(|| uring::file::read_at(file.as_fd(), &mut buffer[done..], at));
            match rest {
                Some(Err(_)) if done != 0 => return Ok(done),
                Some(rest) => return Ok(done + rest?),
                None => {}
            }
        }
    }
    may_block(|| file.read_at(&mut buffer[done..], offset + done as u64)).map(|rest| done + rest)
}

/// What is in the page cache, up to where something is missing; `WouldBlock` if the first byte is.
fn read_cached(file: &File, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    let vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: one vector, of memory that may be written.
    answer(unsafe { libc::preadv2(file.as_raw_fd(), &vector, 1, offset, libc::RWF_NOWAIT) })
}

/// Writes at `offset`; the file's position stays.
pub(crate) fn write_at(
    file: &File,
    buffer: &[u8],
    offset: u64,
    nature: &Nature,
) -> io::Result<usize> {
    if let Ok(at) = i64::try_from(offset)
        && has_ring_for_files()
        && nature.of(file) == Nature::DIRECT
        && let Some(answer) = by_ring(|| uring::file::write_at(file.as_fd(), buffer, at))
    {
        return answer;
    }
    may_block(|| file.write_at(buffer, offset))
}

/// Waits until what was written is on the disk.
pub(crate) fn sync(file: &File, data_only: bool) -> io::Result<()> {
    if let Some(answer) = by_ring(|| uring::file::sync(file.as_fd(), data_only)) {
        return answer;
    }
    may_block(|| match data_only {
        true => file.sync_data(),
        false => file.sync_all(),
    })
}
