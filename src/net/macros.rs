//! What the six public types share, once: conversions, handles, closing; time-outs; streams.
//!
//! Each type is `struct Type(Inner)`, the inner type a [`Socket`](super::socket::Socket) or a
//! [`Listener`](super::listener::Listener). `$setup` is the code of the examples that makes a
//! `socket`.

/// Conversions, `Debug`, and the methods that every type has.
macro_rules! socket_type {
    ($Type:ident($Inner:ident), like $Std:ty, example $setup:expr) => {
        impl $Type {
            /// std's type with the same descriptor, for its methods that do not block.
            fn std(&self) -> $crate::engine::door::calls::AsStd<'_, $Std> {
                self.0.as_std()
            }

            /// Another handle to the same socket: with a descriptor of its own, but the same
            /// time-outs and non-blocking mode.
            ///
            /// ```
            #[doc = $setup]
            /// let other = socket.try_clone()?;
            /// other.set_nonblocking(true)?; // both
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// There are no more descriptors.
            pub fn try_clone(&self) -> io::Result<$Type> {
                self.0.try_clone().map($Type)
            }

            /// The socket's own address.
            ///
            /// ```
            #[doc = $setup]
            /// println!("here: {:?}", socket.local_addr()?);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of `getsockname(2)`.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                self.std().local_addr()
            }

            /// The error that is pending on the socket, which is then gone (`SO_ERROR`).
            ///
            /// ```
            #[doc = $setup]
            /// assert!(socket.take_error()?.is_none());
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of `getsockopt(2)`.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.take_error()
            }

            /// Whether calls fail with [`WouldBlock`](io::ErrorKind::WouldBlock) instead of
            /// waiting; for all handles to the socket.
            ///
            /// ```
            #[doc = $setup]
            /// socket.set_nonblocking(true)?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of `fcntl(2)`.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.0.set_nonblocking(nonblocking)
            }

            /// Ends all calls that wait for the socket, and all later ones, with an error
            /// ([`NotConnected`](io::ErrorKind::NotConnected)): those of other threads and through
            /// other handles too. The connection is over at once; the descriptor is closed when
            /// this is dropped, as ever.
            ///
            /// Not in std, where a thread that is blocked on a socket cannot be told to stop.
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

        impl AsRawFd for $Type {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $Type {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        $crate::engine::door::calls::from_raw_fd!($Type);

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

        impl From<$Std> for $Type {
            fn from(socket: $Std) -> $Type {
                OwnedFd::from(socket).into()
            }
        }

        impl From<$Type> for $Std {
            fn from(socket: $Type) -> $Std {
                OwnedFd::from(socket).into()
            }
        }
    };
}

/// Time-outs of a [`Socket`](super::socket::Socket).
macro_rules! timeouts {
    ($Type:ident, example $setup:expr) => {
        impl $Type {
            /// How long a read may wait; for ever if `None`. After it, the read fails with
            /// [`WouldBlock`](io::ErrorKind::WouldBlock), as std's does. For all handles to the
            /// socket.
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = $setup]
            /// socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            /// assert_eq!(socket.read_timeout()?, Some(Duration::from_secs(5)));
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the time is zero.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_read_timeout(timeout)
            }

            /// How long a write may wait; for ever if `None`. After it, the write fails with
            /// [`WouldBlock`](io::ErrorKind::WouldBlock), as std's does. For all handles to the
            /// socket.
            ///
            /// ```
            /// use std::time::Duration;
            #[doc = $setup]
            /// socket.set_write_timeout(Some(Duration::from_secs(5)))?;
            /// assert_eq!(socket.write_timeout()?, Some(Duration::from_secs(5)));
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the time is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_write_timeout(timeout)
            }

            /// How long a read may wait, as the kernel tells it (it rounds up);
            /// [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// ```
            #[doc = $setup]
            /// assert_eq!(socket.read_timeout()?, None);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of `getsockopt(2)`.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.std().read_timeout()
            }

            /// How long a write may wait, as the kernel tells it (it rounds up);
            /// [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// ```
            #[doc = $setup]
            /// assert_eq!(socket.write_timeout()?, None);
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of `getsockopt(2)`.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.std().write_timeout()
            }
        }
    };
}

/// Options that the kernel keeps, each with a method to set it and one that tells it.
macro_rules! options {
    (
        $Type:ident, example $setup:expr;
        $($(#[$doc:meta])+ $get:ident, $set:ident: $Value:ty = $example:literal;)+
    ) => {
        impl $Type {
            $(
                $(#[$doc])+
                ///
                /// ```
                #[doc = $setup]
                #[doc = concat!("socket.", stringify!($set), "(", $example, ")?;")]
                #[doc = concat!("assert_eq!(socket.", stringify!($get), "()?, ", $example, ");")]
                /// # Ok::<(), std::io::Error>(())
                /// ```
                ///
                /// # Errors
                /// Those of `setsockopt(2)`.
                pub fn $set(&self, value: $Value) -> io::Result<()> {
                    self.std().$set(value)
                }

                /// What
                #[doc = concat!("[`", stringify!($set), "`][Self::", stringify!($set), "]")]
                /// sets.
                ///
                /// ```
                #[doc = $setup]
                #[doc = concat!("let value = socket.", stringify!($get), "()?;")]
                /// # let _ = value;
                /// # Ok::<(), std::io::Error>(())
                /// ```
                ///
                /// # Errors
                /// Those of `getsockopt(2)`.
                pub fn $get(&self) -> io::Result<$Value> {
                    self.std().$get()
                }
            )+
        }
    };
}

/// Ends one or both directions.
macro_rules! shutdown {
    ($Type:ident, example $setup:expr) => {
        impl $Type {
            /// Ends reading, writing or both, for all handles to the socket; calls that wait end
            /// too: reads as at the end of the stream, writes with
            /// [`BrokenPipe`](io::ErrorKind::BrokenPipe).
            ///
            /// ```
            /// use greenthread::net::Shutdown;
            #[doc = $setup]
            /// socket.shutdown(Shutdown::Write)?; // the peer reads to the end
            /// # Ok::<(), std::io::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`NotConnected`](io::ErrorKind::NotConnected) if the socket is not connected.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.shutdown(how)
            }
        }
    };
}

/// `Read` and `Write`, through `&Type` too.
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

            /// Does nothing: nothing is held back.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Read for $Type {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(buffers)
            }
        }

        impl Write for $Type {
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                (&*self).write(buffer)
            }

            fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(buffers)
            }

            /// Does nothing: nothing is held back.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(crate) use {options, shutdown, socket_type, stream, timeouts};
