//! A cgroup of one's own, in a hierarchy that the worker has mounted: version 1 or 2, whichever has the controller.

use libc::{O_CLOEXEC, O_WRONLY};
use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// It is removed with this value; what has joined it has ended by then.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a cgroup with that controller. An error says what the worker lacks.
    pub fn new(version: Version, controller: &str) -> Result<Cgroup, String> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let root = hierarchy(version, controller)
            .ok_or_else(|| format!("no cgroups of version {version:?} with {controller} here"))?;
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = root.join(format!("greenthread-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Cgroup(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `command` runs in it from its first instruction on, or does not start.
    pub fn takes(&self, command: &mut Command) {
        let file = self
            .0
            .join("cgroup.procs")
            .into_os_string()
            .into_encoded_bytes();
        let file = CString::new(file).unwrap();
        let join = move || {
            // SAFETY: system calls, on memory that the child has.
            let done = unsafe {
                let procs = libc::open(file.as_ptr(), O_WRONLY | O_CLOEXEC);
                libc::write(procs, c"0".as_ptr().cast(), 1) == 1
            };
            match done {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes system calls only.
        unsafe { command.pre_exec(join) };
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The last process may be on its way out still.
        let _ = (0..100).find(|_| {
            std::thread::sleep(Duration::from_millis(1));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

/// Writes a file of a cgroup.
pub fn set(cgroup: &Path, file: &str, value: &str) {
    let done = fs::write(cgroup.join(file), value);
    done.unwrap_or_else(|error| panic!("{file} = {value}: {error}"));
}

/// Where a hierarchy with `controller` is mounted whose root lends it to new cgroups.
fn hierarchy(version: Version, controller: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        // … root, mount point, options, … - type, source, options of the file system
        let (mount, system) = line.split_once(" - ")?;
        let point = PathBuf::from(mount.split(' ').nth(4)?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let lent = || fs::read_to_string(point.join("cgroup.subtree_control"));
        let has = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|o| o == controller),
            Version::Two => {
                kind == "cgroup2"
                    && lent().is_ok_and(|l| l.split_whitespace().any(|c| c == controller))
            }
        };
        has.then_some(point)
    })
}
