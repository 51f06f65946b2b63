//! Two threads take turns: each gives the other something to go on with, and waits for the same. Pairs of them run at once.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Instant;

use crate::{Kind, Measure, Taken};

/// A turn: `give` at the one place, `take` at the other.
fn turns<P: Clone + Send + 'static>(
    pairs: usize,
    rounds: usize,
    place: fn() -> P,
    give: fn(&P),
    take: fn(&P),
) -> Taken {
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
    Taken {
        turns: 2 * pairs * rounds,
        time: start.elapsed(),
    }
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

/// Messages, each through a channel of its own. The channels are made before the clock starts.
macro_rules! channel_each {
    ($Sender:path, $Receiver:path, $make:expr) => {
        |pairs, rounds| {
            type Ends = (Vec<$Sender>, Vec<$Receiver>);
            let rounds = (rounds / 10).max(20);
            let channels = || -> Ends { (0..rounds).map(|_| $make).unzip() };
            let all: Vec<_> = (0..pairs).map(|_| [channels(), channels()]).collect();
            let start = Instant::now();
            let pair = |[(there, theirs), (back, ours)]: [Ends; 2]| {
                let one = move || {
                    for (sender, receiver) in there.into_iter().zip(ours) {
                        sender.send(1).unwrap();
                        assert_eq!(receiver.recv(), Ok(1));
                    }
                };
                let other = move || {
                    for (sender, receiver) in back.into_iter().zip(theirs) {
                        assert_eq!(receiver.recv(), Ok(1));
                        sender.send(1).unwrap();
                    }
                };
                [greenthread::spawn(one), greenthread::spawn(other)]
            };
            let threads: Vec<_> = all.into_iter().flat_map(pair).collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            Taken {
                turns: 2 * pairs * rounds,
                time: start.elapsed(),
            }
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

/// A flag, and a thread that is parked until it is set.
macro_rules! park {
    ($library:ident) => {
        |pairs, rounds| {
            use $library::thread;
            type Place = Arc<(AtomicBool, OnceLock<thread::Thread>)>;
            let place = || Place::default();
            let give = |place: &Place| {
                place.0.store(true, Release);
                // The first time the other thread may not have come yet.
                place.1.wait().unpark();
            };
            let take = |place: &Place| {
                place.1.get_or_init(thread::current);
                while !place.0.swap(false, Acquire) {
                    thread::park();
                }
            };
            turns(pairs, rounds, place, give, take)
        }
    };
}

/// A flag, and an event.
fn event(pairs: usize, rounds: usize) -> Taken {
    use event_listener::{Event, Listener};
    type Place = Arc<(AtomicBool, Event)>;
    let give = |place: &Place| {
        place.0.store(true, Release);
        place.1.notify(1);
    };
    let take = |place: &Place| {
        while !place.0.swap(false, Acquire) {
            let listener = place.1.listen();
            if place.0.swap(false, Acquire) {
                return;
            }
            listener.wait();
        }
    };
    turns(pairs, rounds, Place::default, give, take)
}

pub fn kinds() -> Vec<Kind> {
    use greenthread::sync as our_sync;
    use std::sync as std_sync;
    let std_condition: Measure = condition!(std_sync, std_lock, std_wait);
    let own_condition: Measure = condition!(our_sync, std_lock, std_wait);
    let parking_lot_condition: Measure =
        condition!(parking_lot, parking_lot_lock, parking_lot_wait);
    let std_mpsc: Measure = channel!(mpsc::Sender<u32>, mpsc::Receiver<u32>, mpsc::channel());
    let own_mpsc: Measure = channel!(
        our_sync::mpsc::Sender<u32>,
        our_sync::mpsc::Receiver<u32>,
        our_sync::mpsc::channel()
    );
    let flume: Measure = channel!(flume::Sender<u32>, flume::Receiver<u32>, flume::unbounded());
    let crossbeam: Measure = channel!(
        crossbeam_channel::Sender<u32>,
        crossbeam_channel::Receiver<u32>,
        crossbeam_channel::unbounded()
    );
    let own_channel: Measure = channel!(
        greenthread::channel::Sender<u32>,
        greenthread::channel::Receiver<u32>,
        greenthread::channel::unbounded()
    );
    let oneshot: Measure = channel_each!(
        oneshot::Sender<u32>,
        oneshot::Receiver<u32>,
        oneshot::channel()
    );
    let own_oneshot: Measure = channel_each!(
        greenthread::channel::Sender<u32>,
        greenthread::channel::Receiver<u32>,
        greenthread::channel::bounded(1)
    );
    vec![
        Kind::new("std's condition", std_condition, own_condition),
        Kind::new(
            "parking_lot's condition",
            parking_lot_condition,
            own_condition,
        ),
        Kind::new("std's park", park!(std), park!(greenthread)),
        Kind::new("std's mpsc", std_mpsc, own_mpsc),
        Kind::new("flume", flume, own_channel),
        Kind::new("crossbeam", crossbeam, own_channel),
        Kind::new("oneshot", oneshot, own_oneshot),
        Kind::new("event-listener", event, own_condition),
    ]
}
