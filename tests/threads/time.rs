//! `greenthread::time`, and sleeping on a large scale: a million threads with random wake times. No
//! timer is early, and the 99th percentile of how late they are is compared with that of a few
//! sleepers that wake up as often, in the same run.
//!
//! The million are a hundred thousand in debug builds, and fewer where memory is short or the
//! kernel cannot install guards without a mapping each; the run says so.

use crate::support::*;
use greenthread::runtime::Runtime;
use greenthread::time::{self, Duration, Elapsed, Instant, Interval};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};
use std::sync::mpsc;

/// What a sleeping thread may take of memory, with all that belongs to it, and some to spare.
const PER_THREAD: usize = 12 * 1024;
/// How many wake up in a second: each costs microseconds, cold as its stack is by then, and the claim
/// is about how many sleep, not about how much a machine can run.
const WAKE_RATE: u32 = 50_000;
/// How much later a million may be than a few that wake up at the same rate.
const BOUND: Duration = Duration::from_millis(2);

/// Threads that sleep, and how late each was each time.
#[derive(Clone, Copy)]
struct Sleepers {
    threads: usize,
    /// How often each sleeps.
    times: usize,
    /// When the first are due: after all were spawned.
    lead: Duration,
}

struct Record {
    late_micros: Vec<AtomicU32>,
    awake: AtomicUsize,
    early: AtomicUsize,
}

impl Sleepers {
    /// Starts them all and waits for them. Wake times are at random in a span of time, or in as many
    /// equal parts of it as each thread sleeps times. `Err`: spawning took longer than the lead, so
    /// this proves nothing.
    fn run(self, runtime: &Runtime, rng: &mut Rng, dog: &Watchdog) -> Result<Samples, Duration> {
        let n = self.threads * self.times;
        let part = Duration::from_secs(1) * n as u32 / WAKE_RATE / self.times as u32;
        let record = Arc::new(Record {
            late_micros: (0..n).map(|_| AtomicU32::new(0)).collect(),
            awake: AtomicUsize::new(0),
            early: AtomicUsize::new(0),
        });
        let start = Instant::now();
        let base = start + self.lead;
        for i in 0..self.threads {
            let (record, mut rng) = (record.clone(), Rng::new(rng.next()));
            runtime.spawn(move || {
                for time in 0..self.times {
                    let from = base + part * time as u32;
                    let due = from + rng.micros_below(part.as_micros() as u64);
                    greenthread::sleep_until(due);
                    record.note(i * self.times + time, due);
                }
            });
            if i % 10_000 == 0 {
                dog.progress();
            }
        }
        let spawning = start.elapsed();
        let mut awake = 0;
        while awake < n {
            std::thread::sleep(Duration::from_millis(20));
            let now = record.awake.load(Acquire); // pairs with `note`
            if now > awake || Instant::now() < base {
                dog.progress();
            }
            awake = now;
        }
        assert_eq!(record.early.load(Relaxed), 0, "timers fired early");
        let late = record.late_micros.iter().map(|late| late.load(Relaxed));
        let late = late.map(|late| Duration::from_micros(late.into()));
        (spawning < self.lead)
            .then(|| late.collect())
            .ok_or(spawning)
    }
}

impl Record {
    fn note(&self, i: usize, due: Instant) {
        match Instant::now().checked_duration_since(due) {
            Some(late) => self.late_micros[i].store(late.as_micros() as u32, Relaxed),
            None => drop(self.early.fetch_add(1, Relaxed)),
        }
        self.awake.fetch_add(1, Release);
    }
}

#[test]
fn a_million_sleepers_wake_in_time() {
    let _alone = alone();
    let dog = Watchdog::new("a million sleepers");
    let (runtime, green) = runtime(2);
    let n = as_many_threads(green, 200, PER_THREAD);
    let mut rng = Rng::from_env();
    let few = Sleepers {
        threads: 500.min(n),
        times: if green { 200 } else { 1 },
        lead: Duration::from_secs(1),
    };
    let mut many = Sleepers {
        threads: n,
        times: 1,
        lead: Duration::from_micros(12 * n as u64),
    };
    best_of(5, "the million woke as promptly as a few", || {
        let late = match many.run(&runtime, &mut rng, &dog) {
            Ok(late) => late,
            Err(spawning) => {
                eprintln!("spawning took {spawning:.1?}, so some were due too soon: again");
                many.lead = spawning * 2;
                return false;
            }
        };
        let quiet = match few.run(&runtime, &mut rng, &dog) {
            Ok(late) => late,
            Err(spawning) => {
                eprintln!("spawning a few took {spawning:.1?}: again");
                return false;
            }
        };
        eprintln!("late, {n} sleepers: {late}; a few, as often: {quiet}");
        !green || late.quantile(0.99) <= quiet.quantile(0.99) + BOUND
    });
    runtime.shutdown();
}

#[test]
fn a_call_may_take_only_so_long() {
    let _alone = alone();
    let _dog = Watchdog::new("time::a_call_may_take_only_so_long");
    assert_eq!(time::timeout(Duration::MAX, || 42), Ok(42));
    let panics = || time::timeout(Duration::MAX, || resume_unwind(Box::new(7u8)));
    let payload: Result<Result<(), Elapsed>, _> = catch_unwind(panics);
    assert_eq!(*payload.unwrap_err().downcast::<u8>().unwrap(), 7);
    // If the time is up the call goes on, and comes to its end.
    let (go, told) = mpsc::channel::<()>();
    let (say, heard) = mpsc::channel();
    let slow = move || {
        told.recv().unwrap();
        say.send("ended").unwrap();
    };
    let start = Instant::now();
    assert_eq!(time::timeout(Duration::from_millis(3), slow), Err(Elapsed));
    assert!(start.elapsed() >= Duration::from_millis(3));
    go.send(()).unwrap();
    assert_eq!(heard.recv().unwrap(), "ended");
    assert!(Elapsed.to_string().contains("time"));
}

#[test]
fn an_interval_keeps_its_grid() {
    let _alone = alone();
    let _dog = Watchdog::new("time::an_interval_keeps_its_grid");
    let body = || {
        let (start, period) = (Instant::now(), Duration::from_micros(700));
        let mut interval = Interval::starting_at(start, period);
        let (mut last, mut rng) = (start, Rng::new(1));
        for i in 0..200 {
            if i % 10 == 0 {
                greenthread::sleep(rng.micros_below(5_000)); // ticks are missed
            }
            let asked = Instant::now();
            let tick = interval.tick();
            let now = Instant::now();
            assert!(tick <= now, "early");
            assert!(tick >= last + period, "a tick twice");
            let on_grid = (tick - start).as_nanos().is_multiple_of(period.as_nanos());
            assert!(on_grid, "off the grid");
            // Of missed ticks only the latest is left.
            assert!(tick + period > asked, "a missed tick was made up");
            last = tick;
        }
        assert_eq!(interval.period(), period);
        // Long ago, and for ever.
        if let Some(past) = start.checked_sub(Duration::from_secs(1)) {
            let mut interval = Interval::starting_at(past, Duration::from_nanos(1));
            assert!(interval.tick() >= start);
        }
        assert_eq!(Interval::new(period).take(3).count(), 3);
        let _never = Interval::new(Duration::MAX);
        catch_unwind(|| Interval::new(Duration::ZERO)).unwrap_err();
    };
    body();
    greenthread::spawn(body).join().unwrap();
}

#[test]
fn a_park_may_end_at_a_point_in_time() {
    let _alone = alone();
    let _dog = Watchdog::new("time::a_park_may_end_at_a_point_in_time");
    let body = || {
        let until = Instant::now() + Duration::from_millis(3);
        while Instant::now() < until {
            greenthread::park_until(until); // may wake early, must wake
        }
        greenthread::current().unpark();
        greenthread::park_until(Instant::now() + Duration::from_secs(1 << 33));
        greenthread::park_until(until); // past: returns
    };
    body();
    greenthread::spawn(body).join().unwrap();
}
