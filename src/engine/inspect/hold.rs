//! Holds a kernel thread for a moment, so that a report can read the stack that it runs on.
//!
//! A signal's handler notes the registers and waits until the report lets go, or until its patience is over: a
//! thread is held for some microseconds, and never for longer than [`PATIENCE`].
//!
//! | word | who has it | next |
//! |---|---|---|
//! | `IDLE` | nobody | a report: `ASKED` |
//! | `ASKED` | the report waits for the handler | the handler: `TAKEN`; the report gives up: `IDLE` |
//! | `TAKEN` | the handler writes the registers | the handler: `HELD` |
//! | `HELD` | the thread stands still | the report lets go, or the handler loses patience: `IDLE` |
//!
//! The states carry a number, so that a handler which comes too late does not take another's request.
//! A thread that has not answered is not asked again until it has ([`DEAF`]): a signal that nobody takes
//! stays in a queue, and queues of signals are short.
//!
//! Invariant: what a report reads of the stack while the word is `HELD` is true, if the step from there to `IDLE`
//! is the report's.
//!
//! Orderings: the step to `HELD` is Release, and the report's load Acquire: the registers. The report's step to
//! `IDLE` is Release: its reads come before, and so does the note that a thread is deaf, which the handler's failed step
//! acquires.

use crate::engine::arch::Frame;
use crate::engine::atomic::{
    AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::engine::sys::observer::Observer;
use crate::engine::sys::signal::{self, Payload};
use crate::engine::sys::{clock, futex, kernel_thread};

/// The addressee of a payload that asks for this: no worker.
pub(crate) const WHO: u32 = u32::MAX - 2;
/// The longest time, in nanoseconds, for which a thread is held.
const PATIENCE: u64 = 5_000_000;
/// How long a report waits for the handler of a thread that stays blocked, and for its turn.
const UNTIL_TAKEN: u64 = 100_000_000;
/// How long it waits for that of a thread which computes, or was woken by the signal: the system may not run it at once.
const UNTIL_RUN: u64 = 2_000_000_000;
/// A thread that has computed for so long with the signal pending blocks it.
const IS_DEAF: u64 = 20_000_000;
const LOOK_AGAIN: u64 = 50_000;

/// As many as wait.
const ALL: u32 = u32::MAX >> 1;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;
const HELD: u32 = 3;
const STATES: u32 = 4;

/// Threads that have been asked and have not answered, by the system's numbers; 0: a free place. If there are more,
/// the first are forgotten.
static DEAF: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

static WORD: AtomicU32 = AtomicU32::new(IDLE);
static REGISTERS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
/// The signal; 0 while there is none.
static SIGNAL: AtomicU32 = AtomicU32::new(0);

/// A kernel thread that stands still. Dropped, it goes on.
pub(crate) struct Held {
    word: u32,
}

/// Samples are taken by this signal from now on, whose handler calls [`answer`].
pub(crate) fn use_signal(signal: i32) {
    SIGNAL.store(signal as u32, Relaxed);
}

/// Whether there is a signal for samples.
pub(crate) fn is_possible() -> bool {
    SIGNAL.load(Relaxed) != 0
}

impl Held {
    /// Holds kernel thread `thread` of this process, which was seen to compute, or to be blocked. `None`: it blocks
    /// the signal, did not come in time, or another is held.
    pub(crate) fn hold(thread: i32, computes: bool, observer: &mut Observer) -> Option<Held> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed).wrapping_add(1) % (u32::MAX / STATES);
        let word = number * STATES;
        let signal = SIGNAL.load(Relaxed) as i32;
        if signal == 0 || is_deaf(thread) {
            return None;
        }
        // Another report may hold a thread, which does not take long.
        let until = clock::now() + UNTIL_TAKEN;
        // Acquire: the report before has read its registers; partner: Release in `release`.
        while let Err(seen) = WORD.compare_exchange(IDLE, word + ASKED, Acquire, Relaxed) {
            if clock::now() >= until {
                return None;
            }
            futex::wait(&WORD, seen, Some(clock::now() + LOOK_AGAIN));
        }
        let payload = Payload {
            who: WHO,
            tick: number,
        };
        // Another report may just have given it up.
        if is_deaf(thread) {
            give_up(word);
            return None;
        }
        let patience = Patience::new(thread, computes);
        let sent = signal::queue(std::process::id() as i32, thread, signal, payload).is_ok();
        loop {
            // Acquire: the registers; partner: Release in `answer`.
            let seen = WORD.load(Acquire);
            if seen == word + HELD {
                return Some(Held { word });
            }
            // The handler has lost patience, and perhaps another report has begun; or there will be no handler.
            let is_ours = (word + ASKED..=word + HELD).contains(&seen);
            if !is_ours || !sent && give_up(word) {
                return None;
            }
            if patience.is_over(observer) {
                // First the note, which the thread takes back if it answers too late.
                note_deaf(thread);
                let is_late = give_up(word);
                if !is_late || !kernel_thread::exists(thread) {
                    forget_deaf(thread);
                }
                if is_late {
                    return None;
                }
            }
            futex::wait(&WORD, seen, Some(clock::now() + LOOK_AGAIN));
        }
    }

    /// As the frame gives them out: `Frame::registers`.
    pub(crate) fn registers(&self) -> [usize; 4] {
        core::array::from_fn(|i| REGISTERS[i].load(Relaxed))
    }

    /// Lets the thread go. Returns whether it has stood still until now.
    pub(crate) fn let_go(self) -> bool {
        self.release()
    }

    fn release(&self) -> bool {
        // Release: what was read of the stack; partner: Acquire in `answer`.
        let released = WORD
            .compare_exchange(self.word + HELD, IDLE, Release, Relaxed)
            .is_ok();
        if released {
            // The thread, and other reports that wait for their turn.
            futex::wake(&WORD, ALL);
        }
        released
    }
}

/// A report's patience with a thread that it has sent the signal to.
struct Patience {
    thread: i32,
    computes: bool,
    since: u64,
    clock: libc::clockid_t,
    /// The CPU time after which the thread is deaf.
    until_used: u64,
}

impl Patience {
    fn new(thread: i32, computes: bool) -> Patience {
        let clock = kernel_thread::cpu_clock(thread);
        Patience {
            thread,
            computes,
            since: clock::now(),
            clock,
            until_used: clock::cpu_time(clock) + IS_DEAF,
        }
    }

    fn is_over(&self, observer: &mut Observer) -> bool {
        let used = clock::cpu_time(self.clock);
        let has_ended = used == 0;
        let waited = clock::now() - self.since;
        // The signal wakes a thread that does not block it, before this one goes on.
        let mut sleeps_on = || observer.is_blocked(self.thread) != Some(false);
        has_ended
            || used >= self.until_used
            || waited >= UNTIL_RUN
            || !self.computes && waited >= UNTIL_TAKEN && sleeps_on()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

fn is_deaf(thread: i32) -> bool {
    DEAF.iter().any(|place| place.load(Relaxed) == thread)
}

/// The thread has not answered in time.
fn note_deaf(thread: i32) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |place: &&AtomicI32| place.compare_exchange(0, thread, Relaxed, Relaxed).is_ok();
    if DEAF.iter().find(free).is_none() {
        let next = NEXT.fetch_add(1, Relaxed) as usize % DEAF.len();
        DEAF[next].store(thread, Relaxed);
    }
}

fn forget_deaf(thread: i32) {
    for place in &DEAF {
        let _ = place.compare_exchange(thread, 0, Relaxed, Relaxed);
    }
}

/// Takes a request back. False: the handler answers already.
fn give_up(word: u32) -> bool {
    // Release: the note that the thread is deaf; partner: Acquire in `answer`.
    let is_back = WORD.compare_exchange(word + ASKED, IDLE, Release, Relaxed);
    futex::wake(&WORD, ALL);
    is_back.is_ok()
}

/// In a forked child: a thread was held in the parent only.
pub(crate) fn forget() {
    WORD.store(IDLE, Relaxed);
    DEAF.iter().for_each(|place| place.store(0, Relaxed));
}

/// The handler's part, on the kernel thread that a report wants to look at. It touches no thread-local.
pub(crate) fn answer(payload: Payload, frame: &Frame<'_>) {
    let word = payload.tick.wrapping_mul(STATES);
    // AcqRel: one handler writes the registers at a time. Acquire: the note of a report that has given up; partner:
    // Release in `give_up`.
    if WORD
        .compare_exchange(word + ASKED, word + TAKEN, AcqRel, Acquire)
        .is_err()
    {
        return forget_deaf(kernel_thread::id());
    }
    for (place, value) in REGISTERS.iter().zip(frame.registers()) {
        place.store(value, Relaxed);
    }
    // Release: the registers; partner: Acquire in `hold`.
    WORD.store(word + HELD, Release);
    futex::wake(&WORD, 1);
    let until = clock::now() + PATIENCE;
    // Acquire: the report has read; partner: Release in `release`.
    while WORD.load(Acquire) == word + HELD {
        if clock::now() >= until {
            let _ = WORD.compare_exchange(word + HELD, IDLE, Acquire, Relaxed);
            return;
        }
        futex::wait(&WORD, word + HELD, Some(until));
    }
}
