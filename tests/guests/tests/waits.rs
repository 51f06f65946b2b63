//! What a wait costs in primitives that know nothing of green threads, beside the crate's own.
//!
//! Two threads take turns, and pairs of them run at once. Each primitive is measured in turn with its
//! counterpart, and the best of several rounds counts.
//!
//! ```sh
//! GT_GUESTS_RATIO=1 cargo test --release -p greenthread-guests --test waits -- --nocapture
//! ```

use std::sync::{Arc, mpsc};
use std::time::Instant;
use support::{Test, ratios_count};

/// A wait may cost so many times the crate's own.
const BOUND: f64 = 2.5;

/// Nanoseconds of one thread's turn, among `pairs` of threads. A turn: `give` at the one place, `take` at the
/// other.
fn turns<P: Clone + Send + 'static>(
    pairs: usize,
    rounds: usize,
    place: fn() -> P,
    give: fn(&P),
    take: fn(&P),
) -> f64 {
    let start = Instant::now();
    let pair = |_| {
        let (there, back) = (place(), place());
        let (their_there, their_back) = (there.clone(), back.clone());
        let one = move || {
            for _ in 0..rounds {
                give(&there);
                take(&back);
            }
        };
        let other = move || {
            for _ in 0..rounds {
                take(&their_there);
                give(&their_back);
            }
        };
        [greenthread::spawn(one), greenthread::spawn(other)]
    };
    let threads: Vec<_> = (0..pairs).flat_map(pair).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    start.elapsed().as_nanos() as f64 / (2 * pairs * rounds) as f64
}

/// Nanoseconds of one thread's wait at a barrier.
macro_rules! barrier {
    ($Barrier:path) => {
        |pairs: usize, rounds: usize| {
            let barrier = Arc::new(<$Barrier>::new(2 * pairs));
            let rounds = (rounds / 10).max(20);
            let start = Instant::now();
            let threads: Vec<_> = (0..2 * pairs)
                .map(|_| {
                    let barrier = barrier.clone();
                    greenthread::spawn(move || {
                        for _ in 0..rounds {
                            barrier.wait();
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            start.elapsed().as_nanos() as f64 / (2 * pairs * rounds) as f64
        }
    };
}

/// Messages.
macro_rules! channel {
    ($Sender:path, $Receiver:path, $make:expr) => {
        |pairs, rounds| {
            // The lock is free: one thread receives at a place.
            type Place = ($Sender, Arc<std::sync::Mutex<$Receiver>>);
            let place = || -> Place {
                let (sender, receiver) = $make;
                (sender, Arc::new(std::sync::Mutex::new(receiver)))
            };
            let give = |place: &Place| place.0.send(1).unwrap();
            let take = |place: &Place| assert_eq!(place.1.lock().unwrap().recv(), Ok(1));
            turns(pairs, rounds, place, give, take)
        }
    };
}

/// A flag with a condition.
macro_rules! condition {
    ($sync:ident, $lock:ident, $wait:ident) => {
        |pairs, rounds| {
            type Place = Arc<($sync::Mutex<bool>, $sync::Condvar)>;
            let place = || Place::default();
            let give = |place: &Place| {
                *$lock!(place.0) = true;
                place.1.notify_one();
            };
            let take = |place: &Place| {
                let mut is_there = $lock!(place.0);
                while !*is_there {
                    $wait!(place.1, is_there);
                }
                *is_there = false;
            };
            turns(pairs, rounds, place, give, take)
        }
    };
}

macro_rules! std_lock {
    ($mutex:expr) => {
        $mutex.lock().unwrap()
    };
}
macro_rules! std_wait {
    ($condvar:expr, $guard:ident) => {
        $guard = $condvar.wait($guard).unwrap()
    };
}
macro_rules! parking_lot_lock {
    ($mutex:expr) => {
        $mutex.lock()
    };
}
macro_rules! parking_lot_wait {
    ($condvar:expr, $guard:ident) => {
        $condvar.wait(&mut $guard)
    };
}

/// A measurement: of so many pairs, and so many rounds of each.
type Measure = fn(usize, usize) -> f64;

#[test]
fn waits() {
    use greenthread::sync as our_sync;
    use std::sync as std_sync;
    let test = Test::new("waits", 300);
    let own_condition: Measure = condition!(our_sync, std_lock, std_wait);
    let own_channel: Measure = channel!(
        greenthread::channel::Sender<u32>,
        greenthread::channel::Receiver<u32>,
        greenthread::channel::unbounded()
    );
    let kinds: [(&str, Measure, Measure); 6] = [
        (
            "std's condition",
            condition!(std_sync, std_lock, std_wait),
            own_condition,
        ),
        (
            "parking_lot's condition",
            condition!(parking_lot, parking_lot_lock, parking_lot_wait),
            own_condition,
        ),
        (
            "std's mpsc",
            channel!(mpsc::Sender<u32>, mpsc::Receiver<u32>, mpsc::channel()),
            channel!(
                our_sync::mpsc::Sender<u32>,
                our_sync::mpsc::Receiver<u32>,
                our_sync::mpsc::channel()
            ),
        ),
        (
            "flume",
            channel!(flume::Sender<u32>, flume::Receiver<u32>, flume::unbounded()),
            own_channel,
        ),
        (
            "crossbeam",
            channel!(
                crossbeam_channel::Sender<u32>,
                crossbeam_channel::Receiver<u32>,
                crossbeam_channel::unbounded()
            ),
            own_channel,
        ),
        (
            "std's barrier",
            barrier!(std::sync::Barrier),
            barrier!(greenthread::sync::Barrier),
        ),
    ];
    let rounds = if ratios_count() { 7 } else { 1 };
    for pairs in [5, 500] {
        let each = support::some(200_000, 2_000) / pairs;
        for (name, guest, own) in kinds {
            let mut best = [f64::MAX; 2];
            for _ in 0..rounds {
                for (measure, best) in [guest, own].into_iter().zip(&mut best) {
                    *best = best.min(measure(pairs, each));
                }
            }
            let [guest, own] = best;
            let ratio = guest / own;
            eprintln!(
                "{} threads, {name}: {guest:.0} ns, own {own:.0} ns, {ratio:.2}",
                2 * pairs
            );
            // crossbeam's receivers spin for a microsecond before they wait, whatever threads they run on.
            assert!(
                !ratios_count() || ratio <= BOUND || name == "crossbeam",
                "{name}"
            );
        }
    }
    test.report();
}
