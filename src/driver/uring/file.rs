//! Files through the ring: each as the system call of that name, but for the thread that waits.
//!
//! There are no time-outs here: a disk answers. What the file system cannot do without blocking
//! the kernel does on threads of its own.

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use io_uring::{opcode, types};

use super::perform;
use crate::driver::Limit;

/// `preadv(2)`, or `readv(2)`: at the file's position, which then moves. The ring does not lock that
/// as `read(2)` does: calls there must take turns.
pub(crate) fn read(
    fd: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    offset: Option<i64>,
) -> io::Result<usize> {
    let (place, count) = (buffers.as_mut_ptr().cast(), count(buffers.len()));
    let entry = opcode::Readv::new(types::Fd(fd.as_raw_fd()), place, count);
    // SAFETY: `IoSliceMut` has the layout of an `iovec`; the buffers are borrowed until this returns.
    unsafe { perform(entry.offset(place_of(offset)).build(), Limit::Forever) }
}

/// `pwritev(2)`, or `writev(2)`, as [`read`].
pub(crate) fn write(
    fd: BorrowedFd<'_>,
    buffers: &[IoSlice<'_>],
    offset: Option<i64>,
) -> io::Result<usize> {
    let (place, count) = (buffers.as_ptr().cast(), count(buffers.len()));
    let entry = opcode::Writev::new(types::Fd(fd.as_raw_fd()), place, count);
    // SAFETY: `IoSlice` has the layout of an `iovec`; the buffers are borrowed until this returns.
    unsafe { perform(entry.offset(place_of(offset)).build(), Limit::Forever) }
}

/// An offset as the ring has it: where the position is.
fn place_of(offset: Option<i64>) -> u64 {
    offset.map_or(u64::MAX, |offset| offset as u64)
}

/// The kernel takes so many buffers at once.
fn count(buffers: usize) -> u32 {
    buffers.min(1024) as u32
}

/// `fsync(2)`, or `fdatasync(2)`.
pub(crate) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    let entry = opcode::Fsync::new(types::Fd(fd.as_raw_fd()));
    let entry = match data_only {
        true => entry.flags(types::FsyncFlags::DATASYNC),
        false => entry,
    };
    // SAFETY: points to nothing.
    unsafe { perform(entry.build(), Limit::Forever) }.map(drop)
}

/// `open(2)`; a relative path is seen from the process's working directory.
pub(crate) fn open(path: &CStr, flags: i32, mode: libc::mode_t) -> io::Result<OwnedFd> {
    let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr());
    let entry = entry.flags(flags).mode(mode).build();
    // SAFETY: the path is borrowed until this returns; the descriptor is new.
    unsafe {
        let descriptor = perform(entry, Limit::Forever)?;
        Ok(OwnedFd::from_raw_fd(descriptor as RawFd))
    }
}

/// `statx(2)`, for what `stat(2)` says.
pub(crate) fn statx(path: &CStr, flags: i32) -> io::Result<libc::statx> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let place = answer.as_mut_ptr().cast();
    let entry = opcode::Statx::new(types::Fd(libc::AT_FDCWD), path.as_ptr(), place);
    let entry = entry.flags(flags).mask(libc::STATX_BASIC_STATS);
    // SAFETY: the path is borrowed and the answer lies here until this returns. Zeroes are valid.
    unsafe {
        perform(entry.build(), Limit::Forever)?;
        Ok(answer.assume_init())
    }
}
