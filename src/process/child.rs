//! A running process, and the pipes to it.
//!
//! The waiting thread sleeps until the process's descriptor (a pidfd) becomes readable, which means
//! that the process has ended. Then it fetches the status by way of std's child, which remembers
//! it. The status has not been fetched before, so the process id still belongs to this child when
//! the pidfd is opened.

use std::io::{self, Read};
use std::process;

use super::{ExitStatus, Output};
use crate::engine::facade::{Direction, Limit, Source};
use crate::io::pipe::{End, pipe_end};
use crate::sys::calls;
use crate::thread::{Builder, blocking, scope};
use crate::wait::{cancelled, shielded};

/// The writing end of a pipe to a child's standard input, like [`std::process::ChildStdin`].
///
/// Dropping it closes the pipe; the child then reads the end of its input.
///
/// # Examples
///
/// ```
/// use greenthread::process::{ChildStdin, Command, Stdio};
/// use std::io::Write;
///
/// let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
/// let mut input: ChildStdin = child.stdin.take().unwrap();
/// input.write_all(b"hello")?;
/// drop(input); // `cat` ends
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStdin(End);

/// The reading end of a pipe from a child's standard output, like [`std::process::ChildStdout`].
///
/// # Examples
///
/// ```
/// use greenthread::process::{ChildStdout, Command, Stdio};
/// use std::io::Read;
///
/// let mut child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
/// let mut output: ChildStdout = child.stdout.take().unwrap();
/// let mut text = String::new();
/// output.read_to_string(&mut text)?;
/// assert_eq!(text, "hello\n");
/// child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStdout(End);

/// The reading end of a pipe from a child's standard error, like [`std::process::ChildStderr`].
///
/// # Examples
///
/// ```
/// use greenthread::process::{ChildStderr, Command, Stdio};
/// use std::io::Read;
///
/// let mut child = Command::new("cat").arg("no such file").stderr(Stdio::piped()).spawn()?;
/// let mut errors: ChildStderr = child.stderr.take().unwrap();
/// let mut text = String::new();
/// errors.read_to_string(&mut text)?;
/// assert!(text.contains("no such file"));
/// child.wait()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ChildStderr(End);

pipe_end!(ChildStdin, like process::ChildStdin, writes);
pipe_end!(ChildStdout, like process::ChildStdout, reads);
pipe_end!(ChildStderr, like process::ChildStderr, reads);

/// A process that was started with [`Command::spawn`](super::Command::spawn), like
/// [`std::process::Child`].
///
/// Dropping it neither ends the process nor waits for it.
///
/// # Examples
///
/// ```
/// use greenthread::process::Command;
///
/// let mut child = Command::new("true").spawn()?;
/// assert!(child.wait()?.success());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    std: process::Child,
    /// The pipe to the child's standard input, if [`Command::stdin`](super::Command::stdin) asked
    /// for one.
    pub stdin: Option<ChildStdin>,
    /// The pipe from the child's standard output, if [`Command::stdout`](super::Command::stdout)
    /// asked for one.
    pub stdout: Option<ChildStdout>,
    /// The pipe from the child's standard error, if [`Command::stderr`](super::Command::stderr)
    /// asked for one.
    pub stderr: Option<ChildStderr>,
}

impl From<process::Child> for Child {
    fn from(mut std: process::Child) -> Child {
        Child {
            stdin: std.stdin.take().map(ChildStdin::from),
            stdout: std.stdout.take().map(ChildStdout::from),
            stderr: std.stderr.take().map(ChildStderr::from),
            std,
        }
    }
}

impl Child {
    /// Returns the process id.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::{Command, Stdio};
    ///
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    /// println!("process {}", child.id());
    /// child.wait()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> u32 {
        self.std.id()
    }

    /// Forces the process to end, by the signal `SIGKILL`.
    ///
    /// Does nothing if the process has ended and its exit status was fetched.
    ///
    /// # Errors
    ///
    /// Returns the errors of `kill(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    /// use std::os::unix::process::ExitStatusExt;
    ///
    /// let mut child = Command::new("sleep").arg("1000").spawn()?;
    /// child.kill()?;
    /// assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn kill(&mut self) -> io::Result<()> {
        self.std.kill()
    }

    /// Waits until the process has ended, and returns its exit status.
    ///
    /// The pipe to its standard input, if there is one, is closed first, so that the process does
    /// not wait for more input.
    ///
    /// # Errors
    ///
    /// Returns an error of `waitid(2)` if another part of the program has waited for the process.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::{Command, Stdio};
    ///
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    /// assert!(child.wait()?.success()); // the end of its input ends `cat`
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.std.try_wait()? {
            return Ok(status);
        }
        let Ok(process) = calls::pidfd(self.id(), 0) else {
            return blocking(|| self.std.wait()); // an old kernel, or no more descriptors
        };
        Source::new(process).run(Direction::Read, Limit::Forever, || {
            let status = self.std.try_wait()?;
            status.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        })
    }

    /// Returns the exit status if the process has ended, and `None` if it still runs.
    ///
    /// It does not wait, and leaves the pipe to the standard input open.
    ///
    /// # Errors
    ///
    /// Returns the errors of `waitid(2)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::{Command, Stdio};
    ///
    /// let mut child = Command::new("cat").stdin(Stdio::piped()).spawn()?;
    /// assert!(child.try_wait()?.is_none()); // `cat` waits for input
    /// child.wait()?;
    /// assert!(child.try_wait()?.is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.std.try_wait()
    }

    /// Closes the standard input, collects all output, and waits until the process has ended.
    ///
    /// Only the streams that are pipes are collected.
    ///
    /// # Errors
    ///
    /// Returns the errors of reading from pipes and of [`wait`](Child::wait). If both outputs are
    /// pipes, this starts a thread that reads one of them, which can fail too.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::{Command, Stdio};
    ///
    /// let child = Command::new("echo").arg("hello").stdout(Stdio::piped()).spawn()?;
    /// assert_eq!(child.wait_with_output()?.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.collect()
    }

    /// The process, which nobody else knows, ends if a frame ended the `waited` for it.
    pub(super) fn or_kill<T>(&mut self, waited: io::Result<T>) -> io::Result<T> {
        if waited.is_err() && cancelled().is_some() {
            let _ = shielded(|| self.kill().and(self.wait()));
        }
        waited
    }

    pub(super) fn collect(&mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        // Both pipes get the same type, so that one function reads either.
        let stderr = self.stderr.take().map(|pipe| ChildStdout(pipe.0));
        let (stdout, stderr) = match (self.stdout.take(), stderr) {
            (Some(stdout), Some(stderr)) => scope(|s| {
                // Both pipes are read at once, since the process may fill either and wait.
                let errors = Builder::new().spawn_scoped(s, || all(Some(stderr)))?;
                let stdout = all(Some(stdout));
                let stderr = shielded(|| errors.join()).expect("reading does not panic");
                Ok::<_, io::Error>((stdout?, stderr?))
            })?,
            (stdout, stderr) => (all(stdout)?, all(stderr)?),
        };
        Ok(Output {
            status: self.wait()?,
            stdout,
            stderr,
        })
    }
}

/// Reads `pipe` to its end.
fn all(pipe: Option<ChildStdout>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
