//! What the contenders do, its names on the command line and in the tables, and what the Rust
//! contenders share: computing, the turn of two threads, samples.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use crate::clock;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq)]
pub enum Wait {
    /// Another thread, which then waits for this one.
    Waiting,
    /// Another thread, which goes on computing for [`GAP`].
    Computing,
    /// A kernel thread that is none of the runtime's.
    Outside,
    /// A millisecond.
    Millisecond,
    /// Up to [`LONGEST`].
    Random,
}

/// What runs beside it.
#[derive(Clone, Copy, PartialEq)]
pub enum Load {
    Idle,
    /// On each processor, threads that compute for [`TURN`] and yield.
    Yielding,
    /// On each processor, threads that only compute.
    Computing,
}

/// How long threads compute before they wake another one, and after that.
pub const GAP: Duration = Duration::from_micros(100);
/// How long yielding threads compute at a time.
pub const TURN: Duration = Duration::from_micros(1);
/// A kernel thread rests for so many microseconds before it wakes a thread.
pub const PAUSE: std::ops::Range<u64> = 200..400;
/// The longest random time, in nanoseconds.
pub const LONGEST: u64 = 5_000_000;
/// What is measured before this time does not count.
const WARM_UP: Duration = Duration::from_millis(200);

impl Wait {
    pub const ALL: [Wait; 5] = [
        Wait::Waiting,
        Wait::Computing,
        Wait::Outside,
        Wait::Millisecond,
        Wait::Random,
    ];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Wait::Waiting => "waiting",
            Wait::Computing => "computing",
            Wait::Outside => "outside",
            Wait::Millisecond => "millisecond",
            Wait::Random => "random",
        }
    }

    /// Whether a contender has what it takes.
    pub fn is_for(self, contender: &str, load: Load) -> bool {
        match (contender, load) {
            ("tokio", Load::Computing) => false, // its tasks are never preempted
            ("Go", _) => self != Wait::Outside,  // all its threads are the runtime's
            // Nobody to compare with.
            ("greenthread", Load::Computing) => self != Wait::Outside,
            ("greenthread" | "tokio", _) => true,
            _ => false,
        }
    }

    /// How long to sleep, in nanoseconds.
    pub fn time(self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Wait::Millisecond => 1_000_000,
            _ => random.u64(..LONGEST),
        }
    }
}

impl Load {
    pub const ALL: [Load; 3] = [Load::Idle, Load::Yielding, Load::Computing];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Load::Idle => "idle",
            Load::Yielding => "yielding",
            Load::Computing => "computing",
        }
    }

    /// How many threads there are beside those that are measured.
    pub fn threads(self) -> usize {
        let each = match self {
            Load::Idle => 0,
            Load::Yielding => 8,
            Load::Computing => 2,
        };
        each * available_parallelism().map_or(1, usize::from)
    }

    /// How many threads sleep: more where each waits for time slices of others.
    pub fn sleepers(self) -> usize {
        match self {
            Load::Idle | Load::Yielding => 8,
            Load::Computing => 32,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wait::Waiting => "wake to run, the waker waits",
            Wait::Computing => "wake to run, the waker computes",
            Wait::Outside => "wake to run, from outside",
            Wait::Millisecond => "sleep of 1 ms",
            Wait::Random => "sleep up to 5 ms",
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Load::Idle => "idle",
            Load::Yielding => "beside yielding threads",
            Load::Computing => "beside computing threads",
        })
    }
}

/// Computes for so long.
pub fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {}
}

/// Whose turn it is of two threads, and when the turn was given to the woken one.
pub struct Turn(AtomicU64);

/// It is the waker's turn. All other values are times: it is the turn of the woken thread.
const WAKERS: u64 = 0;

impl Turn {
    pub fn new() -> Turn {
        Turn(AtomicU64::new(WAKERS))
    }

    pub fn is_wakers(&self) -> bool {
        self.0.load(Acquire) == WAKERS
    }

    /// The waker is about to wake the other thread.
    pub fn give(&self) {
        self.0.store(clock::now(), Release);
    }

    /// The woken thread, which runs, gives the turn back: how long it has waited, in nanoseconds.
    pub fn give_back(&self) -> u64 {
        let waited = clock::now().saturating_sub(self.0.load(Relaxed));
        self.0.store(WAKERS, Release);
        waited
    }
}

/// What one thread measures until time is up, in nanoseconds.
pub struct Samples {
    from: Instant,
    end: Instant,
    samples: Vec<u64>,
}

impl Samples {
    pub fn new(time: Duration) -> Samples {
        let from = Instant::now() + WARM_UP;
        Samples {
            from,
            end: from + time,
            samples: Vec::with_capacity(1 << 16),
        }
    }

    /// False: time is up.
    pub fn add(&mut self, sample: u64) -> bool {
        let now = Instant::now();
        if now >= self.from {
            self.samples.push(sample);
        }
        now < self.end
    }

    pub fn into_vec(self) -> Vec<u64> {
        self.samples
    }
}
