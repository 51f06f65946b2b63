//! The events of threads that own no processor: kernel threads that are not the runtime's, the
//! monitor, machines that have lost their processors. They share one queue.

use super::queue::Queue;
use super::words::{self, Kind, word};
use super::{TRACE, observed};
use crate::engine::arch;

/// An event: its kind with the thread's number, its time in ticks, and two more values.
pub(crate) type Event = [u64; 4];

static QUEUE: Queue<{ 1 << 15 }, 4> = Queue::new();

/// Writes an event that happens now.
pub(super) fn put(kind: Kind, number: u32, a: u64, b: u64) {
    if observed() & TRACE != 0 {
        QUEUE.put([word(kind, number.into()), arch::ticks(), a, b]);
    }
}

/// Introduces a thread.
pub(super) fn introduce(number: u32, name: &str) {
    put(Kind::Named, number, 0, 0);
    words::name(name).for_each(|part| put(Kind::Name, number, part, 0));
}

/// Takes the oldest event. One thread at a time takes.
pub(crate) fn take() -> Option<Event> {
    QUEUE.take()
}

/// How many events were lost since this was last asked.
pub(crate) fn take_lost() -> u64 {
    QUEUE.take_lost()
}
