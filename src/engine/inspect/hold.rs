//! Holds a kernel thread for a moment, so that an observer can read the stack that the thread runs on.
//!
//! A signal's handler notes the registers and waits until the observer has read, or until its patience is over: a
//! thread is held for some microseconds, and never for longer than [`PATIENCE`].
//!
//! | word | the state | next |
//! |---|---|---|
//! | `IDLE` | no thread is asked | an observer: `ASKED` |
//! | `ASKED` | the observer waits for the handler | the handler: `TAKEN`; the observer gives up: `IDLE` |
//! | `TAKEN` | the handler writes the registers | the handler: `HELD` |
//! | `HELD` | the thread stands still | the observer has read, or the handler loses patience: `IDLE` |
//!
//! The states carry a number, so that a handler which comes too late does not take another's request.
//! A thread that has not answered is not asked again until it has ([`DEAF`]): a signal that no thread takes
//! stays in a queue, and queues of signals are short. Observers take turns ([`TURN`]).
//!
//! # Invariants
//! 1. What the observer reads of the stack while the word is `HELD` is true, if the step from there to `IDLE`
//!    is the observer's.
//! 2. A handler that has lost patience is no answer. The observer asks again ([`TRIES`]), whether the observer was reading
//!    by then or had not yet woken up: on a busy machine the system may run the observer later than [`PATIENCE`] after the
//!    handler has woken it.
//!
//! # Memory orderings
//! The step to `HELD` is Release, and the observer's load Acquire: the registers. The observer's step to
//! `IDLE` is Release: its reads come before, and so does the note that a thread is deaf, which the handler's failed step
//! acquires. What one observer does comes before what the next one does by their lock.

use std::sync::{Mutex, TryLockError};

use crate::engine::arch::Frame;
use crate::engine::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::*};
use crate::engine::sys::signal::{self, Payload};
use crate::engine::sys::{clock, futex, kernel_thread};

/// The addressee of a payload that asks for this: no worker.
pub(crate) const WHO: u32 = u32::MAX - 2;
/// The longest time, in nanoseconds, for which a thread is held.
const PATIENCE: u64 = 5_000_000;
/// How often a thread is held that has not stood still for as long as the observer took: the first time takes longest.
const TRIES: usize = 20;
/// How long an observer waits for the handler of a thread that stays blocked, and for its turn.
const UNTIL_TAKEN: u64 = 100_000_000;
/// How long an observer waits for the handler of a thread that computes, or that the signal has woken: the system may not
/// run the thread at once.
const UNTIL_RUN: u64 = 2_000_000_000;
/// A thread that has computed for so long with the signal pending blocks the signal.
const IS_DEAF: u64 = 20_000_000;
const LOOK_AGAIN: u64 = 50_000;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const HELD: u32 = 3;
const STATES: u32 = 4;

/// Threads that have been asked and have not answered, by the system's numbers, each at the place that its number gives; 0:
/// none. Of two with the same place the first is forgotten.
static DEAF: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// The lock of the observer that holds a thread, with the number of its request.
static TURN: Mutex<u32> = Mutex::new(0);
static WORD: AtomicU32 = AtomicU32::new(IDLE);
static REGISTERS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// The signal by which threads are held, whose handler calls [`answer`]; 0 while there is none.
pub(crate) static SIGNAL: AtomicU32 = AtomicU32::new(0);

/// How a request has ended.
enum Answer {
    /// The thread stands still.
    Held,
    /// The handler has lost patience.
    Late,
    /// There was no handler: the thread blocks the signal, has ended, or was not run in time.
    None,
}

/// Holds kernel thread `thread` of this process, which was seen to compute, or to be blocked, while `read` is called
/// with its registers, as the frame gives them out (`Frame::registers`). The last call counts: until its end the thread has stood
/// still. False: the thread blocks the signal, did not come in time, or another one is held.
pub(crate) fn held(thread: i32, computes: bool, mut read: impl FnMut([usize; 4])) -> bool {
    // Another observer may hold a thread, and does so for a short time. But in a forked child that observer is not
    // there, and never unlocks.
    let until = clock::now() + UNTIL_TAKEN;
    let mut turn = loop {
        match TURN.try_lock() {
            Ok(turn) => break turn,
            // The observer that held the lock has panicked while it read.
            Err(TryLockError::Poisoned(turn)) => break turn.into_inner(),
            Err(TryLockError::WouldBlock) if clock::now() >= until => return false,
            Err(TryLockError::WouldBlock) => kernel_thread::rest(LOOK_AGAIN),
        }
    };
    for _ in 0..TRIES {
        *turn = (*turn + 1) % (u32::MAX / STATES);
        let word = *turn * STATES;
        WORD.store(word + ASKED, Relaxed);
        match ask(word, thread, computes) {
            Answer::Held => {
                read(core::array::from_fn(|i| REGISTERS[i].load(Relaxed)));
                if end(word + HELD) {
                    return true;
                }
            }
            Answer::Late => {}
            Answer::None => return false,
        }
    }
    false
}

/// Ends a request that is in this state. False: the handler has gone on from there.
fn end(state: u32) -> bool {
    // Release: what was read of the stack, or the note that the thread is deaf; partner: Acquire in `answer`.
    let is_ours = WORD.compare_exchange(state, IDLE, Release, Relaxed).is_ok();
    if is_ours {
        futex::wake(&WORD, 1);
    }
    is_ours
}

/// Sends the signal, and waits for the handler.
fn ask(word: u32, thread: i32, computes: bool) -> Answer {
    let signal = SIGNAL.load(Relaxed) as i32;
    let (since, cpu_clock) = (clock::now(), kernel_thread::cpu_clock(thread));
    let deaf_from = clock::cpu_time(cpu_clock) + IS_DEAF;
    let tick = word / STATES;
    let payload = Payload { who: WHO, tick };
    let is_sent = signal != 0
        && deaf(thread).load(Relaxed) != thread
        && signal::queue(0, thread, signal, payload).is_ok();
    let is_hopeless = || {
        let (used, waited) = (clock::cpu_time(cpu_clock), clock::now() - since);
        let has_ended = used == 0;
        // A thread that does not block the signal is woken by the signal before this call is over.
        let sleeps_on = || kernel_thread::is_blocked(thread) != Some(false);
        has_ended
            || used >= deaf_from
            || waited >= UNTIL_RUN
            || !computes && waited >= UNTIL_TAKEN && sleeps_on()
    };
    loop {
        // Acquire: the registers; partner: Release in `answer`.
        let seen = WORD.load(Acquire);
        if seen == word + HELD {
            return Answer::Held;
        }
        if seen == IDLE {
            return Answer::Late;
        }
        if !is_sent && end(word + ASKED) {
            return Answer::None;
        }
        if is_hopeless() {
            // The note comes first: the thread removes the note if the thread answers too late.
            deaf(thread).store(thread, Relaxed);
            let is_over = end(word + ASKED);
            if !is_over || !kernel_thread::exists(thread) {
                forget_deaf(thread);
            }
            if is_over {
                return Answer::None;
            }
        }
        futex::wait(&WORD, seen, Some(clock::now() + LOOK_AGAIN));
    }
}

/// The thread's place among those that are deaf.
fn deaf(thread: i32) -> &'static AtomicI32 {
    &DEAF[thread as usize % DEAF.len()]
}

fn forget_deaf(thread: i32) {
    let _ = deaf(thread).compare_exchange(thread, 0, Relaxed, Relaxed);
}

/// In a forked child: a thread was held in the parent only.
pub(crate) fn forget() {
    WORD.store(IDLE, Relaxed);
    DEAF.iter().for_each(|place| place.store(0, Relaxed));
}

/// The handler's part, on the kernel thread that an observer wants to look at. It touches no thread-local.
pub(crate) fn answer(payload: Payload, frame: &Frame<'_>) {
    let word = payload.tick.wrapping_mul(STATES);
    // AcqRel: one handler writes the registers at a time. Acquire: the note of an observer that has given up; partner:
    // Release in `end`.
    let taken = WORD.compare_exchange(word + ASKED, word + TAKEN, AcqRel, Acquire);
    if taken.is_err() {
        return forget_deaf(kernel_thread::id());
    }
    for (place, value) in REGISTERS.iter().zip(frame.registers()) {
        place.store(value, Relaxed);
    }
    // Release: the registers; partner: Acquire in `ask`.
    WORD.store(word + HELD, Release);
    futex::wake(&WORD, 1);
    let until = clock::now() + PATIENCE;
    // Acquire: the observer has read; partner: Release in `end`.
    while WORD.load(Acquire) == word + HELD {
        if clock::now() >= until {
            let _ = WORD.compare_exchange(word + HELD, IDLE, Acquire, Relaxed);
            return;
        }
        futex::wait(&WORD, word + HELD, Some(until));
    }
}
