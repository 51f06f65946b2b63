//! The wake word: how a machine that waits is told to go on.
//!
//! A machine sleeps on this word as a futex, or by collecting events; then the bell wakes it. The
//! word says in which way it sleeps, and what it has been told.
//!
//! | from \ verb | `wake` | `poke` | `sleep` | `sleep_collecting`, at its beginning | … and its end |
//! |---|---|---|---|---|---|
//! | `ASLEEP` | `AWAKE`, futex | `POKED`, futex | blocks | `COLLECTING`, collects | (never) |
//! | `POKED` | `AWAKE` | stays | `ASLEEP`, disturbed | stays | `ASLEEP`, disturbed |
//! | `AWAKE` | (never) | stays | `ASLEEP`, **woken** | stays | `ASLEEP`, **woken** |
//! | `COLLECTING` | `AWAKE`, bell | stays | (never) | (never) | `ASLEEP`, disturbed |
//!
//! The two sleeps are the machine's. `wake` is for the thread that has chosen the machine (that has
//! taken it out of the spares, or has taken the thread that is locked to it out of a queue); `poke`
//! is for any thread. A machine that runs is `ASLEEP` as long as nobody has told it anything.
//!
//! # Invariants
//!
//! 1. No wake-up is lost: only the machine leaves `AWAKE`, and is then told. A poke changes nothing
//!    but `ASLEEP`.
//! 2. A thread that changes the word of a machine that blocks ends the blocking: `ASLEEP` is the
//!    value that the kernel compares before it blocks; and a ring ends the collecting that is about
//!    to begin, too. A poke leaves a collecting machine alone: that already does the thing that a
//!    poke asks for.
//! 3. Only a machine that has the [`Turn`] says `COLLECTING`, and has it until it has said
//!    something else: nobody else can hear the ring.
//! 4. One thread wakes at a time, and not again before the machine was told: the machine is chosen
//!    once.
//! 5. The futex wake and the ring may come late, when the machine has gone on: they disturb the
//!    next sleep, or the machine that has the turn then. Every sleep is in a loop.
//!
//! # Memory orderings
//!
//! The things given to the machine before `wake` are its own when it has been told: Release in
//! `wake`, Acquire in `take`. A poke carries nothing, hence Relaxed. The machine's changes before
//! its sleep go to the thread that chooses it by the list, or the queue, that it was chosen from.

use crate::engine::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    const_fn,
};
use crate::engine::sched::events::{Turn, events};
use crate::engine::sched::list::Fifo;
use crate::engine::sys::{clock, futex};

/// Nobody has told it anything.
const ASLEEP: u32 = 0;
/// It was given a processor, or is dismissed.
const AWAKE: u32 = 1;
/// It is to look again for the thing that it waits for.
const POKED: u32 = 2;
/// It sleeps by collecting events.
const COLLECTING: u32 = 3;

/// Why a machine's sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// It was woken.
    Woken,
    /// It was poked, events have come, or its time is up.
    Disturbed,
}

/// The word that one machine sleeps on. See the file's header.
pub(crate) struct WakeWord(AtomicU32);

impl WakeWord {
    const_fn! {
        pub(crate) const fn new() -> WakeWord {
            WakeWord(AtomicU32::new(ASLEEP))
        }
    }

    /// Takes the message to the machine.
    fn take(&self) -> u32 {
        // Acquire: the things that it was given; partner: Release in `wake`.
        self.0.swap(ASLEEP, Acquire)
    }

    /// Blocks until [`wake`](WakeWord::wake) or [`poke`](WakeWord::poke), or until `deadline`.
    pub(crate) fn sleep(&self, deadline: Option<u64>) -> Slept {
        loop {
            match self.take() {
                AWAKE => return Slept::Woken,
                POKED => return Slept::Disturbed,
                _ if deadline.is_some_and(|d| clock::now() >= d) => return Slept::Disturbed,
                _ => futex::wait(&self.0, ASLEEP, deadline),
            }
        }
    }

    /// The same, but collects events meanwhile; some events end the sleep too.
    pub(crate) fn sleep_collecting(&self, turn: &Turn, deadline: Option<u64>) -> (Slept, Fifo) {
        let nanos = deadline.map(|d| d.saturating_sub(clock::now()));
        let announced = self
            .0
            .compare_exchange(ASLEEP, COLLECTING, Relaxed, Relaxed);
        let ready = match announced {
            Ok(_) => turn.collect(nanos),
            Err(_) => Fifo::new(),
        };
        match self.take() {
            AWAKE => (Slept::Woken, ready),
            _ => (Slept::Disturbed, ready),
        }
    }

    /// Ends the machine's sleep, for good: it has been given the thing that it waits for.
    pub(crate) fn wake(&self) {
        // Release: the things that it was given; partner: Acquire in `take`.
        if self.0.swap(AWAKE, Release) == COLLECTING {
            events().ring();
        } else {
            futex::wake(&self.0, 1);
        }
    }

    /// Ends its sleep, or the next one, without a reason of its own.
    pub(crate) fn poke(&self) {
        let poked = self.0.compare_exchange(ASLEEP, POKED, Relaxed, Relaxed);
        if poked.is_ok() {
            futex::wake(&self.0, 1);
        }
    }

    /// Whether it sleeps by collecting events. A hint.
    pub(crate) fn is_collecting(&self) -> bool {
        self.0.load(Relaxed) == COLLECTING
    }
}
