//! Files: the few operations that a driver may take over. Without one they are announced blocking
//! calls, but for what needs no waiting at all.
//!
//! A read that finds its data in the page cache is one system call (`preadv2` with `RWF_NOWAIT`)
//! and no switch. Only what is not there is read by a call that blocks.
//!
//! | [`Cache`] | | reads |
//! |---|---|---|
//! | `UNKNOWN` | nobody has read yet | ask, and go on |
//! | `TRIED` | a regular file, not `O_DIRECT` | the page cache first |
//! | `LEFT` | anything else | block |
//!
//! Invariants:
//! 1. A read of a regular file is as long as std's: what the page cache has only a part of is
//!    completed. A shorter one has met the end of the file.
//! 2. Anything but a regular file is read once a call: it may have records, or an end that is told
//!    once (a terminal). With `O_DIRECT` there is no page cache, and `RWF_NOWAIT` would wait.
//!
//! Memory orderings: Relaxed; the state is a hint and guards nothing.

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::source::answer;
use crate::atomic::{AtomicU8, Ordering};
use crate::{blocking, current};

/// The most buffers that the kernel takes at once.
const MAX_BUFFERS: usize = 1024;
/// Reads that the page cache cuts short end where a page does.
const PAGE: u64 = 4096;

/// Whether reads of a file try the page cache.
#[derive(Debug)]
pub(crate) struct Cache(AtomicU8);

impl Cache {
    const UNKNOWN: u8 = 0;
    const TRIED: u8 = 1;
    const LEFT: u8 = 2;

    pub(crate) const fn new() -> Cache {
        Cache(AtomicU8::new(Cache::UNKNOWN))
    }

    fn is_tried(&self, fd: BorrowedFd<'_>) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Cache::UNKNOWN => {
                let tried = is_regular(fd) && !is_direct(fd);
                let state = if tried { Cache::TRIED } else { Cache::LEFT };
                self.0.store(state, Ordering::Relaxed);
                tried
            }
            state => state == Cache::TRIED,
        }
    }

    fn leave(&self) {
        self.0.store(Cache::LEFT, Ordering::Relaxed);
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
    cache: &Cache,
) -> io::Result<usize> {
    let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let mut done = 0;
    if wanted != 0 && cache.is_tried(fd) {
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
                        cache.leave(); // not for this file system, or the next call says why
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
    match blocking(|| read_once(fd, buffers, at, 0)) {
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
) -> io::Result<usize> {
    let count = buffers.len().min(MAX_BUFFERS) as i32;
    let (fd, vectors) = (fd.as_raw_fd(), buffers.as_ptr().cast());
    let offset = offset.map(checked).transpose()?;
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
    let fd = fd.as_raw_fd();
    uninterrupted(|| {
        // SAFETY: a system call.
        blocking(|| unsafe {
            match data_only {
                true => libc::fdatasync(fd),
                false => libc::fsync(fd),
            }
        })
    })
    .map(drop)
}

/// Opens `path`; the descriptor is closed on exec.
pub(crate) fn open(path: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: a valid path.
    let fd = uninterrupted(|| blocking(|| unsafe { libc::open(path.as_ptr(), flags, mode) }))?;
    // SAFETY: just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn uninterrupted(mut call: impl FnMut() -> i32) -> io::Result<i32> {
    loop {
        match answer(call() as isize) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return Ok(answer? as i32),
        }
    }
}
