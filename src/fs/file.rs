//! [`File`]: std's open file, whose calls block only the green thread.
//!
//! A call that uses the file's position is std's own, one system call that may block
//! (`may_block`): all handles to the same open file share its position, and only the kernel
//! keeps it right. Calls that are known to wait for a disk go through `driver::file`. `traits` has
//! what a file can do by std's traits.

mod traits;

use std::fs::{self, FileTimes, Metadata, Permissions, TryLockError};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::SystemTime;

use super::OpenOptions;
use crate::engine::door::file::{self, Nature};
use crate::engine::door::may_block;

/// An open file, like [`std::fs::File`], whose calls block only the green thread.
///
/// The file is closed when the handle is dropped. Errors of closing are ignored: call
/// [`sync_all`](File::sync_all) where they matter.
///
/// Each call is std's and costs the same. If it blocks, the processor goes to other threads.
///
/// Two things differ from std's file. `Read`, `Write` and `Seek` are not implemented for
/// `Arc<File>`, since only std can implement them: use `&*file`. And
/// [`is_terminal`](File::is_terminal) is a method, since `IsTerminal` is a trait that only std can
/// implement.
///
/// # Examples
///
/// ```
/// use greenthread::fs::File;
/// use std::io::{Read, Seek, Write};
///
/// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// let path = directory.join("greeting");
/// File::create(&path)?.write_all(b"Hello")?;
///
/// let mut file = File::options().read(true).append(true).open(&path)?;
/// file.write_all(b", world")?;
/// file.rewind()?;
/// let mut text = String::new();
/// file.read_to_string(&mut text)?;
/// assert_eq!(text, "Hello, world");
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    std: fs::File,
    nature: Nature,
}

/// Defines methods that call the method of std's file with the same name.
macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $Type:ty)?) -> $Result:ty;)*) => {
        $($(#[$doc])* pub fn $name(&self $(, $argument: $Type)?) -> $Result {
            may_block(|| self.std.$name($($argument)?))
        })*
    };
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// Returns an error if `open(2)` fails, for example with `NotFound`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    ///
    /// let file = File::open("Cargo.toml")?;
    /// assert!(file.metadata()?.is_file());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing.
    ///
    /// The file is created if it does not exist, and emptied if it does.
    ///
    /// # Errors
    ///
    /// Returns an error if `open(2)` fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_create-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("greeting"))?;
    /// file.write_all(b"hello")?;
    /// assert_eq!(file.metadata()?.len(), 5);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file, and opens it for reading and writing.
    ///
    /// # Errors
    ///
    /// Returns `AlreadyExists` if the path exists, and another error if `open(2)` fails otherwise.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::ErrorKind;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_create_new-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let _file = File::create_new(directory.join("lock"))?;
    /// let error = File::create_new(directory.join("lock")).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// Makes options for opening a file, as [`OpenOptions::new`] does.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_options-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut log = File::options().append(true).create(true).open(directory.join("log"))?;
    /// writeln!(log, "started")?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until all data and metadata of the file are on the disk.
    ///
    /// # Errors
    ///
    /// Returns an error if `fsync(2)` fails, for example because some data could not be written.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-sync_all-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("file"))?;
    /// file.write_all(b"hello")?;
    /// file.sync_all()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        file::sync(&self.std, false)
    }

    /// Waits until all data of the file is on the disk.
    ///
    /// Unlike [`sync_all`](File::sync_all), this method does not wait for metadata that is not
    /// needed to read the data.
    ///
    /// # Errors
    ///
    /// Returns an error if `fdatasync(2)` fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::Write;
    ///
    /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-sync_data-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory)?;
    /// let mut file = File::create(directory.join("file"))?;
    /// file.write_all(b"hello")?;
    /// file.sync_data()?;
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        file::sync(&self.std, true)
    }

    methods! {
        /// Cuts the file off at `size` bytes, or extends it with zeroes.
        ///
        /// The file's position stays as it is.
        ///
        /// # Errors
        ///
        /// Returns an error if `ftruncate(2)` fails, for example because the file is not open for
        /// writing.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_len-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// file.set_len(1000)?;
        /// assert_eq!(file.metadata()?.len(), 1000);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_len(&self, size: u64) -> io::Result<()>;

        /// Returns the file's metadata.
        ///
        /// # Errors
        ///
        /// Returns an error if `statx(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// let metadata = File::open("Cargo.toml")?.metadata()?;
        /// assert!(metadata.is_file());
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn metadata(&self) -> io::Result<Metadata>;

        /// Changes the file's permissions.
        ///
        /// # Errors
        ///
        /// Returns an error if `fchmod(2)` fails, for example because the user does not own the
        /// file.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-file_permissions-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// let mut permissions = file.metadata()?.permissions();
        /// permissions.set_readonly(true);
        /// file.set_permissions(permissions)?;
        /// assert!(file.metadata()?.permissions().readonly());
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_permissions(&self, permissions: Permissions) -> io::Result<()>;

        /// Changes the times of the file's last access and modification.
        ///
        /// # Errors
        ///
        /// Returns an error if `futimens(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, FileTimes};
        /// use std::time::SystemTime;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_times-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// let epoch = SystemTime::UNIX_EPOCH;
        /// file.set_times(FileTimes::new().set_accessed(epoch).set_modified(epoch))?;
        /// assert_eq!(file.metadata()?.modified()?, epoch);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_times(&self, times: FileTimes) -> io::Result<()>;

        /// Changes the time of the file's last modification.
        ///
        /// # Errors
        ///
        /// Returns an error if `futimens(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        /// use std::time::SystemTime;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-set_modified-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let file = File::create(directory.join("file"))?;
        /// file.set_modified(SystemTime::UNIX_EPOCH)?;
        /// assert_eq!(file.metadata()?.modified()?, SystemTime::UNIX_EPOCH);
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn set_modified(&self, time: SystemTime) -> io::Result<()>;

        /// Acquires an exclusive lock on the file, waiting while another handle holds a lock.
        ///
        /// The lock is advisory. It belongs to this handle and its clones; dropping the last of
        /// them unlocks the file.
        ///
        /// # Errors
        ///
        /// Returns an error if `flock(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let path = std::env::temp_dir().join(format!("greenthread-doc-lock-{}", std::process::id()));
        /// let file = File::create(&path)?;
        /// file.lock()?;
        /// let other = File::open(&path)?;
        /// assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        /// let waiting = greenthread::spawn(move || other.lock_shared());
        /// file.unlock()?;
        /// waiting.join().unwrap()?;
        /// # std::fs::remove_file(&path)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn lock(&self) -> io::Result<()>;

        /// Acquires a shared lock on the file, waiting while another handle holds an exclusive one.
        ///
        /// # Errors
        ///
        /// Returns an error if `flock(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// let (one, other) = (File::open("Cargo.toml")?, File::open("Cargo.toml")?);
        /// one.lock_shared()?;
        /// other.lock_shared()?; // both have it
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn lock_shared(&self) -> io::Result<()>;

        /// Acquires an exclusive lock on the file if no other handle holds a lock.
        ///
        /// # Errors
        ///
        /// Returns [`TryLockError::WouldBlock`] if another handle holds such a lock, and
        /// [`TryLockError::Error`] if `flock(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-try_lock-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.try_lock()?;
        /// assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn try_lock(&self) -> Result<(), TryLockError>;

        /// Acquires a shared lock on the file if no other handle holds an exclusive one.
        ///
        /// # Errors
        ///
        /// Returns [`TryLockError::WouldBlock`] if another handle holds such a lock, and
        /// [`TryLockError::Error`] if `flock(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::{File, TryLockError};
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-try_lock_shared-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.lock()?;
        /// assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
        /// one.unlock()?;
        /// other.try_lock_shared()?;
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn try_lock_shared(&self) -> Result<(), TryLockError>;

        /// Releases the lock of this handle and its clones.
        ///
        /// # Errors
        ///
        /// Returns an error if `flock(2)` fails.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        ///
        /// # let directory = std::env::temp_dir().join(format!("greenthread-doc-unlock-{}", std::process::id()));
        /// # std::fs::create_dir_all(&directory)?;
        /// let path = directory.join("lock");
        /// let (one, other) = (File::create(&path)?, File::open(&path)?);
        /// one.lock()?;
        /// one.unlock()?;
        /// other.lock()?; // does not wait
        /// # std::fs::remove_dir_all(&directory)?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        fn unlock(&self) -> io::Result<()>;
    }

    /// Returns whether the file is a terminal.
    ///
    /// In std this is a method of the trait [`std::io::IsTerminal`].
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    ///
    /// assert!(!File::open("Cargo.toml")?.is_terminal());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.std.is_terminal()
    }

    /// Makes another handle to the same open file.
    ///
    /// Both handles share the position.
    ///
    /// # Errors
    ///
    /// Returns an error if the process can have no more descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::fs::File;
    /// use std::io::{Read, Seek, SeekFrom};
    ///
    /// let mut file = File::open("Cargo.toml")?;
    /// let mut other = file.try_clone()?;
    /// file.seek(SeekFrom::Start(1))?;
    /// let mut word = [0; 7];
    /// other.read_exact(&mut word)?;
    /// assert_eq!(&word, b"package");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        self.std.try_clone().map(File::from)
    }
}
