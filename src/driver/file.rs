//! Files: the few operations that the ring takes over where a cluster has it. Without one they are
//! announced blocking calls, but for what needs no waiting at all.
//!
//! A read that finds its data in the page cache is one system call (`preadv2` with `RWF_NOWAIT`)
//! and no switch. Only what is not there is read by the ring, or by a call that blocks.
//!
//! | [`Nature`] | | reads | the ring |
//! |---|---|---|---|
//! | `UNKNOWN` | nobody has asked yet | ask, and go on | |
//! | `CACHED` | a regular file | the page cache first | reads and writes |
//! | `DIRECT` | one with `O_DIRECT`, or whose file system has no such call | block | reads and writes |
//! | `OTHER` | anything else | block | does not |
//!
//! Invariants:
//! 1. A read of a regular file is as long as std's: what the page cache has only a part of is
//!    completed. A shorter one has met the end of the file.
//! 2. Anything but a regular file is read once a call: it may have records, or an end that is told
//!    once (a terminal). With `O_DIRECT` there is no page cache, and `RWF_NOWAIT` would wait.
//! 3. Calls at the file's own position take turns, as the kernel has it for `read(2)` and
//!    `write(2)`, but not for the ring: so they take turns here. Only those on regular files:
//!    others have no position, and may wait for each other.
//!
//! Memory orderings: Relaxed; the nature is a hint and guards nothing.

use std::ffi::{CStr, CString};
use std::fs::Metadata;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::source::{answer, uninterrupted};
use super::{by_ring, uring};
use crate::atomic::{AtomicU8, Ordering};
use crate::sched::fork;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::{blocking, current};

/// The most buffers that the kernel takes at once.
const MAX_BUFFERS: usize = 1024;
/// Reads that the page cache cuts short end where a page does.
const PAGE: u64 = 4096;

/// What kind of file it is, and whose turn it is at its position. Copies of a descriptor share it.
#[derive(Debug)]
pub(crate) struct Nature {
    kind: AtomicU8,
    position: Mutex<()>,
}

impl Nature {
    const UNKNOWN: u8 = 0;
    const CACHED: u8 = 1;
    const DIRECT: u8 = 2;
    const OTHER: u8 = 3;

    pub(crate) const fn new() -> Nature {
        Nature {
            kind: AtomicU8::new(Nature::UNKNOWN),
            position: Mutex::new(()),
        }
    }

    fn of(&self, fd: BorrowedFd<'_>) -> u8 {
        match self.kind.load(Ordering::Relaxed) {
            Nature::UNKNOWN => {
                let kind = match (is_regular(fd), is_direct(fd)) {
                    (true, false) => Nature::CACHED,
                    (true, true) => Nature::DIRECT,
                    (false, _) => Nature::OTHER,
                };
                self.kind.store(kind, Ordering::Relaxed);
                kind
            }
            kind => kind,
        }
    }

    /// It is not the turn of another call at the position, if that is where the call is. In a forked
    /// child there are no turns: the lock may have been held at the fork.
    fn turn(&self, kind: u8, offset: Option<u64>) -> Option<MutexGuard<'_, ()>> {
        (kind != Nature::OTHER && offset.is_none() && !fork::is_child())
            .then(|| self.position.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_regular(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: zeroes are a valid record, which the call fills in.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        libc::fstat(fd.as_raw_fd(), &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

fn is_direct(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: only asks.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) & libc::O_DIRECT != 0 }
}

/// Reads at `offset`, or at the file's position, which then moves.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    mut buffers: &mut [IoSliceMut<'_>],
    offset: Option<u64>,
    nature: &Nature,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let kind = nature.of(fd);
    let _turn = nature.turn(kind, offset);
    let mut done = 0;
    if wanted != 0 && kind == Nature::CACHED {
        loop {
            let at = offset.map(|offset| offset + done as u64);
            match read_once(fd, buffers, at, libc::RWF_NOWAIT) {
                Ok(0) => return Ok(done),
                Ok(n) => {
                    done += n;
                    IoSliceMut::advance_slices(&mut buffers, n);
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // Not for this file system, or the next call says why.
                        nature.kind.store(Nature::DIRECT, Ordering::Relaxed);
                    }
                    break;
                }
            }
            let is_end = offset.is_some_and(|offset| !(offset + done as u64).is_multiple_of(PAGE));
            if done == wanted || is_end {
                drop(current::enter()); // where a thread whose time is up gives way
                return Ok(done);
            }
        }
    }
    let at = offset.map(|offset| offset + done as u64);
    let rest = match kind {
        Nature::CACHED | Nature::DIRECT => {
            by_ring(|| uring::file::read(fd, buffers, at.map(checked).transpose()?))
        }
        _ => None,
    };
    let rest = rest.unwrap_or_else(|| blocking(|| read_once(fd, buffers, at, 0)));
    match rest {
        Err(_) if done != 0 => Ok(done),
        rest => Ok(done + rest?),
    }
}

fn read_once(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    offset: Option<u64>,
    flags: i32,
) -> io::Result<usize> {
    let count = buffers.len().min(MAX_BUFFERS) as i32;
    let (fd, vectors) = (fd.as_raw_fd(), buffers.as_mut_ptr().cast());
    // SAFETY: `IoSliceMut` has the layout of an `iovec`, and is one of memory that may be written.
    answer(unsafe {
        match (offset, flags) {
            (None, 0) => libc::readv(fd, vectors, count), // of anything, not only of files
            (Some(offset), 0) => libc::preadv(fd, vectors, count, checked(offset)?),
            (None, _) => libc::preadv2(fd, vectors, count, -1, flags),
            (Some(offset), _) => libc::preadv2(fd, vectors, count, checked(offset)?, flags),
        }
    })
}

/// Writes at `offset`, or at the file's position, which then moves.
pub(crate) fn write(
    fd: BorrowedFd<'_>,
    buffers: &[IoSlice<'_>],
    offset: Option<u64>,
    nature: &Nature,
) -> io::Result<usize> {
    let kind = nature.of(fd);
    let _turn = nature.turn(kind, offset);
    let offset = offset.map(checked).transpose()?;
    if kind != Nature::OTHER
        && let Some(answer) = by_ring(|| uring::file::write(fd, buffers, offset))
    {
        return answer;
    }
    let count = buffers.len().min(MAX_BUFFERS) as i32;
    let (fd, vectors) = (fd.as_raw_fd(), buffers.as_ptr().cast());
    // SAFETY: `IoSlice` has the layout of an `iovec`.
    blocking(|| unsafe {
        answer(match offset {
            None => libc::writev(fd, vectors, count),
            Some(offset) => libc::pwritev(fd, vectors, count, offset),
        })
    })
}

/// An offset as the kernel has it; one that is negative there it would take for the file's position.
fn checked(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Waits until what was written is on the disk.
pub(crate) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    if let Some(answer) = by_ring(|| uring::file::sync(fd, data_only)) {
        return answer;
    }
    let fd = fd.as_raw_fd();
    // SAFETY: a system call.
    let call = || unsafe {
        answer(match data_only {
            true => libc::fdatasync(fd),
            false => libc::fsync(fd),
        } as isize)
    };
    uninterrupted(|| blocking(call)).map(drop)
}

/// Opens `path`; the descriptor is closed on exec.
pub(crate) fn open(path: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    if let Some(answer) = by_ring(|| uring::file::open(path, flags, mode)) {
        return answer;
    }
    // SAFETY: a valid path.
    let call = || unsafe { answer(libc::open(path.as_ptr(), flags, mode) as isize) };
    let fd = uninterrupted(|| blocking(call))?;
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// What the system knows about `path`, or about the link that it is.
///
/// Metadata can only be made by std. So the ring asks first, which may have to wait for the disk;
/// then std finds the answer in memory.
pub(crate) fn metadata(path: &Path, follow: bool) -> io::Result<Metadata> {
    let ask = || match follow {
        true => std::fs::metadata(path),
        false => std::fs::symlink_metadata(path),
    };
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    if let Ok(name) = CString::new(path.as_os_str().as_bytes())
        && by_ring(|| uring::file::statx(&name, flags)).is_some()
    {
        // What is wrong, std finds too.
        return ask();
    }
    blocking(ask)
}
