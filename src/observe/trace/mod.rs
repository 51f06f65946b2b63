//! [`trace`]: the schedule of a piece of work, for files and browsers.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | what users see |
//! | `record` | how an event is written, in words of 64 bits; the queue of events that happen on no processor |
//! | `ring` | a processor's ring of words; what is written down of the scheduler's events; copies of rings |
//! | `session` | a trace from its beginning to its end, and that of a whole process |
//! | `timeline` | from words to the order of all events: who ran where, from when to when |
//! | `json` | a file for Perfetto and Chrome |
//! | `page` | a page for any browser, with `page.html` as its text |

mod json;
mod page;
pub(super) mod record;
#[cfg(green)]
pub(super) mod ring;
pub(super) mod session;
#[cfg_attr(not(green), allow(dead_code, reason = "no processor has a ring"))]
mod timeline;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use self::session::Session;
use self::timeline::Timeline;

/// Runs `work` and records the schedule meanwhile: of all runtimes, and of all their threads, not only
/// of those that `work` starts.
///
/// A trace shows on which processor each thread ran, from when to when, and why it stopped; who woke or
/// spawned it; steals, preemptions, deadlines, events of descriptors, and processors that sleep or
/// are taken from threads that are blocked in the kernel. Of kernel threads, and so of all threads in
/// [`Mode::Kernel`](crate::runtime::Mode::Kernel), it shows when they run and when they wait for other
/// threads. Times have about a microsecond's precision: where threads give way to each other more
/// often, some are interpolated.
///
/// Recording costs a few nanoseconds for each event, and 4 MiB for each processor. Of more than 8 million
/// words (an event is one to four) the later ones are counted ([`Trace::lost`]) and not kept. So are the
/// oldest ones of a processor on which threads give way to each other so quickly that they cannot be
/// copied in time.
///
/// The environment variable `GREENTHREAD_TRACE=path.html` (or `path.json`) records a whole process
/// instead, and writes the file when it exits. `%p` in the path is replaced by the id of the process.
///
/// # Errors
///
/// Returns [`ResourceBusy`](io::ErrorKind::ResourceBusy) if another trace is being recorded, and the system's
/// error if it refuses the kernel thread that records. In both cases `work` does not run. If `work` forks,
/// the child gets an error, because the trace is the parent's.
///
/// # Panics
///
/// If `work` panics, the trace ends, and the panic goes on.
///
/// # Examples
///
/// ```
/// use greenthread::observe;
///
/// let (sum, trace) = observe::trace(|| {
///     let threads: Vec<_> = (0..4).map(|i| greenthread::spawn(move || i * i)).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).sum::<i32>()
/// })?;
/// assert_eq!(sum, 14);
/// let mut page = Vec::new();
/// trace.write_html(&mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn trace<T>(work: impl FnOnce() -> T) -> io::Result<(T, Trace)> {
    let session = Session::start()?;
    let result = work();
    Ok((result, Trace(session.finish()?)))
}

/// The recorded schedule of a piece of work; see [`trace`](trace()).
///
/// # Examples
///
/// ```
/// use greenthread::observe::{self, Trace};
///
/// let (_, trace): (_, Trace) = observe::trace(|| greenthread::spawn(|| ()).join())?;
/// assert_eq!(trace.lost(), 0);
/// assert!(!trace.duration().is_zero());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Trace(Timeline);

impl Trace {
    /// Writes a page that shows the trace in a browser: one file that needs no network.
    ///
    /// # Errors
    ///
    /// Returns the first error that writing to `out` returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::observe;
    ///
    /// let ((), trace) = observe::trace(greenthread::yield_now)?;
    /// trace.write_html(std::io::sink())?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_html(&self, out: impl Write) -> io::Result<()> {
        self.0.write_with(Timeline::write_html, out)
    }

    /// Writes the trace as JSON that [Perfetto](https://ui.perfetto.dev) and Chrome read.
    ///
    /// # Errors
    ///
    /// Returns the first error that writing to `out` returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::observe;
    ///
    /// let ((), trace) = observe::trace(greenthread::yield_now)?;
    /// let mut json = Vec::new();
    /// trace.write_json(&mut json)?;
    /// assert!(json.starts_with(b"{"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_json(&self, out: impl Write) -> io::Result<()> {
        self.0.write_with(Timeline::write_json, out)
    }

    /// Writes the trace to a file: a page if the name ends in `.html`, JSON if it ends in `.json`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) if the name ends otherwise, and the system's
    /// error if the file cannot be created or written.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::observe;
    ///
    /// let ((), trace) = observe::trace(greenthread::yield_now)?;
    /// let path = std::env::temp_dir().join(format!("trace-{}.html", std::process::id()));
    /// trace.save(&path)?;
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.save(path.as_ref())
    }

    /// Returns how many words of the record were lost; an event takes one to four of them.
    ///
    /// # Examples
    ///
    /// ```
    /// let ((), trace) = greenthread::observe::trace(greenthread::yield_now)?;
    /// assert_eq!(trace.lost(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lost(&self) -> u64 {
        self.0.lost
    }

    /// Returns how long was recorded.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pause = Duration::from_millis(2);
    /// let ((), trace) = greenthread::observe::trace(|| greenthread::sleep(pause))?;
    /// assert!(trace.duration() >= pause);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.0.length)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("duration", &self.duration())
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}
