//! What only Unix processes have, as in [`std::os::unix::process`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as Std;

#[doc(no_inline)]
pub use std::os::unix::process::{ExitStatusExt, parent_id};

use crate::process::Command;

/// What Unix commands have beyond others: [`std::os::unix::process::CommandExt`], which std keeps to
/// its own type.
///
/// ```
/// use greenthread::os::unix::process::CommandExt;
/// use greenthread::process::Command;
///
/// let output = Command::new("sh").arg0("someone").args(["-c", "echo $0"]).output()?;
/// assert_eq!(output.stdout, b"someone\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait CommandExt: sealed::Sealed {
    /// The user that the new process becomes.
    fn uid(&mut self, id: u32) -> &mut Command;

    /// The group that the new process becomes.
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Has the new process call `f` before it becomes the program. If that fails, so does starting
    /// it.
    ///
    /// # Safety
    /// As std's: `f` runs in a forked child, where next to nothing is safe. It must not use this
    /// crate.
    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// [`CommandExt::pre_exec`], from before it was known to be unsafe.
    ///
    /// # Safety
    /// As [`CommandExt::pre_exec`].
    #[deprecated(note = "as in std: use `pre_exec`")]
    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn before_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.pre_exec(f) }
    }

    /// Becomes the program: this process, with all its threads, is gone. Returns only if that fails.
    fn exec(&mut self) -> io::Error;

    /// What the program is told that it is called.
    fn arg0<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Command;

    /// The process group that the new process joins; 0: one of its own.
    fn process_group(&mut self, group: i32) -> &mut Command;
}

impl CommandExt for Command {
    fn uid(&mut self, id: u32) -> &mut Command {
        self.std_mut().uid(id);
        self
    }

    fn gid(&mut self, id: u32) -> &mut Command {
        self.std_mut().gid(id);
        self
    }

    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.std_mut().pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        self.std_mut().exec()
    }

    fn arg0<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Command {
        self.std_mut().arg0(name);
        self
    }

    fn process_group(&mut self, group: i32) -> &mut Command {
        self.std_mut().process_group(group);
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::process::Command {}
}
