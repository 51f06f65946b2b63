//! Copying all of a stream.
//!
//! std's function has the kernel copy between files, but only between std's own; what else it is given
//! goes through a buffer of 8 KiB. Here the buffer grows when it is filled, which is as fast as what
//! the kernel does by itself.

use std::io::{self, ErrorKind, Read, Write};

/// The first buffer lies on the stack, as std's; a longer one would be all that most stacks hold.
const SMALL: usize = 8 << 10;
const LARGE: usize = 64 << 10;

/// Copies all that is left in `reader` to `writer`, as [`std::io::copy`], and says how many bytes that
/// were.
///
/// # Errors
/// The first of `read` or `write`, but for `Interrupted`. What was read and could not be written is
/// lost.
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
