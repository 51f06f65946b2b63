//! Child processes, with the API of [`std::process`]; a call that waits blocks only the green
//! thread.
//!
//! A program that uses `std::process` needs to change only its imports. [`Command`] configures and
//! starts a process, and [`Child`] waits for it. `Stdio`, `ExitStatus` and `Output` are std's own
//! types.
//!
//! # Examples
//!
//! ```
//! use greenthread::process::{Command, Stdio};
//! use std::io::Write;
//!
//! let output = Command::new("echo").arg("hello").output()?;
//! assert_eq!(output.stdout, b"hello\n");
//!
//! let mut sort = Command::new("sort").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
//! sort.stdin.take().unwrap().write_all(b"b\na\n")?; // and closes the pipe
//! assert_eq!(sort.wait_with_output()?.stdout, b"a\nb\n");
//! # Ok::<(), std::io::Error>(())
//! ```

// | file | idea |
// |---|---|
// | `command` | std's command, which also remembers which of its streams were set |
// | `child` | waits for a descriptor of the process (a pidfd), and reads both outputs at once |

mod child;
mod command;

#[doc(no_inline)]
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};

pub use self::child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use self::command::Command;
