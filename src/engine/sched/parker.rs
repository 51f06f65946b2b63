//! How a kernel thread of a cluster sleeps and is woken: each worker, the monitor and the spawner has a wake word.
//!
//! A thread sleeps on its word as a futex. A worker may also sleep by collecting events; then the bell wakes the
//! worker. The word says how its owner sleeps, and whether the owner was woken or poked.
//!
//! | from \ verb | `wake` | `poke` | `sleep` | `sleep_collecting`, at its beginning | … and its end |
//! |---|---|---|---|---|---|
//! | `ASLEEP` | `AWAKE`, futex | `POKED`, futex | blocks | `COLLECTING`, collects | (never) |
//! | `POKED` | `AWAKE` | stays | `ASLEEP`, disturbed | stays | `ASLEEP`, disturbed |
//! | `AWAKE` | stays | stays | `ASLEEP`, **woken** | stays | `ASLEEP`, **woken** |
//! | `COLLECTING` | `AWAKE`, bell | stays | (never) | (never) | `ASLEEP`, disturbed |
//!
//! Only the owner of a word sleeps. A worker is woken by the thread that has chosen it (that has taken the worker out of
//! the spares, or has taken the thread that is locked to the worker out of a queue), and not again before the worker has
//! noticed. Any thread wakes the spawner, and any thread pokes. The word of a worker that runs, and of the spawner, is
//! `ASLEEP` as long as nobody wakes or pokes its owner. When a cluster stops, its workers are poked, and the bell is
//! rung for a worker that collects.
//!
//! The monitor sleeps only while all processors do. Most of the time the monitor runs, and a thread that wakes a
//! processor need not wake it. So its word is `AWAKE` until the monitor sleeps ([`sleep_beside`](Parker::sleep_beside)).
//! [`kick`](Parker::kick) wakes the monitor, and only looks while the monitor is awake; [`rouse`](Parker::rouse) also cuts
//! short the monitor's wait for its next look. The monitor writes that it sleeps, fences, and looks for something to do. A
//! thread that gives the monitor something to do does so, fences, and looks whether the monitor sleeps. One of the two
//! sees the other: so the monitor never sleeps beside a processor that is awake, or a deferred wake.
//!
//! # Invariants
//!
//! 1. No wake-up is lost: only the owner leaves `AWAKE`, and its sleep then returns [`Slept::Woken`]. A poke changes
//!    nothing but `ASLEEP`.
//! 2. A thread that changes the word of an owner that blocks ends the blocking: `ASLEEP` is the
//!    value that the kernel compares before it blocks; and a ring ends the collecting that is about
//!    to begin, too. A poke leaves a collecting worker alone: that already does the thing that a
//!    poke asks for.
//! 3. Only a worker that has the [`Turn`] says `COLLECTING`, and has it until it has said
//!    something else: nobody else can hear the ring.
//! 4. The futex wake and the ring may come late, when the owner has gone on: they disturb the
//!    next sleep, or the worker that has the turn then. Every sleep is in a loop.
//!
//! # Memory orderings
//!
//! The owner sees what the waker did before `wake`, or `poke`: Release there, Acquire in `take`. A worker's changes before its sleep go to the thread that chooses it by the list, or the
//! queue, that it was chosen from.
//! The monitor's fences stand where they are.

use crate::engine::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    const_fn, fence,
};
use crate::engine::sched::io::{self, Turn};
use crate::engine::sched::{Cluster, list::Fifo};
use crate::engine::sys::{clock, futex, perturb};

/// Nobody has woken or poked the owner.
const ASLEEP: u32 = 0;
/// The owner was given the thing that it waits for; of the monitor: it runs.
const AWAKE: u32 = 1;
/// The owner is to look again for the thing that it waits for.
const POKED: u32 = 2;
/// The owner sleeps by collecting events.
const COLLECTING: u32 = 3;

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// It was woken.
    Woken,
    /// It was poked, events have come, or its time is up.
    Disturbed,
}

/// The word that one kernel thread sleeps on. See the file's header.
pub(crate) struct Parker(AtomicU32);

impl Parker {
    const_fn! {
        pub(crate) const fn new() -> Parker {
            Parker(AtomicU32::new(ASLEEP))
        }
    }

    /// The owner takes what the word says.
    fn take(&self) -> u32 {
        // Acquire: the things that the owner was given; partner: Release in `wake` and `poke`.
        self.0.swap(ASLEEP, Acquire)
    }

    /// Blocks until [`wake`](Parker::wake) or [`poke`](Parker::poke), or until `deadline`.
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

    /// Ends its sleep, for good: it has been given the thing that it waits for.
    pub(crate) fn wake(&self) {
        // Release: the things that it was given; partner: Acquire in `take`.
        if self.0.swap(AWAKE, Release) == COLLECTING {
            io::ring();
        } else {
            futex::wake(&self.0, 1);
        }
    }

    /// Ends its sleep, or the next one, without a reason of its own.
    pub(crate) fn poke(&self) {
        // Release: the reason, such as that the cluster stops; partner: Acquire in `take`.
        let poked = self.0.compare_exchange(ASLEEP, POKED, Release, Relaxed);
        if poked.is_ok() {
            futex::wake(&self.0, 1);
        }
    }

    /// Whether it sleeps by collecting events. A hint.
    pub(crate) fn is_collecting(&self) -> bool {
        self.0.load(Relaxed) == COLLECTING
    }

    /// Whether somebody has woken it since its last sleep. A hint.
    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Relaxed) == AWAKE
    }

    // ---- the monitor ----

    const_fn! {
        /// The word of the monitor, which runs.
        pub(crate) const fn awake() -> Parker {
            Parker(AtomicU32::new(AWAKE))
        }
    }

    /// The monitor must not sleep: a processor has woken up, or nobody watches a deadline.
    #[inline]
    pub(crate) fn kick(&self) {
        // SeqCst: partner: the fence in `sleep_beside`: the monitor sees what the caller has done, or we
        // see that it sleeps.
        fence(SeqCst);
        if self.0.load(Relaxed) == ASLEEP {
            self.wake();
        }
    }

    /// The monitor is to look soon, asleep or not: a thread was handed over, or the cluster stops.
    pub(crate) fn rouse(&self) {
        // SeqCst: partner: the fence in `sleep_beside`: the monitor sees what the caller has done, or we are
        // the last to change the word.
        fence(SeqCst);
        // This wakes it even if it was awake: it may wait for its next look.
        self.wake();
    }

    /// The monitor sleeps until it is kicked (true), or until a deadline that no sleeping worker watches.
    pub(crate) fn sleep_beside(
        &self,
        cluster: &'static Cluster,
        not_before: u64,
        everybody_sleeps: impl Fn() -> bool,
    ) -> bool {
        self.0.store(ASLEEP, Relaxed);
        perturb::point("monitor: asleep");
        // SeqCst: partner: the fences in `kick` and `rouse`.
        fence(SeqCst);
        let mut kicked = true;
        while kicked && self.0.load(Relaxed) == ASLEEP && everybody_sleeps() {
            let watches = cluster.watch_deadline();
            futex::wait(
                &self.0,
                ASLEEP,
                watches.map(|deadline| deadline.max(not_before)),
            );
            if let Some(deadline) = watches {
                cluster.watched.watch_no_more();
                kicked = clock::now() < deadline;
            }
        }
        self.0.store(AWAKE, Relaxed);
        kicked
    }

    /// The monitor waits for its next look, which [`rouse`](Parker::rouse) makes come at once, mostly: if it is just
    /// about to wait, it waits until then.
    pub(crate) fn rest(&self, until: u64) {
        futex::wait(&self.0, AWAKE, Some(until));
    }
}
