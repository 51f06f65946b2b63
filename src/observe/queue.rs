//! A queue of events. Any number of threads put, one takes.
//!
//! A writer takes a place by moving `head`, fills it, and writes its first word last. The reader takes
//! places in turn, up to one whose first word is still 0, and clears them. If there is no free place the
//! event is lost, and counted.
//!
//! # Memory orderings
//! - an event → the reader: Release of the first word in `put`, Acquire in `take`.
//! - a free place → the writer: Release of `tail` in `take`, Acquire in `put`.
//!
//! Nobody waits for anybody: a writer that the system does not run holds up the reader's progress, and
//! nothing else.

use crate::engine::facade::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A queue with so many places, for events of so many words.
pub(super) struct Queue<const PLACES: usize, const WORDS: usize> {
    place: [[AtomicU64; WORDS]; PLACES],
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
}

impl<const PLACES: usize, const WORDS: usize> Queue<PLACES, WORDS> {
    pub(super) const fn new() -> Self {
        Queue {
            place: [const { [const { AtomicU64::new(0) }; WORDS] }; PLACES],
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Puts an event, whose first word is not 0.
    pub(super) fn put(&self, event: [u64; WORDS]) {
        let claimed = self.head.fetch_update(Relaxed, Relaxed, |head| {
            // Acquire: the place is free; partner: Release in `take`.
            // The reader may have gone on since `head` was read: then the difference is negative.
            let used = head.wrapping_sub(self.tail.load(Acquire)) as i64;
            (used < PLACES as i64).then_some(head + 1)
        });
        let Ok(head) = claimed else {
            self.lost.fetch_add(1, Relaxed);
            return;
        };
        let place = &self.place[(head % PLACES as u64) as usize];
        for (word, value) in place.iter().zip(event).skip(1) {
            word.store(value, Relaxed);
        }
        // Release: the event; partner: Acquire in `take`.
        place[0].store(event[0], Release);
    }

    /// Takes the oldest event. One thread at a time takes.
    pub(super) fn take(&self) -> Option<[u64; WORDS]> {
        let tail = self.tail.load(Relaxed);
        let place = &self.place[(tail % PLACES as u64) as usize];
        // Acquire: partner: Release in `put`.
        let first = place[0].load(Acquire);
        if first == 0 {
            return None;
        }
        let mut event = [0; WORDS];
        for (value, word) in event.iter_mut().zip(place) {
            *value = word.load(Relaxed);
        }
        place[0].store(0, Relaxed);
        // Release: the place is free; partner: Acquire in `put`.
        self.tail.store(tail + 1, Release);
        Some(event)
    }

    /// How many events were lost since this was last asked.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}
