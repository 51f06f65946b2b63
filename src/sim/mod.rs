//! Tests under a seed: unmodified blocking code, with its locks, atomics, channels and clocks, runs the same way each time.
//!
//! A *check* runs a closure many times, each time under another seed. The seed decides which thread runs after each
//! *schedule point*, and what time it is. If the closure fails under a seed, the check panics. Its message names the
//! seed, which repeats the run, and lists the switches between threads that led to the failure.
//!
//! ```
//! use greenthread::sim;
//! use std::sync::{Arc, Condvar, Mutex}; // std's own
//!
//! // In a `#[test]`, `sim::check(1000, || …)` does the same, and panics with the failure.
//! let found = sim::Builder::new().seeds(1000).run(|| {
//!     let door = Arc::new((Mutex::new(false), Condvar::new()));
//!     let opener = door.clone();
//!     greenthread::spawn(move || {
//!         *opener.0.lock().unwrap() = true;
//!         opener.1.notify_one();
//!     });
//!     let mut is_open = door.0.lock().unwrap();
//!     if !*is_open {
//!         // A wait may end without reason: there must be a `while` in place of the `if`.
//!         is_open = door.1.wait(is_open).unwrap();
//!     }
//!     assert!(*is_open);
//! });
//! println!("{}", found.unwrap_err()); // what, the seed, and the switches
//! ```
//!
//! The closure, and the libraries that it uses, are ordinary code. But threads must be green:
//! [`greenthread::spawn`](crate::spawn) and [`scope`](crate::scope) make them. `std::thread::spawn` makes a kernel
//! thread, and ends the run with a failure.
//!
//! This module needs the feature `sim`. It exists where green threads do, with calls of libc that park them: on Linux
//! with glibc, on x86-64 and aarch64. A package lists the crate with the feature under `[dev-dependencies]`, so its
//! normal builds are without the feature:
//!
//! ```toml
//! [dev-dependencies]
//! greenthread = { version = "0.1", features = ["sim"] }
//! ```
//!
//! # Schedule points
//! A thread comes to a point before each of these (at atomic operations also behind, by chance):
//! - operation of this crate's locks, channels and threads, `spawn`, `join`, `park` and `yield_now`,
//! - call of libc that can park a green thread ([docs/unmodified.md]), futexes and C's locks included,
//! - reading of a clock,
//! - atomic operation, if the program is built with the flags below.
//!
//! An uncontended lock of std, parking_lot or crossbeam makes no call of libc: it consists of atomic operations. So a
//! plain `cargo test` runs a check, but finds few races. These flags make the compiler call this crate at each atomic
//! operation of each crate that it compiles, on stable Rust. A file `.cargo/sim.toml` contains them:
//!
//! ```toml
//! [target.x86_64-unknown-linux-gnu]
//! rustflags = [
//!     "--cfg", "greenthread_points",
//!     "-C", "passes=tsan",
//!     "-C", "llvm-args=-tsan-instrument-func-entry-exit=0",
//! ]
//! ```
//!
//! With this alias in `.cargo/config.toml`, `cargo sim --test NAME` builds with them, beside the normal builds:
//!
//! ```toml
//! [alias]
//! sim = ["test", "--target", "x86_64-unknown-linux-gnu", "--config", ".cargo/sim.toml"]
//! ```
//!
//! [`Builder::require_atomics`] makes a check fail that was built without the flags. With them, each program must be linked
//! with this crate, which has the functions that the compiler calls: a test program that does not name the crate needs
//! `use greenthread as _;`, and [docs/sim.md] says what to do about a package's binaries.
//!
//! # Repeating a run
//! The failure names its seed as, for instance, `pct2.283:4`. With `GREENTHREAD_SIM_SEED=pct2.283:4` in the environment
//! each check of the program runs this seed alone, so name one test on the command line. A seed holds for one binary:
//! it means another run after a change of the program, of a library or of the compiler. `GREENTHREAD_SIM_SEEDS=100000`
//! changes the number of seeds of all checks.
//!
//! # Under control
//! The seed decides who runs, which waiter a futex wakes (so std's locks and conditions), when a wait ends without reason (a
//! *spurious* wake-up), which ready operation a `select!` takes, the numbers of `getrandom`, and so the order of a
//! `HashMap`. Time is virtual: it advances a little at each point, and jumps to the next deadline when all threads
//! wait. Process ids, thread ids and the number of CPUs are constants. Kernel threads, child processes, Internet
//! sockets and the system's timers are failures, unless they are allowed ([`Builder::allow_kernel_threads`],
//! [`Builder::allow_outside`]). [docs/sim.md] has the table, and a tour from a flaky test to its fix.
//!
//! # Limits
//! - One kernel thread runs all threads, so memory is sequentially consistent: what weaker orderings allow is not found.
//! - Plain memory accesses have no points. A data race in `unsafe` code shows only where points surround it.
//! - A check tries schedules by chance. If it finds nothing, that proves nothing.
//! - Files are real. So are `/proc`, the environment, and system calls by assembly.
//!
//! # Processes
//! A check runs the test's program again, with the name of the test, and that process forks others, in which the seeds
//! run. So a run may abort, or overflow its stack, and the check still tells the seed. It also means that what stands
//! before the check in the test runs more than once, and that a check belongs on the test's own thread, or on the main
//! thread of a program without libtest.
//!
//! [docs/sim.md]: https://github.com/greenthread-rs/greenthread/blob/main/docs/sim.md
//! [docs/unmodified.md]: https://github.com/greenthread-rs/greenthread/blob/main/docs/unmodified.md

#[cfg(greenthread_points)]
mod atomics;
mod process;
mod record;
mod report;
mod schedule;

use core::ops::Range;
use core::panic::Location;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) use self::process::when_loaded;
pub use self::report::{Failure, FailureKind, Summary};
use self::schedule::Rules;
pub use self::schedule::elapsed;
pub(crate) use self::schedule::{KERNEL_THREAD, cpus, goes, own};
use crate::sys::{simulated, variable};

/// The variable that names a seed, and one by which runs are compared.
const SEED: &str = "GREENTHREAD_SIM_SEED";
const POINTS: &str = "GREENTHREAD_SIM_POINTS";

/// How the schedule of a run is chosen: which thread runs after each point.
///
/// ```
/// use greenthread::sim::{Builder, Strategy};
///
/// let builder = Builder::new().seeds(100).strategy(Strategy::Pct { depth: 3 });
/// builder.check(|| greenthread::spawn(|| ()).join().unwrap());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Strategy {
    /// A random walk and PCT of depths 2 and 3 in turn, by the seed's remainder on division by 3. This is the default.
    Mixed,
    /// A random walk: at one of 2 to 64 points any ready thread goes on, each with the same probability. How seldom
    /// that is, a power of two, is drawn for each seed.
    Random,
    /// Each thread gets a priority by chance, and the ready thread with the highest runs; at `depth` − 1 points by
    /// chance the running thread's priority becomes the lowest.
    ///
    /// This is the algorithm of Burckhardt, Kothari, Musuvathi and Nagarakatte, "A randomized scheduler with
    /// probabilistic guarantees of finding bugs" (ASPLOS 2010). It finds a bug that needs `depth` steps of *n* threads
    /// in an order with a probability of at least 1/(*n* · *k*<sup>depth−1</sup>). Here *k* is the number of points of
    /// the first seed's run, and the steps are points. A thread that waits by looking (a spin lock), or that yields,
    /// falls to the lowest priority, too.
    Pct {
        /// From 1 to 16.
        depth: u32,
    },
    /// At each point the thread goes on that has been ready for longest. Seeds differ in stalls, spurious wake-ups and
    /// other choices only.
    RoundRobin,
}

/// Which seeds share a process.
///
/// Statics (`OnceLock`, a `lazy_static`, a pool, the collector of crossbeam-epoch) are new in each process, and keep
/// what earlier seeds have made of them in a process that runs several. One process for 1,000 seeds is fast, and a
/// process for each seed costs a millisecond or two.
///
/// ```
/// use greenthread::sim::{Builder, Isolation};
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
///
/// static RUNS: AtomicU32 = AtomicU32::new(0);
///
/// let builder = Builder::new().seeds(10).isolation(Isolation::Batch);
/// builder.check(|| _ = RUNS.fetch_add(1, Relaxed)); // in processes of their own
/// assert_eq!(RUNS.load(Relaxed), 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Isolation {
    /// A first process runs the closure three times. If no run fails, and the third is like the second, it is as with
    /// `Batch`, and otherwise as with `EachSeed`. This is the default.
    Auto,
    /// Each seed has a fresh process.
    EachSeed,
    /// A process runs up to 1,000 seeds, after a run that makes what is made once in a process. It ends early after a
    /// run that has left threads or descriptors behind. If that first run fails, or leaves something behind, it is as with
    /// `EachSeed`.
    Batch,
}

/// What a check does, and what it allows.
///
/// ```
/// use greenthread::sim::Builder;
/// use std::time::Duration;
///
/// let builder = Builder::new().seeds(200).max_time(Duration::from_secs(60)).cpus(2);
/// builder.check(|| greenthread::spawn(|| ()).join().unwrap());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    seeds: Range<u64>,
    strategy: Strategy,
    isolation: Isolation,
    rules: Rules,
    /// The points of a run, for PCT; 0: as the first seed's run has.
    steps: u64,
    all_threads_end: bool,
    require_atomics: bool,
    same_addresses: bool,
    /// Runs end at this point, to be compared with others.
    until: u64,
    /// Where the check is.
    place: String,
}

/// Runs `body` under the seeds from 0 to `seeds` − 1, with everything else as [`Builder::new`] has it.
///
/// # Panics
/// As [`Builder::check`].
///
/// ```
/// use greenthread::{channel, sim};
///
/// sim::check(100, || {
///     let (sender, numbers) = channel::unbounded();
///     greenthread::scope(|scope| {
///         for number in [1, 2, 3] {
///             let sender = sender.clone();
///             scope.spawn(move || sender.send(number).unwrap());
///         }
///     });
///     drop(sender);
///     assert_eq!(numbers.iter().sum::<i32>(), 6); // in whatever order they come
/// });
/// ```
#[track_caller]
pub fn check(seeds: u64, body: impl Fn() + Send + Sync + 'static) {
    Builder::new().seeds(seeds).check(body);
}

/// Declares the methods that set one field each.
macro_rules! setters {
    ($($(#[$doc:meta])* fn $name:ident($($value:ident: $Type:ty)?): $($field:ident).+ = $to:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self $(, $value: $Type)?) -> Self {
            self.$($field).+ = $to;
            self
        }
    )*};
}

impl Builder {
    /// A thousand seeds from 0, [`Strategy::Mixed`], [`Isolation::Auto`], at most 10 million points and 24 hours of
    /// virtual time in a run, one stall in 1,000 points, one spurious wake-up in 100 waits, 4 CPUs, and a real-time
    /// clock that begins with the year 2026, UTC. Nothing outside is allowed.
    ///
    /// ```
    /// greenthread::sim::Builder::new().check(|| ());
    /// ```
    pub fn new() -> Builder {
        Builder {
            seeds: 0..1000,
            strategy: Strategy::Mixed,
            isolation: Isolation::Auto,
            rules: Rules {
                max_points: 10_000_000,
                max_time: 24 * 3600 * 1_000_000_000,
                start: 1_767_225_600_000_000_000,
                stalls: 1000,
                spurious: 100,
                cpus: 4,
                allows_threads: false,
                allows_outside: false,
            },
            steps: 0,
            all_threads_end: false,
            require_atomics: false,
            same_addresses: false,
            until: u64::MAX,
            place: String::new(),
        }
    }

    /// The number of seeds. Default: 1,000. `GREENTHREAD_SIM_SEEDS` overrides it.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// let summary = Builder::new().seeds(10).run(|| ()).unwrap();
    /// assert_eq!(summary.seeds, 10);
    /// ```
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds.end = self.seeds.start.saturating_add(seeds);
        self
    }

    /// The first seed. Default: 0. The others follow it, so that two checks can try different seeds.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// Builder::new().first_seed(1_000_000).seeds(10).check(|| ());
    /// ```
    pub fn first_seed(mut self, seed: u64) -> Self {
        let count = self.seeds.end - self.seeds.start;
        self.seeds = seed..seed.saturating_add(count);
        self
    }

    /// How schedules are chosen. Default: [`Strategy::Mixed`].
    ///
    /// ```
    /// use greenthread::sim::{Builder, Strategy};
    ///
    /// Builder::new().seeds(10).strategy(Strategy::Random).check(|| ());
    /// ```
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        if let Strategy::Pct { depth } = strategy {
            let most = schedule::MOST_DEPTH;
            assert!(
                (1..=most).contains(&depth),
                "PCT of depth {depth}: accepted is 1 to {most}"
            );
        }
        self.strategy = strategy;
        self
    }

    /// What the real-time clock shows at the beginning of each run. Default: the beginning of the year 2026, UTC. A
    /// time before 1970 counts as the beginning of 1970.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let at = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400); // 2000-02-29
    /// Builder::new().seeds(10).start(at).check(move || {
    ///     assert!(SystemTime::now().duration_since(at).unwrap() < Duration::from_secs(1));
    /// });
    /// ```
    pub fn start(mut self, at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        self.rules.start = since.map_or(0, nanos);
        self
    }

    setters! {
        /// The most points of one run. Default: 10 million. A run that comes to more has failed, and the failure has a dump
        /// of all threads. So threads that wait for each other by looking (a *livelock*) are found.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// fn give_way() {
        ///     loop {
        ///         greenthread::yield_now();
        ///     }
        /// }
        /// let found = Builder::new().stalls(0).max_points(10_000).run(|| {
        ///     greenthread::spawn(give_way);
        ///     give_way();
        /// });
        /// assert!(found.unwrap_err().to_string().contains("max_points"));
        /// ```
        fn max_points(points: u64): rules.max_points = points;

        /// The most virtual time of one run. Default: 24 hours. A run that takes longer has failed, and the failure has a
        /// dump of all threads. So a closure is found that waits for ever beside a thread that wakes up again and again.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        /// use std::time::Duration;
        ///
        /// let found = Builder::new().max_time(Duration::from_secs(60)).run(|| {
        ///     std::thread::sleep(Duration::from_secs(61)); // virtual seconds, which pass at once
        /// });
        /// assert!(found.unwrap_err().to_string().contains("max_time"));
        /// ```
        fn max_time(time: Duration): rules.max_time = nanos(time);

        /// Which seeds share a process. Default: [`Isolation::Auto`].
        ///
        /// ```
        /// use greenthread::sim::{Builder, Isolation};
        ///
        /// Builder::new().seeds(10).isolation(Isolation::EachSeed).check(|| ());
        /// ```
        fn isolation(isolation: Isolation): isolation = isolation;

        /// One point in so many, by chance, is a stall, and in some seeds up to 32 times as many; 0: none is. Default: 1,000. The
        /// thread is put aside for 1 µs to 17 s of
        /// virtual time, each order of magnitude with the same probability, as an operating system does it to threads if it has
        /// others to run. That finds time-outs which are only long enough mostly.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        /// use std::sync::mpsc;
        /// use std::time::Duration;
        ///
        /// let reply_in_time = || {
        ///     let (sender, replies) = mpsc::channel();
        ///     greenthread::spawn(move || sender.send("reply"));
        ///     assert_eq!(replies.recv_timeout(Duration::from_millis(100)), Ok("reply"));
        /// };
        /// Builder::new().stalls(0).check(reply_in_time);
        /// assert!(Builder::new().stalls(10).run(reply_in_time).is_err());
        /// ```
        fn stalls(one_in: u32): rules.stalls = one_in;

        /// One wait in so many, by chance, ends at once without reason; 0: none does. Default: 100. This concerns waits for
        /// a futex (std's `Condvar` and `park`, and those of other crates), `pthread_cond_wait` and its kin, and the crate's own
        /// `park`, which are all allowed to do so. (The crate's own `Condvar` has none.)
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// let parks = || {
        ///     let parked = greenthread::spawn(|| {
        ///         greenthread::park();
        ///         greenthread::sim::elapsed()
        ///     });
        ///     greenthread::sleep(std::time::Duration::from_secs(100));
        ///     parked.thread().unpark();
        ///     assert!(parked.join().unwrap().as_secs() >= 100);
        /// };
        /// Builder::new().spurious(0).check(parks);
        /// assert!(Builder::new().spurious(2).run(parks).is_err());
        /// ```
        fn spurious(one_in: u32): rules.spurious = one_in;

        /// How many CPUs the process seems to have. Default: 4. One kernel thread runs all threads, whatever the number.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// Builder::new().seeds(10).cpus(64).check(|| {
        ///     assert_eq!(std::thread::available_parallelism().unwrap().get(), 64);
        /// });
        /// ```
        fn cpus(cpus: usize): rules.cpus = cpus;

        /// Whether it is a failure that green threads are left when the closure has returned. Default: `false`: they end
        /// with the process. Threads that are ready may come to 1,000 more points first, so a thread that is about to end
        /// is not counted.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// let leaks = || _ = greenthread::spawn(greenthread::park);
        /// Builder::new().seeds(10).spurious(0).check(leaks);
        /// let found = Builder::new().seeds(10).spurious(0).all_threads_end(true).run(leaks);
        /// assert!(found.unwrap_err().to_string().contains("threads are left"));
        /// ```
        fn all_threads_end(yes: bool): all_threads_end = yes;

        /// Makes it a failure that no run comes to a point at an atomic operation: the program is built without the flags
        /// that the
        /// [module](self) shows.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// let summary = Builder::new().seeds(1).run(|| ()).unwrap();
        /// let required = Builder::new().seeds(1).require_atomics().run(|| ());
        /// assert_eq!(required.is_ok(), summary.atomics != 0);
        /// ```
        fn require_atomics(): require_atomics = true;

        /// Lets [`repeats`](Builder::repeats) give memory the same addresses both times, if the system can do that. By
        /// default they differ the second time.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// Builder::new().seeds(10).same_addresses().repeats(|| ()).unwrap();
        /// ```
        fn same_addresses(): same_addresses = true;

        /// Allows `std::thread::spawn`, and all else that makes a kernel thread. By default that is a failure with a
        /// backtrace. Such a thread runs beside the schedule, so no seed repeats a run that has made one:
        /// [`Summary::is_repeatable`] is `false`.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        ///
        /// let spawns = || std::thread::spawn(|| ()).join().unwrap();
        /// assert!(Builder::new().seeds(10).run(spawns).is_err());
        /// let summary = Builder::new().seeds(10).allow_kernel_threads().run(spawns).unwrap();
        /// assert!(!summary.is_repeatable);
        /// ```
        fn allow_kernel_threads(): rules.allows_threads = true;

        /// Allows child processes, sockets other than UNIX ones, and the system's timers (`timerfd_create`, `timer_create`,
        /// `setitimer`, `alarm`). By default they are failures with a backtrace. After one of these steps waits are real,
        /// and no seed repeats the run: [`Summary::is_repeatable`] is `false`.
        ///
        /// ```
        /// use greenthread::sim::Builder;
        /// use std::net::TcpListener;
        ///
        /// let binds = || _ = TcpListener::bind("127.0.0.1:0").unwrap();
        /// assert!(Builder::new().seeds(10).run(binds).is_err());
        /// let summary = Builder::new().seeds(10).allow_outside().run(binds).unwrap();
        /// assert!(!summary.is_repeatable);
        /// ```
        fn allow_outside(): rules.allows_outside = true;
    }

    /// Runs `body` under each seed.
    ///
    /// # Panics
    /// If `body` fails under a seed, with the [`Failure`] as the message; also as [`run`](Builder::run) panics.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// Builder::new().seeds(100).check(|| greenthread::yield_now());
    /// ```
    #[track_caller]
    pub fn check(self, body: impl Fn() + Send + Sync + 'static) {
        match self.run(body) {
            Ok(summary) => println!("{summary}"),
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs `body` under each seed, up to the first that fails, and returns what that amounts to.
    ///
    /// A run fails if `body` panics, if no thread can go on (a deadlock), if a limit is reached, if the process ends in
    /// whatever way (an abort, a signal, a stack overflow, `exit`), or if it computes for 5 s, or is blocked for 60 s,
    /// without coming to a point. The panic of another thread counts if `body` panics because of it, as a
    /// [`scope`](crate::scope) does. The seed that has failed runs once more, alone, and the failure says whether it fails so.
    ///
    /// # Errors
    /// The failure: of a run, or of the check itself, if processes cannot be made.
    ///
    /// # Panics
    /// If it is called in a simulated process, or if `GREENTHREAD_SIM_SEED` or `GREENTHREAD_SIM_SEEDS` has a value that
    /// is not accepted.
    ///
    /// ```
    /// use greenthread::sim::Builder;
    ///
    /// let failure = Builder::new().run(|| std::process::abort()).unwrap_err();
    /// assert_eq!(failure.seed(), "random:0");
    /// let summary = Builder::new().run(|| greenthread::yield_now()).unwrap();
    /// assert_eq!(summary.seeds, 1000);
    /// ```
    #[track_caller]
    pub fn run(mut self, body: impl Fn() + Send + Sync + 'static) -> Result<Summary, Failure> {
        self.read_variables();
        process::check(&self, Arc::new(body), process::ask_once).result()
    }

    /// Runs `body` under each seed, and then once more with other addresses and another environment, and compares what
    /// threads did at their points.
    ///
    /// The difference is the address of something, real time, or whatever else the schedule does not see, that has
    /// decided what `body` does. The failure names the place of the first point that differs, within the first 16
    /// million points of a run.
    ///
    /// # Errors
    /// As [`run`](Builder::run); also if the runs of a seed differ.
    ///
    /// # Panics
    /// As [`run`](Builder::run).
    ///
    /// ```
    /// use greenthread::sim::{Builder, FailureKind};
    ///
    /// Builder::new().seeds(10).repeats(|| greenthread::yield_now()).unwrap();
    /// // A schedule that depends on real time. (The environment and files are real, too.)
    /// let found = Builder::new().seeds(10).repeats(|| {
    ///     let data = std::fs::read("/proc/sys/kernel/random/uuid").unwrap();
    ///     data.iter().take(8).for_each(|&byte| {
    ///         if byte % 2 == 0 {
    ///             greenthread::yield_now();
    ///         }
    ///     });
    /// });
    /// assert_eq!(found.unwrap_err().kind(), FailureKind::Different);
    /// ```
    #[track_caller]
    pub fn repeats(mut self, body: impl Fn() + Send + Sync + 'static) -> Result<Summary, Failure> {
        self.read_variables();
        process::check(&self, Arc::new(body), process::compare).result()
    }

    /// Notes where the check is, and what variables ask for.
    #[track_caller]
    fn read_variables(&mut self) {
        self.place = Location::caller().to_string();
        let text = |name| Some(variable::read(name)?.to_string_lossy().into_owned());
        if let Some(text) = text("GREENTHREAD_SIM_SEEDS") {
            let Ok(count) = text.parse() else {
                panic!("GREENTHREAD_SIM_SEEDS={text:?}: accepted is a number of seeds")
            };
            self.seeds.end = self.seeds.start.saturating_add(count);
        }
        if let Some(points) = text(POINTS) {
            self.until = points.parse().unwrap_or(u64::MAX);
        }
        if let Some(text) = text(SEED) {
            let accepted =
                "random:SEED, round-robin:SEED, pctDEPTH.POINTS:SEED or mixed.POINTS:FIRST-LAST";
            (self.strategy, self.steps, self.seeds) = Strategy::parse(&text)
                .unwrap_or_else(|| panic!("{SEED}={text:?}: accepted is {accepted}"));
        }
    }
}

/// At most 584 years.
fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Default for Builder {
    fn default() -> Self {
        Builder::new()
    }
}

impl Strategy {
    /// The strategy of one seed.
    fn of(self, seed: u64) -> Strategy {
        match (self, seed % 3) {
            (Strategy::Mixed, 0) => Strategy::Random,
            (Strategy::Mixed, 1) => Strategy::Pct { depth: 2 },
            (Strategy::Mixed, _) => Strategy::Pct { depth: 3 },
            (strategy, _) => strategy,
        }
    }

    /// How a variable names the seeds from `first` to `last`, which are one, or run one after the other.
    fn name(self, steps: u64, first: u64, last: u64) -> String {
        let (strategy, seeds) = match first == last {
            true => (self.of(last), last.to_string()),
            false => (self, format!("{first}-{last}")),
        };
        match strategy {
            Strategy::Mixed => format!("mixed.{steps}:{seeds}"),
            Strategy::Random => format!("random:{seeds}"),
            Strategy::RoundRobin => format!("round-robin:{seeds}"),
            Strategy::Pct { depth } => format!("pct{depth}.{steps}:{seeds}"),
        }
    }

    fn parse(text: &str) -> Option<(Strategy, u64, Range<u64>)> {
        let (strategy, seeds) = text.split_once(':')?;
        let (first, last) = seeds.split_once('-').unwrap_or((seeds, seeds));
        let seeds = first.parse().ok()?..last.parse::<u64>().ok()?.checked_add(1)?;
        let (strategy, steps) = strategy.split_once('.').unwrap_or((strategy, "0"));
        let strategy = match strategy {
            "mixed" => Strategy::Mixed,
            "random" => Strategy::Random,
            "round-robin" => Strategy::RoundRobin,
            _ => {
                let depth = strategy.strip_prefix("pct")?.parse().ok()?;
                let is_known = (1..=schedule::MOST_DEPTH).contains(&depth);
                is_known.then_some(Strategy::Pct { depth })?
            }
        };
        (!seeds.is_empty()).then_some((strategy, steps.parse().ok()?, seeds))
    }
}

/// Whether the caller runs under a seed, as part of a check.
///
/// ```
/// use greenthread::sim;
///
/// assert!(!sim::is_simulated());
/// sim::check(1, || assert!(sim::is_simulated()));
/// ```
pub fn is_simulated() -> bool {
    simulated::is_on()
}

/// A number by chance: under a seed it follows from the seed, the thread, and how often the thread has asked.
///
/// So another schedule does not change the numbers of a thread. `getrandom` tells numbers of the same sequence. In any
/// other process the number comes from fastrand.
///
/// ```
/// use greenthread::sim;
///
/// sim::check(10, || {
///     let delay = std::time::Duration::from_millis(sim::random() % 1000);
///     greenthread::sleep(delay);
/// });
/// ```
pub fn random() -> u64 {
    own_number().unwrap_or_else(|| fastrand::u64(..))
}

/// True in one of `one_in` calls, by chance, under a seed; false in any other process, and if `one_in` is 0.
///
/// So code that is tested does now and then what it may do, but seldom does: it reads less than asked for, or has
/// a full queue. (The name is that of the simulator of FoundationDB.)
///
/// ```
/// use greenthread::sim;
///
/// /// Reads up to `wanted` bytes.
/// fn most(wanted: usize) -> usize {
///     if sim::buggify(10) { 1.min(wanted) } else { wanted }
/// }
///
/// assert_eq!(most(100), 100);
/// assert!(sim::Builder::new().run(|| assert_eq!(most(100), 100)).is_err());
/// ```
pub fn buggify(one_in: u32) -> bool {
    is_simulated() && one_in != 0 && random().is_multiple_of(one_in.into())
}

// ==== what libc's functions ask ====

/// The next number of the calling thread's own, in a process of a check.
pub(crate) fn own_number() -> Option<u64> {
    schedule::own_number().or_else(process::own_number)
}
