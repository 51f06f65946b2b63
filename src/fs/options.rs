//! [`OpenOptions`]: how a file is opened.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{fs, io};

use super::File;
use crate::engine::facade::may_block;

/// Options for opening a file, like [`std::fs::OpenOptions`].
///
/// std's trait `OpenOptionsExt` applies to it too.
///
/// # Examples
///
/// ```
/// use greenthread::fs::OpenOptions;
/// use std::io::ErrorKind;
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("log");
/// let log = OpenOptions::new().append(true).create(true).open(&path)?;
/// let error = OpenOptions::new().write(true).create_new(true).open(&path).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

/// Defines methods that call the method of std's options with the same name, and link to it.
macro_rules! option {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[doc = concat!("\nAs [`std::fs::OpenOptions::", stringify!($name), "`].")]
        pub fn $name(&mut self, $name: bool) -> &mut OpenOptions {
            self.0.$name($name);
            self
        }
    )*};
}

impl OpenOptions {
    /// Creates options that are all off.
    ///
    /// As [`std::fs::OpenOptions::new`].
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    option! {
        /// Sets whether the file may be read.
        read
        /// Sets whether the file may be written.
        write
        /// Sets whether writes go to the end of the file.
        append
        /// Sets whether the file is emptied if it exists.
        truncate
        /// Sets whether the file is created if it does not exist.
        create
        /// Sets whether opening creates the file, and fails if the path exists already.
        create_new
    }

    /// Opens the file at `path`.
    ///
    /// As [`std::fs::OpenOptions::open`]; blocks only the green thread.
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
