//! [`publish_events`]: what happens to threads, as events of the crate tracing.
//!
//! The scheduler must not run a subscriber's code, which allocates and locks. So it leaves short items in a queue, and an
//! ordinary kernel thread makes events of them. An item has no address of anything that may be gone: a name is copied
//! as far as there is room, and the place of a spawn is static.

use core::panic::Location;

use super::observer::{EVENTS, Queue, listens};
use crate::engine::inspect::Identity;

/// The words of a name that are kept.
const NAME: usize = 4;
/// The words of an item: what has happened, the thread's number, where it was spawned, a figure, its name.
const ITEM: usize = 4 + NAME;

static QUEUE: Queue<{ 1 << 13 }, ITEM> = Queue::new();

/// What has happened.
pub(super) const SPAWNED: u64 = 1;
pub(super) const ENDED: u64 = 2;
/// A thread's time slice was over, and the thread was made to give way.
pub(super) const PREEMPTED: u64 = 3;
/// A thread has lost its processor in a system call, whose number is the figure.
const BLOCKED: u64 = 4;
/// All threads wait for each other; the figure is their number.
const DEADLOCK: u64 = 5;

/// `what` has happened to this thread.
pub(super) fn of_thread(what: u64, thread: Option<&Identity>) {
    if let Some(thread) = thread {
        let name = thread.name().unwrap_or("");
        put(what, thread.id().get(), name, thread.spawned_at, 0);
    }
}

/// A thread has lost its processor in a system call; only the place is known.
#[cfg(green)]
pub(super) fn blocked(place: &crate::engine::probe::BlockedSite) {
    put(BLOCKED, 0, "", place.spawned_at(), place.call() as u64);
}

pub(super) fn deadlock(threads: usize) {
    put(DEADLOCK, 0, "", None, threads as u64);
}

fn put(what: u64, thread: u64, name: &str, place: Option<&'static Location<'static>>, figure: u64) {
    if !listens(EVENTS) {
        return;
    }
    let place = place.map_or(0, |at| core::ptr::from_ref(at).expose_provenance());
    let mut item = [0; ITEM];
    item[..4].copy_from_slice(&[what, thread, place as u64, figure]);
    for (word, part) in item[4..].iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        *word = u64::from_le_bytes(bytes);
    }
    QUEUE.put(item);
}

#[cfg(feature = "tracing")]
pub(super) mod publish {
    use super::{BLOCKED, ENDED, ITEM, PREEMPTED, QUEUE, SPAWNED};
    use std::io;
    use std::panic::Location;
    use std::sync::Mutex;
    use std::time::Duration;

    use crate::observe::observer::{self, EVENTS};
    use crate::observe::{employ, lock};

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
        let mut begun = lock(&BEGUN);
        if !*begun {
            employ("gt-events", live)?;
            observer::listen(EVENTS, true);
            *begun = true;
        }
        Ok(())
    }

    fn live() {
        loop {
            let mut pause = LATER;
            while let Some(item) = QUEUE.take() {
                tell(item);
                pause = SOON;
            }
            match QUEUE.take_lost() {
                0 => {}
                count => tracing::warn!(target: "greenthread", count, "events lost"),
            }
            std::thread::sleep(pause);
        }
    }

    fn tell([what, thread, place, figure, name @ ..]: [u64; ITEM]) {
        // A name has no zero in it.
        let bytes = name.into_iter().flat_map(u64::to_le_bytes);
        let name: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        // The end of a long name is cut, perhaps within a character.
        let name = name.utf8_chunks().next();
        let name = name.map_or("", |name| name.valid());
        let place = core::ptr::with_exposed_provenance::<Location<'static>>(place as usize);
        // SAFETY: `put` has written the word: null, or the address of a static location.
        let spawned_at = unsafe { place.as_ref() }.map(tracing::field::display);
        match what {
            SPAWNED => {
                tracing::trace!(target: "greenthread", thread, name, spawned_at, "thread spawned");
            }
            ENDED => {
                tracing::trace!(target: "greenthread", thread, name, spawned_at, "thread ended");
            }
            PREEMPTED => {
                tracing::debug!(target: "greenthread", thread, name, spawned_at, "time slice over");
            }
            #[cfg(green)]
            BLOCKED => {
                let call = crate::engine::inspect::system::kernel_thread::call_name(figure as i64);
                tracing::debug!(target: "greenthread", call, spawned_at, "kernel thread blocked");
            }
            _ => tracing::error!(target: "greenthread", threads = figure, "deadlock"),
        }
    }
}
