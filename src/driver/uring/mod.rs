//! io_uring: operations of many threads submitted by one system call; completions become ready
//! threads.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | operations on sockets; `file`: on files |
//! | `operation` | one operation in flight, and why the kernel never writes into freed memory |
//! | `inbox` | how an operation gets to the keeper, and whether that sleeps |
//! | `keeper` | the kernel thread that owns the ring |
//!
//! All of it works from green threads and kernel threads alike. A kernel that has no io_uring, or
//! forbids it, is no error: [`available`] says so, and the caller makes system calls instead; so
//! does a forked child, where there is no keeper.
//!
//! Rejected:
//! - A ring for each processor or machine. Its owner may be blocked in anybody's system call.
//! - `IORING_OP_LINK_TIMEOUT` for deadlines. It costs an entry and a kernel timer each; our own
//!   timers cost nothing until they fire, and then the operation is cancelled.

mod inbox;
mod keeper;
mod operation;
#[cfg(test)]
mod tests;

pub(crate) mod file;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, squeue, types};

use super::{Direction, Limit};

/// Whether there is a ring. The first call starts the keeper.
pub(crate) fn available() -> bool {
    keeper::get().is_some()
}

/// Has the kernel do what `entry` says, and waits for it. When `limit` is over the operation is
/// cancelled, and if it was not done by then the error is `WouldBlock`. One that [`cancel_all`]
/// ended fails with ECANCELED, and all do with ENOSYS when there is no ring.
///
/// # Safety
/// What the entry points to stays valid, and what the kernel writes to is lent to nobody else,
/// until this returns. The entry makes one completion.
pub(crate) unsafe fn perform(entry: squeue::Entry, limit: Limit) -> io::Result<usize> {
    let keeper = keeper::get().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
    // SAFETY: the caller's promise.
    unsafe { operation::perform(keeper, entry, limit) }
}

/// Waits until the descriptor may be read or written without blocking, or has failed.
pub(crate) fn wait_ready(fd: BorrowedFd<'_>, direction: Direction, limit: Limit) -> io::Result<()> {
    let events = match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    };
    let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events as u32);
    // SAFETY: points to nothing.
    unsafe { perform(entry.build(), limit) }.map(drop)
}

/// `recv(2)`. As with the system call, a descriptor in non-blocking mode is not waited for.
pub(crate) fn recv(
    fd: BorrowedFd<'_>,
    buffer: &mut [MaybeUninit<u8>],
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let place = buffer.as_mut_ptr().cast();
    let entry = opcode::Recv::new(types::Fd(fd.as_raw_fd()), place, length(buffer.len()));
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.flags(flags).build(), limit) }
}

/// `send(2)`, without SIGPIPE.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    buffer: &[u8],
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let (place, length) = (buffer.as_ptr(), length(buffer.len()));
    let entry = opcode::Send::new(types::Fd(fd.as_raw_fd()), place, length);
    let entry = entry.flags(flags | libc::MSG_NOSIGNAL);
    // SAFETY: the buffer is borrowed until this returns.
    unsafe { perform(entry.build(), limit) }
}

/// `recvmsg(2)`.
///
/// # Safety
/// What `message` points to is valid for the call.
pub(crate) unsafe fn recv_message(
    fd: BorrowedFd<'_>,
    message: &mut libc::msghdr,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let entry = opcode::RecvMsg::new(types::Fd(fd.as_raw_fd()), message);
    // SAFETY: the message is borrowed until this returns; the rest is the caller's promise.
    unsafe { perform(entry.flags(flags as u32).build(), limit) }
}

/// `sendmsg(2)`, without SIGPIPE.
///
/// # Safety
/// What `message` points to is valid for the call.
pub(crate) unsafe fn send_message(
    fd: BorrowedFd<'_>,
    message: &libc::msghdr,
    flags: i32,
    limit: Limit,
) -> io::Result<usize> {
    let entry = opcode::SendMsg::new(types::Fd(fd.as_raw_fd()), message);
    let entry = entry.flags((flags | libc::MSG_NOSIGNAL) as u32);
    // SAFETY: the message is borrowed until this returns; the rest is the caller's promise.
    unsafe { perform(entry.build(), limit) }
}

/// Ends every operation in flight on the descriptor's file, with ECANCELED, and says how many. Those
/// that begin later are not concerned: who closes must have said so before.
pub(crate) fn cancel_all(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let which = types::CancelBuilder::fd(types::Fd(fd.as_raw_fd())).all();
    // SAFETY: points to nothing.
    unsafe { perform(opcode::AsyncCancel2::new(which).build(), Limit::Forever) }
}

/// A buffer's length as the ring has it: longer ones are used in part, as by system calls.
fn length(length: usize) -> u32 {
    const LONGEST: usize = 0x7fff_f000;
    length.min(LONGEST) as u32
}
