//! A storm of coroutines: a pool that 2 kernel threads, 200 green threads of one runtime and some
//! of another take from, with time slices of 100 µs and hogs beside them. Whoever has a coroutine
//! resumes it some times, checks each value, and puts it back or drops it. A ledger says in the end
//! that every body that began was left, once.
//!
//! `GT_STRESS_SECS` seconds (1 unless given). `GT_SEED` repeats a run's choices.

use crate::support::*;
use greenthread::coroutine::{Coroutine, CoroutineResult, Yielder};
use greenthread::runtime::Runtime;
use greenthread::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// Takes a number, yields what that makes of its state; `None` ends it.
type Mixer = Coroutine<Option<u64>, u64, u64>;

#[derive(Default)]
struct Ledger {
    begun: AtomicU64,
    left: AtomicU64,
    resumed: AtomicU64,
}

fn mix(state: u64, input: u64) -> u64 {
    (state ^ input)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(17)
}

/// `depth` coroutines, each in the one above, which hands on what comes.
fn mixer(depth: u64, seed: u64, ledger: Arc<Ledger>) -> Mixer {
    struct Left(Arc<Ledger>);
    impl Drop for Left {
        fn drop(&mut self) {
            self.0.left.fetch_add(1, Relaxed);
        }
    }
    Coroutine::new(move |yielder: &Yielder<_, u64>, mut input| {
        ledger.begun.fetch_add(1, Relaxed);
        let left = Left(ledger);
        let mut rng = Rng::new(seed);
        let mut below = (depth > 0).then(|| mixer(depth - 1, seed, left.0.clone()));
        let mut state = seed;
        while let Some(number) = input {
            match rng.below(200) {
                0 => greenthread::yield_now(),
                1 => greenthread::sleep(rng.micros_below(50)),
                2 => drop(vec![0u8; rng.below(10_000) as usize]),
                _ => {}
            }
            state = match &mut below {
                None => mix(state, number),
                Some(below) => below.resume(input).as_yield().expect("it goes on"),
            };
            input = yielder.suspend(state);
        }
        state
    })
}

/// A mixer, and what its state must be.
struct Entry {
    mixer: Mixer,
    state: u64,
}

struct Pool {
    entries: Mutex<Vec<Entry>>,
    ledger: Arc<Ledger>,
    end: Instant,
}

impl Pool {
    fn entry(&self, rng: &mut Rng) -> Entry {
        let taken = {
            let mut entries = self.entries.lock().unwrap();
            let index = rng.below(entries.len().max(1) as u64) as usize;
            (index < entries.len()).then(|| entries.swap_remove(index))
        };
        taken.unwrap_or_else(|| {
            let (depth, state) = (rng.below(4), rng.next());
            let mixer = mixer(depth, state, self.ledger.clone());
            Entry { mixer, state }
        })
    }

    fn work(&self, mut rng: Rng) {
        while Instant::now() < self.end {
            let mut entry = self.entry(&mut rng);
            let times = rng.below(500);
            for _ in 0..times {
                let input = rng.next();
                entry.state = mix(entry.state, input);
                let result = entry.mixer.resume(Some(input));
                assert_eq!(result, CoroutineResult::Yield(entry.state));
            }
            self.ledger.resumed.fetch_add(times, Relaxed);
            match rng.below(10) {
                0 => drop(entry),
                1 => {
                    let last = entry.mixer.resume(None);
                    assert!(matches!(last, CoroutineResult::Return(_)));
                }
                _ => self.entries.lock().unwrap().push(entry),
            }
        }
    }
}

#[test]
fn coroutines_in_a_storm() {
    let _alone = alone();
    let (mut rng, seed) = Rng::from_env_with_seed();
    let seconds = crate::support::storm::seconds();
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds + 60));
        eprintln!("coroutines_in_a_storm hangs, GT_SEED={seed}");
        std::process::abort();
    });
    let ledger = Arc::new(Ledger::default());
    let pool = Arc::new(Pool {
        entries: Mutex::new(Vec::new()),
        ledger: ledger.clone(),
        end,
    });
    let runtime = |processors| {
        let slice = Duration::from_micros(100);
        let builder = Runtime::builder().processors(processors).time_slice(slice);
        builder.build().unwrap()
    };
    let (runtime, other, (_, green)) = (runtime(2), runtime(1), self::runtime(1));
    let number = if green { 200 } else { 10 };
    let mut work = || {
        let (pool, rng) = (pool.clone(), Rng::new(rng.next()));
        move || pool.work(rng)
    };
    let kernel: Vec<_> = (0..2).map(|_| std::thread::spawn(work())).collect();
    let mut threads: Vec<_> = (0..number).map(|_| runtime.spawn(work())).collect();
    threads.extend((0..number / 10).map(|_| other.spawn(work())));
    let hog = move || while Instant::now() < end {};
    threads.extend((0..2).map(|_| runtime.spawn(hog)));
    kernel.into_iter().for_each(|thread| thread.join().unwrap());
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(pool);
    let [begun, left, resumed] =
        [&ledger.begun, &ledger.left, &ledger.resumed].map(|count| count.load(Relaxed));
    eprintln!("{begun} begun, {resumed} times resumed");
    assert_eq!(begun, left);
    assert!(resumed > 0);
    // Every coroutine has ended with its handle: there is nothing to wait for.
    other.shutdown();
    runtime.shutdown();
}
