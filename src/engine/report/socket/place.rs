//! The socket's file: made with the owner's rights only, and removed when the process exits.
//!
//! - *Rights.* A socket's file gets the mode of the open socket, which is 0600 before it is bound: there is no moment
//!   with wider rights, whatever the umask.
//! - *An old file.* A file on which nobody listens is of a process that has ended, and is replaced; if another process
//!   listens there, it stays. A lock on the directory keeps two processes that start at once from replacing
//!   each other's file.
//! - *Removal.* At exit the file goes, if it is still the one that was made here. A process that is killed leaves it.

use core::mem::MaybeUninit;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::engine::sched::fork;
use crate::engine::sys::kernel_thread;

/// The longest path, in bytes: what fits into the system's address, and a zero behind it.
pub(crate) const LONGEST_PATH: usize = 107;

/// The file, and by which numbers it is known again.
struct Made {
    path: PathBuf,
    process: u32,
    file: (u64, u64),
}

static MADE: OnceLock<Made> = OnceLock::new();

/// Listens at `path`.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let whole = std::path::absolute(path)?;
    let _alone = lock_directory(&whole);
    let socket = socket()?;
    let address = Address::of(path)?;
    if let Err(error) = address.bind(&socket) {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
        address.free(path)?;
        address.bind(&socket)?;
    }
    // Some umask may have taken the owner's rights, too.
    set_mode(path)?;
    // SAFETY: the socket is open and bound.
    if unsafe { libc::listen(socket.as_raw_fd(), 16) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let about = std::fs::symlink_metadata(path)?;
    let made = Made {
        path: whole,
        process: std::process::id(),
        file: (about.dev(), about.ino()),
    };
    if MADE.set(made).is_ok() {
        // SAFETY: the function is there as long as the program.
        unsafe { libc::atexit(remove) };
    }
    Ok(socket)
}

/// Waits for the right to make files in the directory, but not for long: anybody can hold it.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = File::open(path.parent()?).ok()?;
    for _ in 0..50 {
        // SAFETY: a plain call on an open file.
        let failed = unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        if failed == 0 {
            return Some(directory);
        }
        kernel_thread::rest(10_000_000);
    }
    None
}

/// A socket whose file will be for its owner only.
fn socket() -> io::Result<UnixListener> {
    // SAFETY: plain calls; the descriptor is new, and ours.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let descriptor = libc::socket(libc::AF_UNIX, kind, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = UnixListener::from_raw_fd(descriptor);
        match libc::fchmod(descriptor, 0o600) {
            0 => Ok(socket),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn set_mode(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// A path as the system's calls take it.
struct Address {
    name: libc::sockaddr_un,
}

impl Address {
    fn of(path: &Path) -> io::Result<Address> {
        use std::os::unix::ffi::OsStrExt;
        let bytes = path.as_os_str().as_bytes();
        // SAFETY: all zeroes are such a name.
        let mut name: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
        if bytes.is_empty() || bytes.len() > LONGEST_PATH {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        name.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, &from) in name.sun_path.iter_mut().zip(bytes) {
            *to = from as libc::c_char;
        }
        Ok(Address { name })
    }

    fn bind(&self, socket: &UnixListener) -> io::Result<()> {
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the name is one of a Unix socket, and its size is right.
        let failed = unsafe { libc::bind(socket.as_raw_fd(), (&raw const self.name).cast(), size) };
        match failed {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Removes the file at `path` if it is a socket on which nobody listens.
    fn free(&self, path: &Path) -> io::Result<()> {
        if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
            let message = "there is a file that is no socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        match self.knock() {
            Some(libc::ECONNREFUSED) => std::fs::remove_file(path),
            Some(libc::ENOENT) => Ok(()),
            Some(libc::EACCES | libc::EPERM) => Err(io::ErrorKind::PermissionDenied.into()),
            // It listens, or its queue is full.
            _ => {
                let message = "another process listens there";
                Err(io::Error::new(io::ErrorKind::AddrInUse, message))
            }
        }
    }

    /// The error of a connection to it.
    fn knock(&self) -> Option<i32> {
        let size = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: plain calls with a valid name; the descriptor is ours, and closed.
        unsafe {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let descriptor = libc::socket(libc::AF_UNIX, kind, 0);
            let failed = libc::connect(descriptor, (&raw const self.name).cast(), size);
            let error = io::Error::last_os_error().raw_os_error();
            libc::close(descriptor);
            error.filter(|_| failed != 0)
        }
    }
}

/// The process exits.
extern "C" fn remove() {
    let Some(made) = MADE.get() else { return };
    // A child that was made without the handlers of `fork` has another number.
    if fork::is_child() || std::process::id() != made.process {
        return;
    }
    let about = std::fs::symlink_metadata(&made.path);
    if about.is_ok_and(|about| (about.dev(), about.ino()) == made.file) {
        let _ = std::fs::remove_file(&made.path);
    }
}
