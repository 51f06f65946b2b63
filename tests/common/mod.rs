//! What the integration tests share.
//!
//! The idea: a test waits for conditions, never for a length of time, and says by itself when it
//! hangs.
//!
//! 1. `watchdog` aborts the process with the test's name if the test is not over after a minute.
//! 2. `both` runs a body on a kernel thread and on a green one: every call must work from either. With `GT_SIM=SEEDS` in the
//!    environment it runs the body under `sim` instead, with so many seeds (`.ci/sim`).
//! 3. `child` runs one test again in a process of its own, for what concerns a whole process (exit,
//!    signals, limits, environment). The test asks `child_case` first; in the child it does that
//!    case and returns or exits.
//! 4. `alone!` moves a test into a process of its own, where it may change what belongs to the process and read what
//!    other tests would change: handlers, limits, descriptors, memory.
//! 5. Test processes and their children begin in one known state (`known_state`), whatever their parents did. What else
//!    a child is to have, its test sets.
//! 6. Everything holds in both modes. What only green threads promise is under `if green()`.

#![allow(dead_code)] // every test file uses its own part of this

pub mod directory;
#[cfg(feature = "unmodified")]
pub mod futex;
#[cfg(target_os = "linux")]
pub mod known_state;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(feature = "unmodified", target_os = "linux"))]
pub mod pthread;
mod rng;

#[cfg(target_os = "linux")]
#[allow(unused_imports)] // every test file uses its own part of this
pub use linux::*;
#[allow(unused_imports)] // the same
pub use rng::Rng;

use greenthread::runtime::{Driver, Mode, Runtime};
use std::io::Write;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How many seconds a test may take: `GT_PATIENCE`, for slow machines, or a minute; a perturbed build is slower.
fn patience() -> Duration {
    let asked = std::env::var("GT_PATIENCE").ok();
    let asked = asked.map(|seconds| seconds.parse().expect("GT_PATIENCE: seconds"));
    let usual = if cfg!(greenthread_perturb) { 600 } else { 60 };
    Duration::from_secs(asked.unwrap_or(usual))
}

/// How long a test lasts that does the same thing again and again: `GT_STRESS_SECS`, or a second.
pub fn stress_time() -> Duration {
    let asked = std::env::var("GT_STRESS_SECS").ok();
    let asked = asked.map(|seconds| seconds.parse().expect("GT_STRESS_SECS: seconds"));
    // The watchdog counts the whole test.
    Duration::from_secs(asked.unwrap_or(1)).min(patience() / 3)
}

/// Aborts when it has not been dropped in time. Lives on a kernel thread, so that no bug of
/// the runtime stops it.
pub struct Watchdog(#[allow(dead_code)] Sender<()>);

pub fn watchdog(test: &'static str) -> Watchdog {
    let (alive, over) = channel();
    // A check under `sim` sees a deadlock by itself, and has no kernel threads.
    if simulated_seeds().is_some() {
        return Watchdog(alive);
    }
    let patience = patience();
    let dog = move || {
        if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            // Past the test's capture, which is lost when the process aborts.
            let said = format!("watchdog: test {test} hangs, aborting\n");
            let _ = std::io::stderr().write_all(said.as_bytes());
            std::process::abort();
        }
    };
    std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(dog)
        .expect("a watchdog");
    Watchdog(alive)
}

/// How many seeds `both` runs, if it is to run under `sim`.
fn simulated_seeds() -> Option<u64> {
    let seeds = std::env::var("GT_SIM").ok()?;
    Some(seeds.parse().expect("GT_SIM: a number of seeds"))
}

/// Runs `body` on this kernel thread, then on a green thread; or under `sim`.
pub fn both(body: fn()) {
    #[cfg(feature = "sim")]
    if let Some(seeds) = simulated_seeds() {
        // Most tests take it that nobody wakes up in vain: the crate does not, though std may.
        let builder = greenthread::sim::Builder::new();
        return builder.seeds(seeds).spurious(0).check(body);
    }
    body();
    greenthread::spawn(body)
        .join()
        .unwrap_or_else(|payload| resume_unwind(payload));
}

/// [`both`], and on a green thread of each driver.
pub fn everywhere(body: fn()) {
    both(body);
    for driver in [Driver::Epoll, Driver::IoUring] {
        let runtime = Runtime::builder().processors(2).driver(driver);
        let runtime = runtime.build().expect("a runtime");
        let ended = runtime.spawn(body).join();
        ended.unwrap_or_else(|payload| resume_unwind(payload));
        runtime.shutdown();
    }
}

/// Waits until `condition` holds, giving way meanwhile. The watchdog bounds it.
pub fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        greenthread::sleep(Duration::from_micros(200));
    }
}

/// Bytes of address space that this process has.
pub fn address_space() -> u64 {
    memory_of("self", "VmSize:")
}

/// Bytes of resident memory that it has.
pub fn resident() -> u64 {
    memory_of("self", "VmRSS:")
}

/// What `/proc` says of a process's memory, in bytes.
pub fn memory_of(process: &str, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() << 10
}

/// Whether the default runtime runs green threads (and not kernel threads behind the same API).
pub fn green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// Whether calls of libc that block park green threads.
pub fn hooked() -> bool {
    let is_off = std::env::var_os("GREENTHREAD_UNMODIFIED").is_some_and(|value| value == "off");
    cfg!(feature = "unmodified") && green() && !is_off
}

/// Waits until few kernel threads are busy or blocked: threads that wait hold none. Idle ones, made ahead of need, do
/// not count.
pub fn hold_no_kernel_thread(runtime: &Runtime) {
    wait_until(|| {
        let metrics = runtime.metrics();
        metrics.kernel_threads - metrics.parked_kernel_threads < 10
    });
}

/// Says that a limit that a socket has of its own was kept. Where the kernel waits, it counts whole ticks of its clock, of which
/// a part has passed when it begins, and no tick is longer than 10 ms.
pub fn not_early(begun: Instant, limit: Duration) {
    let (passed, tick) = (begun.elapsed(), Duration::from_millis(10));
    assert!(passed + tick >= limit, "early: {passed:?} of {limit:?}");
}

/// How `call`, which has a time-out, fails. The kernel may interrupt such a call of std's, for
/// reasons of its own.
pub fn timed<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::ErrorKind {
    loop {
        match call().err().expect("an error").kind() {
            std::io::ErrorKind::Interrupted => {}
            kind => return kind,
        }
    }
}

/// A thread that ends when told to.
pub fn stoppable<T: Send + 'static>(value: T) -> (Sender<()>, greenthread::JoinHandle<T>) {
    let (stop, stopped) = channel();
    let body = move || {
        let _ = stopped.recv();
        value
    };
    (stop, greenthread::spawn(body))
}

/// The test `test` of this executable again, alone, with `GT_CASE=case` in its environment.
pub fn child_command(test: &str, case: &str) -> Command {
    let this = std::env::current_exe().expect("the path of this test");
    child_command_of(&this, test, case)
}

/// The same, of a copy of the executable.
pub fn child_command_of(executable: &Path, test: &str, case: &str) -> Command {
    let mut command = Command::new(executable);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("GT_CHILD", test)
        .env("GT_CASE", case)
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null());
    #[cfg(target_os = "linux")]
    known_state::of_child(&mut command);
    command
}

/// The first line of a test: what follows runs in a process of its own, with these variables (`NAME = "value"`).
#[allow(unused_macros)] // not every program of tests uses it
macro_rules! alone {
    ($($name:ident = $value:literal),*) => {
        fn here() {}
        let variables: &[(&str, &str)] = &[$((stringify!($name), $value)),*];
        if crate::common::goes_on_elsewhere(std::any::type_name_of_val(&here), variables) {
            return;
        }
    };
}
#[allow(unused_imports)] // the same
pub(crate) use alone;

const ALONE: &str = "GT_ALONE";

/// Runs the test of which `here` is a function in a child, unless this is that child. `here` is a path with the
/// program's name.
#[track_caller]
pub fn goes_on_elsewhere(here: &str, variables: &[(&str, &str)]) -> bool {
    let test = here
        .split_once("::")
        .and_then(|(_, path)| path.rsplit_once("::"));
    let (test, _) = test.expect("the path of a function in a test");
    if std::env::var(ALONE).as_deref() == Ok(test) {
        return false;
    }
    let mut command = child_command(test, "");
    let command = command.env_remove("GT_CHILD").env(ALONE, test);
    let out = command.envs(variables.iter().copied()).output();
    let out = out.expect("the test's own executable");
    assert!(out.status.success(), "{}", said(&out));
    ran_it(test, &out);
    print!("{}", String::from_utf8_lossy(&out.stdout));
    true
}

/// The harness is content if there is no such test.
#[track_caller]
fn ran_it(test: &str, out: &Output) {
    let is_unknown = String::from_utf8_lossy(&out.stdout).contains("running 0 tests");
    assert!(!is_unknown, "there is no test {test:?}");
}

/// Runs it, with `env` in its environment, too.
pub fn child_with(test: &str, case: &str, env: &[(&str, &str)]) -> Output {
    let out = child_command(test, case).envs(env.iter().copied()).output();
    let out = out.expect("the test's own executable");
    ran_it(test, &out);
    out
}

pub fn child(test: &str, case: &str) -> Output {
    child_with(test, case, &[])
}

/// In a child made by `child(test, case)`: the case. On Linux it dies by SIGALRM rather than hang.
pub fn child_case(test: &str) -> Option<String> {
    if std::env::var("GT_CHILD").as_deref() != Ok(test) {
        return None;
    }
    #[cfg(target_os = "linux")]
    linux::die_quietly();
    Some(std::env::var("GT_CASE").unwrap_or_default())
}

/// What the child said, for messages and searches.
pub fn said(out: &Output) -> String {
    format!(
        "{}\n--- stdout ---\n{}\n--- stderr ---\n{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

#[track_caller]
pub fn assert_code(out: &Output, code: i32) {
    assert_eq!(out.status.code(), Some(code), "exit code: {}", said(out));
}

/// The first line of the child's stderr that holds all of `words`.
#[track_caller]
pub fn line_with(out: &Output, words: &[&str]) -> String {
    let stderr = String::from_utf8_lossy(&out.stderr);
    let line = stderr
        .lines()
        .find(|line| words.iter().all(|w| line.contains(w)));
    line.unwrap_or_else(|| panic!("no line with {words:?}: {}", said(out)))
        .to_string()
}
