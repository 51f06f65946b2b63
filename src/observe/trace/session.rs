//! Schedule traces: recording what the scheduler's witness writes down, and making files of it.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | a trace from its beginning to its end |
//! | `collect` | a kernel thread that copies rings while the program runs |
//! | `timeline` | the order of all events: who ran where, from when to when |
//! | `decode` | from a ring's words to events with times |
//! | `outside` | the events of threads that own no processor |
//! | `json` | a file for Perfetto and Chrome |
//! | `page` | a page for any browser, with `page.html` as its text |
//! | `text` | text within JSON, numbers as text, base64 |
//! | `environment` | `GREENTHREAD_TRACE`: the trace of a whole process |
//!
//! Invariant: one trace at a time is written ([`BUSY`]). Traces have numbers from 1 to 15, which come round
//! again; by its number a thread is known to have been introduced.

mod collect;
mod decode;
pub(crate) mod environment;
mod json;
mod outside;
mod page;
mod text;
mod timeline;

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use self::collect::Collector;
pub(crate) use self::timeline::Timeline;
use crate::engine::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::engine::sched::fork;
use crate::engine::sched::witness::words::SESSION_SHIFT;
use crate::engine::sched::witness::{ON, TRACE};

/// Whether a trace is being written.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The number of the last trace.
static LAST: AtomicU32 = AtomicU32::new(0);
const MOST: u32 = 15;

/// A trace that is being written. Dropped, it ends.
pub(crate) struct Session {
    stop: Arc<Stop>,
    collector: Option<JoinHandle<Timeline>>,
}

/// Says to the collector that the trace is over.
#[derive(Default)]
struct Stop {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn say(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for so long at most. True: the trace is over.
    fn wait(&self, timeout: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_over, timeout, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Session {
    /// Begins a trace.
    pub(crate) fn start() -> io::Result<Session> {
        // Acquire: partner: Release in `release`.
        if BUSY.swap(true, Ordering::Acquire) {
            let message = "a trace is being written already: one at a time is possible";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        let number = LAST.load(Ordering::Relaxed) % MOST + 1;
        LAST.store(number, Ordering::Relaxed);
        let stop = Arc::new(Stop::default());
        let (ready, is_ready) = mpsc::sync_channel(1);
        let life = {
            let stop = stop.clone();
            move || {
                let collector = Collector::begin(number);
                let _ = ready.send(());
                collector.collect(|pause| stop.wait(pause))
            }
        };
        let builder = std::thread::Builder::new().name("trace".into());
        let collector = builder.spawn(life).inspect_err(|_| release())?;
        // It cannot fail: the collector sends first of all.
        let _ = is_ready.recv();
        ON.fetch_or(TRACE | number << SESSION_SHIFT, Ordering::Relaxed);
        Ok(Session {
            stop,
            collector: Some(collector),
        })
    }

    /// Ends the trace.
    pub(crate) fn finish(mut self) -> io::Result<Timeline> {
        self.end()
    }

    fn end(&mut self) -> io::Result<Timeline> {
        if fork::is_child() {
            // The collector is the parent's, and so is the trace.
            core::mem::forget(self.collector.take());
            return Err(io::Error::other("the trace is the parent's"));
        }
        self.stop.say();
        let over = || io::Error::other("the trace is over");
        let collector = self.collector.take().ok_or_else(over)?;
        let timeline = collector.join();
        // If it has panicked.
        switch_off();
        release();
        timeline.map_err(|_| io::Error::other("the collector of the trace has panicked"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.collector.is_some() {
            let _ = self.end();
        }
    }
}

/// No more events are written.
fn switch_off() {
    ON.fetch_and(!(TRACE | MOST << SESSION_SHIFT), Ordering::Relaxed);
}

fn release() {
    // Release: all that this trace did; partner: Acquire in `start`.
    BUSY.store(false, Ordering::Release);
}
