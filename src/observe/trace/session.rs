//! A trace from its beginning to its end: [`Session`]. One at a time is written ([`BUSY`]).
//!
//! Traces have numbers. With its number in a trace, a thread keeps that of the trace: so the next trace knows that it has to
//! introduce the thread again. In the words of an event there is room for a short one, from 1 to 15.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::collect::Collector;
use super::timeline::Timeline;
use super::words::SESSION_SHIFT;
use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::engine::facade::{is_forked_child, spawn_helper};
use crate::observe::observer::{self, TRACE};

/// Whether a trace is being written.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The number of the present trace, or of the last one.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The number of the present trace.
#[inline]
pub(super) fn current() -> u32 {
    NUMBER.load(Ordering::Relaxed)
}

/// As a trace numbers threads: the thread's number, above it the short number of the present trace, and above that the
/// trace's whole number.
pub(super) fn numbered(thread: u32) -> u64 {
    let trace = current();
    u64::from(trace) << 32 | u64::from(short(trace) << SESSION_SHIFT | thread)
}

/// The trace that has numbered a thread so; 0: none.
#[inline]
pub(super) fn of(numbered: u64) -> u32 {
    (numbered >> 32) as u32
}

fn short(trace: u32) -> u32 {
    trace % 15 + 1
}

/// A trace that is being written. Dropped, it ends.
pub(super) struct Session {
    stop: Arc<Stop>,
    /// What the collector makes of it.
    timeline: Option<mpsc::Receiver<Timeline>>,
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
    pub(super) fn start() -> io::Result<Session> {
        // Acquire: partner: Release in `release`.
        if BUSY.swap(true, Ordering::Acquire) {
            let message = "a trace is being written already: one at a time is possible";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
        }
        let number = current().wrapping_add(1).max(1);
        NUMBER.store(number, Ordering::Relaxed);
        let stop = Arc::new(Stop::default());
        let (ready, is_ready) = mpsc::sync_channel(1);
        let (result, timeline) = mpsc::sync_channel(1);
        let life = {
            let stop = stop.clone();
            move || {
                let collector = Collector::begin(short(number));
                let _ = ready.send(());
                let _ = result.send(collector.collect(|pause| stop.wait(pause)));
            }
        };
        spawn_helper("gt-trace", Box::new(life)).inspect_err(|_| release())?;
        // It cannot fail: the collector sends first of all.
        let _ = is_ready.recv();
        observer::add(TRACE);
        Ok(Session {
            stop,
            timeline: Some(timeline),
        })
    }

    /// Ends the trace.
    pub(super) fn finish(mut self) -> io::Result<Timeline> {
        self.end()
    }

    fn end(&mut self) -> io::Result<Timeline> {
        if is_forked_child() {
            // The collector is the parent's, and so is the trace. It may have been sending at the fork.
            core::mem::forget(self.timeline.take());
            return Err(io::Error::other("the trace is the parent's"));
        }
        self.stop.say();
        let over = || io::Error::other("the trace is over");
        let timeline = self.timeline.take().ok_or_else(over)?.recv();
        // If it has panicked.
        observer::remove(TRACE);
        release();
        timeline.map_err(|_| io::Error::other("the collector of the trace has panicked"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.timeline.is_some() {
            let _ = self.end();
        }
    }
}

fn release() {
    // Release: all that this trace did; partner: Acquire in `start`.
    BUSY.store(false, Ordering::Release);
}
