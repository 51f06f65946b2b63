//! A simulated process: its clock stands still unless somebody reads it or the schedule moves it, and its chance comes from a
//! seed. One kernel thread runs there (`src/sim`), so nothing here is atomic: schedule points stand at atomic operations, and
//! call this file.
//!
//! | | in a simulated process |
//! |---|---|
//! | [`clock::get`](super::clock) | asks [`time`] |
//! | a processor that finds nothing to run | asks [`nothing_is_ready`], and never sleeps |
//! | a named point ([`super::point`]), and a hooked call | calls [`point`] |
//! | a waker with a choice | asks [`draw`] which waiter it wakes |
//!
//! # Invariants
//! 1. [`begin`] comes before the only worker starts, and nobody else touches these cells.
//! 2. Nothing here depends on an address, on the system's clock, or on what ran before [`seed`].

use core::cell::Cell;

use super::clock::NEVER;
pub(crate) use super::shared::mix;
use crate::engine::atomic::AtomicU64;

/// What the schedule does; `src/sim` sets it.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// The calling thread comes to a point.
    pub(crate) point: fn(Step),
    /// No thread is ready, and the earliest deadline is this one. Moves the clock, or ends the process.
    pub(crate) nothing_is_ready: fn(u64),
    /// The calling thread lets others run.
    pub(crate) gives_way: fn(),
    /// The calling thread is about to wait.
    pub(crate) is_spurious: fn() -> bool,
    /// A clock is read.
    pub(crate) time: fn(libc::clockid_t) -> u64,
}

/// What a thread is about to do at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(greenthread_points),
    allow(dead_code, reason = "atomic operations have no points")
)]
pub(crate) enum Step {
    /// To load a word, or to change it to what it is; with a number that the word's address and its value make.
    Load(usize),
    Store,
    /// To load a word and to change it.
    Change,
    Fence,
    /// To call libc, or to do an operation of the crate's.
    Call,
    /// To read a clock.
    Look,
}

impl Step {
    pub(crate) fn is_atomic(self) -> bool {
        !matches!(self, Step::Call | Step::Look)
    }

    pub(crate) fn kind(self) -> u64 {
        match self {
            Step::Load(_) => 0,
            Step::Store => 1,
            Step::Change => 2,
            Step::Fence => 3,
            Step::Call => 4,
            Step::Look => 5,
        }
    }
}

struct World {
    hooks: Cell<Option<Hooks>>,
    is_over: Cell<bool>,
    is_alone: Cell<bool>,
    seed: Cell<u64>,
    chance: Cell<u64>,
    deadline: Cell<Option<&'static AtomicU64>>,
}

// SAFETY: invariant 1.
unsafe impl Sync for World {}

static WORLD: World = World {
    hooks: Cell::new(None),
    is_over: Cell::new(false),
    is_alone: Cell::new(false),
    seed: Cell::new(0),
    chance: Cell::new(0),
    deadline: Cell::new(None),
};

/// From now on the process is simulated; `None`: no longer, and it is about to end.
pub(crate) fn begin(hooks: Option<Hooks>) {
    WORLD.hooks.set(hooks);
    WORLD.is_alone.set(hooks.is_some());
}

/// There will be other kernel threads, or processes that have the same memory.
pub(crate) fn has_others() {
    WORLD.is_alone.set(false);
}

/// Whether this is the only kernel thread.
#[cfg(greenthread_points)]
#[inline(always)]
pub(crate) fn is_alone() -> bool {
    WORLD.is_alone.get()
}

#[inline(always)]
pub(crate) fn is_on() -> bool {
    WORLD.hooks.get().is_some()
}

/// The run has ended.
pub(crate) fn end() {
    WORLD.is_over.set(true);
    has_others();
}

/// Whether the run has ended: who says how allocates wherever he is.
pub(crate) fn is_over() -> bool {
    WORLD.is_over.get()
}

/// What `clock` shows, in nanoseconds; `None` in a process that is not simulated.
#[inline]
pub(crate) fn time(clock: libc::clockid_t) -> Option<u64> {
    // A number below 0 is a clock of CPU time. The others do not exist.
    let hooks = WORLD.hooks.get().filter(|_| clock <= libc::CLOCK_TAI);
    hooks.map(|hooks| (hooks.time)(clock))
}

#[inline(always)]
fn ask<T>(call: impl FnOnce(Hooks) -> T) -> Option<T> {
    WORLD.hooks.get().map(call)
}

/// The calling thread comes to a point.
#[inline]
pub(crate) fn point(what: Step) {
    ask(|hooks| (hooks.point)(what));
}

/// The calling thread is about to let others run.
pub(crate) fn gives_way() {
    ask(|hooks| (hooks.gives_way)());
}

/// No thread is ready, and the earliest deadline is this one.
pub(crate) fn nothing_is_ready(earliest: u64) {
    ask(|hooks| (hooks.nothing_is_ready)(earliest));
}

/// The earliest deadline of all threads is in this word.
pub(crate) fn watch(deadline: &'static AtomicU64) {
    WORLD.deadline.set(Some(deadline));
}

/// The earliest deadline of all threads; [`NEVER`] if there is none.
#[inline]
pub(crate) fn deadline() -> u64 {
    // SAFETY: the word is valid, and only this kernel thread writes it.
    let read = |word: &AtomicU64| unsafe { *word.as_ptr() };
    WORLD.deadline.get().map_or(NEVER, read)
}

/// The chance of one seed begins.
pub(crate) fn seed(seed: u64) {
    WORLD.seed.set(seed);
    WORLD.chance.set(seed);
}

/// The seed of this run.
pub(crate) fn seeded() -> u64 {
    WORLD.seed.get()
}

/// The next number by chance (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[inline]
pub(crate) fn draw() -> u64 {
    let state = WORLD.chance.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    WORLD.chance.set(state);
    mix(state)
}

/// Whether the point of an atomic operation stands behind it.
#[cfg(greenthread_points)]
#[inline]
pub(crate) fn is_behind() -> bool {
    // A part of what `mix` does: it is asked at each operation.
    let state = WORLD.chance.get();
    (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 63 == 0
}

/// A number below `count`, by chance; 0 in a process that is not simulated.
pub(crate) fn choose(count: usize) -> usize {
    match is_on() && count > 1 {
        true => ((u128::from(draw()) * count as u128) >> 64) as usize,
        false => 0,
    }
}

/// Whether the calling thread's wait ends at once, though nobody has woken the thread.
pub(crate) fn is_spurious() -> bool {
    ask(|hooks| (hooks.is_spurious)()) == Some(true)
}
