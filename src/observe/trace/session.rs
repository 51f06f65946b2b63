//! A trace from its beginning to its end: [`Session`]. One at a time is written ([`BUSY`]).
//!
//! The *collector* is a kernel thread that copies what is new in the rings and in the queue, every millisecond or so, into
//! memory, until the trace is over. What is copied beyond [`MOST_WORDS`] is counted and not kept, so a trace shows the
//! beginning of a long run. At the end the collector makes a timeline of it.
//!
//! *`GREENTHREAD_TRACE`*: a trace from the start of the first runtime to the end of the process. The file is written by a
//! handler that libc calls at exit. If the process ends otherwise (a signal, `_exit`, `abort`), nothing is written; a forked child
//! writes nothing.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use super::record::{self, Event, QUEUE};
#[cfg(green)]
use super::ring::Copies;
use super::timeline::{Clock, Timeline};
use crate::engine::facade::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use crate::engine::facade::{clock, is_forked_child, ticks};
use crate::observe::employ;
use crate::observe::observer::{self, TRACE};

/// The words of a trace that are kept: 64 MiB.
const MOST_WORDS: usize = 8 << 20;
/// How soon the collector looks again: if there was something, and if there was not.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(4);

/// Whether a trace is being written.
static BUSY: AtomicBool = AtomicBool::new(false);

/// A trace that is being written. Dropped, it ends.
pub(super) struct Session {
    /// Tells the collector that the trace is over; and what the collector makes of it.
    collector: Option<(Sender<()>, Receiver<Timeline>)>,
}

impl Session {
    /// Begins a trace.
    pub(super) fn start() -> io::Result<Session> {
        // Acquire: partner: Release in `release`.
        if BUSY.swap(true, Acquire) {
            let message = "a trace is being written already: one at a time is possible";
            return Err(io::Error::new(ErrorKind::ResourceBusy, message));
        }
        record::begin();
        let collector = Collector::begin();
        let (stop, is_over) = channel();
        let (result, timeline) = channel();
        let life = move || {
            let _ = result.send(collector.collect(&is_over));
        };
        employ("gt-trace", life).inspect_err(|_| release())?;
        observer::add(TRACE);
        Ok(Session {
            collector: Some((stop, timeline)),
        })
    }

    /// Ends the trace.
    pub(super) fn finish(mut self) -> io::Result<Timeline> {
        self.end()
    }

    fn end(&mut self) -> io::Result<Timeline> {
        let collector = self.collector.take();
        if is_forked_child() {
            // The collector is the parent's, and so is the trace. The collector may have been sending at the fork.
            core::mem::forget(collector);
            return Err(io::Error::other("the trace is the parent's"));
        }
        let timeline = collector.and_then(|(stop, timeline)| {
            drop(stop);
            timeline.recv().ok()
        });
        // If the collector has panicked.
        observer::remove(TRACE);
        release();
        timeline.ok_or_else(|| io::Error::other("the collector of the trace has panicked"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.collector.is_some() {
            let _ = self.end();
        }
    }
}

fn release() {
    // Release: all that this trace did; partner: Acquire in `start`.
    BUSY.store(false, Release);
}

/// What was copied until now.
struct Collector {
    #[cfg(green)]
    copies: Copies,
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
            copies: Copies::begin(),
            outside: Vec::new(),
            lost: 0,
            kept: 0,
            begin: (ticks(), clock::now()),
        }
    }

    /// Copies until the trace is over.
    fn collect(mut self, is_over: &Receiver<()>) -> Timeline {
        let mut pause = SOON;
        while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(pause) {
            pause = if self.copy() { SOON } else { LATER };
        }
        #[cfg(green)]
        let at_end = self.copies.running();
        observer::remove(TRACE);
        self.copy();
        #[cfg(green)]
        let reels = self.copies.finish(at_end);
        #[cfg(not(green))]
        let reels = Vec::new();
        let clock = Clock::new(self.begin, (ticks(), clock::now()));
        Timeline::of(&reels, &self.outside, self.lost, clock)
    }

    /// Copies what is new. True: there was something.
    fn copy(&mut self) -> bool {
        let before = self.kept;
        #[cfg(green)]
        self.copies.copy(MOST_WORDS, &mut self.kept, &mut self.lost);
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
pub(in crate::observe) fn begin(path: &str) -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = Session::start().map(|session| {
            let path = path.replace("%p", &std::process::id().to_string());
            let mut traced = OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
            *traced = Some((session, path.into()));
            // SAFETY: the handler has the type that libc calls, and does not unwind.
            unsafe { at_exit(end) };
        });
    });
    result
}

unsafe extern "C" {
    #[link_name = "atexit"]
    fn at_exit(handler: extern "C" fn()) -> core::ffi::c_int;
}

extern "C" fn end() {
    if is_forked_child() {
        return;
    }
    let traced = OF_PROCESS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some((session, path)) = traced else {
        return;
    };
    let written = session.finish().and_then(|timeline| timeline.save(&path));
    if let Err(error) = written {
        // This is not `eprintln!`, which panics if nobody reads it.
        let _ = writeln!(io::stderr(), "greenthread: {}: {error}", path.display());
    }
}

/// What writes a timeline to a file.
type Writer = fn(&Timeline, &mut dyn Write) -> io::Result<()>;

/// How to write a file of this name: a page if the name ends in `.html`, JSON if it ends in `.json`.
pub(in crate::observe) fn writer(path: &Path) -> Option<Writer> {
    match path.extension()?.to_str()? {
        "html" => Some(Timeline::write_html),
        "json" => Some(Timeline::write_json),
        _ => None,
    }
}

impl Timeline {
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let Some(writer) = writer(path) else {
            let path = path.display();
            let message = format!("{path}: accepted is a path that ends in .html or .json");
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        };
        self.write_with(writer, File::create(path)?)
    }

    pub(super) fn write_with(&self, writer: Writer, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        writer(self, &mut out)?;
        out.flush()
    }
}
