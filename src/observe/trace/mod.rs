//! [`trace`]: the schedule of a piece of work, for files and browsers.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | what users see; a trace from its beginning to its end, and that of a whole process |
//! | `record` | how an event is written, in words of 64 bits; the queue of events that happen on no processor |
//! | `ring` | a processor's ring of words; what is written down of the scheduler's events; copies of rings |
//! | `timeline` | from words to the order of all events: who ran where, from when to when |
//! | `write` | a file for Perfetto and Chrome; a page for any browser (`page.html`, `page.js`) |
//!
//! One trace at a time is written ([`BUSY`]).
//!
//! The *collector* is a kernel thread that copies what is new in the rings and in the queue, every millisecond or so, into
//! memory, until the trace is over. What is copied beyond [`MOST_WORDS`] is counted and not kept, so a trace shows the
//! beginning of a long run. At the end the collector makes a timeline of it.
//!
//! *`GREENTHREAD_TRACE`*: a trace from the start of the first runtime to the end of the process. The file is written by a
//! handler that libc calls at exit. If the process ends otherwise (a signal, `_exit`, `abort`), nothing is written; a forked child
//! writes nothing.

pub(super) mod record;
#[cfg(green)]
pub(super) mod ring;
#[cfg_attr(not(green), allow(dead_code, reason = "no processor has a ring"))]
mod timeline;
mod write;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use self::record::{Event, QUEUE};
use self::timeline::{Clock, Timeline};
use super::observer::{self, TRACE};
use super::{employ, lock};
use crate::arch::ticks;
use crate::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::engine::facade::is_forked_child;
use crate::sys::clock;

/// Runs `work` and records the schedule meanwhile: of all runtimes, and of all their threads, not only
/// of those that `work` starts.
///
/// A trace shows on which processor each thread ran, from when to when, and why it stopped; who woke or
/// spawned it; steals, preemptions, deadlines, events of descriptors, and processors that sleep or
/// are taken from threads that are blocked in the kernel. Of kernel threads, and so of all threads in
/// [`Mode::Kernel`](crate::engine::public::Mode::Kernel), it shows when they run and when they wait for other
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
    let mut session = Session::start()?;
    let result = work();
    Ok((result, session.end()?))
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
        self.write_with(Timeline::write_html, out)
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
        self.write_with(Timeline::write_json, out)
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
        let path = path.as_ref();
        let Some(writer) = writer(path) else {
            let path = path.display();
            let message = format!("{path}: accepted is a path that ends in .html or .json");
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        };
        self.write_with(writer, File::create(path)?)
    }

    fn write_with(&self, writer: Writer, out: impl Write) -> io::Result<()> {
        let out: Box<dyn Write + '_> = Box::new(out);
        let mut out = BufWriter::with_capacity(1 << 16, out);
        writer(&self.0, &mut out)?;
        out.flush()
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
        Duration::from_nanos(self.0.clock.length)
    }
}

without_details! { [] Trace, "Trace", |trace| duration: trace.duration(), lost: trace.lost(); }

/// The words of a trace that are kept: 64 MiB.
const MOST_WORDS: usize = 8 << 20;
/// How soon the collector looks again: if there was something, and if there was not.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(4);

/// Whether a trace is being written.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Whether the trace that is being written is over. Relaxed: the collector's thread is unparked after that, and looks.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// What the collector has made of the last trace, until that is taken.
static RESULT: Mutex<Option<Trace>> = Mutex::new(None);

/// A trace that is being written, and the thread of its collector. Dropped, it ends.
struct Session(Option<JoinHandle<()>>);

impl Session {
    /// Begins a trace.
    fn start() -> io::Result<Session> {
        // Acquire: partner: Release below and in `end`.
        if BUSY.swap(true, Acquire) {
            let message = "a trace is being written already: one at a time is possible";
            return Err(io::Error::new(ErrorKind::ResourceBusy, message));
        }
        record::begin();
        IS_OVER.store(false, Relaxed);
        let collector = Collector::begin();
        let life = move || *lock(&RESULT) = Some(Trace(collector.collect()));
        // Release: partner: Acquire above.
        let give_up = |_: &io::Error| BUSY.store(false, Release);
        let thread = employ("gt-trace", life).inspect_err(give_up)?;
        observer::listen(TRACE, true);
        Ok(Session(Some(thread)))
    }

    /// Ends the trace.
    fn end(&mut self) -> io::Result<Trace> {
        let collector = self.0.take();
        if is_forked_child() {
            // The collector's thread is the parent's, and so is the trace.
            core::mem::forget(collector);
            return Err(io::Error::other("the trace is the parent's"));
        }
        IS_OVER.store(true, Relaxed);
        if let Some(collector) = collector {
            collector.thread().unpark();
            // If the collector has panicked, there is no result.
            let _ = collector.join();
        }
        observer::listen(TRACE, false);
        let trace = lock(&RESULT).take();
        // Release: all that this trace did; partner: Acquire in `start`.
        BUSY.store(false, Release);
        trace.ok_or_else(|| io::Error::other("the collector of the trace has panicked"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = self.end();
        }
    }
}

/// What was copied until now.
#[derive(Default)]
struct Collector {
    #[cfg(green)]
    copies: Vec<ring::Copied>,
    outside: Vec<Event>,
    /// Words and events that are not in the above; and how many words are.
    lost: u64,
    kept: usize,
    begin: (u64, u64),
}

impl Collector {
    /// Forgets what the rings and the queue still have of earlier traces.
    fn begin() -> Collector {
        while QUEUE.take().is_some() {}
        QUEUE.take_lost();
        Collector {
            #[cfg(green)]
            copies: ring::begin(),
            begin: (ticks(), clock::now()),
            ..Collector::default()
        }
    }

    /// Copies until the trace is over.
    fn collect(mut self) -> Timeline {
        while !IS_OVER.load(Relaxed) {
            thread::park_timeout(if self.copy() { SOON } else { LATER });
        }
        self.copy();
        observer::listen(TRACE, false);
        #[cfg(green)]
        let reels = self.copies.into_iter().map(ring::Copied::finish).collect();
        #[cfg(not(green))]
        let reels = Vec::new();
        let clock = Clock::new(self.begin, (ticks(), clock::now()));
        Timeline::of(reels, &self.outside, self.lost, clock)
    }

    /// Copies what is new. True: there was something.
    fn copy(&mut self) -> bool {
        let before = self.kept;
        #[cfg(green)]
        ring::copy(&mut self.copies, MOST_WORDS, &mut self.kept, &mut self.lost);
        while let Some(event) = QUEUE.take() {
            if self.kept + event.len() <= MOST_WORDS {
                self.outside.push(event);
                self.kept += event.len();
            } else {
                self.lost += 1;
            }
        }
        self.lost += QUEUE.take_lost();
        self.kept != before
    }
}

/// The trace of the process, and the file that it goes to.
static OF_PROCESS: Mutex<Option<(Session, PathBuf)>> = Mutex::new(None);

/// Begins the trace of the process, once.
pub(super) fn begin(path: &str) -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = Session::start().map(|session| {
            let path = path.replace("%p", &std::process::id().to_string());
            *lock(&OF_PROCESS) = Some((session, path.into()));
            // SAFETY: the handler has the type that libc calls, and does not unwind.
            unsafe { atexit(end) };
        });
    });
    result
}

unsafe extern "C" {
    fn atexit(handler: extern "C" fn()) -> core::ffi::c_int;
}

extern "C" fn end() {
    if is_forked_child() {
        return;
    }
    let Some((mut session, path)) = lock(&OF_PROCESS).take() else {
        return;
    };
    if let Err(error) = session.end().and_then(|trace| trace.save(&path)) {
        // This is not `eprintln!`, which panics if nobody reads it.
        let _ = writeln!(io::stderr(), "greenthread: {}: {error}", path.display());
    }
}

/// What writes a timeline to a file.
type Writer = fn(&Timeline, &mut dyn Write) -> io::Result<()>;

/// How to write a file of this name: a page if the name ends in `.html`, JSON if it ends in `.json`.
pub(super) fn writer(path: &Path) -> Option<Writer> {
    match path.extension()?.to_str()? {
        "html" => Some(Timeline::write_html),
        "json" => Some(Timeline::write_json),
        _ => None,
    }
}
