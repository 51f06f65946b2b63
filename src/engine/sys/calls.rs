//! The libc calls that the modules in front need and for which std has no safe function: each
//! behind a function that is safe for all arguments that its types allow.
//!
//! Unlike the rest of this folder these functions go through libc and write `errno`: they are for a
//! thread's own code, under its own thread pointer.

use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::{epoll::made, syscall};

#[cfg(feature = "net")]
pub(crate) use self::sockets::{AsStd, recv_from};

/// The answer of a call of libc's, from what it returns.
pub(crate) fn answer(result: impl TryInto<usize>) -> io::Result<usize> {
    result.try_into().map_err(|_| io::Error::last_os_error())
}

/// The number of buffers for one call, at most as many as the kernel takes.
fn count(buffers: usize) -> i32 {
    buffers.min(libc::UIO_MAXIOV as usize) as i32
}

/// `readv(2)`.
pub(crate) fn read(fd: BorrowedFd<'_>, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let (vectors, count) = (buffers.as_mut_ptr().cast(), count(buffers.len()));
    // SAFETY: `IoSliceMut` has the layout of an `iovec`; the buffers are borrowed.
    answer(unsafe { libc::readv(fd.as_raw_fd(), vectors, count) })
}

/// [`read`], if it need not wait.
pub(crate) fn read_now(fd: BorrowedFd<'_>, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let (vectors, count) = (buffers.as_mut_ptr().cast(), count(buffers.len()));
    // SAFETY: as in `read`.
    answer(unsafe { libc::preadv2(fd.as_raw_fd(), vectors, count, -1, libc::RWF_NOWAIT) })
}

/// `writev(2)`.
pub(crate) fn write(fd: BorrowedFd<'_>, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let (vectors, count) = (buffers.as_ptr().cast(), count(buffers.len()));
    // SAFETY: `IoSlice` has the layout of an `iovec`; the buffers are borrowed.
    answer(unsafe { libc::writev(fd.as_raw_fd(), vectors, count) })
}

/// [`write`], if it need not wait.
pub(crate) fn write_now(fd: BorrowedFd<'_>, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
    let (vectors, count) = (buffers.as_ptr().cast(), count(buffers.len()));
    // SAFETY: as in `write`.
    answer(unsafe { libc::pwritev2(fd.as_raw_fd(), vectors, count, -1, libc::RWF_NOWAIT) })
}

/// What the file is. Async-signal-safe.
pub(crate) fn stat(fd: RawFd) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: a call that succeeds has filled the record in.
    unsafe { (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// Whether the descriptor is a pipe or FIFO.
pub(crate) fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    stat(fd.as_raw_fd()).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// The flags with which `fd` is open. `None`: it is not open.
pub(crate) fn flags_of(fd: RawFd) -> Option<i32> {
    // SAFETY: the call only asks for flags.
    Some(unsafe { libc::fcntl(fd, libc::F_GETFL) }).filter(|&flags| flags != -1)
}

/// Whether `fd` is in non-blocking mode.
pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    flags_of(fd).is_some_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// For [`pidfd`] of one kernel thread of this process, which Linux has since 6.9.
pub(crate) const PIDFD_THREAD: libc::c_int = libc::O_EXCL;

/// Returns a descriptor that is readable when the process has ended.
pub(crate) fn pidfd(process: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory.
    made(unsafe { syscall!(libc::SYS_pidfd_open, process, flags) })
}

/// `FromRawFd` for a type that is made of an `OwnedFd`.
macro_rules! from_raw_fd {
    ($Type:ty) => {
        #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
        impl std::os::fd::FromRawFd for $Type {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $Type {
                // SAFETY: the descriptor is open and nobody else's, the caller says, which is all that std asks.
                unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }.into()
            }
        }
    };
}
pub(crate) use from_raw_fd;

/// The calls on sockets.
#[cfg(feature = "net")]
mod sockets {
    use core::marker::PhantomData;
    use core::mem::{ManuallyDrop, MaybeUninit};
    use core::ops::Deref;
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

    use socket2::{SockAddr, SockRef};

    /// `recvfrom(2)`.
    pub(crate) fn recv_from(
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: i32,
    ) -> io::Result<(usize, SockAddr)> {
        // SAFETY: the slices have the same bytes; the call writes no uninitialised ones.
        let buffer = unsafe { &mut *(buffer as *mut [u8] as *mut [MaybeUninit<u8>]) };
        SockRef::from(&socket).recv_from_with_flags(buffer, flags)
    }

    /// A std type that borrows a descriptor, in the place of one that owns it.
    pub(crate) struct AsStd<'a, T> {
        std: ManuallyDrop<T>,
        fd: PhantomData<BorrowedFd<'a>>,
    }

    impl<'a, T: FromRawFd> AsStd<'a, T> {
        pub(crate) fn new(fd: &'a impl AsFd) -> AsStd<'a, T> {
            // SAFETY: the descriptor stays open while it is borrowed, and the result does not close
            // it: std's types do so when they are dropped, and not before. It may be a socket of the wrong kind: then the
            // calls fail.
            let std = unsafe { T::from_raw_fd(fd.as_fd().as_raw_fd()) };
            AsStd {
                std: ManuallyDrop::new(std),
                fd: PhantomData,
            }
        }
    }

    impl<T> Deref for AsStd<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.std
        }
    }
}
