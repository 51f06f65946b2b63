//! The mutants: each says what is weakened in which source, which model must see it, and how. Here are
//! the words that they share; the mutants themselves are listed by the library's folders.

mod channel;
mod driver;
mod policy;
mod sched;
mod sync;
mod wait;

pub(super) const PARK_STATE: &str = "engine/sched/park.rs";
pub(super) const CANCEL: &str = "engine/sched/cancel.rs";
pub(super) const OWNERSHIP: &str = "engine/sched/processor.rs";
pub(super) const IDLE: &str = "engine/sched/idle.rs";
pub(super) const WAKE: &str = "engine/sched/idle.rs";
pub(super) const POST: &str = "engine/sched/idle.rs";
pub(super) const WATCHED: &str = "engine/sched/idle.rs";
pub(super) const LIVE_COUNT: &str = "engine/sched/start.rs";
pub(super) const SHARES: &str = "engine/runtime/spawn.rs";
pub(super) const JOINABLE: &str = "engine/sched/joinable.rs";
pub(super) const HIDING: &str = "engine/sched/current.rs";
pub(super) const PLACES: &str = "engine/inspect/kernel.rs";
pub(super) const NOTES: &str = "engine/inspect/notes.rs";
pub(super) const THREADS: &str = "engine/inspect/threads.rs";
pub(super) const SWITCH: &str = "engine/sched/switch.rs";
pub(super) const SIDE: &str = "engine/wait/side.rs";
pub(super) const TURNS: &str = "coroutine/turns.rs";
pub(super) const ADDRESSES: &str = "libc/addresses.rs";
pub(super) const QUEUE: &str = "engine/wait/queue.rs";
pub(super) const RAW_MUTEX: &str = "sync/raw_mutex.rs";
pub(super) const ONCE: &str = "sync/once.rs";
pub(super) const RAW_RWLOCK: &str = "sync/raw_rwlock.rs";
pub(super) const POISON: &str = "sync/poison.rs";
pub(super) const MUTEX: &str = "sync/mutex.rs";
pub(super) const CONDVAR: &str = "sync/condvar.rs";
pub(super) const LOCK: &str = "engine/sys/shared.rs";
pub(super) const LOCAL_QUEUE: &str = "engine/policy/work_stealing.rs";
pub(super) const REGISTRATION: &str = "engine/driver/epoll.rs";
pub(super) const WATCH: &str = "engine/driver/watch.rs";
pub(super) const CELL: &str = "channel/cell.rs";
pub(super) const SELECTING: &str = "channel/selecting.rs";
pub(super) const SHARED: &str = "channel/shared.rs";
pub(super) const LETTERS: &str = "letters.rs";
/// The model's own file.
pub(super) const MODEL: &str = "model";

pub(super) struct Mutant {
    pub(super) protocol: &'static str,
    pub(super) name: &'static str,
    /// The file, the text that is replaced (it must be there exactly once), and the new text.
    pub(super) edits: &'static [(&'static str, &'static str, &'static str)],
    /// The model that must fail, and a part of its message.
    pub(super) model: &'static str,
    pub(super) fails: &'static str,
}

/// A data race on something that only one thread at a time may touch.
pub(super) const RACE: &str = "Causality violation";
pub(super) const LOST: &str = "lost or doubled";
pub(super) const WAITS: &str = "a job waits while a processor sleeps";
/// A thread goes on without coming to an end.
pub(super) const FOR_EVER: &str = "Model exceeded maximum number of branches";
/// A report tells what was never so.
pub(super) const TORN: &str = "torn";
/// The closer has gone on too early.
pub(super) const LIVES: &str = "a thread lives";
/// More threads have ended than were spawned.
pub(super) const MISCOUNTED: &str = "miscounted";
/// A turn has come without its message.
pub(super) const SILENT: &str = "without a word";

pub(super) const MUTANTS: [&[Mutant]; 6] = [
    sched::MUTANTS,
    wait::MUTANTS,
    driver::MUTANTS,
    policy::MUTANTS,
    sync::MUTANTS,
    channel::MUTANTS,
];
