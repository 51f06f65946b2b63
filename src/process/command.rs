//! [`Command`]: std's command, and a record of the streams that were set.

use std::ffi::OsStr;
use std::path::Path;
use std::{fmt, io, process};

use super::{Child, CommandArgs, CommandEnvs, ExitStatus, Output, Stdio};
use crate::io::macros::building;
use crate::thread::blocking;

/// Configures and starts a process, like [`std::process::Command`].
///
/// The methods that exist only on Unix are in the trait
/// [`CommandExt`](crate::os::unix::process::CommandExt), as in std.
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
    pub(crate) std: process::Command,
    streams: Streams,
}

/// The streams that the user has set. The others get a default, which depends on the call that
/// starts the process.
#[derive(Default)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
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
    /// Creates a command that runs `program`.
    ///
    /// By default the process gets no arguments, and inherits the environment, the working
    /// directory and the streams of this process.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// assert!(Command::new("true").status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<S: AsRef<OsStr>>(program: S) -> Command {
        Command {
            std: process::Command::new(program),
            streams: Streams::default(),
        }
    }

    building! { std:
        /// Adds an argument. It is passed as it is: no shell splits or expands it.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("echo").arg("two  words").arg("$HOME").output()?;
        /// assert_eq!(output.stdout, b"two  words $HOME\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn arg<S: AsRef<OsStr>>(&mut self, argument: S);
        /// Adds several arguments, each of which is passed as it is.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("echo").args(["one", "two"]).output()?;
        /// assert_eq!(output.stdout, b"one two\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&mut self, arguments: I);
        /// Sets several variables in the environment of the new process.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let mut command = Command::new("sh");
        /// command.args(["-c", "echo $FIRST $SECOND"]).envs([("FIRST", "1"), ("SECOND", "2")]);
        /// assert_eq!(command.output()?.stdout, b"1 2\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn envs<I: IntoIterator<Item = (K, V)>, K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, variables: I);
        /// Sets a variable in the environment of the new process.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("sh").args(["-c", "echo $COLOUR"]).env("COLOUR", "green").output()?;
        /// assert_eq!(output.stdout, b"green\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn env<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, name: K, value: V);
        /// Removes a variable from the environment of the new process, whether it was set here or
        /// is inherited.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("/bin/sh").args(["-c", "echo ${HOME-none}"]).env_remove("HOME").output()?;
        /// assert_eq!(output.stdout, b"none\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn env_remove<K: AsRef<OsStr>>(&mut self, name: K);
        /// Clears the environment of the new process: it inherits no variables, and those set so
        /// far are forgotten.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let mut command = Command::new("/usr/bin/env");
        /// let output = command.env_clear().env("ONLY", "this").output()?;
        /// assert_eq!(output.stdout, b"ONLY=this\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn env_clear(&mut self);
        /// Sets the working directory of the new process.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("pwd").current_dir("/").output()?;
        /// assert_eq!(output.stdout, b"/\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn current_dir<P: AsRef<Path>>(&mut self, directory: P);
    }

    stream! {
        /// Sets the standard input of the new process.
        ///
        /// By default it is inherited from this process; with [`output`](Command::output) it is
        /// empty.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::fs::File;
        /// use greenthread::process::Command;
        ///
        /// let output = Command::new("head").args(["-n", "1"]).stdin(File::open("Cargo.toml")?).output()?;
        /// assert_eq!(output.stdout, b"[package]\n");
        /// # Ok::<(), std::io::Error>(())
        /// ```
        stdin
        /// Sets the standard output of the new process.
        ///
        /// By default it is inherited from this process; with [`output`](Command::output) it is a
        /// pipe.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::{Command, Stdio};
        ///
        /// let status = Command::new("echo").arg("nobody reads this").stdout(Stdio::null()).status()?;
        /// assert!(status.success());
        /// # Ok::<(), std::io::Error>(())
        /// ```
        stdout
        /// Sets the standard error of the new process.
        ///
        /// By default it is inherited from this process; with [`output`](Command::output) it is a
        /// pipe.
        ///
        /// # Examples
        ///
        /// ```
        /// use greenthread::process::{Command, Stdio};
        ///
        /// let mut command = Command::new("cat");
        /// let status = command.arg("no such file").stderr(Stdio::null()).status()?;
        /// assert!(!status.success());
        /// # Ok::<(), std::io::Error>(())
        /// ```
        stderr
    }

    /// Starts the process and returns a handle to it.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` or `PermissionDenied` if the program cannot be executed; other errors if
    /// there is no room for another process or for its pipes.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    /// use std::io::ErrorKind;
    ///
    /// let mut child = Command::new("true").spawn()?;
    /// assert!(child.wait()?.success());
    ///
    /// let error = Command::new("no such program").spawn().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn(&mut self) -> io::Result<Child> {
        // The call blocks its kernel thread until the new process has become the program.
        blocking(|| self.std.spawn()).map(Child::from)
    }

    /// Runs the process to its end, and collects its standard output and standard error.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`spawn`](Command::spawn), and those of reading from pipes.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// let output = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 1"]).output()?;
    /// assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
    /// assert_eq!(output.status.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn output(&mut self) -> io::Result<Output> {
        self.others(Stdio::null, Stdio::piped);
        let child = self.spawn();
        self.others(Stdio::inherit, Stdio::inherit); // what a new command has
        let mut child = child?;
        let output = child.collect();
        child.or_kill(output)
    }

    /// Sets the streams that the user has not set.
    fn others(&mut self, stdin: fn() -> Stdio, output: fn() -> Stdio) {
        if !self.streams.stdin {
            self.std.stdin(stdin());
        }
        if !self.streams.stdout {
            self.std.stdout(output());
        }
        if !self.streams.stderr {
            self.std.stderr(output());
        }
    }

    /// Runs the process to its end, and returns its exit status.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`spawn`](Command::spawn).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// assert_eq!(Command::new("false").status()?.code(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let mut child = self.spawn()?;
        let status = child.wait();
        child.or_kill(status)
    }

    /// Returns the program that was given to [`new`](Command::new).
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// assert_eq!(Command::new("echo").get_program(), "echo");
    /// ```
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.std.get_program()
    }

    /// Returns an iterator over the arguments, without the program's name.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// let mut command = Command::new("echo");
    /// command.arg("one").arg("two");
    /// assert_eq!(command.get_args().collect::<Vec<_>>(), ["one", "two"]);
    /// ```
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.std.get_args()
    }

    /// Returns an iterator over the variables that were set or, with `None` as their value,
    /// removed.
    ///
    /// Inherited variables are not among them.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// let mut command = Command::new("env");
    /// command.env("KEY", "value").env_remove("OTHER");
    /// let variables: Vec<_> = command.get_envs().collect();
    /// assert_eq!(variables.len(), 2);
    /// assert!(variables.contains(&("OTHER".as_ref(), None)));
    /// ```
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.std.get_envs()
    }

    /// Returns the working directory that was set, or `None` if none was.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::process::Command;
    ///
    /// let mut command = Command::new("pwd");
    /// assert_eq!(command.get_current_dir(), None);
    /// command.current_dir("/");
    /// assert_eq!(command.get_current_dir(), Some("/".as_ref()));
    /// ```
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.std.get_current_dir()
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}
