//! `greenthread::time`, and sleeping on a large scale: a million threads with random wake times. No
//! timer is early, and the 99th percentile of how late they are is compared with that of a few
//! sleepers that wake up as often, at the same time.
//!
//! The million are twenty thousand in debug builds, and fewer where memory is short or the
//! kernel cannot install guards without a mapping each; the run says so.

use crate::support::*;
use greenthread::JoinHandle;
use greenthread::runtime::Runtime;
use greenthread::time::{self, Duration, Elapsed, Instant, Interval};
use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock};

/// What a sleeping thread may take of memory, with all that belongs to it, and some to spare.
const PER_THREAD: usize = 12 * 1024;
/// How many wake up in a second: each costs microseconds, cold as its stack is by then, and the claim
/// is about how many sleep, not about how much a worker can run.
const WAKE_RATE: u32 = 10_000;
const SAMPLES: usize = 10_000;
/// These are late because many were due while the last ones began.
const SKIPPED: usize = 2_000;
/// How much later a million may be than a few that wake up at the same rate, on a worker without others.
const BOUND: Duration = Duration::from_millis(2);

/// Threads that sleep again and again, each for a random time.
struct Sleepers {
    threads: Vec<JoinHandle<()>>,
    record: Arc<Record>,
}

#[derive(Default)]
struct Record {
    /// How late those were that were due after it had begun.
    late_micros: Vec<AtomicU32>,
    begun: OnceLock<Instant>,
    running: AtomicUsize,
    awake: AtomicUsize,
    early: AtomicUsize,
    stop: AtomicBool,
}

impl Sleepers {
    fn start(runtime: &Runtime, n: usize, rng: &mut Rng, dog: &Watchdog) -> Sleepers {
        // Twice as long as they sleep on average.
        let longest = (2 * Duration::from_secs(1) * n as u32 / WAKE_RATE).as_micros() as u64;
        let record = Arc::new(Record {
            late_micros: (0..SAMPLES).map(|_| AtomicU32::new(0)).collect(),
            ..Record::default()
        });
        let threads = (0..n).map(|i| {
            if i % 10_000 == 0 {
                dog.progress();
            }
            let (record, mut rng) = (record.clone(), Rng::new(rng.next()));
            runtime.spawn(move || {
                record.running.fetch_add(1, Relaxed);
                loop {
                    let due = Instant::now() + rng.micros_below(longest);
                    greenthread::park_until(due); // nobody unparks it before the end
                    if record.stop.load(Relaxed) {
                        return;
                    }
                    record.note(due);
                }
            })
        });
        Sleepers {
            threads: threads.collect(),
            record: record.clone(),
        }
    }

    fn is_measured(&self) -> bool {
        self.record.awake.load(Relaxed) >= SKIPPED + SAMPLES
    }

    /// How late they were. All of them end, most long before they are due.
    fn end(self, dog: &Watchdog) -> Samples {
        self.record.stop.store(true, Relaxed);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        for (i, thread) in self.threads.into_iter().enumerate() {
            thread.join().unwrap();
            if i % 10_000 == 0 {
                dog.progress();
            }
        }
        assert_eq!(self.record.early.load(Relaxed), 0, "timers fired early");
        let late = self.record.late_micros.iter();
        late.map(|late| Duration::from_micros(late.load(Relaxed).into()))
            .collect()
    }
}

impl Record {
    fn note(&self, due: Instant) {
        let Some(late) = Instant::now().checked_duration_since(due) else {
            self.early.fetch_add(1, Relaxed);
            return;
        };
        if self.begun.get().is_some_and(|begun| due > *begun) {
            let i = self.awake.fetch_add(1, Relaxed).checked_sub(SKIPPED);
            if let Some(place) = i.and_then(|i| self.late_micros.get(i)) {
                place.store(late.as_micros() as u32, Relaxed);
            }
        }
    }
}

#[test]
fn a_million_sleepers_wake_in_time() {
    let _alone = alone();
    let dog = Watchdog::new("a million sleepers");
    // One each: the few are to have no timers beside theirs.
    let ((runtime, green), (other, _)) = (runtime(2), runtime(2));
    let n = as_many_threads(green, 200, PER_THREAD);
    let mut rng = Rng::from_env();
    best_of(5, "the million woke as promptly as a few", || {
        let many = Sleepers::start(&runtime, n, &mut rng, &dog);
        let few = Sleepers::start(&other, 500.min(n), &mut rng, &dog);
        for sleepers in [&many, &few] {
            while sleepers.record.running.load(Relaxed) < sleepers.threads.len() {
                std::thread::sleep(Duration::from_millis(1));
            }
            dog.progress();
        }
        for sleepers in [&many, &few] {
            sleepers.record.begun.set(Instant::now()).unwrap();
        }
        while !(many.is_measured() && few.is_measured()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        dog.progress();
        let [many, few] = [many, few].map(|sleepers| sleepers.end(&dog));
        eprintln!("late, {n} sleepers: {many}; a few, as often: {few}");
        !green || many.quantile(0.99) <= 4 * few.quantile(0.99) + BOUND
    });
    runtime.shutdown();
    other.shutdown();
}

#[test]
fn a_call_may_take_only_so_long() {
    let _alone = alone();
    let _dog = Watchdog::new("time::a_call_may_take_only_so_long");
    assert_eq!(time::timeout(Duration::MAX, || 42), Ok(42));
    let panics = || time::timeout(Duration::MAX, || resume_unwind(Box::new(7u8)));
    let payload: Result<Result<(), Elapsed>, _> = catch_unwind(panics);
    assert_eq!(*payload.unwrap_err().downcast::<u8>().unwrap(), 7);
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
