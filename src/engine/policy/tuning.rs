//! What can be tuned in the policies: each constant with what it buys, and the test or bench that shows it.
//! Times are in nanoseconds. The slots of a local queue are Go's and tokio's, 256, and stand there; what is of one
//! algorithm only, as levels and ranks, stands in its file.

// ---- work stealing ----

/// Picks of a processor after which the global queue and the overflow come first. After as many uses in a row the
/// next slot gives way to those that yield, one of as many turns of the overflow evens out the queues of two
/// processors, and one of as many fills of the next slot is timed. A prime, Go's and tokio's: it does not fall
/// into step with a program's period. `src/engine/policy/work_stealing/tests/turns.rs` fails where one of these has no turn.
pub(super) const GLOBAL_INTERVAL: u32 = 61;
/// Uses of the next slot in a row while others wait in the queue: tokio's number. More of them keep the others
/// waiting (the same tests); none takes from pairs that wake each other what is in the cache (`benches/wake`).
pub(super) const NEXT_IN_A_ROW: u32 = 3;
/// Turns of those that yield, of which the last is the queue's (the same tests); at each second turn a yield
/// would take the queue's locked instruction as often (`benches/yield`).
pub(super) const ROUND_TURNS: u32 = 4;
/// Yields at a processor until it exchanges a thread. Without it threads that yield have as many turns as few
/// others yield where they are (`yielding_threads_have_even_shares_wherever_they_begin`, the simulator's
/// `fairness`); more often it moves lines from cache to cache (the simulator's `yields`). A prime: it must not
/// fall into step with the round, or the same threads would change processors each time.
pub(super) const MIXING_INTERVAL: u32 = 127;
/// The nanoseconds in the next slot after which who has filled it lingers: twice what it takes to wake a
/// processor. Without it a thread that is woken by one that computes on waits until that one ends
/// (`benches/latency`, "the waker computes, idle").
pub(super) const LONG: u64 = 50_000;
/// Where so many threads wait, the memory of the next two is prefetched; that of fewer is in the cache
/// (`benches/yield`, 1,000 threads).
pub(super) const MANY: usize = 64;

// ---- all policies ----

/// A preempted thread goes first when it has been passed over for so long, the default time slice: one beside
/// fresh threads without end would never run (`shared_queue`, tests).
pub(super) const AGING: u64 = 10_000_000;

// ---- the others ----

/// Lanes of a relaxed FIFO for each processor: with fewer, processors meet at one (the simulator's `yields`),
/// and more relax the order (`the_more_overtakings_the_less_likely`).
pub(super) const LANES: usize = 4;
/// The processors that are compared to find the least loaded, by default: the seed's number.
pub(super) const BATCH: usize = 8;
/// Picks by priority until one is the oldest thread's: no thread starves (`priorities`, tests).
pub(super) const OLDEST_INTERVAL: u32 = 16;
