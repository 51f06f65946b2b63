//! io_uring: one system call submits operations of many threads; completions become ready threads.
//!
//! `keeper` has the kernel thread that owns the ring, and the operations in flight; here is what a cluster with a ring does
//! by it.
//!
//! Operations that do not wait need no keeper: `driver::sends` performs them within one system call.
//!
//! All of it works from green threads and kernel threads alike. If the kernel has no io_uring, or
//! forbids it, that is no error: [`available`] says so, and the caller makes system calls instead.
//! The same holds in a forked child, where there is no keeper, and if the kernel forbids io_uring
//! later ([`is_refused`]).
//!
//! Rejected:
//! - A ring for each processor or worker. A system call of any thread may block the ring's owner.
//! - `IORING_OP_LINK_TIMEOUT` for deadlines. It costs an entry and a kernel timer for each
//!   operation; our own timers cost nothing until they fire, and then the operation is cancelled.

mod keeper;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{opcode, squeue, types};

use super::source::{Direction, Limit, Source, Transfer, says_would_block};
use super::{Operation, epoll};

/// Whether there is a ring. The first call starts the keeper.
pub(crate) fn available() -> bool {
    keeper::get().is_some()
}

/// Whether an operation has failed because there is no ring, or none any more. The operation was
/// then not done, and the caller makes the system call.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSYS)
}

/// Has the kernel do the operation `entry`, and waits for it. When `limit` is over the operation is
/// cancelled; if it was not done by then the error is `WouldBlock`. If [`cancel_all`] ended it the
/// error is ECANCELED, and if there is no ring ENOSYS.
///
/// # Safety
/// The memory that the entry points to stays valid, and the memory that the kernel writes to is
/// lent to nobody else, until this returns. The entry makes one completion.
pub(crate) unsafe fn perform(entry: squeue::Entry, limit: Limit) -> io::Result<usize> {
    let keeper = keeper::get().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
    // SAFETY: the memory is valid and the entry makes one completion, as the caller promises here too.
    unsafe { keeper.perform(entry, limit) }
}

/// Blocks the thread until a call may find something: see `driver::source`.
pub(super) fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    let fd = types::Fd(source.as_raw_fd());
    let entry = opcode::PollAdd::new(fd, direction.events() as u32).build();
    // SAFETY: the entry has no pointers.
    unsafe { perform(entry, limit) }.map(drop).or_else(|error| {
        source.check_open()?;
        match is_refused(&error) {
            true => epoll::wait(source, direction, limit),
            false => Err(error),
        }
    })
}

/// Has the kernel do a transfer. Tries the system call first: bytes that are there already need not go by way of the keeper.
pub(super) fn transfer(
    source: &Source,
    transfer: &mut Transfer<'_, '_>,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let fd = source.as_raw_fd();
    source.check_open()?;
    let answer = Source::uninterrupted(|| transfer.try_now(fd, flags));
    if limit == Limit::DontWait || !answer.as_ref().is_err_and(says_would_block) {
        return answer;
    }
    // SAFETY: the memory that the entry points to is borrowed by the transfer until this returns.
    unsafe { perform(transfer.entry(fd, flags), limit) }.or_else(|error| {
        source.check_open()?;
        match is_refused(&error) {
            true => source.transfer_when_ready(transfer, flags, limit),
            false => Err(source.why(error)),
        }
    })
}

/// Ends the waits for `source`, which is closed.
pub(super) fn end_waits(source: &Source) {
    if keeper::is_there() {
        // The call fails if there is no ring.
        let _ = cancel_all(source.as_fd());
    }
}

/// Does `operation` by the ring. If the file system cannot do it without blocking, the kernel does it on threads
/// of its own. There are no time-outs: a disk answers. `None`: there is no ring, or none any more.
pub(super) fn operate(operation: Operation<'_>) -> Option<io::Result<usize>> {
    let fd = |fd: BorrowedFd<'_>| types::Fd(fd.as_raw_fd());
    let entry = match operation {
        Operation::Read(file, buffer, at) => {
            let read = opcode::Read::new(fd(file), buffer.as_mut_ptr(), length(buffer));
            read.offset(at as u64).build()
        }
        Operation::Write(file, buffer, at) => {
            let write = opcode::Write::new(fd(file), buffer.as_ptr(), length(buffer));
            write.offset(at as u64).build()
        }
        Operation::Sync {
            fd: file,
            data_only,
        } => {
            let flags = match data_only {
                true => types::FsyncFlags::DATASYNC,
                false => types::FsyncFlags::empty(),
            };
            opcode::Fsync::new(fd(file)).flags(flags).build()
        }
        Operation::Connect(socket, address, length) => {
            opcode::Connect::new(fd(socket), address.cast(), length).build()
        }
        // A kernel that cannot do it (before Linux 6.7) answers EINVAL.
        Operation::WaitForChild(kind, id, options) => {
            opcode::WaitId::new(kind, id, options).build()
        }
    };
    // SAFETY: buffers are borrowed until this returns; an address is only read.
    let answer = unsafe { perform(entry, Limit::Forever) };
    (!answer.as_ref().is_err_and(is_refused)).then_some(answer)
}

/// The length of a transfer, at most that of one system call: the ring's lengths have 32 bits.
pub(super) fn length(buffer: &[impl Sized]) -> u32 {
    buffer.len().min(0x7fff_f000) as u32
}

/// Ends every operation in flight on the descriptor's file, with ECANCELED, and returns their
/// number. It does not end operations that begin later: a caller that closes the file must mark it
/// closed first.
pub(crate) fn cancel_all(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let which = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
    // SAFETY: the entry has no pointers.
    unsafe { perform(opcode::AsyncCancel2::new(which).build(), Limit::Forever) }
}
