//! All of [`std::io`], with pipes and a standard input that block only the green thread.
//!
//! A program that uses `std::io` needs to change only its imports. The traits, errors, buffers and
//! adapters are std's own. So are standard output and standard error, whose writes seldom block.
//! [`copy`](copy()) is this crate's: std's is fast only with std's own files.
//!
//! # Examples
//!
//! ```
//! use greenthread::io::{self, Read, Write};
//!
//! let (mut reader, mut writer) = io::pipe()?;
//! let length = greenthread::spawn(move || {
//!     let mut text = String::new();
//!     reader.read_to_string(&mut text).map(|_| text.len())
//! });
//! writer.write_all(b"hello")?;
//! drop(writer); // the end of the text
//! assert_eq!(length.join().unwrap()?, 5);
//! # Ok::<(), io::Error>(())
//! ```

// | file | idea |
// |---|---|
// | `pipe` | one end of a pipe; `process` uses it too |
// | `stdin` | standard input |
// | `copy` | copying a stream |
// | `macros` | `Read` of a type, by that of another; the conversions of what owns a descriptor |

mod copy;
pub(crate) mod macros;
pub(crate) mod pipe;
mod stdin;

#[doc(no_inline)]
pub use std::io::*;

pub use self::copy::copy;
pub use self::pipe::{PipeReader, PipeWriter, pipe};
pub use self::stdin::{Stdin, StdinLock, stdin};
