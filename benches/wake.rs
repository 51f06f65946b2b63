//! What it costs to wake a parked green thread: from a green thread, from a kernel thread while a
//! processor is busy, and from a kernel thread when all processors sleep in the kernel. An
//! operation is one wake-up, from before `unpark` until the woken thread is seen to have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use greenthread::JoinHandle;
use greenthread::runtime::Runtime;

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("wake");
    support::row(&mut group, "ping-pong", support::inside(ping_pong));
    support::row(&mut group, "from a kernel thread", from_outside);
    // The pauses before each wake-up are not measured, but take many times as long.
    group
        .sample_size(10)
        .measurement_time(Duration::from_millis(100));
    support::row(&mut group, "idle processor", idle);
    group.finish();
    criterion.final_summary();
}

/// Two green threads wake each other in turn.
fn ping_pong(n: u64) -> Duration {
    let me = greenthread::current();
    let partner = Sleeper::start(greenthread::spawn, move || me.unpark());
    let start = Instant::now();
    // A round is two wake-ups.
    for _ in 0..n.div_ceil(2) {
        partner.wake();
        while !partner.has_run() {
            greenthread::park();
        }
    }
    let elapsed = start.elapsed();
    partner.stop();
    elapsed.mul_f64(n as f64 / (n.div_ceil(2) * 2) as f64)
}

/// This kernel thread wakes a green thread; another keeps a processor awake by yielding.
fn from_outside(runtime: &'static Runtime, n: u64) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let busy = {
        let stop = stop.clone();
        runtime.spawn(move || {
            while !stop.load(Relaxed) {
                greenthread::yield_now();
            }
        })
    };
    // Long enough for the sleeper to have parked again.
    let elapsed = wake_each(runtime, n, || spin(Duration::from_micros(2)));
    stop.store(true, Relaxed);
    busy.join().expect("the busy thread panicked");
    elapsed
}

/// This kernel thread wakes a green thread of a runtime that has had time to fall asleep.
fn idle(runtime: &'static Runtime, n: u64) -> Duration {
    wake_each(runtime, n, || {
        std::thread::sleep(Duration::from_micros(200))
    })
}

/// The time of `n` wake-ups by this kernel thread, each after a `pause`. Taken as `n` times their
/// median: one wait for the OS to give a kernel thread its CPU outweighs a thousand wake-ups.
fn wake_each(runtime: &'static Runtime, n: u64, pause: impl Fn()) -> Duration {
    let sleeper = Sleeper::start(|f| runtime.spawn(f), || ());
    let mut times: Vec<Duration> = (0..n)
        .map(|_| {
            pause();
            let start = Instant::now();
            sleeper.wake();
            while !sleeper.has_run() {
                std::hint::spin_loop();
            }
            start.elapsed()
        })
        .collect();
    sleeper.stop();
    times.sort();
    times[times.len() / 2].mul_f64(n as f64)
}

fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// A green thread that parks, and for each wake-up runs once.
struct Sleeper {
    thread: JoinHandle<()>,
    turn: Arc<AtomicU64>,
}

// What `turn` says. Release stores pair with Acquire loads: a turn sees all before it.
const PARKED: u64 = 0;
const WOKEN: u64 = 1;
const STOP: u64 = 2;

impl Sleeper {
    /// Starts it with `spawn`. It calls `done` each time it has run.
    fn start(
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> JoinHandle<()>,
        done: impl Fn() + Send + 'static,
    ) -> Sleeper {
        let turn = Arc::new(AtomicU64::new(PARKED));
        let theirs = turn.clone();
        let thread = spawn(Box::new(move || {
            loop {
                match theirs.load(Acquire) {
                    PARKED => greenthread::park(),
                    WOKEN => {
                        theirs.store(PARKED, Release);
                        done();
                    }
                    _ => break,
                }
            }
        }));
        Sleeper { thread, turn }
    }

    fn wake(&self) {
        self.turn.store(WOKEN, Release);
        self.thread.thread().unpark();
    }

    fn has_run(&self) -> bool {
        self.turn.load(Acquire) == PARKED
    }

    fn stop(self) {
        self.turn.store(STOP, Release);
        self.thread.thread().unpark();
        self.thread.join().expect("the sleeper panicked");
    }
}
