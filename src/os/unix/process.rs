//! Unix extensions of [`process`](crate::process), like [`std::os::unix::process`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as Std;

#[doc(no_inline)]
pub use std::os::unix::process::{ExitStatusExt, parent_id};

use crate::io::macros::building;
use crate::process::Command;

/// Methods of [`Command`] on Unix, like [`std::os::unix::process::CommandExt`], which only std's
/// type can implement.
///
/// # Examples
///
/// ```
/// use greenthread::os::unix::process::CommandExt;
/// use greenthread::process::Command;
///
/// let output = Command::new("sh").arg0("someone").args(["-c", "echo $0"]).output()?;
/// assert_eq!(output.stdout, b"someone\n");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait CommandExt: crate::os::sealed::Sealed {
    /// Sets the user id of the new process.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// // Only a privileged process may do this.
    /// Command::new("id").uid(65534).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn uid(&mut self, id: u32) -> &mut Command;

    /// Sets the group id of the new process.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// // Only a privileged process may do this.
    /// Command::new("id").gid(65534).status()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn gid(&mut self, id: u32) -> &mut Command;

    /// Adds a closure that the new process calls before it executes the program.
    ///
    /// If `f` fails, starting the process fails with the error of `f`.
    ///
    /// # Safety
    ///
    /// The conditions are those of std's method: `f` runs in a forked child, where hardly anything
    /// is safe. It must not use this crate.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "umask"]);
    /// // SAFETY: a single system call.
    /// let output = unsafe {
    ///     command.pre_exec(|| {
    ///         libc::umask(0o027);
    ///         Ok(())
    ///     })
    /// }
    /// .output()?;
    /// assert_eq!(output.stdout, b"0027\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static;

    /// Adds a closure that the new process calls before it executes the program; use
    /// [`CommandExt::pre_exec`] instead.
    ///
    /// # Safety
    /// The conditions are those of [`CommandExt::pre_exec`].
    #[deprecated(note = "as in std: use `pre_exec`")]
    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn before_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.pre_exec(f) }
    }

    /// Replaces this process, with all its threads, by the program. Returns only if that fails.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// let error = Command::new("ls").arg("-l").exec();
    /// panic!("ls does not start: {error}");
    /// ```
    fn exec(&mut self) -> io::Error;

    /// Sets the name under which the program is called: its argument 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// let output = Command::new("sh").arg0("shell").args(["-c", "echo $0"]).output()?;
    /// assert_eq!(output.stdout, b"shell\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn arg0<S: AsRef<OsStr>>(&mut self, name: S) -> &mut Command;

    /// Sets the process group that the new process joins; with 0 it gets a group of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::os::unix::process::CommandExt;
    /// use greenthread::process::Command;
    ///
    /// // Signals that the terminal sends to our group do not reach it.
    /// let mut child = Command::new("true").process_group(0).spawn()?;
    /// assert!(child.wait()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn process_group(&mut self, group: i32) -> &mut Command;
}

impl CommandExt for Command {
    building! { std:
        fn uid(&mut self, id: u32);
        fn gid(&mut self, id: u32);
        fn arg0<S: AsRef<OsStr>>(&mut self, name: S);
        fn process_group(&mut self, group: i32);
    }

    #[allow(unsafe_code, reason = "the promise of std's trait, handed on to std")]
    unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Command
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { self.std.pre_exec(f) };
        self
    }

    fn exec(&mut self) -> io::Error {
        self.std.exec()
    }
}
