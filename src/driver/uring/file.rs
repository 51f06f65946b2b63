//! Files through the ring: each as the system call of that name, but for the thread that waits.
//!
//! There are no time-outs here: a disk answers. What the file system cannot do without blocking
//! the kernel does on threads of its own.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use io_uring::{opcode, types};

use super::perform;
use crate::driver::Limit;

/// As an offset: where the file's own position is, which moves on. Calls at the same time may then
/// see the same position: the ring does not lock it as read(2) does.
pub(crate) const POSITION: u64 = u64::MAX;

/// `pread(2)`.
pub(crate) fn read_at(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    offset: u64,
) -> io::Result<usize> {
    let place = buffer.as_mut_ptr().cast();
    let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), place, length(buffer.len()));
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.offset(offset).build(), Limit::Forever) }
}

/// `pwrite(2)`.
pub(crate) fn write_at(fd: BorrowedFd<'_>, buffer: &[u8], offset: u64) -> io::Result<usize> {
    let (place, length) = (buffer.as_ptr(), length(buffer.len()));
    let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), place, length);
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.offset(offset).build(), Limit::Forever) }
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

/// `statx(2)`: what `mask` names, of `path` seen from `directory`, or of `directory` itself
/// (AT_EMPTY_PATH).
pub(crate) fn statx(
    directory: Option<BorrowedFd<'_>>,
    path: &CStr,
    flags: i32,
    mask: u32,
) -> io::Result<libc::statx> {
    let directory = directory.map_or(libc::AT_FDCWD, |fd| fd.as_raw_fd());
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let place = answer.as_mut_ptr().cast();
    let entry = opcode::Statx::new(types::Fd(directory), path.as_ptr(), place);
    // SAFETY: the path is borrowed and the answer lies here until this returns. Zeroes are valid.
    unsafe {
        perform(entry.flags(flags).mask(mask).build(), Limit::Forever)?;
        Ok(answer.assume_init())
    }
}

/// A buffer's length as the ring has it: longer ones are used in part, as by system calls.
fn length(length: usize) -> u32 {
    const LONGEST: usize = 0x7fff_f000;
    length.min(LONGEST) as u32
}
