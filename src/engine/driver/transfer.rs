//! A transfer of bytes through a socket, as a system call and as an operation of the ring.

use core::mem::MaybeUninit;
use std::io;
use std::os::fd::RawFd;

#[cfg(feature = "io-uring")]
use io_uring::{opcode, squeue::Entry, types};

use super::Direction;
use super::source::answer;
#[cfg(feature = "io-uring")]
use super::uring::length;

/// The direction and the memory of a transfer.
pub(crate) enum Transfer<'a> {
    /// `recv(2)`.
    Recv(&'a mut [MaybeUninit<u8>]),
    /// `send(2)`.
    Send(&'a [u8]),
    /// `recvmsg(2)`.
    RecvMessage(&'a mut libc::msghdr),
    /// `sendmsg(2)`.
    SendMessage(&'a libc::msghdr),
}

impl Transfer<'_> {
    pub(crate) fn direction(&self) -> Direction {
        match self {
            Transfer::Recv(_) | Transfer::RecvMessage(_) => Direction::Read,
            Transfer::Send(_) | Transfer::SendMessage(_) => Direction::Write,
        }
    }

    /// Flags under which a broken pipe is an error, not a signal.
    fn flags(&self, flags: i32) -> i32 {
        match self.direction() {
            Direction::Read => flags,
            Direction::Write => flags | libc::MSG_NOSIGNAL,
        }
    }

    /// Whether an answer of `count` says that no bytes of a stream are left: it is less than was
    /// asked for, but not 0, since the end of a stream stays.
    pub(crate) fn empties(&self, flags: i32, count: usize) -> bool {
        match self {
            Transfer::Recv(buffer) => {
                flags & libc::MSG_PEEK == 0 && 0 < count && count < buffer.len()
            }
            _ => false,
        }
    }

    /// Makes the system call, which does not block.
    ///
    /// # Safety
    /// The memory that a message points to is valid.
    pub(crate) unsafe fn try_now(&mut self, fd: RawFd, flags: i32) -> io::Result<usize> {
        let flags = self.flags(flags) | libc::MSG_DONTWAIT;
        // SAFETY: the buffers have their lengths; the messages are valid by the caller's promise.
        answer(unsafe {
            match self {
                Transfer::Recv(to) => libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags),
                Transfer::Send(from) => libc::send(fd, from.as_ptr().cast(), from.len(), flags),
                Transfer::RecvMessage(message) => libc::recvmsg(fd, *message, flags),
                Transfer::SendMessage(message) => libc::sendmsg(fd, *message, flags),
            }
        })
    }

    /// The ring's entry, which points to the memory borrowed here.
    #[cfg(feature = "io-uring")]
    pub(crate) fn entry(&mut self, fd: RawFd, flags: i32) -> Entry {
        let flags = self.flags(flags);
        let fd = types::Fd(fd);
        match self {
            Transfer::Recv(to) => {
                let entry = opcode::Recv::new(fd, to.as_mut_ptr().cast(), length(to));
                entry.flags(flags).build()
            }
            Transfer::Send(from) => {
                let entry = opcode::Send::new(fd, from.as_ptr(), length(from));
                entry.flags(flags).build()
            }
            Transfer::RecvMessage(message) => {
                let entry = opcode::RecvMsg::new(fd, *message);
                entry.flags(flags as u32).build()
            }
            Transfer::SendMessage(message) => {
                let entry = opcode::SendMsg::new(fd, *message);
                entry.flags(flags as u32).build()
            }
        }
    }
}
