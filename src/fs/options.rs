//! How a file is opened.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{fs, io};

use super::File;
use crate::engine::door::may_block;

/// How a file is opened, as [`std::fs::OpenOptions`]. std's `OpenOptionsExt` applies to it too.
///
/// # Examples
///
/// ```
/// use greenthread::fs::OpenOptions;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("log");
/// let log = OpenOptions::new().append(true).create(true).open(&path)?;
/// let error = OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

macro_rules! option {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: bool) -> &mut OpenOptions {
            self.0.$name($name);
            self
        }
    )*};
}

impl OpenOptions {
    /// Nothing is allowed yet: at least one of `read`, `write` and `append` is needed.
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    option! {
        /// May be read.
        read
        /// May be written, from its beginning; what is there stays until it is overwritten.
        write
        /// May be written, always at its end, wherever that is by then.
        append
        /// Is emptied first, if it is there; needs `write`.
        truncate
        /// Is made if it is not there; needs `write` or `append`.
        create
        /// Is made, and must not be there: not even as a link to nothing. `create` and `truncate`
        /// are then ignored.
        create_new
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Those of `open(2)`. `InvalidInput` if the options contradict each other, or a byte of `path`
    /// is 0.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        may_block(|| self.0.open(path)).map(File::from)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}
