//! What can be tuned in the scheduler: each constant with what it buys, and the test or bench that shows it.
//! Times are in nanoseconds. Sizes of tables are limits, and stand where the tables are.

// ---- a processor without work ----

/// Rounds through all victims before a processor rests: Go's number. A thief leaves the next slot alone until
/// the last one (`benches/wake`).
pub(super) const PASSES: u32 = 4;
/// Pauses between two rounds, in which an owner takes its own next slot: without them a pair that wake each
/// other are torn apart (`benches/wake`).
pub(super) const PAUSES: u32 = 200;
/// A processor without work looks for events for so long before it sleeps, while that pays: several times what
/// falling asleep and being woken take. Without it `echo, 1 connection` (`benches/servers`) does half as many
/// requests.
pub(super) const SPIN: u64 = 60_000;
/// A kernel thread that takes the CPU for so long when a processor gives way computes: one that only sends or receives is
/// done sooner.
pub(super) const LENT: u64 = 500_000;
/// So long a processor does not look for a while after that, for each search would cost it a time slice of
/// theirs. Beside four processes that compute, `echo, 20 connections` does 0.57 of tokio's requests without it,
/// and 0.73 with it.
pub(super) const APART: u64 = 100_000_000;

// ---- a busy processor ----

/// A busy processor looks at its timers at least every so many switches (tokio: 61): if its threads run for
/// moments only, the clock is asked for less than one in so many (`benches/yield`).
pub(super) const LOOK_AT_TIMERS: u64 = 64;
/// It looks as often as this if its threads let it, a hundred times as long as a look takes: how late a sleep
/// ends beside threads that yield (`benches/latency`).
pub(super) const PACE: u64 = 2_000;
/// Switches between two looks at events of a busy processor. A look is two system calls, as long as twenty
/// switches: as often as at timers they would take about a fifth of the time of threads that yield.
pub(super) const LOOK_AT_EVENTS: u64 = 256;
/// Events that a look takes, at most. The data that their threads touch, in the kernel too, must fit into a
/// processor's own cache: with 128 at once, a request among 10,000 connections cost a tenth more
/// (`benches/servers`). As many are a crowd: a processor that finds fewer runs their threads sooner than
/// another one could.
pub(crate) const BATCH: usize = 32;
/// When every look has found a crowd for so long, another processor is woken (`benches/servers`).
pub(super) const HELP_AFTER: u64 = 1_000_000;
/// When nobody has looked for so long, at events while a processor sleeps or at a deadline that has passed,
/// somebody is told to (`tests/io/arrivals.rs`; sleeps beside computing threads in `benches/latency`).
pub(super) const LATE: u64 = 500_000;

// ---- the monitor ----

/// The monitor's ticks: soon after a hand-off, and while there is none. Both are Go's. With a longer first one,
/// threads that block one after the other each wait for it (`tests/threads/blocking.rs`); with a shorter last
/// one, a program that does little shows (`an_idle_runtime_rests` there). The last one is also the usual time
/// slice, and so the time for which a thread that is blocked keeps a processor that nobody wants, and events
/// may go unseen where all are busy.
pub(super) const SHORTEST_TICK: u64 = 20_000;
pub(super) const LONGEST_TICK: u64 = 10_000_000;
/// Looks in a row without an event before the tick doubles (Go: 50).
pub(super) const QUIET_LOOKS: u32 = 5;
/// How soon to look again for events, for a thread that waits behind one whose slice is over, for memory where a stack
/// found none, and for a `dlclose`; and the CPU time that a thread has to obey the signal before it loses its processor.
pub(super) const SOON: u64 = 1_000_000;
/// How often the quota of CPU time is read again (`tests/process/quotas.rs`), and unused stacks are returned
/// (`tests/alone/memory.rs`), while anything runs.
pub(super) const QUOTA: u64 = 1_000_000_000;
/// Strays that are looked at in one go: a look at each of ten thousand takes as long as a time slice.
pub(super) const STRAYS_AT_ONCE: usize = 256;
/// A stray that has used so much CPU time without rest computes, whatever else is known: where the system has
/// one CPU, or does not tell the time in user mode, nothing else says so.
pub(super) const CERTAIN: u64 = 100_000_000;
/// How soon the preemption signal is sent again: a thread that the first one found in the runtime keeps the
/// others waiting no longer (`tests/sched/hogs.rs`).
pub(super) const RETRY: u64 = 50_000;
/// How long the monitor waits for a kernel thread that the system does not run, or may not run: two time
/// slices. A processor that it took sooner would go on under the system (`only_cpu_time_declines`).
pub(super) const NOT_RUN_FOR: u64 = 20_000_000;
/// While work waits, a slice that is seen for the first time is looked at again after this part of it: a short
/// slice is over by then, and otherwise the next slice would be counted from its own end, a whole slice later.
pub(super) const SETTLING_PART: u64 = 8;
/// A thread has this part of a time slice while others wait behind it that no other processor can take:
/// otherwise threads that yield would wait as long as the busiest of them likes (README).
pub(super) const CROWDED_PART: u64 = 20;

// ---- kernel threads ----

/// Idle kernel threads that are kept for good, and the time after which the others end: a burst of calls that
/// block finds its threads again (`tests/threads/blocking.rs`), and a program at rest has few.
pub(super) const SPARES_KEPT: usize = 8;
pub(super) const IDLE_BEFORE_RETIREMENT: u64 = 10_000_000_000;
/// How soon a kernel thread is asked for again that was refused while work waits. The monitor waits as long before it
/// evicts threads, and ten times as long for a spawner that is at work but makes no thread: on a busy machine
/// `process::children_outlive_idle_times` fails if threads are evicted sooner.
pub(super) const RETRY_SPAWN: u64 = 10_000_000;
