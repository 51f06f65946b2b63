//! How a process is started.

use std::ffi::OsStr;
use std::path::Path;
use std::{fmt, io, process};

use super::{Child, CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};
use crate::thread::blocking;

/// How a process is started, as [`std::process::Command`].
///
/// What only Unix has comes by [`CommandExt`](crate::os::unix::process::CommandExt), as with std's.
///
/// # Examples
///
/// ```
/// use greenthread::process::Command;
///
/// let status = Command::new("sh").args(["-c", "exit $CODE"]).env("CODE", "3").status()?;
/// assert_eq!(status.code(), Some(3));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Command {
    std: process::Command,
    streams: Streams,
}

/// The streams that the user has set; the others get a default, which is not the same for each call.
#[derive(Clone, Copy, Default)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// Methods of std's command that return it.
macro_rules! building {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident$(<$($P:ident: $Bound:path),+>)?(&mut self $(, $argument:ident: $Type:ty)*);
    )*) => {$(
        $(#[$attribute])*
        pub fn $name$(<$($P: $Bound),+>)?(&mut self $(, $argument: $Type)*) -> &mut Command {
            self.std.$name($($argument),*);
            self
        }
    )*};
}

/// Methods that set a stream.
macro_rules! stream {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        pub fn $name<T: Into<Stdio>>(&mut self, to: T) -> &mut Command {
            self.std.$name(to);
            self.streams.$name = true;
            self
        }
    )*};
}

impl Command {
    /// `program`, without arguments, with the environment and working directory of this process.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command {
            std: process::Command::new(program),
            streams: Streams::default(),
        }
    }

    building! {
        /// One more argument, passed as it is.
        fn arg<S: AsRef<OsStr>>(&mut self, argument: S);
        /// A variable of the new process's environment.
        fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, name: K, value: V);
        /// The new process does not inherit this variable.
        fn env_remove<K: AsRef<OsStr>>(&mut self, name: K);
        /// The new process inherits no variables, and those set so far are forgotten.
        fn env_clear(&mut self);
        /// The directory in which the new process starts.
        fn current_dir<P: AsRef<Path>>(&mut self, directory: P);
    }

    stream! {
        /// Where the input comes from. By default it is this process's own; for
        /// [`output`](Command::output) there is none.
        stdin
        /// Where the output goes. By default to this process's own; for
        /// [`output`](Command::output) into a pipe.
        stdout
        /// Where error messages go. By default to this process's own; for
        /// [`output`](Command::output) into a pipe.
        stderr
    }

    /// More arguments, each passed as it is.
    pub fn args<I, S>(&mut self, arguments: I) -> &mut Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.std.args(arguments);
        self
    }

    /// Variables of the new process's environment.
    pub fn envs<I, K, V>(&mut self, variables: I) -> &mut Command
    where
        I: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        self.std.envs(variables);
        self
    }

    /// Starts the process.
    ///
    /// # Errors
    /// The program cannot be executed (`NotFound`, `PermissionDenied`), or there is no room for
    /// another process or for its pipes.
    pub fn spawn(&mut self) -> io::Result<Child> {
        // Until the new process has become the program, a kernel thread waits for it.
        blocking(|| self.std.spawn()).map(Child::from)
    }

    /// Runs the program to its end, and gathers what it writes.
    ///
    /// # Errors
    /// Those of [`spawn`](Command::spawn) and of reading from pipes.
    pub fn output(&mut self) -> io::Result<Output> {
        let set = self.streams;
        self.others(set, Stdio::null, Stdio::piped);
        let child = self.spawn();
        self.others(set, Stdio::inherit, Stdio::inherit); // what a new command has
        child?.wait_with_output()
    }

    /// What the streams that are not `set` are to be.
    fn others(&mut self, set: Streams, stdin: fn() -> Stdio, output: fn() -> Stdio) {
        if !set.stdin {
            self.std.stdin(stdin());
        }
        if !set.stdout {
            self.std.stdout(output());
        }
        if !set.stderr {
            self.std.stderr(output());
        }
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// Those of [`spawn`](Command::spawn).
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// The arguments, without the program's name.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// The variables that were set or, without a value, removed.
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// The directory that was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}

impl Command {
    /// std's, for what only Unix has.
    pub(crate) fn std_mut(&mut self) -> &mut process::Command {
        &mut self.std
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}
