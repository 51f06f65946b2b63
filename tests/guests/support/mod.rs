//! What the tests of guests share.
//!
//! The idea: a guest is a crate or a C library that knows nothing of green threads. Each test runs one on
//! green threads, checks its answers, and counts the kernel threads meanwhile: a guest's thread that waits must
//! not hold one.
//!
//! 1. [`Test`] runs one test of a file at a time, for the count is the process's. Its watch, a kernel thread,
//!    keeps the highest count, and aborts the process if the test is not over in time.
//! 2. [`Test::crowd`] brings threads to the point where all of them wait, counts, and lets go of them then.
//! 3. The runtime has spare kernel threads, which it makes as many as 32 at once, and which end when they were idle
//!    for ten seconds. So [`Test::all_wait`] gives the count time to fall below the bound: spares go, and threads
//!    that are held do not. The highest count is only printed ([`Test::report`]), but where threads never wait all at
//!    once; there its bound is wide ([`Test::never_above`]).
//! 4. The environment: `GT_GUESTS_FEW=1` is for slow machines; `GT_GUESTS_UNBOUNDED=1` prints the counts and
//!    asserts nothing about them; `GT_GUESTS_RATIO=1` asserts the ratios too, for which a release build is
//!    needed. In kernel-thread mode there are few threads and no bounds.

pub mod http;
pub mod our_sockets;
pub mod stalls;

use greenthread::JoinHandle;
use greenthread::runtime::{Mode, Runtime};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

/// How often the watch counts.
const LOOK: Duration = Duration::from_millis(5);
/// How long spare kernel threads may stay: more than the runtime's ten seconds.
const RETIREMENT: Duration = Duration::from_secs(25);

/// The tests of this file that wait for their turn, each on a kernel thread of its own.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value != "0")
}

/// Whether the default runtime has green threads.
pub fn green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// Returns `many`, or `few` on a slow machine and in kernel-thread mode.
pub fn some(many: usize, few: usize) -> usize {
    if set("GT_GUESTS_FEW") || !green() {
        few
    } else {
        many
    }
}

/// Whether kernel threads are counted, or only printed.
fn bounds_count() -> bool {
    !set("GT_GUESTS_UNBOUNDED") && green()
}

/// Whether ratios of speed are asserted.
pub fn ratios_count() -> bool {
    set("GT_GUESTS_RATIO") && green()
}

/// Returns the number of kernel threads of this process, but for the tests that wait for their turn.
pub fn kernel_threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Threads:"));
    let threads: usize = line.unwrap().trim().parse().unwrap();
    threads - QUEUED.load(Relaxed).min(threads)
}

/// The address of a server that .ci/guests has started, if it has.
pub fn server(variable: &str) -> Option<String> {
    let address = std::env::var(variable).ok();
    if address.is_none() {
        eprintln!("SKIPPED: {variable} says no address");
    }
    address
}

/// Raises the limit of descriptors as far as it goes, and returns it.
pub fn descriptors() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid place for the limits, and valid limits.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// One test, alone in the process.
pub struct Test {
    name: &'static str,
    peak: Arc<AtomicUsize>,
    _over: mpsc::Sender<()>,
    _turn: MutexGuard<'static, ()>,
}

impl Test {
    /// Waits for its turn. The test must be over after so many seconds.
    pub fn new(name: &'static str, seconds: u64) -> Test {
        static TURN: Mutex<()> = Mutex::new(());
        QUEUED.fetch_add(1, Relaxed);
        let turn = TURN.lock().unwrap_or_else(|dead| dead.into_inner());
        QUEUED.fetch_sub(1, Relaxed);
        let peak = Arc::new(AtomicUsize::new(0));
        let (over, is_over) = mpsc::channel();
        let highest = peak.clone();
        std::thread::spawn(move || watch(name, seconds, &highest, &is_over));
        Test {
            name,
            peak,
            _over: over,
            _turn: turn,
        }
    }

    /// All of the test's threads wait: fewer kernel threads than `bound` are there, or soon will be.
    pub fn all_wait(&self, bound: usize) {
        let (name, start) = (self.name, Instant::now());
        let mut threads = kernel_threads();
        self.peak.fetch_max(threads, Relaxed);
        while bounds_count() && threads >= bound {
            let held = start.elapsed() > RETIREMENT;
            assert!(!held, "{name}: {threads} kernel threads while all wait");
            std::thread::sleep(LOOK);
            threads = kernel_threads();
        }
        let after = start.elapsed();
        eprintln!(
            "{name}: {threads} kernel threads while all wait, after {after:.1?}, to be fewer than {bound}"
        );
    }

    /// Waits until fewer kernel threads than `bound` are left of the test before, and counts from then on.
    pub fn after_others(&self, bound: usize) {
        self.until(|| kernel_threads() < bound);
        self.peak.store(0, Relaxed);
    }

    /// Waits until `condition` holds.
    pub fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Spawns `n` green threads that run `body`, which must wait. When all of them do, there are fewer kernel threads
    /// than `bound`. Then calls `release`, and returns what the bodies returned.
    pub fn crowd<T: Send + 'static>(
        &self,
        n: usize,
        bound: usize,
        body: impl Fn(usize) -> T + Send + Sync + 'static,
        release: impl FnOnce(),
    ) -> Vec<T> {
        let body = Arc::new(body);
        let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let threads: Vec<JoinHandle<T>> = (0..n)
            .map(|i| {
                let (body, counts) = (body.clone(), counts.clone());
                greenthread::spawn(move || {
                    counts[0].fetch_add(1, Relaxed);
                    let answer = body(i);
                    counts[1].fetch_add(1, Relaxed);
                    answer
                })
            })
            .collect();
        self.until(|| counts[0].load(Relaxed) == n);
        // The last ones have a few instructions to go.
        std::thread::sleep(4 * LOOK);
        self.all_wait(bound);
        let [begun, over] = [0, 1].map(|i| counts[i].load(Relaxed));
        assert_eq!((begun, over), (n, 0), "{}: all wait", self.name);
        release();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    }

    /// Runs `n` green threads whose `body` waits for a length of time. They do so beside each other: a good part
    /// of them has begun before the first is over, or at some other moment.
    pub fn at_once(&self, n: usize, body: impl Fn(usize) + Send + Sync + 'static) {
        let body = Arc::new(body);
        // How many wait now, and how many waited at most.
        let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (body, counts) = (body.clone(), counts.clone());
                greenthread::spawn(move || {
                    let now = counts[0].fetch_add(1, Relaxed) + 1;
                    counts[1].fetch_max(now, Relaxed);
                    body(i);
                    counts[0].fetch_sub(1, Relaxed);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let most = counts[1].load(Relaxed);
        eprintln!("{}: {most} of {n} at once", self.name);
        assert!(most > n / 10, "{}: one after the other", self.name);
    }

    /// Says how many kernel threads there were at most, and why. Returns their number.
    pub fn report(&self) -> usize {
        let (name, peak) = (self.name, self.peak.load(Relaxed).max(kernel_threads()));
        eprintln!("{name}: at most {peak} kernel threads; {}", calls());
        peak
    }

    /// There were never more kernel threads than `bound`.
    pub fn never_above(&self, bound: usize) {
        let (name, peak) = (self.name, self.report());
        let ok = !bounds_count() || peak <= bound;
        assert!(ok, "{name}: {peak} kernel threads, {bound} allowed");
    }
}

/// How many blocking calls of this process have parked their threads so far, and which have not.
fn calls() -> String {
    let metrics = Runtime::global().metrics();
    let blocked = metrics.blocked_calls.iter();
    let blocked: Vec<_> = blocked
        .map(|call| format!("{} {}", call.count, call.name))
        .collect();
    let (parked, blocked) = (metrics.parked_calls, blocked.join(", "));
    format!("until now {parked} calls have parked, and kernel threads were held by: {blocked}")
}

/// Keeps the highest count of kernel threads until the test is over.
fn watch(name: &str, seconds: u64, peak: &AtomicUsize, is_over: &mpsc::Receiver<()>) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while is_over.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
        peak.fetch_max(kernel_threads(), Relaxed);
        if Instant::now() > end {
            let threads = kernel_threads();
            eprintln!("{name}: hangs: not over after {seconds} s; {threads} kernel threads");
            std::process::abort();
        }
    }
}
