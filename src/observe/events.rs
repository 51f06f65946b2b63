//! [`publish_events`]: what happens to threads, as events of the crate tracing.
//!
//! The scheduler must not run a subscriber's code, which allocates and locks. So it leaves short items in a queue
//! (`news`), and an ordinary kernel thread makes events of them.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use crate::engine::door::helper;
use crate::engine::door::news::{self, Happened, Item};

/// How soon the queue is looked at again: if there was something, and if there was not.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(20);

/// Tells the subscriber of the crate [tracing](https://docs.rs/tracing), from now on, what happens to threads.
///
/// The events have the target `greenthread`:
///
/// | message | level | fields |
/// |---|---|---|
/// | `thread spawned`, `thread ended` | `TRACE` | `thread`, `name`, `spawned_at` |
/// | `time slice over`: the thread has computed for a whole slice, and others wait | `DEBUG` | `thread`, `name`, `spawned_at` |
/// | `kernel thread blocked`: a thread has lost its processor in a system call | `DEBUG` | `call`, `spawned_at` |
/// | `deadlock`: every thread waits for another one | `ERROR` | `threads` |
/// | `events lost`: more has happened than could be told | `WARN` | `count` |
///
/// `thread` is the number in the thread's [`ThreadId`](crate::ThreadId); of a long `name` the first 32 bytes are
/// told. The subscriber is called on a kernel thread of its own, some milliseconds later, so an event is
/// in no span. Use a global subscriber (`tracing::subscriber::set_global_default`).
///
/// Spans need none of this: a thread keeps the span that it has entered, wherever it runs, since each green
/// thread has thread-locals of its own.
///
/// A second call does nothing. This needs the feature `tracing`.
///
/// # Errors
///
/// The system's error if it refuses a kernel thread.
///
/// # Examples
///
/// ```
/// greenthread::observe::publish_events()?;
/// let span = tracing::info_span!("request", number = 7);
/// let thread = greenthread::spawn(move || {
///     let _entered = span.entered();
///     greenthread::yield_now(); // others run, in their own spans
///     tracing::info!("still in the span");
/// });
/// thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn publish_events() -> io::Result<()> {
    static BEGUN: Mutex<bool> = Mutex::new(false);
    let mut begun = BEGUN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if !*begun {
        helper::spawn("gt-events", helper::OBSERVER_STACK, Box::new(live))?;
        news::want();
        *begun = true;
    }
    Ok(())
}

fn live() {
    loop {
        let mut pause = LATER;
        while let Some(item) = news::take() {
            tell(&item);
            pause = SOON;
        }
        match news::take_lost() {
            0 => {}
            count => tracing::warn!(target: "greenthread", count, "events lost"),
        }
        std::thread::sleep(pause);
    }
}

fn tell(item: &Item) {
    let (thread, name, figure) = (item.thread, item.name.as_str(), item.figure);
    let spawned_at = item.spawned_at.map(tracing::field::display);
    match item.what {
        Happened::Spawned => {
            tracing::trace!(target: "greenthread", thread, name, spawned_at, "thread spawned");
        }
        Happened::Ended => {
            tracing::trace!(target: "greenthread", thread, name, spawned_at, "thread ended");
        }
        Happened::Preempted => {
            tracing::debug!(target: "greenthread", thread, name, spawned_at, "time slice over");
        }
        Happened::Blocked => {
            let call = call_name(figure);
            tracing::debug!(target: "greenthread", call, spawned_at, "kernel thread blocked");
        }
        Happened::Deadlock => {
            tracing::error!(target: "greenthread", threads = figure, "deadlock");
        }
    }
}

#[cfg(green)]
fn call_name(number: u64) -> String {
    crate::engine::inspect::system::syscalls::name(number as i64)
}

#[cfg(not(green))]
fn call_name(number: u64) -> String {
    format!("syscall {number}")
}
