//! [`OpenOptions`]: how a file is opened.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::{fs, io};

use super::File;
use crate::engine::door::may_block;

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
    /// Creates options that are all off. Opening needs at least one of `read`, `write` and
    /// `append`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::OpenOptions;
    ///
    /// assert!(OpenOptions::new().open("Cargo.toml").is_err());
    /// assert!(OpenOptions::new().read(true).open("Cargo.toml").is_ok());
    /// ```
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    option! {
        /// Sets whether the file may be read.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::OpenOptions;
        ///
        /// let file = OpenOptions::new().read(true).open("Cargo.toml")?;
        /// assert!(file.metadata()?.len() > 0);
        /// # Ok::<(), std::io::Error>(())
        /// ```
        read
        /// Sets whether the file may be written.
        ///
        /// Writing starts at the beginning of the file, and its contents stay until they are
        /// overwritten.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{self, OpenOptions};
        /// use std::io::Write;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-option_write-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("file");
        /// fs::write(&path, "hello")?;
        /// OpenOptions::new().write(true).open(&path)?.write_all(b"J")?;
        /// assert_eq!(fs::read(&path)?, b"Jello");
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        write
        /// Sets whether writes go to the end of the file.
        ///
        /// Each write goes to the place where the end is at that moment, even if others append too.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{self, OpenOptions};
        /// use std::io::Write;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-option_append-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("file");
        /// fs::write(&path, "hello")?;
        /// OpenOptions::new().append(true).open(&path)?.write_all(b" world")?;
        /// assert_eq!(fs::read(&path)?, b"hello world");
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        append
        /// Sets whether the file is emptied if it exists. This needs `write`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{self, OpenOptions};
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-option_truncate-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("file");
        /// fs::write(&path, "hello")?;
        /// OpenOptions::new().write(true).truncate(true).open(&path)?;
        /// assert_eq!(fs::read(&path)?, b"");
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        truncate
        /// Sets whether the file is created if it does not exist. This needs `write` or `append`.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::OpenOptions;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-option_create-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("file");
        /// assert!(OpenOptions::new().append(true).open(&path).is_err());
        /// assert!(OpenOptions::new().append(true).create(true).open(&path).is_ok());
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        create
        /// Sets whether opening creates the file, and fails if the path exists already, even as a
        /// symbolic link without a target.
        ///
        /// This needs `write` or `append`; `create` and `truncate` are then ignored.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::OpenOptions;
        /// use std::io::ErrorKind;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-option_create_new-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let mut options = OpenOptions::new();
        /// options.write(true).create_new(true);
        /// options.open(directory.join("file"))?;
        /// let error = options.open(directory.join("file")).unwrap_err();
        /// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        create_new
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `open(2)`, and `InvalidInput` if the options contradict each other or
    /// the path contains a NUL byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::OpenOptions;
    ///
    /// let file = OpenOptions::new().read(true).open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
