//! How a file is opened.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::File;
use crate::driver::file;

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
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    custom_flags: i32,
    mode: u32,
}

macro_rules! option {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: bool) -> &mut OpenOptions {
            self.$name = $name;
            self
        }
    )*};
}

impl OpenOptions {
    /// Nothing is allowed yet: at least one of `read`, `write` and `append` is needed.
    #[expect(clippy::new_without_default, reason = "as std")]
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            custom_flags: 0,
            mode: 0o666,
        }
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
        let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
        let custom = self.custom_flags & !libc::O_ACCMODE;
        let flags = self.access()? | self.creation()? | custom;
        file::open(&path, flags, self.mode).map(File::from)
    }

    fn access(&self) -> io::Result<i32> {
        match (self.read, self.write, self.append) {
            (false, false, false) => Err(contradiction()),
            (true, false, false) => Ok(libc::O_RDONLY),
            (false, true, false) => Ok(libc::O_WRONLY),
            (true, true, false) => Ok(libc::O_RDWR),
            (false, _, true) => Ok(libc::O_WRONLY | libc::O_APPEND),
            (true, _, true) => Ok(libc::O_RDWR | libc::O_APPEND),
        }
    }

    fn creation(&self) -> io::Result<i32> {
        let creates = self.create || self.create_new;
        if !self.write && !self.append && (creates || self.truncate)
            || self.append && self.truncate && !self.create_new
        {
            return Err(contradiction());
        }
        Ok(match (self.create_new, self.create, self.truncate) {
            (true, ..) => libc::O_CREAT | libc::O_EXCL,
            (false, true, true) => libc::O_CREAT | libc::O_TRUNC,
            (false, true, false) => libc::O_CREAT,
            (false, false, true) => libc::O_TRUNC,
            (false, false, false) => 0,
        })
    }
}

fn contradiction() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.mode = mode;
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.custom_flags = flags;
        self
    }
}
