//! A storm: many threads at one primitive, with everything that can come between.
//!
//! 1. Its actors are [`actors`] threads: 0 and 1 are kernel threads, the others green threads of a
//!    runtime of their own with two processors and a time slice of 100 µs.
//! 2. Beside them run two hogs that never give way for long, and a gadfly that unparks actors while
//!    they wait for something else: no primitive may take that for its own wake-up.
//! 3. It lasts `GT_STRESS_SECS` seconds (1 unless given), and until there was some preemption. Then
//!    [`Actor::goes_on`] says no, and every actor must come home by itself.
//! 4. The first actor that panics, and a minute without any actor's progress, end the process with
//!    the seed and the line where each actor is: one that is missing would let the others hang.

use super::*;
use greenthread::Thread;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};

const SLICE: Duration = Duration::from_micros(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether threads are green here. The operating system is not to be given 200 threads.
pub fn green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// How many actors a storm has: two kernel threads, and the others.
pub fn actors() -> usize {
    2 + if green() { 200 } else { 22 }
}

pub fn seconds() -> u64 {
    std::env::var("GT_STRESS_SECS").map_or(1, |s| s.parse().expect("GT_STRESS_SECS"))
}

#[derive(Default)]
struct Place {
    line: AtomicU32,
    steps: AtomicU64,
    thread: OnceLock<Thread>,
}

struct Control {
    name: &'static str,
    seed: u64,
    stop: AtomicBool,
    places: Vec<Place>,
}

impl Control {
    fn steps(&self) -> u64 {
        self.places.iter().map(|p| p.steps.load(Relaxed)).sum()
    }

    /// Ends the process. Past the test harness, which would keep what is printed to itself.
    fn fail(&self, what: &str, runtime: &Runtime, shared: &str) -> ! {
        let (mut lines, mut kernel) = (BTreeMap::<u32, Vec<usize>>::new(), Vec::new());
        for (index, place) in self.places.iter().enumerate() {
            let line = place.line.load(Relaxed);
            lines.entry(line).or_default().push(index);
            if index < 2 {
                kernel.push(line);
            }
        }
        let mut text = format!("{}: {what}; GT_SEED={}\n", self.name, self.seed);
        text += &format!(
            "{} steps, stop {:?}\n{:?}\n{shared}\nkernel threads in lines {kernel:?}\n",
            self.steps(),
            self.stop,
            runtime.metrics()
        );
        for (line, indices) in lines {
            let n = indices.len();
            text += &format!("line {line}: {n} actors {:?}\n", &indices[..n.min(20)]);
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
        while std::env::var_os("GT_STRESS_HANG").is_some() {
            std::thread::sleep(PATIENCE); // for a debugger
        }
        std::process::abort()
    }
}

/// What one thread of a storm knows of itself.
pub struct Actor {
    pub index: usize,
    pub rng: Rng,
    control: Arc<Control>,
}

impl Actor {
    /// Says that this actor has come to the line of the caller.
    #[track_caller]
    pub fn at(&self) {
        let place = &self.control.places[self.index];
        place.line.store(Location::caller().line(), Relaxed);
        place.steps.fetch_add(1, Relaxed);
    }

    /// The same, and whether the storm goes on.
    #[track_caller]
    pub fn goes_on(&self) -> bool {
        self.at();
        !self.control.stop.load(Relaxed)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    /// A time-out: none, one that mostly runs out, one that mostly does not.
    pub fn timeout(&mut self) -> Duration {
        match self.rng.below(4) {
            0 => Duration::ZERO,
            1 | 2 => self.rng.micros_below(100),
            _ => self.rng.micros_below(3_000),
        }
    }

    /// Waits with a random time-out. Whoever gives up must not do so early.
    #[track_caller]
    pub fn timed<T>(&mut self, wait: impl FnOnce(Duration) -> Option<T>) -> Option<T> {
        self.at();
        let (start, timeout) = (Instant::now(), self.timeout());
        let got = wait(timeout);
        let elapsed = start.elapsed();
        assert!(
            got.is_some() || elapsed >= timeout,
            "gave up after {elapsed:?} of {timeout:?}"
        );
        got
    }

    /// The same with a point in time, which may have passed.
    #[track_caller]
    pub fn timed_until<T>(&mut self, wait: impl FnOnce(Instant) -> Option<T>) -> Option<T> {
        self.at();
        let past = self.rng.micros_below(300);
        let deadline = Instant::now() + self.timeout() - past;
        let got = wait(deadline);
        assert!(got.is_some() || Instant::now() >= deadline, "gave up early");
        got
    }

    /// Mostly nothing; now and then gives way, sleeps, or uses its time slice up.
    pub fn dawdle(&mut self) {
        match self.rng.below(100) {
            0..5 => greenthread::yield_now(),
            5..7 => greenthread::sleep(self.rng.micros_below(200)),
            7..10 => burn(self.rng.micros_below(300)),
            _ => {}
        }
    }
}

/// Uses the processor for so long.
pub fn burn(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

enum Handle {
    Kernel(std::thread::JoinHandle<()>),
    Green(greenthread::JoinHandle<()>),
}

impl Handle {
    fn is_finished(&self) -> bool {
        match self {
            Handle::Kernel(handle) => handle.is_finished(),
            Handle::Green(handle) => handle.is_finished(),
        }
    }

    fn join(self) -> std::thread::Result<()> {
        match self {
            Handle::Kernel(handle) => handle.join(),
            Handle::Green(handle) => handle.join(),
        }
    }
}

/// Lets all actors `act` on what they share, and gives it back when all have come home.
pub fn storm<S: Send + Sync + 'static>(
    name: &'static str,
    shared: S,
    act: fn(&S, &mut Actor),
) -> S {
    storm_with(name, shared, act, |_| String::new())
}

/// The same; `show` describes what they share should the storm hang.
pub fn storm_with<S: Send + Sync + 'static>(
    name: &'static str,
    shared: S,
    act: fn(&S, &mut Actor),
    show: fn(&S) -> String,
) -> S {
    let _alone = alone();
    let (mut rng, seed) = Rng::from_env_with_seed();
    let runtime = Runtime::builder().processors(2).time_slice(SLICE).build();
    let runtime = runtime.unwrap();
    let control = Arc::new(Control {
        name,
        seed,
        stop: AtomicBool::new(false),
        places: (0..actors()).map(|_| Place::default()).collect(),
    });
    let shared = Arc::new(shared);
    let mut start = |index: usize| {
        let (shared, control, rng) = (shared.clone(), control.clone(), Rng::new(rng.next()));
        let body = move || {
            let _ = control.places[index].thread.set(greenthread::current());
            let mut actor = Actor {
                index,
                rng,
                control,
            };
            act(&shared, &mut actor);
            actor.at();
        };
        if index < 2 {
            Handle::Kernel(std::thread::spawn(body))
        } else {
            Handle::Green(runtime.spawn(body))
        }
    };
    let mut handles: Vec<_> = (0..actors()).map(&mut start).collect();
    let others = [
        Handle::Green(runtime.spawn(hog(&control, rng.next()))),
        Handle::Green(runtime.spawn(hog(&control, rng.next()))),
        Handle::Kernel(std::thread::spawn(gadfly(&control, rng.next()))),
    ];

    let (start, mut alive, mut last) = (Instant::now(), Instant::now(), 0);
    while !handles.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
        let over = start.elapsed().checked_sub(Duration::from_secs(seconds()));
        let preempts = !green() || runtime.metrics().preemptions > 10 * seconds();
        control.stop.store(over.is_some() && preempts, Relaxed);
        if over.is_some_and(|over| over > PATIENCE) && !preempts {
            control.fail("too little preemption to call it a storm", &runtime, "");
        }
        let (ended, running): (Vec<_>, Vec<_>) =
            handles.into_iter().partition(|handle| handle.is_finished());
        handles = running;
        if ended.into_iter().any(|actor| actor.join().is_err()) {
            control.fail("an actor has panicked", &runtime, &show(&shared));
        }
        let steps = control.steps();
        if steps != last {
            (last, alive) = (steps, Instant::now());
        } else if alive.elapsed() > PATIENCE {
            control.fail("no progress for a minute", &runtime, &show(&shared));
        }
    }
    control.stop.store(true, Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
    let metrics = runtime.metrics();
    eprintln!("{name}: {last} steps, {} preemptions", metrics.preemptions);
    let _dog = Watchdog::new(name);
    runtime.shutdown();
    Arc::into_inner(shared).expect("an actor has outlived its join")
}

fn hog(control: &Arc<Control>, seed: u64) -> impl FnOnce() + Send + 'static {
    let (control, mut rng) = (control.clone(), Rng::new(seed));
    move || {
        while !control.stop.load(Relaxed) {
            burn(rng.micros_below(2_000));
            greenthread::sleep(rng.micros_below(500));
        }
    }
}

fn gadfly(control: &Arc<Control>, seed: u64) -> impl FnOnce() + Send + 'static {
    let (control, mut rng) = (control.clone(), Rng::new(seed));
    move || {
        while !control.stop.load(Relaxed) {
            let index = rng.below(control.places.len() as u64) as usize;
            if let Some(thread) = control.places[index].thread.get() {
                thread.unpark();
            }
            std::thread::sleep(rng.micros_below(200));
        }
    }
}
