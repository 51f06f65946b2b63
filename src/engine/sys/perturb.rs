//! Perturbation: named points at which a kernel thread stops for a moment, now and then, so that an
//! event which comes between two steps once in a million runs comes there in every run.
//!
//! The points do something in a build with GREENTHREAD_PERTURB in its environment, or with
//! `--cfg greenthread_perturb`; in any other build [`point`] does nothing. A point stands where other
//! threads could come between and matter: between a push and the look for sleepers, an announcement
//! and the look after it, a claim and its consequences, a word and its futex, and before a queue is
//! drained.
//!
//! | a thread that comes to a point | how often |
//! |---|---|
//! | goes on | mostly |
//! | spins, up to some microseconds | half of the rest |
//! | gives way to another kernel thread | nearly all others |
//! | sleeps, up to half a millisecond, as if the system ran another one | the others |
//!
//! Stopping everywhere alike would only be a slower machine: one slow place among fast ones is the
//! rare case. So every point has a *temper*: a few points stop every third thread that comes, some
//! points one of thirty, most points hardly any. At points where few threads come, half of the
//! tempers are bad, and sleep is frequent: that costs little, and faults in resizing or closing
//! would hardly be met otherwise. Tempers change with the *season*, which lasts for a fixed number
//! of hits of all points.
//!
//! Seed, name and season make the temper; the temper and a count of hits make the choice. The seed
//! is `GREENTHREAD_PERTURB_SEED`; with 0 no thread stops. If the variable is not set, the clock
//! gives a seed, which is printed. A seed repeats the tempers, not the interleaving.
//!
//! # Invariants
//! 1. A point may stand anywhere: it touches no thread-local, allocates nothing, takes no lock, and
//!    leaves `errno` alone.
//! 2. A point has no read-modify-write: that is a full fence on some machines, and would hide a
//!    missing fence. Hits that are not counted do no harm.
//!
//! Orderings: all Relaxed, nothing is published.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{clock, kernel_thread, shared::mix, variable};

/// The seed before it is read.
const UNKNOWN: u64 = u64::MAX;
/// The seed with which no thread stops.
const STILL: u64 = 0;

/// The number of hits in a season, as a power of 2.
const SEASON: u32 = 16;
/// Few threads come to a point that has less than one of this many hits.
const FEW: u64 = 1000;
const MOST_SPINS: u64 = 1 << 10;
const LONGEST_SLEEP: u64 = 512_000;

static SEED: AtomicU64 = AtomicU64::new(UNKNOWN);
/// The hits of all points.
static HITS: AtomicU64 = AtomicU64::new(0);
/// The hits of each point, by its hash. It does no harm if two points share a place.
static OWN_HITS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

/// A point at which other threads may come between. It is in every build, and so stands where all builds read.
pub(crate) use super::point;

/// What a point does in a perturbed build.
#[inline(never)]
pub(super) fn come_to(name: &'static str) {
    let seed = match SEED.load(Relaxed) {
        STILL => return,
        UNKNOWN => learn_seed(),
        seed => seed,
    };
    let bytes = name.bytes().map(u64::from);
    let name = bytes.fold(0, |hash, byte| mix(hash ^ byte));
    let hits = count(&HITS);
    let few_come = count(&OWN_HITS[(name % 512) as usize]) * FEW < hits;
    let temper = mix(seed ^ mix(hits >> SEASON) ^ name);
    let one_in = match (temper % 16, few_come) {
        (0, _) | (..8, true) => 3,
        (..4, _) => 30,
        _ => 500,
    };
    let luck = mix(temper.wrapping_add(hits));
    if luck.is_multiple_of(one_in) {
        stop(luck >> 16, if few_come { 4 } else { 16 });
    }
}

/// Counts one more hit; returns the number before.
fn count(hits: &AtomicU64) -> u64 {
    let before = hits.load(Relaxed);
    hits.store(before.wrapping_add(1), Relaxed);
    before
}

/// Stops the thread. `luck` chooses how, and for how long: each length is as likely as twice that
/// length. One of `sleeps` stops is a sleep.
#[cold]
fn stop(luck: u64, sleeps: u64) {
    let halved = (luck >> 8) % 10;
    if luck.is_multiple_of(sleeps) {
        // A signal may end the sleep early, which does no harm.
        kernel_thread::rest(LONGEST_SLEEP >> halved);
    } else if luck.is_multiple_of(2) {
        kernel_thread::give_way();
    } else {
        (0..MOST_SPINS >> halved).for_each(|_| core::hint::spin_loop());
    }
}

/// Two threads may both come here: then either seed serves, and both are printed.
#[cold]
fn learn_seed() -> u64 {
    const NAME: &core::ffi::CStr = c"GREENTHREAD_PERTURB_SEED";
    let seed = variable::peek(NAME, parse).unwrap_or_else(|| {
        let seed = mix(clock::now()) >> 32;
        // `eprintln!` would allocate and take a lock: see the first invariant.
        super::say(format_args!("perturbed, GREENTHREAD_PERTURB_SEED={seed}"));
        seed
    });
    SEED.store(seed, Relaxed);
    seed
}

fn parse(text: &[u8]) -> u64 {
    let text = core::str::from_utf8(text).ok();
    let number = text.and_then(|text| text.parse().ok());
    let seed = number.filter(|&seed| seed != UNKNOWN);
    seed.unwrap_or_else(|| {
        super::die("GREENTHREAD_PERTURB_SEED: accepted is a number below 2^64 - 1")
    })
}
