//! Transfers of whole messages, to and from borrowed buffers.

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};

use socket2::{SockAddr, SockAddrStorage};

use super::{Limit, Source};

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
        unsafe { self.recv_message(&mut message, 0, limit) }
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
                let count = self.recv_message(&mut message, flags, limit)?;
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
        unsafe { self.send_message(&message, 0, limit) }
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
        unsafe { self.send_message(&message, 0, limit) }
    }
}

/// Makes a message of these buffers (at most as many as the kernel takes at once), without an
/// address.
fn message(buffers: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: the record consists of numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = buffers;
    message.msg_iovlen = count.min(libc::UIO_MAXIOV as usize);
    message
}
