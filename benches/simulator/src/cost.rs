//! What operations cost. All of it is measured by `cargo run --release --bin fit`, on the machines
//! and the days that [`MEASURED`] and [`XEON`] are of; nothing is set so that a result comes out.

/// Nanoseconds each.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A load or a store of a line in the own cache.
    pub hit: f64,
    /// A read-modify-write of a line that is the own cache's alone.
    pub modify: f64,
    /// A full fence.
    pub fence: f64,
    /// A line comes from another cache of the same package, or is taken away from others there.
    pub transfer: f64,
    /// The same from another package.
    pub across: f64,
    /// How many packages the machine has, with the same number of processors each.
    pub packages: usize,
    /// Who has fetched a line to write to it keeps it at least so long.
    pub keep: f64,
    /// One round of a spin loop.
    pub pause: f64,
    /// A look at the processor's clock.
    pub ticks: f64,
    /// A futex call that has nothing to do.
    pub system_call: f64,
    /// What a futex call that wakes somebody takes beyond that.
    pub wake_call: f64,
    /// Until the sleeper runs, from when the call has found it.
    pub wake_latency: f64,
    /// Handing a processor from one thread to the next, besides the policy's atomic operations.
    pub switch: f64,
    /// What one thread costs from birth to death besides its switch and the policy: its closure,
    /// record, stack and thread-locals.
    pub thread: f64,
    /// The lines of a thread that its next processor fetches, if it ran on another one of the same
    /// package: [`LINES`].
    pub migration: f64,
}

/// The cache lines that a switch touches of a thread: record, thread-local block and stack top, as
/// `BENCHMARKS.md` counts them.
pub const LINES: usize = 10;
/// Those of the record; the others are the room's.
pub const RECORD_LINES: usize = 4;

impl Costs {
    /// The same on a machine where a line takes so long from one cache to another, and so does each line
    /// of a thread that changes processors.
    #[must_use]
    pub fn with_lines_of(self, nanoseconds: f64) -> Costs {
        Costs {
            transfer: nanoseconds,
            migration: self.migration * nanoseconds / self.transfer,
            ..self
        }
    }

    /// The same on a machine of two packages, where a line takes so long from one to the other.
    #[must_use]
    pub fn with_two_packages(self, nanoseconds: f64) -> Costs {
        Costs {
            packages: 2,
            across: nanoseconds,
            ..self
        }
    }
}

/// For `fit`, which finds out by it what the policies alone cost.
pub const FREE: Costs = Costs {
    hit: 0.0,
    modify: 0.0,
    fence: 0.0,
    transfer: 0.0,
    across: 0.0,
    packages: 1,
    keep: 0.0,
    pause: 0.0,
    ticks: 0.0,
    system_call: 0.0,
    wake_call: 0.0,
    wake_latency: 0.0,
    switch: 0.0,
    thread: 0.0,
    migration: 0.0,
};

/// Of 2026-11-24: two virtual CPUs of an Intel Xeon (Emerald Rapids) under KVM. The one of two runs that
/// the table of what was measured in `docs/scaling.md` is of.
pub const XEON: Costs = Costs {
    hit: 0.33,
    modify: 9.69,
    fence: 8.05,
    transfer: 40.1,
    across: 40.1,
    packages: 1,
    keep: 43.2,
    pause: 14.1,
    ticks: 9.79,
    system_call: 123.3,
    wake_call: 11_212.0,
    wake_latency: 21_498.0,
    switch: 15.5,
    thread: 307.2,
    migration: 176.6,
};

/// In use. Of 2026-11-21: two virtual CPUs of an AMD EPYC (Zen 4) under KVM, rustc 1.95. One of five runs, the
/// one whose CPUs were near each other; `docs/scaling.md` has what comes of the others.
pub const MEASURED: Costs = Costs {
    hit: 0.27,
    modify: 1.99,
    fence: 1.99,
    transfer: 17.3,
    across: 17.3,
    packages: 1,
    keep: 7.32,
    pause: 25.0,
    ticks: 9.62,
    system_call: 235.4,
    wake_call: 5_830.0,
    wake_latency: 19_040.0,
    switch: 29.8,
    thread: 111.6,
    migration: 51.9,
};
