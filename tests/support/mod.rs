//! What the scheduling tests share.
//!
//! They judge by counting, and by ratios inside one run. Where a bound is in milliseconds, the
//! same thing is measured with kernel threads in the same run, sample by sample, and the bound
//! grows with what the operating system itself was late: the worker may be busy with others.

#![allow(dead_code)] // each test file uses its own part

pub mod hogs;
pub mod ledger;
pub mod line;
pub mod load;
pub mod storm;

use greenthread::runtime::{Mode, Runtime};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// Held by each test of a file: timing tests must not run beside each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A runtime with so many processors, and whether it is a green one. Kernel-thread mode has the
/// operating system's scheduler: there the tests ask for results, not for promptness.
pub fn runtime(processors: usize) -> (Runtime, bool) {
    let runtime = Runtime::builder().processors(processors).build().unwrap();
    let green = runtime.mode() == Mode::Green;
    (runtime, green)
}

/// CPU time that this process has used.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Seeded, good enough to jitter and to choose.
pub struct Rng(fastrand::Rng);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    /// `GT_SEED`, else one from the clock; printed either way, so that a run can be repeated.
    pub fn from_env() -> Rng {
        Rng::from_env_with_seed().0
    }

    /// The same, with the seed.
    pub fn from_env_with_seed() -> (Rng, u64) {
        let given = std::env::var("GT_SEED")
            .ok()
            .map(|seed| seed.parse().expect("GT_SEED"));
        let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = given.unwrap_or_else(clock);
        eprintln!("seed: GT_SEED={seed}");
        (Rng::new(seed), seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.u64(..n)
    }

    pub fn micros_below(&mut self, n: u64) -> Duration {
        Duration::from_micros(self.below(n))
    }
}

/// Durations, and their quantiles.
#[derive(Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub fn quantile(&self, q: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted[((sorted.len() - 1) as f64 * q).round() as usize]
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(samples: I) -> Samples {
        Samples(samples.into_iter().collect())
    }
}

impl std::fmt::Display for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| self.quantile(q));
        write!(
            f,
            "p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?} of {}",
            self.0.len()
        )
    }
}

/// What was measured of green threads, and of kernel threads beside them.
#[derive(Default)]
pub struct Lateness {
    pub green: Samples,
    pub kernel: Samples,
}

impl Lateness {
    /// Is the 99th percentile of the green threads within `bound`, give or take how late the
    /// operating system was with kernel threads in this very run?
    pub fn within(&self, what: &str, bound: Duration) -> bool {
        let allowed = bound + self.kernel.quantile(0.99);
        eprintln!(
            "{what}: green {}; kernel {}; allowed {allowed:.1?}",
            self.green, self.kernel
        );
        self.green.quantile(0.99) <= allowed
    }
}

/// How late `n` fresh threads start when spawned from outside.
pub fn start_lateness(runtime: &Runtime, n: usize, rng: &mut Rng) -> Lateness {
    let mut late = Lateness::default();
    for _ in 0..n {
        std::thread::sleep(rng.micros_below(3_000));
        let spawned = Instant::now();
        let started = runtime.spawn(Instant::now).join().unwrap();
        late.green.add(started - spawned);
        let spawned = Instant::now();
        let started = std::thread::spawn(Instant::now).join().unwrap();
        late.kernel.add(started - spawned);
    }
    late
}

/// Runs `round` until it is content, at most `rounds` times: one undisturbed run is proof that the
/// runtime can; a disturbed one proves nothing. Who disturbs it has ever more time to come to an end.
pub fn best_of(rounds: usize, what: &str, mut round: impl FnMut() -> bool) {
    let mut pause = Duration::from_millis(250);
    for _ in 1..rounds {
        if round() {
            return;
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
    assert!(round(), "{what}: not once in {rounds} rounds");
}

/// Aborts the process when nothing has happened for a minute: a lost wake-up must fail, not hang.
pub struct Watchdog(mpsc::Sender<()>);

impl Watchdog {
    pub fn new(what: &'static str) -> Watchdog {
        let (alive, heard) = mpsc::channel();
        std::thread::spawn(move || {
            loop {
                match heard.recv_timeout(Duration::from_secs(60)) {
                    Ok(()) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("{what}: no progress for 60 s");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(alive)
    }

    pub fn progress(&self) {
        let _ = self.0.send(());
    }
}

const CHILD: &str = "GT_TEST_CHILD";

/// The command that runs one test of this file again, in a process of its own.
pub fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command
}

/// Is this the process started by [`child`]?
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// A million threads, or twenty thousand in debug builds; fewer where memory is short or each guard
/// is a mapping, and `kernel` in kernel-thread mode. Says so if it is fewer.
pub fn as_many_threads(green: bool, kernel: usize, per_thread: usize) -> usize {
    let wanted = if cfg!(debug_assertions) {
        20_000
    } else {
        1_000_000
    };
    let n = match green {
        false => kernel,
        true if !guards_are_free() => 10_000,
        true => wanted.min(available_bytes() / 10 * 8 / per_thread),
    };
    if n < wanted {
        eprintln!("only {n} threads: kernel-thread mode, an old kernel, or too little memory");
    }
    n
}

fn available_bytes() -> usize {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

/// Linux 6.13 and later make a page a guard without a mapping of its own.
pub fn guards_are_free() -> bool {
    const MADV_GUARD_INSTALL: i32 = 102;
    // SAFETY: a fresh private page, in nobody's use, is mapped, advised about and unmapped.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        let free = libc::madvise(page, 4096, MADV_GUARD_INSTALL) == 0;
        libc::munmap(page, 4096);
        free
    }
}
