//! Copying a stream to its end.
//!
//! std's function has the kernel copy between files, but only between std's own; other streams go
//! through a buffer of 8 KiB. Here the buffer grows when it is full, which is as fast as the
//! kernel's copying.

use std::io::{self, ErrorKind, Read, Write};

/// The size of the first buffer, which lies on the stack, as std's does. A longer one would fill
/// most stacks.
const SMALL: usize = 8 << 10;
const LARGE: usize = 64 << 10;

/// Copies the rest of `reader` to `writer` and returns the number of bytes copied, like
/// [`std::io::copy`].
///
/// # Errors
///
/// Returns the first error of reading or writing, except for `Interrupted`. Bytes that were read
/// and could not be written are lost.
///
/// # Examples
///
/// ```
/// use greenthread::{fs::File, io};
///
/// let mut text = Vec::new();
/// let length = io::copy(&mut File::open("Cargo.toml")?, &mut text)?;
/// assert_eq!(length, text.len() as u64);
/// assert!(text.starts_with(b"[package]"));
/// # Ok::<(), io::Error>(())
/// ```
pub fn copy<R: ?Sized + Read, W: ?Sized + Write>(
    reader: &mut R,
    writer: &mut W,
) -> io::Result<u64> {
    let mut small = [0; SMALL];
    let mut large;
    let mut buffer = &mut small[..];
    let mut copied = 0;
    loop {
        let count = match reader.read(buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&buffer[..count])?;
        copied += count as u64;
        if count == buffer.len() && count == SMALL {
            large = vec![0; LARGE];
            buffer = &mut large;
        }
    }
}
