//! What a wait costs in primitives that know nothing of green threads, beside the crate's own.
//!
//! Ten threads take part, or a thousand. Each primitive is measured in turn with its counterpart, in the same
//! program, and the best of several rounds counts. How many of the guest's calls have parked their threads is
//! counted too: most turns have a wait.
//!
//! ```sh
//! GT_GUESTS_RATIO=1 cargo test --release -p greenthread-guests --test waits -- --nocapture
//! ```

mod crowds;
mod turns;

use greenthread::runtime::Runtime;
use std::time::Duration;
use support::{Test, ratios_count};

/// A wait may cost so many times the crate's own.
const BOUND: f64 = 2.5;
/// So many turns at least must have a wait.
const WAITS: f64 = 0.4;
/// Its receivers spin for microseconds before they wait, whatever threads they run on; then the message is there.
const SPINS: &str = "crossbeam";

/// A program's answer.
pub struct Taken {
    turns: usize,
    time: Duration,
}

/// A program, of so many pairs of threads, and so many rounds of each.
pub type Measure = fn(usize, usize) -> Taken;

/// A guest's primitive, and the crate's own.
pub struct Kind {
    name: &'static str,
    guest: Measure,
    own: Measure,
    /// What is taken off both: the program without what is measured, and how many switches a turn of it has.
    without: Option<(Measure, f64)>,
}

impl Kind {
    pub fn new(name: &'static str, guest: Measure, own: Measure) -> Kind {
        Kind {
            name,
            guest,
            own,
            without: None,
        }
    }

    pub fn without(self, without: Measure, switches: f64) -> Kind {
        Kind {
            without: Some((without, switches)),
            ..self
        }
    }
}

/// Of one turn: nanoseconds, the guest's calls that parked their threads, and switches.
struct Turn {
    nanos: f64,
    parked: f64,
    switches: f64,
}

fn measure(what: Measure, pairs: usize, rounds: usize) -> Turn {
    let before = Runtime::global().metrics();
    let taken = what(pairs, rounds);
    let after = Runtime::global().metrics();
    let each = |count: u64| count as f64 / taken.turns as f64;
    Turn {
        nanos: taken.time.as_nanos() as f64 / taken.turns as f64,
        parked: each(after.parked_calls - before.parked_calls),
        switches: each(after.switches - before.switches),
    }
}

/// The best of several rounds: nanoseconds of a turn, and its waits.
#[derive(Clone, Copy)]
struct Best {
    nanos: f64,
    waits: f64,
}

impl Best {
    const NONE: Best = Best {
        nanos: f64::MAX,
        waits: 0.0,
    };

    /// A round in which few had to wait says nothing.
    fn or(self, nanos: f64, waits: f64) -> Best {
        match waits >= WAITS && nanos < self.nanos {
            true => Best { nanos, waits },
            false => self,
        }
    }

    /// Nanoseconds of a wait, where a turn without one takes `off`.
    fn wait(self, off: f64) -> f64 {
        (self.nanos - off) / self.waits
    }
}

/// A guest's best, the crate's, and the least that is taken off both.
struct Pair {
    guest: Best,
    own: Best,
    off: f64,
    /// The most of the guest's calls that parked their threads in a turn.
    parked: f64,
}

impl Pair {
    fn measure(&mut self, kind: &Kind, pairs: usize, rounds: usize) {
        if let Some((without, _)) = kind.without {
            self.off = self.off.min(measure(without, pairs, rounds).nanos);
        }
        let theirs = measure(kind.guest, pairs, rounds);
        let ours = measure(kind.own, pairs, rounds);
        self.parked = self.parked.max(theirs.parked);
        match kind.without {
            Some((_, switches)) => {
                self.guest = self.guest.or(theirs.nanos, theirs.parked);
                self.own = self.own.or(ours.nanos, ours.switches - switches);
            }
            // Each turn is a wait, but for the last thread's in a crowd.
            None if theirs.parked >= WAITS || kind.name == SPINS => {
                self.guest = self.guest.or(theirs.nanos, 1.0);
                self.own = self.own.or(ours.nanos, 1.0);
            }
            None => {}
        }
    }

    /// Nanoseconds of a wait, the guest's and the crate's, if there were enough waits.
    fn waits(&self) -> Option<[f64; 2]> {
        let off = if self.off == f64::MAX { 0.0 } else { self.off };
        let had_to_wait = self.guest.waits != 0.0 && self.own.waits != 0.0;
        had_to_wait.then(|| [self.guest.wait(off), self.own.wait(off)])
    }

    fn ratio(&self) -> Option<f64> {
        self.waits().map(|[guest, own]| guest / own)
    }
}

fn is_within(ratio: Option<f64>) -> bool {
    ratio.is_some_and(|ratio| ratio <= BOUND)
}

/// Measures, says so, and returns the ratio, if there were enough waits. Other programs disturb single rounds: there are
/// up to four times as many before one that is too high is believed.
fn compare(kind: &Kind, pairs: usize, rounds: usize, best_of: usize) -> Option<f64> {
    let mut pair = Pair {
        guest: Best::NONE,
        own: Best::NONE,
        off: f64::MAX,
        parked: 0.0,
    };
    for _ in 0..4 {
        (0..best_of).for_each(|_| pair.measure(kind, pairs, rounds));
        if !ratios_count() || kind.name == SPINS || is_within(pair.ratio()) {
            break;
        }
    }
    let (threads, name, parked) = (2 * pairs, kind.name, pair.parked);
    let Some([guest, own]) = pair.waits() else {
        eprintln!("{threads} threads, {name}: {parked:.2} waits a turn: too few");
        return None;
    };
    let ratio = guest / own;
    eprintln!(
        "{threads} threads, {name}: {guest:.0} ns, own {own:.0} ns, {ratio:.2}; {parked:.2} waits a turn"
    );
    Some(ratio)
}

#[test]
fn waits() {
    let test = Test::new("waits", 600);
    let kinds: Vec<Kind> = turns::kinds().into_iter().chain(crowds::kinds()).collect();
    let mut misses = Vec::new();
    // Many short rounds find the moments in which the machine does nothing else. A thousand threads take longer, or the
    // time would be that of their spawns.
    for (pairs, turns, best_of) in [(5, 20_000, 60), (500, 100_000, 25)] {
        let rounds = support::some(turns, 2_000) / pairs;
        for kind in &kinds {
            let best_of = match ratios_count() {
                true if kind.name == SPINS => 3,
                true => best_of,
                false => 1,
            };
            let ratio = compare(kind, pairs, rounds, best_of);
            if kind.name != SPINS && !is_within(ratio) {
                misses.push((2 * pairs, kind.name, ratio));
            }
        }
    }
    test.report();
    assert!(!ratios_count() || misses.is_empty(), "{misses:.2?}");
}
