//! Files through the ring: each function does what the system call of its name does, and blocks
//! only the calling thread.
//!
//! There are no time-outs here: a disk answers. If the file system cannot do an operation without
//! blocking, the kernel does it on threads of its own.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};

use super::perform;
use crate::engine::driver::Limit;

/// `pread(2)`; `offset` is not negative.
pub(crate) fn read_at(fd: BorrowedFd<'_>, buffer: &mut [u8], offset: i64) -> io::Result<usize> {
    let (place, length) = (buffer.as_mut_ptr(), length(buffer));
    let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), place, length);
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.offset(offset as u64).build(), Limit::Forever) }
}

/// `pwrite(2)`; `offset` is not negative.
pub(crate) fn write_at(fd: BorrowedFd<'_>, buffer: &[u8], offset: i64) -> io::Result<usize> {
    let entry = opcode::Write::new(types::Fd(fd.as_raw_fd()), buffer.as_ptr(), length(buffer));
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.offset(offset as u64).build(), Limit::Forever) }
}

/// The length of a transfer, at most that of one system call: the ring's lengths have 32 bits.
fn length(buffer: &[u8]) -> u32 {
    buffer.len().min(0x7fff_f000) as u32
}

/// `fsync(2)`, or `fdatasync(2)`.
pub(crate) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> io::Result<()> {
    let entry = opcode::Fsync::new(types::Fd(fd.as_raw_fd()));
    let entry = match data_only {
        true => entry.flags(types::FsyncFlags::DATASYNC),
        false => entry,
    };
    // SAFETY: the entry has no pointers.
    unsafe { perform(entry.build(), Limit::Forever) }.map(drop)
}
