//! Standard input, like std's, but its calls block only the green thread (`facade::may_block`).
//!
//! The descriptor is shared with other processes (the shell, and other programs on the terminal),
//! so it is never put into non-blocking mode. The buffer and its lock are std's: `std::io::stdin`
//! reads the same stream, and nothing is lost between the two.

use std::io::{self, BufRead, IsTerminal, Lines};

use super::macros::{read_through, shows_descriptor};
use crate::engine::facade::{may_block, unless_in_frame};

/// A handle to the standard input of the process, like [`std::io::Stdin`], created by [`stdin`].
///
/// # Examples
///
/// ```no_run
/// use greenthread::io;
///
/// let mut line = String::new();
/// io::stdin().read_line(&mut line)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stdin(io::Stdin);

/// A locked handle to standard input, like [`std::io::StdinLock`], created by [`Stdin::lock`].
///
/// # Examples
///
/// ```no_run
/// use greenthread::io::{self, BufRead};
///
/// let mut line = String::new();
/// io::stdin().lock().read_line(&mut line)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StdinLock<'a>(io::StdinLock<'a>);

/// Creates a handle to the standard input of the process.
///
/// Standard input is buffered, and all handles share the buffer.
///
/// # Examples
///
/// ```no_run
/// for line in greenthread::io::stdin().lines() {
///     println!("{} bytes", line?.len());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn stdin() -> Stdin {
    Stdin(io::stdin())
}

impl Stdin {
    /// Locks standard input, waiting until no other thread has it locked.
    ///
    /// Standard input is unlocked when the returned handle is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::io::{self, Read};
    ///
    /// let mut all = String::new();
    /// io::stdin().lock().read_to_string(&mut all)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock(may_block(|| self.0.lock()))
    }

    /// Reads a line, appends it to `buffer` with its line break, and returns its length in bytes.
    ///
    /// The length is 0 at the end of the input.
    ///
    /// # Errors
    ///
    /// Returns the errors of `read(2)`, and `InvalidData` if the line is not UTF-8.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::io;
    ///
    /// let mut name = String::new();
    /// while io::stdin().read_line(&mut name)? > 0 {
    ///     println!("hello, {}", name.trim_end());
    ///     name.clear();
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn read_line(&self, buffer: &mut String) -> io::Result<usize> {
        self.lock().read_line(buffer)
    }

    /// Returns an iterator over the lines of the input, without their line breaks.
    ///
    /// It keeps standard input locked until it is dropped.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use greenthread::io;
    ///
    /// let longest = io::stdin().lines().map_while(Result::ok).max_by_key(String::len);
    /// println!("{longest:?}");
    /// ```
    #[must_use]
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Returns whether standard input is a terminal.
    ///
    /// In std this is a method of the trait [`std::io::IsTerminal`], which other crates cannot
    /// implement.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::io;
    ///
    /// if io::stdin().is_terminal() {
    ///     println!("please type");
    /// }
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl StdinLock<'_> {
    /// Returns whether standard input is a terminal.
    ///
    /// In std this is a method of the trait [`std::io::IsTerminal`], which other crates cannot
    /// implement.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::io;
    ///
    /// if io::stdin().lock().is_terminal() {
    ///     println!("please type");
    /// }
    /// ```
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

/// In a frame, which is to end it, libc's `read` parks the thread, where it is hooked.
fn waits<T>(call: impl FnOnce() -> T) -> T {
    unless_in_frame(may_block, call)
}

read_through!(&Stdin, this => this.lock(), waits);
read_through!(Stdin, this => this.lock(), waits);
read_through!(StdinLock<'_>, this => this.0, waits);

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        waits(|| self.0.fill_buf())
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

shows_descriptor!(Stdin);
shows_descriptor!(StdinLock<'_>);
