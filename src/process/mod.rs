//! Child processes, as [`std::process`], blocking only the green thread.
//!
//! Replace `std::process` by `greenthread::process` in the imports and nothing else. `Stdio`,
//! `ExitStatus` and `Output` are std's own.
//!
//! | file | idea |
//! |---|---|
//! | `command` | std's command, which remembers what it was told about its streams |
//! | `child` | waiting for a descriptor of the process (a pidfd), and reading both outputs at once |
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

mod child;
mod command;

#[doc(no_inline)]
pub use std::process::{
    CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, exit, id,
};

pub use self::child::{Child, ChildStderr, ChildStdin, ChildStdout};
pub use self::command::Command;
