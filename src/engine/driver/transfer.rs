//! A transfer of bytes through a socket, as a system call and as an operation of the ring.

use core::mem::MaybeUninit;
use std::io;
#[cfg(feature = "net")]
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

#[cfg(feature = "io-uring")]
use io_uring::{opcode, squeue::Entry, types};

#[cfg(feature = "net")]
use socket2::{SockAddr, SockAddrStorage};

use super::Direction;
use super::source::answer;
#[cfg(feature = "io-uring")]
use super::uring::length;
#[cfg(feature = "net")]
use super::{Limit, Source};

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

/// Transfers of whole messages, to and from borrowed buffers.
#[cfg(feature = "net")]
impl Source {
    /// [`Source::recv`] into bytes that are initialised already.
    pub(crate) fn recv_bytes(
        &self,
        buffer: &mut [u8],
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        // SAFETY: the slices have the same bytes, and the kernel writes no uninitialised ones.
        let buffer = unsafe { &mut *(buffer as *mut [u8] as *mut [MaybeUninit<u8>]) };
        self.recv(buffer, flags, limit)
    }

    /// `readv(2)`.
    pub(crate) fn recv_vectored(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        limit: Limit,
    ) -> io::Result<usize> {
        let mut message = message(buffers.as_mut_ptr().cast(), buffers.len());
        // SAFETY: the message points to the buffers, which are borrowed for the call.
        unsafe { self.transfer(Transfer::RecvMessage(&mut message), 0, limit) }
    }

    /// `recvfrom(2)`.
    pub(crate) fn recv_from(
        &self,
        buffer: &mut [u8],
        flags: i32,
        limit: Limit,
    ) -> io::Result<(usize, SockAddr)> {
        let mut buffer = IoSliceMut::new(buffer);
        let mut message = message((&raw mut buffer).cast(), 1);
        let call = |storage: *mut SockAddrStorage, length: *mut libc::socklen_t| {
            message.msg_name = storage.cast();
            // SAFETY: `try_init` gives valid pointers, and space of that length. The message points
            // to that space and to the buffer, which is borrowed for the call.
            unsafe {
                message.msg_namelen = *length;
                let transfer = Transfer::RecvMessage(&mut message);
                let count = self.transfer(transfer, flags, limit)?;
                *length = message.msg_namelen;
                Ok(count)
            }
        };
        // SAFETY: the kernel writes an address and its length.
        unsafe { SockAddr::try_init(call) }
    }

    /// `writev(2)`, without SIGPIPE.
    pub(crate) fn send_vectored(&self, buffers: &[IoSlice<'_>], limit: Limit) -> io::Result<usize> {
        let message = message(buffers.as_ptr().cast_mut().cast(), buffers.len());
        // SAFETY: the message points to the buffers, which are borrowed for the call and only read.
        unsafe { self.transfer(Transfer::SendMessage(&message), 0, limit) }
    }

    /// `sendto(2)`, without SIGPIPE.
    pub(crate) fn send_to(
        &self,
        buffer: &[u8],
        address: &SockAddr,
        limit: Limit,
    ) -> io::Result<usize> {
        let mut buffer = IoSlice::new(buffer);
        let mut message = message((&raw mut buffer).cast(), 1);
        message.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_namelen = address.len();
        // SAFETY: the message points to the buffer and to the address, which are borrowed for the
        // call and only read.
        unsafe { self.transfer(Transfer::SendMessage(&message), 0, limit) }
    }
}

/// Makes a message of these buffers (at most as many as the kernel takes at once), without an
/// address.
#[cfg(feature = "net")]
fn message(buffers: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: the record consists of numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = buffers;
    message.msg_iovlen = count.min(libc::UIO_MAXIOV as usize);
    message
}
