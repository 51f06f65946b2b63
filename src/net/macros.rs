//! The parts that the six public types have in common: conversions, handles, closing; time-outs;
//! streams.
//!
//! Each type is `struct Type(Inner)`, where the inner type is a [`Socket`](super::socket::Socket)
//! or a [`Listener`](super::listener::Listener). `$setup` is the code in the examples that makes a
//! `socket`.

/// Conversions, `Debug`, and the methods that every type has.
macro_rules! socket_type {
    ($Type:ident($Inner:ident), like $Std:ty, example $setup:expr) => {
        impl $Type {
            /// Returns std's type with the same descriptor, for its methods that do not block.
            fn std(&self) -> $crate::engine::facade::calls::AsStd<'_, $Std> {
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

        impl AsFd for $Type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        $crate::io::macros::descriptor!($Type, like $Std);

        impl From<OwnedFd> for $Type {
            fn from(fd: OwnedFd) -> $Type {
                $Type($Inner::adopt(fd))
            }
        }

        impl From<$Type> for OwnedFd {
            fn from(socket: $Type) -> OwnedFd {
                socket.0.into_fd()
            }
        }

        impl From<socket2::Socket> for $Type {
            fn from(socket: socket2::Socket) -> $Type {
                OwnedFd::from(socket).into()
            }
        }

        impl From<$Type> for socket2::Socket {
            fn from(socket: $Type) -> socket2::Socket {
                OwnedFd::from(socket).into()
            }
        }

    };
}

/// Time-outs of a [`Socket`](super::socket::Socket).
macro_rules! timeouts {
    ($Type:ident, example $setup:expr) => {
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
    ($Type:ident, example $setup:expr) => {
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

/// Implements `Read` and `Write`, also for `&Type`.
macro_rules! stream {
    ($Type:ident) => {
        impl Read for &$Type {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.recv(buffer, 0)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.recv_vectored(buffers)
            }
        }

        impl Write for &$Type {
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                self.0.send_stream(buffer)
            }

            fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.send_vectored(buffers)
            }

            /// Does nothing, since nothing is buffered.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        $crate::io::macros::read_through!($Type, this => (&*this));
        $crate::io::macros::write_by_reference!($Type);
    };
}

pub(crate) use {options, shutdown, socket_type, stream, timeouts};
