//! The common part of all sockets: the calls that transfer data, the state of the open file
//! description that those calls depend on, and what the six public types have in common.
//!
//! Descriptors that `try_clone` makes have one open file description, and with it time-outs and the
//! non-blocking mode. So clones share one [`Settings`]: a copy of that state, since a call must not
//! ask the kernel first. Everything else is left to the kernel, by way of std's own methods on the
//! borrowed descriptor ([`Socket::as_std`]).
//!
//! # States
//! | | the descriptor | calls that would block |
//! |---|---|---|
//! | new | blocking | wait: for ever, or for the time-out |
//! | `set_nonblocking(true)` | non-blocking | fail with `WouldBlock` |
//! | closed | shut down, both ways | fail with `NotConnected`, and never leave that state |
//!
//! # Invariants
//! 1. Each value in [`Settings`] has also been set on the description, so that a descriptor that
//!    becomes std's, or a plain one, behaves the same. [`Socket::adopt`] reads the values of a
//!    descriptor; if they are changed behind our back later, through `AsFd`, we do not notice.
//! 2. A description is blocking unless the user has set another mode, since others may share it:
//!    our calls say `MSG_DONTWAIT`, or ask first (`Socket::accept`). While
//!    it connects it is not blocking, and no other handle or process shares it yet.
//! 3. Closing concerns all handles. `closed` is set first: a call that ended because the
//!    description was shut down finds it set, and the error says what happened. Then each handle's
//!    source ends its waits, since a shutdown ends none at a datagram socket. `handles` has them
//!    all, once there is more than one.
//! 4. Only the handle holds a strong reference to its source, except for holders of the lock of
//!    `handles`. So the descriptor can be given away under that lock.
//!
//! # Memory orderings
//! Relaxed: settings are independent words that guard nothing. For invariant 3 the kernel's lock on
//! the socket orders the store before the shutdown, and the load after the call that it ended. A
//! handle made meanwhile finds `closed` set, under the lock of `handles`, or is closed with the
//! rest.
//!
//! # The public types
//! Each is `struct Type(Socket)`. The macros at the end write what they have in common: handles, closing; time-outs. `$setup`
//! is the code in the examples that makes a `socket`.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net as unix;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Type};

use crate::engine::facade::{Direction, Limit, Source};
use crate::io::pipe::write_as_far_as_it_goes;
use crate::sync::Mutex;
use crate::sys::calls::AsStd;
use crate::sys::clock;

/// The state of an open file description on which calls depend.
#[derive(Default)]
pub(super) struct Settings {
    read_timeout: Timeout,
    write_timeout: Timeout,
    nonblocking: AtomicBool,
    /// Whether reading was shut down.
    ended: AtomicBool,
    closed: AtomicBool,
    /// The number of the error that the next call returns, or 0.
    late: AtomicI32,
    handles: Mutex<Vec<Weak<Source>>>,
    /// The thread that holds this takes the next connection of a listener.
    pub(super) accepting: Mutex<()>,
}

impl Settings {
    /// Fails with the error that the last call left, if it left one.
    fn take_late(&self) -> io::Result<()> {
        if self.late.load(Relaxed) == 0 {
            return Ok(());
        }
        match self.late.swap(0, Relaxed) {
            0 => Ok(()), // another call has it
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Returns how long a call that starts now may wait.
    fn limit(&self, timeout: &Timeout) -> Limit {
        match timeout.0.load(Relaxed) {
            _ if self.nonblocking.load(Relaxed) => Limit::DontWait,
            0 => Limit::Forever,
            nanos => Limit::Until(clock::after(Duration::from_nanos(nanos))),
        }
    }
}

/// A length of time in nanoseconds; 0 for none.
#[derive(Default)]
struct Timeout(AtomicU64);

impl Timeout {
    fn set(&self, timeout: Option<Duration>) {
        let nanos = timeout.and_then(|timeout| u64::try_from(timeout.as_nanos()).ok());
        self.0.store(nanos.unwrap_or(0), Relaxed);
    }
}

/// A socket of any kind except a listening one.
pub(crate) struct Socket {
    source: Arc<Source>,
    pub(super) settings: Arc<Settings>,
}

impl Socket {
    /// Makes a socket of a descriptor that is new: blocking, without time-outs.
    pub(crate) fn fresh(fd: OwnedFd) -> Socket {
        Socket::of_fresh(Source::new(fd))
    }

    pub(super) fn of_fresh(source: Source) -> Socket {
        Socket {
            source: Arc::new(source),
            settings: Arc::default(),
        }
    }

    /// Makes a socket of any descriptor, and asks the kernel for its settings. If that fails
    /// (because the descriptor is not a socket), later calls report it.
    pub(crate) fn adopt(fd: OwnedFd) -> Socket {
        let socket = Socket::fresh(fd);
        let (kernels, settings) = (SockRef::from(&socket), &socket.settings);
        let is_nonblocking = kernels.nonblocking().unwrap_or(false);
        settings.nonblocking.store(is_nonblocking, Relaxed);
        (settings.read_timeout).set(kernels.read_timeout().unwrap_or(None));
        (settings.write_timeout).set(kernels.write_timeout().unwrap_or(None));
        socket
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        let _nobody_closes = self.settings.handles.lock_anyway();
        let source = Arc::into_inner(self.source).expect("nobody else's (invariant 4)");
        source.into_fd()
    }

    pub(crate) fn try_clone(&self) -> io::Result<Socket> {
        let source = Source::new(self.as_fd().try_clone_to_owned()?);
        let source = Arc::new(source);
        let mut handles = self.settings.handles.lock_anyway();
        if self.is_closed() {
            return Err(Source::closed());
        }
        handles.retain(|handle| handle.strong_count() > 0);
        if handles.is_empty() {
            handles.push(Arc::downgrade(&self.source));
        }
        handles.push(Arc::downgrade(&source));
        drop(handles);
        let settings = self.settings.clone();
        Ok(Socket { source, settings })
    }

    /// Returns std's socket with the same descriptor, for its methods that do not block.
    pub(crate) fn as_std<T: FromRawFd>(&self) -> AsStd<'_, T> {
        AsStd::new(&*self.source)
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.as_std::<unix::UnixStream>()
            .set_read_timeout(timeout)?;
        self.settings.read_timeout.set(timeout);
        Ok(())
    }

    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.as_std::<unix::UnixStream>()
            .set_write_timeout(timeout)?;
        self.settings.write_timeout.set(timeout);
        Ok(())
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        SockRef::from(self).set_nonblocking(nonblocking)?;
        self.settings.nonblocking.store(nonblocking, Relaxed);
        Ok(())
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.settings.nonblocking.load(Relaxed)
    }

    /// Returns the pending error, and clears it.
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self.settings.take_late() {
            Ok(()) => self.as_std::<unix::UnixStream>().take_error(),
            Err(late) => Ok(Some(late)),
        }
    }

    /// Ends all calls through all handles, now and later.
    pub(crate) fn close(&self) {
        let handles = self.settings.handles.lock_anyway();
        self.settings.closed.store(true, Relaxed);
        self.source.close();
        let others = handles.iter().filter_map(Weak::upgrade);
        others.for_each(|source| source.close());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.settings.closed.load(Relaxed)
    }

    /// Returns the answer of `call`, or an error if the socket is closed.
    pub(crate) fn unless_closed<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.is_closed() {
            return Err(Source::closed());
        }
        let answer = call();
        if self.is_closed() {
            return Err(Source::closed());
        }
        answer
    }

    /// Repeats `call`, which reads and does not block, until it succeeds or the time is up.
    pub(crate) fn read_with<T>(&self, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let limit = self.settings.limit(&self.settings.read_timeout);
        self.unless_closed(|| self.source.run(Direction::Read, limit, call))
    }

    /// Repeats `call`, which writes and does not block, until it succeeds or the time is up.
    pub(crate) fn write_with<T>(&self, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let limit = self.settings.limit(&self.settings.write_timeout);
        self.unless_closed(|| self.source.run(Direction::Write, limit, call))
    }

    /// Shuts down one or both directions.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            // The flag is set first, so that the threads that the call wakes find it set.
            self.settings.ended.store(true, Relaxed);
        }
        let answer = SockRef::from(self).shutdown(how);
        if answer.is_err() {
            self.settings.ended.store(false, Relaxed);
        }
        answer
    }

    /// Returns whether a call that finds no data has come to the end, because reading was shut
    /// down.
    pub(crate) fn is_ended(&self) -> bool {
        self.settings.ended.load(Relaxed) && !self.is_nonblocking()
    }

    /// Receives data, with `flags` of `recv(2)`.
    pub(crate) fn recv(&self, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
        let limit = self.settings.limit(&self.settings.read_timeout);
        let count = self.unless_closed(|| self.source.recv(buffer, flags, limit))?;
        self.unless_late(count)
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(buffer, 0)
    }

    pub(crate) fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let limit = self.settings.limit(&self.settings.read_timeout);
        let count = self.unless_closed(|| self.source.recv_vectored(buffers, limit))?;
        self.unless_late(count)
    }

    /// Returns the length of a read, or at the end of the stream the error that an earlier call has
    /// left.
    fn unless_late(&self, count: usize) -> io::Result<usize> {
        if count == 0 {
            self.settings.take_late()?;
        }
        Ok(count)
    }

    /// Reads a datagram, with `flags` of `recvmsg(2)`; returns its length and the sender's address.
    pub(crate) fn recv_from(&self, buffer: &mut [u8], flags: i32) -> io::Result<(usize, SockAddr)> {
        let limit = self.settings.limit(&self.settings.read_timeout);
        self.unless_closed(|| self.source.recv_from(buffer, flags, limit))
    }

    /// Sends a datagram to the peer.
    pub(crate) fn send(&self, buffer: &[u8]) -> io::Result<usize> {
        let limit = self.settings.limit(&self.settings.write_timeout);
        self.unless_closed(|| self.source.send(buffer, 0, limit))
    }

    /// Writes to a stream, by way of [`Socket::send_all`].
    pub(crate) fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.send_all(&[IoSlice::new(buffer)], |left, limit| {
            self.source.send(&left[0], 0, limit)
        })
    }

    /// Writes to a stream from several buffers, of which the kernel takes a limited number at once.
    pub(crate) fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let buffers = &buffers[..buffers.len().min(libc::UIO_MAXIOV as usize)];
        self.send_all(buffers, |left, limit| {
            self.source.send_vectored(left, limit)
        })
    }

    /// Writes buffers to a stream by calls of `send`, which gets what is left of them. Like `send(2)` on a blocking stream, it
    /// sends all bytes unless there is an error or the time is up. In that case it returns the number sent so far, and the next
    /// call returns the error.
    fn send_all(
        &self,
        buffers: &[IoSlice<'_>],
        send: impl Fn(&[IoSlice<'_>], Limit) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.settings.take_late()?;
        let limit = self.settings.limit(&self.settings.write_timeout);
        let send = |left: &[IoSlice<'_>]| self.unless_closed(|| send(left, limit));
        match limit {
            Limit::DontWait => send(buffers),
            _ => write_as_far_as_it_goes(buffers, send, |error| self.say_later(error)),
        }
    }

    /// Keeps an error for the next call, since the kernel forgets most errors once it has returned
    /// them. (A blocked writer of a Unix stream gets only the number of bytes sent.)
    fn say_later(&self, error: io::Error) {
        let stays = [ErrorKind::WouldBlock, ErrorKind::BrokenPipe].contains(&error.kind());
        let is_unix = || SockRef::from(self).domain().ok() == Some(Domain::UNIX);
        if let Some(number) = error.raw_os_error()
            && !stays
            && !is_unix()
        {
            self.settings.late.store(number, Relaxed);
        }
    }

    /// Sends a datagram to an address.
    pub(crate) fn send_to(&self, buffer: &[u8], address: &SockAddr) -> io::Result<usize> {
        let limit = self.settings.limit(&self.settings.write_timeout);
        self.unless_closed(|| self.source.send_to(buffer, address, limit))
    }

    /// Makes a TCP connection to an address within the limit.
    pub(crate) fn connect(address: &SocketAddr, limit: Limit) -> io::Result<Socket> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = socket2::Socket::new_raw(Domain::for_address(*address), kind, None)?;
        let socket = Socket::of_fresh(Source::of_tcp_stream(socket.into()));
        let address = SockAddr::from(*address);
        // While the connection is being made, further calls report its state.
        let connect = || match SockRef::from(&socket).connect(&address) {
            Err(error) => match error.raw_os_error() {
                Some(libc::EINPROGRESS | libc::EALREADY) => Err(io::ErrorKind::WouldBlock.into()),
                Some(libc::EISCONN) => Ok(()),
                _ => Err(error),
            },
            connected => connected,
        };
        socket.source.run(Direction::Write, limit, connect)?;
        SockRef::from(&socket).set_nonblocking(false)?;
        Ok(socket)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

// ==== what the public types have in common ====

/// Conversions, `Debug`, and the methods that every type has. The examples begin with `$setup`, also those of `$more`, which
/// names macros from below.
macro_rules! socket_type {
    ($Type:ident, like $Std:ty, example $setup:expr; $($more:ident $({$($row:tt)+})?)*) => {
        impl $Type {
            /// Returns std's type with the same descriptor, for its methods that do not block.
            fn std(&self) -> $crate::sys::calls::AsStd<'_, $Std> {
                self.0.as_std()
            }

            /// Creates another handle to the same socket.
            ///
            /// The new handle has a descriptor of its own, but shares the time-outs and the
            /// non-blocking mode.
            ///
            /// # Errors
            ///
            /// Returns an error if the process has no more descriptors.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// let other = socket.try_clone()?;
            /// other.set_nonblocking(true)?; // both
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn try_clone(&self) -> io::Result<$Type> {
                self.0.try_clone().map($Type)
            }

            /// Returns the socket's own address.
            ///
            /// # Errors
            ///
            /// Returns the errors of `getsockname(2)`.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// println!("here: {:?}", socket.local_addr()?);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.std().local_addr()
            }

            /// Returns the error that is pending on the socket, and clears it (`SO_ERROR`).
            ///
            /// # Errors
            ///
            /// Returns the errors of `getsockopt(2)`.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// assert!(socket.take_error()?.is_none());
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.take_error()
            }

            /// Sets whether calls fail with [`WouldBlock`](io::ErrorKind::WouldBlock) instead of
            /// waiting.
            ///
            /// This applies to all handles to the socket.
            ///
            /// # Errors
            ///
            /// Returns the errors of `fcntl(2)`.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// socket.set_nonblocking(true)?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }

            /// Closes the socket: all calls that wait for it, and all later ones, fail with
            /// [`NotConnected`](io::ErrorKind::NotConnected).
            ///
            /// This applies to the calls of all threads and to all handles. The connection ends at
            /// once; the descriptor is closed when the handle is dropped.
            ///
            /// std has no such method: there a thread that is blocked on a socket cannot be told
            /// to stop.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// socket.close();
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn close(&self) {
                self.0.close();
            }
        }

        impl fmt::Debug for $Type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.std().fmt(f)
            }
        }

        $crate::io::macros::wraps_descriptor! {
            $Type, like $Std, socket2::Socket; by $crate::net::socket::Socket::adopt
        }

        $($crate::net::socket::$more!($Type, example $setup; $($($row)+)?);)*
    };
}

/// Time-outs of a [`Socket`](Socket).
macro_rules! timeouts {
    ($Type:ident, example $setup:expr;) => {
        impl $Type {
            /// Sets how long a read may wait; with `None` it waits for ever.
            ///
            /// When the time is up, the read fails with
            /// [`WouldBlock`](io::ErrorKind::WouldBlock), as in std. This applies to all handles to
            /// the socket.
            ///
            /// # Errors
            ///
            /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) if the time is zero.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = $setup]
            /// socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            /// assert_eq!(socket.read_timeout()?, Some(Duration::from_secs(5)));
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_read_timeout(timeout)
            }

            /// Sets how long a write may wait; with `None` it waits for ever.
            ///
            /// When the time is up, the write fails with
            /// [`WouldBlock`](io::ErrorKind::WouldBlock), as in std. This applies to all handles to
            /// the socket.
            ///
            /// # Errors
            ///
            /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) if the time is zero.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = $setup]
            /// socket.set_write_timeout(Some(Duration::from_secs(5)))?;
            /// assert_eq!(socket.write_timeout()?, Some(Duration::from_secs(5)));
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_write_timeout(timeout)
            }

            /// Returns how long a read may wait, as [`set_read_timeout`](Self::set_read_timeout)
            /// has set it.
            ///
            /// The kernel rounds the time up.
            ///
            /// # Errors
            ///
            /// Returns the errors of `getsockopt(2)`.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// assert_eq!(socket.read_timeout()?, None);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.std().read_timeout()
            }

            /// Returns how long a write may wait, as [`set_write_timeout`](Self::set_write_timeout)
            /// has set it.
            ///
            /// The kernel rounds the time up.
            ///
            /// # Errors
            ///
            /// Returns the errors of `getsockopt(2)`.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = $setup]
            /// assert_eq!(socket.write_timeout()?, None);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.std().write_timeout()
            }
        }
    };
}

/// Options that the kernel keeps, each with a method to set it and one to get it.
macro_rules! options {
    (
        $Type:ident, example $setup:expr;
        $($(#[$doc:meta])+ $get:ident, $set:ident: $Value:ty = $example:literal;)+
    ) => {
        impl $Type {
            $(
                $(#[$doc])+
                ///
                /// # Errors
                ///
                /// Returns the errors of `setsockopt(2)`.
                ///
                /// # Examples
                ///
                /// ```
                #[doc = $setup]
                #[doc = concat!("socket.", stringify!($set), "(", $example, ")?;")]
                #[doc = concat!("assert_eq!(socket.", stringify!($get), "()?, ", $example, ");")]
                /// # Ok::<(), std::io::Error>(())
                /// ```
                pub fn $set(&self, value: $Value) -> io::Result<()> {
                    self.std().$set(value)
                }

                /// Returns the value that
                #[doc = concat!("[`", stringify!($set), "`][Self::", stringify!($set), "]")]
                /// has set, or the kernel's default.
                ///
                /// # Errors
                ///
                /// Returns the errors of `getsockopt(2)`.
                ///
                /// # Examples
                ///
                /// ```
                #[doc = $setup]
                #[doc = concat!("let value = socket.", stringify!($get), "()?;")]
                /// # let _ = value;
                /// # Ok::<(), std::io::Error>(())
                /// ```
                pub fn $get(&self) -> io::Result<$Value> {
                    self.std().$get()
                }
            )+
        }
    };
}

/// The method `shutdown`.
macro_rules! shutdown {
    ($Type:ident, example $setup:expr;) => {
        impl $Type {
            /// Shuts down reading, writing or both.
            ///
            /// This applies to all handles to the socket, and ends calls that wait: a read returns
            /// 0 bytes, as at the end of the stream, and a write fails with
            /// [`BrokenPipe`](io::ErrorKind::BrokenPipe).
            ///
            /// # Errors
            ///
            /// Returns [`NotConnected`](io::ErrorKind::NotConnected) if the socket is not
            /// connected.
            ///
            /// # Examples
            ///
            /// ```
            /// use greenthread::net::Shutdown;
            #[doc = $setup]
            /// socket.shutdown(Shutdown::Write)?; // the peer reads to the end
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.shutdown(how)
            }
        }
    };
}

pub(crate) use {options, shutdown, socket_type, timeouts};
