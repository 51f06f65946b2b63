//! Implementations of `Read` and `Write` that use others, and of the conversions of what owns a descriptor.

/// Implements `Read` for `$Type` by that of `$reader`, each call within `$within`.
macro_rules! read_through {
    ($Type:ty, $this:ident => $reader:expr, $within:expr) => {
        impl std::io::Read for $Type {
            $crate::io::macros::read_through! { @ $this => $reader, $within;
                read(&mut [u8]) -> usize;
                read_vectored(&mut [std::io::IoSliceMut<'_>]) -> usize;
                read_to_end(&mut Vec<u8>) -> usize;
                read_to_string(&mut String) -> usize;
                read_exact(&mut [u8]) -> ();
            }
        }
    };
    (@ $this:ident => $reader:expr, $within:expr; $($name:ident($Buffer:ty) -> $Result:ty;)*) => {$(
        fn $name(&mut self, buffer: $Buffer) -> std::io::Result<$Result> {
            let $this = self;
            $within(|| $reader.$name(buffer))
        }
    )*};
}

/// The conversions of a type that wraps what owns the descriptor, which `$adopt` makes; `$Std` is std's type.
macro_rules! wraps_descriptor {
    ($Type:ident, like $($Std:ty),+; by $adopt:path) => {
        impl From<std::os::fd::OwnedFd> for $Type {
            fn from(fd: std::os::fd::OwnedFd) -> $Type {
                $Type($adopt(fd))
            }
        }

        impl From<$Type> for std::os::fd::OwnedFd {
            fn from(this: $Type) -> std::os::fd::OwnedFd {
                this.0.into_fd()
            }
        }

        $(
            impl From<$Std> for $Type {
                fn from(std: $Std) -> $Type {
                    std::os::fd::OwnedFd::from(std).into()
                }
            }

            impl From<$Type> for $Std {
                fn from(this: $Type) -> $Std {
                    std::os::fd::OwnedFd::from(this).into()
                }
            }
        )+

        impl std::os::fd::IntoRawFd for $Type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::OwnedFd::from(self).into_raw_fd()
            }
        }

        $crate::sys::calls::from_raw_fd!($Type);
        $crate::io::macros::shows_descriptor!($Type);
    };
}

/// Gives the descriptor of the wrapped thing to those who borrow it.
macro_rules! shows_descriptor {
    ($Type:ty) => {
        impl std::os::fd::AsFd for $Type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $Type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsFd::as_fd(self).as_raw_fd()
            }
        }
    };
}

/// Implements `Read` for a type, and for references to it, by the methods of what it wraps.
macro_rules! reads {
    ($Type:ident) => {
        $crate::io::macros::reads!(@ $Type);
        $crate::io::macros::reads!(@ &$Type);
    };
    (@ $($Type:tt)+) => {
        impl std::io::Read for $($Type)+ {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buffer)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.read_vectored(buffers)
            }
        }
    };
}

/// As `reads`, for `Write`.
macro_rules! writes {
    ($Type:ident) => {
        $crate::io::macros::writes!(@ $Type);
        $crate::io::macros::writes!(@ &$Type);
    };
    (@ $($Type:tt)+) => {
        impl std::io::Write for $($Type)+ {
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                self.0.write(buffer)
            }

            fn write_vectored(
                &mut self,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.write_vectored(buffers)
            }

            /// Does nothing, since nothing is buffered.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

/// Methods that call the method of std's builder with the same name, which is in this field, and return the caller's builder.
macro_rules! building {
    ($field:tt: $(
        $(#[$attribute:meta])*
        $vis:vis fn $name:ident$(<$($P:ident: $Bound:path),+>)?(&mut self $(, $argument:ident: $Type:ty)*);
    )*) => {$(
        $(#[$attribute])*
        $vis fn $name$(<$($P: $Bound),+>)?(&mut self $(, $argument: $Type)*) -> &mut Self {
            self.$field.$name($($argument),*);
            self
        }
    )*};
}

pub(crate) use {building, read_through, reads, shows_descriptor, wraps_descriptor, writes};
