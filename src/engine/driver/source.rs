//! A descriptor whose calls block the calling thread only, and transfers of bytes through it: as system calls and as
//! operations of the ring.
//!
//! A call is first tried in a form that does not block. If it would block, the thread waits until the
//! descriptor may be ready, and then tries again.

use core::mem::{self, ManuallyDrop};
use core::{fmt, marker::PhantomData, ptr};
use std::io::{self, ErrorKind};
#[cfg(feature = "net")]
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};

#[cfg(feature = "io-uring")]
use io_uring::{opcode, squeue::Entry, types};
#[cfg(feature = "net")]
use socket2::{SockAddr, SockAddrStorage};

use super::epoll::{self, INSTANCE, Registration};
#[cfg(feature = "io-uring")]
use super::sends::try_together;
#[cfg(feature = "io-uring")]
use super::uring::{self, length};
pub(crate) use super::watch::Direction;
use crate::engine::sched::{cluster::Kind, current};
use crate::engine::sys::{self, clock, perturb};
use crate::engine::wait::{Locator, WaitKind, WaitReason, Waiter, ends_at, is_in_frame, refusal};

/// The time that a call may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// Until the call is done, or a frame has ended.
    Forever,
    /// Until the call is done: for disks, which answer.
    Shielded,
    /// The call may wait until this time (monotonic nanoseconds); then it fails with `WouldBlock`,
    /// as std's calls with a time-out do.
    Until(u64),
    /// The call may not wait: the descriptor is in non-blocking mode.
    DontWait,
}

impl Limit {
    /// Returns when the wait ends, in monotonic nanoseconds.
    pub(super) fn deadline(self) -> Option<u64> {
        match self {
            Limit::Forever | Limit::Shielded => None,
            Limit::Until(deadline) => Some(deadline),
            Limit::DontWait => Some(0),
        }
    }
}

/// A descriptor and the threads that wait for it.
pub(crate) struct Source {
    fd: OwnedFd,
    pub(super) registration: Registration,
    /// Whether it is a TCP stream: a call that transfers less than it asked for has then emptied
    /// it.
    is_stream: bool,
}

/// For reports.
static READ: WaitKind = WaitKind::outside("descriptor to read").fails().with(FD);
static WRITE: WaitKind = WaitKind::outside("descriptor to write").fails().with(FD);
const FD: Locator = Locator::Descriptor {
    at: mem::offset_of!(Source, fd),
};

impl Source {
    /// For reports: a thread waits for one direction.
    pub(crate) fn wait_reason(&self, direction: Direction) -> WaitReason {
        let kind = match direction {
            Direction::Read => &READ,
            Direction::Write => &WRITE,
        };
        WaitReason::new(kind, self)
    }

    pub(crate) fn new(fd: OwnedFd) -> Source {
        Source {
            fd,
            registration: Registration::default(),
            is_stream: false,
        }
    }

    /// Makes the source of a TCP stream: its reads can tell when they have emptied it.
    pub(crate) fn of_tcp_stream(fd: OwnedFd) -> Source {
        let mut source = Source::new(fd);
        source.is_stream = true;
        source
    }

    /// Returns the descriptor, and undoes its registration.
    pub(crate) fn into_fd(mut self) -> OwnedFd {
        self.deregister();
        let this = ManuallyDrop::new(self);
        // SAFETY: the descriptor is taken once, since `this` is not dropped. (Nothing else of it owns anything.)
        unsafe { ptr::read(&this.fd) }
    }

    /// Undoes the registration before the descriptor is closed; no thread uses the source any more.
    fn deregister(&mut self) {
        // A forked child has no record. It shares the parent's epoll instance and must not change
        // it.
        if let Some(record) = self.registration.record() {
            INSTANCE.remove(self.as_raw_fd());
            record.release();
        }
    }

    /// Repeats `call`, which does not block, until it answers something other than "would block";
    /// waits between two attempts.
    pub(crate) fn run<T>(
        &self,
        direction: Direction,
        limit: Limit,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut found = None;
        let mut call = || {
            found = Some(call()?);
            Ok(0)
        };
        // The call is a trait object, so that there is one loop for the calls of all types.
        let call: &mut dyn FnMut() -> io::Result<usize> = &mut call;
        self.attempt(direction, limit, call, 0)?;
        Ok(found.expect("the call has succeeded"))
    }

    /// Transfers bytes, with `flags` of `recv(2)` or `send(2)`.
    fn transfer(
        &self,
        mut transfer: Transfer<'_, '_>,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        match mine() {
            #[cfg(feature = "io-uring")]
            Some(Kind::Uring) => uring::transfer(self, &mut transfer, flags, limit),
            _ => self.transfer_when_ready(&mut transfer, flags, limit),
        }
    }

    /// `recv(2)`.
    pub(crate) fn recv(&self, buffer: &mut [u8], flags: i32, limit: Limit) -> io::Result<usize> {
        self.transfer(Transfer::Recv(buffer), flags, limit)
    }

    /// `send(2)`, without SIGPIPE.
    pub(crate) fn send(&self, buffer: &[u8], flags: i32, limit: Limit) -> io::Result<usize> {
        self.transfer(Transfer::Send(buffer), flags, limit)
    }

    /// [`Source::transfer`] by system calls, with waits between them.
    pub(super) fn transfer_when_ready(
        &self,
        transfer: &mut Transfer<'_, '_>,
        flags: i32,
        limit: Limit,
    ) -> io::Result<usize> {
        let direction = transfer.direction();
        let asked = match transfer {
            Transfer::Recv(buffer) if self.is_stream && flags & libc::MSG_PEEK == 0 => buffer.len(),
            _ => 0,
        };
        let call = || {
            #[cfg(feature = "io-uring")]
            if let Transfer::Send(bytes) = &*transfer
                && limit != Limit::DontWait
                && mine() == Some(Kind::Mixed)
                && let Some(answer) = try_together(self, bytes, flags)
            {
                return answer;
            }
            transfer.try_now(self.as_raw_fd(), flags)
        };
        self.attempt(direction, limit, call, asked)
    }

    /// Repeats `call` until it answers something other than "would block". An answer that is less than `asked` says that no
    /// bytes of a stream are left, but for 0, since the end of a stream stays.
    fn attempt(
        &self,
        direction: Direction,
        limit: Limit,
        mut call: impl FnMut() -> io::Result<usize>,
        asked: usize,
    ) -> io::Result<usize> {
        let mut is_last = limit == Limit::DontWait;
        let mut waited = false;
        loop {
            let record = self.registration.look()?;
            let readiness = record.map(|record| record.side(direction));
            let may_find = readiness.is_none_or(|side| side.begin());
            if may_find || is_last || waited {
                let answer = Source::uninterrupted(&mut call);
                let would_block = answer.as_ref().is_err_and(says_would_block);
                if let Some(side) = readiness
                    && !would_block
                {
                    let emptied = |&count: &usize| 0 < count && count < asked;
                    side.answered(answer.as_ref().is_ok_and(emptied));
                }
                if would_block
                    && waited
                    && let Some(errno) = refusal(limit.deadline())
                {
                    return Err(io::Error::from_raw_os_error(errno));
                }
                if !would_block || is_last {
                    return answer.map_err(|error| if waited { self.why(error) } else { error });
                }
            }
            perturb::point("source: would block");
            match wait(self, direction, limit) {
                // The descriptor may be ready although no event has announced it yet.
                Err(error) if says_would_block(&error) => is_last = true,
                answer => answer?,
            }
            waited = true;
        }
    }

    /// Turns the `error` of a call after a wait into the error that the kernel gives to a thread
    /// blocked in the call. If the peer has reset a Unix stream, the kernel tells that thread why
    /// the pipe is broken, and forgets the reason; a later call learns only that the pipe is
    /// broken.
    pub(super) fn why(&self, error: io::Error) -> io::Error {
        if error.kind() != ErrorKind::BrokenPipe {
            return error;
        }
        // Asking fails if the descriptor is not a socket.
        #[cfg(feature = "net")]
        if let Ok(Some(why)) = socket2::SockRef::from(self).take_error() {
            return why;
        }
        error
    }

    /// Ends every wait for this descriptor, now and later, with an error. The descriptor is closed
    /// when the last owner drops it.
    pub(crate) fn close(&self) {
        self.registration.close();
        perturb::point("source: closing");
        if let Some(record) = self.registration.record() {
            record.close();
        }
        #[cfg(feature = "io-uring")]
        uring::end_waits(self);
        // SAFETY: a system call. It wakes the kernel threads that poll the descriptor, those of
        // unconnected sockets too.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// Repeats `call` until no signal interrupts it, and returns its answer.
    pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                answer => return answer,
            }
        }
    }

    /// The error of a call on a closed socket.
    pub(crate) fn closed() -> io::Error {
        let message = "the socket was closed by another thread";
        io::Error::new(ErrorKind::NotConnected, message)
    }
}

// The shared data is atomic or behind a lock, and no panic interrupts a change of it.
impl UnwindSafe for Source {}
impl RefUnwindSafe for Source {}

impl Drop for Source {
    /// Before the descriptor is closed.
    fn drop(&mut self) {
        self.deregister();
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.as_raw_fd()).finish()
    }
}

pub(crate) fn says_would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Source {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

// ==== waiting ====

/// The calling thread's driver. `None`: it is a kernel thread.
pub(super) fn mine() -> Option<Kind> {
    current::green().map(|green| green.cluster().config.driver)
}

/// Blocks the thread until a call may find something, or until `limit`: then the error is `WouldBlock`. May return early.
fn wait(source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
    match mine() {
        None => wait_in_kernel(source, direction, limit),
        #[cfg(feature = "io-uring")]
        Some(Kind::Uring) => uring::wait(source, direction, limit),
        Some(_) => epoll::wait(source, direction, limit),
    }
}

/// Blocks the kernel thread in `poll(2)`.
pub(super) fn wait_in_kernel(
    source: &Source,
    direction: Direction,
    limit: Limit,
) -> io::Result<()> {
    /// A token cannot end the call, so in frames it is made again now and then, in nanoseconds: from so often that a stop is not
    /// felt as slow, to so rarely that a thousand idle connections take no CPU (`tests/cancel`).
    const LOOKS: [u64; 2] = [20_000_000, 320_000_000];
    let mut poll = sys::pollfd(source.as_raw_fd(), direction as i16);
    let (own, mut look) = (limit.deadline().unwrap_or(clock::NEVER), LOOKS[0]);
    loop {
        let in_frames = match is_in_frame() {
            true if refusal(limit.deadline()).is_some() => {
                // It lasts for a while if the thread overlooks its errors.
                Waiter::new().wait(WaitReason::new(&READ, source), None);
                return Err(would_block());
            }
            true => ends_at().min(clock::now() + look),
            false => clock::NEVER,
        };
        let millis = match own.min(in_frames) {
            clock::NEVER => -1,
            end => {
                let left = end.saturating_sub(clock::now());
                left.div_ceil(1_000_000).min(i32::MAX as u64) as i32
            }
        };
        if millis == 0 {
            return Err(would_block());
        }
        // SAFETY: the call gets one valid record. A failure means: try again.
        if unsafe { libc::poll(&mut poll, 1, millis) } != 0 {
            return Ok(());
        }
        look = (2 * look).min(LOOKS[1]);
    }
}

/// The error of a call whose time is up.
pub(super) fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

// ==== transfers ====

/// The direction and the memory of a transfer.
pub(crate) enum Transfer<'a, 'm> {
    /// `recv(2)`.
    Recv(&'a mut [u8]),
    /// `send(2)`.
    Send(&'a [u8]),
    /// `recvmsg(2)`.
    #[cfg_attr(not(feature = "net"), expect(dead_code, reason = "for sockets"))]
    RecvMessage(&'a mut Message<'m>),
    /// `sendmsg(2)`.
    #[cfg_attr(not(feature = "net"), expect(dead_code, reason = "for sockets"))]
    SendMessage(&'a Message<'m>),
}

impl Transfer<'_, '_> {
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

    /// Makes the system call, which does not block. The functions of libc's names are the crate's own (`libc`), and would
    /// first ask whether the thread is a green one.
    #[cfg(not(sanitized = "thread"))]
    pub(crate) fn try_now(&mut self, fd: RawFd, flags: i32) -> io::Result<usize> {
        let flags = (self.flags(flags) | libc::MSG_DONTWAIT) as usize;
        let (number, memory, length) = match self {
            Transfer::Recv(to) => (libc::SYS_recvfrom, to.as_mut_ptr() as usize, to.len()),
            Transfer::Send(from) => (libc::SYS_sendto, from.as_ptr() as usize, from.len()),
            Transfer::RecvMessage(message) => {
                (libc::SYS_recvmsg, &raw mut message.header as usize, flags)
            }
            Transfer::SendMessage(message) => {
                (libc::SYS_sendmsg, &raw const message.header as usize, flags)
            }
        };
        // SAFETY: the buffers have their lengths, and a message points to memory that is borrowed with it. Nobody asks for
        // the address of a peer.
        let result = unsafe { sys::syscall!(number, fd, memory, length, flags, 0, 0) };
        result.map_err(io::Error::from_raw_os_error)
    }

    /// As above: ThreadSanitizer learns from libc's functions which thread has received what another one has sent.
    #[cfg(sanitized = "thread")]
    pub(crate) fn try_now(&mut self, fd: RawFd, flags: i32) -> io::Result<usize> {
        let flags = self.flags(flags) | libc::MSG_DONTWAIT;
        // SAFETY: the buffers have their lengths, and a message points to memory that is borrowed with it.
        let result = unsafe {
            match self {
                Transfer::Recv(to) => libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags),
                Transfer::Send(from) => libc::send(fd, from.as_ptr().cast(), from.len(), flags),
                Transfer::RecvMessage(message) => libc::recvmsg(fd, &mut message.header, flags),
                Transfer::SendMessage(message) => libc::sendmsg(fd, &message.header, flags),
            }
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }

    /// The ring's entry, which points to the memory borrowed here.
    #[cfg(feature = "io-uring")]
    pub(crate) fn entry(&mut self, fd: RawFd, flags: i32) -> Entry {
        let flags = self.flags(flags);
        let fd = types::Fd(fd);
        match self {
            Transfer::Recv(to) => opcode::Recv::new(fd, to.as_mut_ptr(), length(to))
                .flags(flags)
                .build(),
            Transfer::Send(from) => opcode::Send::new(fd, from.as_ptr(), length(from))
                .flags(flags)
                .build(),
            Transfer::RecvMessage(message) => opcode::RecvMsg::new(fd, &mut message.header)
                .flags(flags as u32)
                .build(),
            Transfer::SendMessage(message) => opcode::SendMsg::new(fd, &message.header)
                .flags(flags as u32)
                .build(),
        }
    }
}

/// A message: buffers, and sometimes an address.
pub(crate) struct Message<'a> {
    /// It points to memory that is borrowed for `'a`.
    header: libc::msghdr,
    memory: PhantomData<&'a mut [u8]>,
}

#[cfg(feature = "net")]
impl<'a> Message<'a> {
    /// Makes a message of these buffers (at most as many as the kernel takes at once), without an address.
    fn new(buffers: *mut libc::iovec, count: usize) -> Message<'a> {
        // SAFETY: the record consists of numbers and pointers, for which zero is a value.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = buffers;
        header.msg_iovlen = count.min(libc::UIO_MAXIOV as usize);
        Message {
            header,
            memory: PhantomData,
        }
    }

    pub(super) fn to(buffers: &'a mut [IoSliceMut<'_>]) -> Message<'a> {
        Message::new(buffers.as_mut_ptr().cast(), buffers.len())
    }

    /// The kernel only reads these.
    pub(super) fn of(buffers: &'a [IoSlice<'_>]) -> Message<'a> {
        Message::new(buffers.as_ptr().cast_mut().cast(), buffers.len())
    }
}

/// Transfers of whole messages, to and from borrowed buffers.
#[cfg(feature = "net")]
impl Source {
    /// `readv(2)`.
    pub(crate) fn recv_vectored(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        limit: Limit,
    ) -> io::Result<usize> {
        self.transfer(Transfer::RecvMessage(&mut Message::to(buffers)), 0, limit)
    }

    /// `recvfrom(2)`.
    pub(crate) fn recv_from(
        &self,
        buffer: &mut [u8],
        flags: i32,
        limit: Limit,
    ) -> io::Result<(usize, SockAddr)> {
        let mut buffers = [IoSliceMut::new(buffer)];
        let mut message = Message::to(&mut buffers);
        let call = |storage: *mut SockAddrStorage, length: *mut libc::socklen_t| {
            message.header.msg_name = storage.cast();
            // SAFETY: `try_init` gives valid pointers, and space of that length, until this returns.
            let length = unsafe { &mut *length };
            message.header.msg_namelen = *length;
            let count = self.transfer(Transfer::RecvMessage(&mut message), flags, limit)?;
            *length = message.header.msg_namelen;
            Ok(count)
        };
        // SAFETY: the kernel writes an address and its length.
        unsafe { SockAddr::try_init(call) }
    }

    /// `writev(2)`, without SIGPIPE.
    pub(crate) fn send_vectored(&self, buffers: &[IoSlice<'_>], limit: Limit) -> io::Result<usize> {
        self.transfer(Transfer::SendMessage(&Message::of(buffers)), 0, limit)
    }

    /// `sendto(2)`, without SIGPIPE.
    pub(crate) fn send_to(
        &self,
        buffer: &[u8],
        address: &SockAddr,
        limit: Limit,
    ) -> io::Result<usize> {
        let buffers = [IoSlice::new(buffer)];
        let mut message = Message::of(&buffers);
        // The address is borrowed for the call, too, and only read.
        message.header.msg_name = address.as_ptr().cast_mut().cast();
        message.header.msg_namelen = address.len();
        self.transfer(Transfer::SendMessage(&message), 0, limit)
    }
}
