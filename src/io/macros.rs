//! Implementations of `Read` and `Write` that use those of a reference.

/// Implements `Read` for `$Type` by that of `&$Type`.
macro_rules! read_by_reference {
    ($($Type:ty),*) => {$(
        impl std::io::Read for $Type {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buffer)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(buffers)
            }

            fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> std::io::Result<usize> {
                (&*self).read_to_end(buffer)
            }

            fn read_to_string(&mut self, buffer: &mut String) -> std::io::Result<usize> {
                (&*self).read_to_string(buffer)
            }
        }
    )*};
}

/// Implements `Write` for `$Type` by that of `&$Type`.
macro_rules! write_by_reference {
    ($($Type:ty),*) => {$(
        impl std::io::Write for $Type {
            fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buffer)
            }

            fn write_vectored(
                &mut self,
                buffers: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                (&*self).write_vectored(buffers)
            }

            /// Does nothing, since nothing is buffered.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    )*};
}

pub(crate) use {read_by_reference, write_by_reference};
