//! The socket's file: made with the owner's rights only, and removed when the process exits.
//!
//! - *Rights.* A socket's file gets the mode of the open socket, which is 0600 before it is bound: there is no moment
//!   with wider rights, whatever the umask. If that has taken the owner's rights they are given back, to the file that was
//!   opened at the path, not by the path: no symlink is followed.
//! - *An old file.* A file on which nobody listens is of a process that has ended, and is replaced; if another process
//!   listens there, it stays. A lock on the directory keeps two processes that start at once from replacing
//!   each other's file.
//! - *Removal.* At exit the file goes, if it is still the one that was made here. A process that is killed leaves it.

use core::mem::MaybeUninit;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::engine::door::is_forked_child;
use crate::engine::inspect::system::kernel_thread;

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
    let (file, about) = made_at(path)?;
    if about.mode() & 0o777 != 0o600 {
        give_rights(&file);
    }
    // SAFETY: the socket is open and bound.
    if unsafe { libc::listen(socket.as_raw_fd(), 16) } != 0 {
        return Err(io::Error::last_os_error());
    }
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

/// The file that has just been made at `path`. Not the one that a symlink there leads to: whoever may write in the
/// directory can have put one in its place.
fn made_at(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
    let file = options.open(path)?;
    let about = file.metadata()?;
    // SAFETY: a plain call.
    let is_ours = about.file_type().is_socket() && about.uid() == unsafe { libc::geteuid() };
    match is_ours {
        true => Ok((file, about)),
        false => Err(io::Error::other("another file has come in its place")),
    }
}

/// Gives the owner the rights to the file that some umask has taken. Without them the owner cannot ask, which harms
/// nobody: an error is none.
fn give_rights(file: &File) {
    use std::os::unix::fs::PermissionsExt;
    // By the open file: there may be another one at the path by now.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let _ = std::fs::set_permissions(itself, std::fs::Permissions::from_mode(0o600));
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
    if is_forked_child() || std::process::id() != made.process {
        return;
    }
    let about = std::fs::symlink_metadata(&made.path);
    if about.is_ok_and(|about| (about.dev(), about.ino()) == made.file) {
        let _ = std::fs::remove_file(&made.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Somebody who may write in the directory puts another file in the socket's place before its mode is set.
    #[test]
    fn no_other_file_gets_the_mode() {
        let directory = std::env::temp_dir().join(format!("gt-place-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let (path, precious) = (directory.join("socket"), directory.join("precious"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let bound = UnixListener::bind(&precious).unwrap();
        std::fs::set_permissions(&precious, std::fs::Permissions::from_mode(0o666)).unwrap();
        symlink(&precious, &path).unwrap();
        assert!(made_at(&path).is_err(), "a symlink");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(made_at(&path).is_err(), "a plain file");
        assert_eq!(mode(&precious), 0o666);
        // It is the open file that gets the rights, not the one that comes to its path.
        let (open, _) = made_at(&precious).unwrap();
        std::fs::rename(&precious, directory.join("moved")).unwrap();
        symlink(&path, &precious).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        give_rights(&open);
        assert_eq!(
            (mode(&directory.join("moved")), mode(&path)),
            (0o600, 0o644)
        );
        drop(bound);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
