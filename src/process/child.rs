//! A running process, and the pipes to it.
//!
//! The thread that waits sleeps until the process's descriptor (a pidfd) says that it has ended, and
//! then fetches its status from std's child. That remembers the status, and until it has it nobody
//! has fetched it: so the process id is still this child's when the pidfd is opened.

use std::io::{self, Read};
use std::process;

use super::{ExitStatus, Output};
use crate::engine::door::calls;
use crate::engine::door::{Direction, Limit, Source};
use crate::io::pipe::{End, pipe_end};
use crate::thread::{Builder, blocking, scope};

/// The input of a child, as [`std::process::ChildStdin`].
#[derive(Debug)]
pub struct ChildStdin(End);

/// The output of a child, as [`std::process::ChildStdout`].
#[derive(Debug)]
pub struct ChildStdout(End);

/// The error messages of a child, as [`std::process::ChildStderr`].
#[derive(Debug)]
pub struct ChildStderr(End);

pipe_end!(ChildStdin, like process::ChildStdin, writes);
pipe_end!(ChildStdout, like process::ChildStdout, reads);
pipe_end!(ChildStderr, like process::ChildStderr, reads);

/// A process that was started, as [`std::process::Child`]; made by
/// [`Command::spawn`](super::Command::spawn).
///
/// Dropping it neither ends the process nor waits for it.
///
/// # Examples
///
/// ```
/// use greenthread::process::Command;
/// use std::os::unix::process::ExitStatusExt;
///
/// let mut child = Command::new("sleep").arg("1000").spawn()?;
/// assert!(child.try_wait()?.is_none());
/// child.kill()?;
/// assert_eq!(child.wait()?.signal(), Some(libc::SIGKILL));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Child {
    std: process::Child,
    /// The child's input, if it was asked for as a pipe.
    pub stdin: Option<ChildStdin>,
    /// The child's output, if it was asked for as a pipe.
    pub stdout: Option<ChildStdout>,
    /// The child's error messages, if they were asked for as a pipe.
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
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.std.id()
    }

    /// Ends the process by force (`SIGKILL`). If it has ended and was waited for, nothing happens.
    ///
    /// # Errors
    /// Those of `kill(2)`.
    pub fn kill(&mut self) -> io::Result<()> {
        self.std.kill()
    }

    /// Waits until the process has ended. Its input, if it is here, is closed first, so that it does
    /// not wait for more.
    ///
    /// # Errors
    /// Those of `waitid(2)`: somebody else has waited for it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.std.try_wait()? {
            return Ok(status);
        }
        let Ok(process) = calls::pidfd(self.id()) else {
            return blocking(|| self.std.wait()); // an old kernel, or no more descriptors
        };
        Source::new(process).run(Direction::Read, Limit::Forever, || {
            self.std
                .try_wait()?
                .ok_or_else(|| io::ErrorKind::WouldBlock.into())
        })
    }

    /// The status, if the process has ended. Its input stays open.
    ///
    /// # Errors
    /// Those of `waitid(2)`.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.std.try_wait()
    }

    /// Closes the input, reads both outputs to their ends, and waits until the process has ended.
    ///
    /// # Errors
    /// Those of reading from pipes and of [`wait`](Child::wait), and of starting a thread, which
    /// reads one of two pipes.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = match (self.stdout.take(), self.stderr.take()) {
            (Some(stdout), Some(stderr)) => scope(|s| {
                // The process may fill either pipe and wait.
                let errors = Builder::new().spawn_scoped(s, || all(Some(stderr)))?;
                let stdout = all(Some(stdout));
                let stderr = errors.join().expect("reading does not panic");
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

/// All that comes from `pipe`.
fn all(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
