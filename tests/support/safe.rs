//! What the tests of safe code need, without unsafe code themselves: a watchdog, randomness, and
//! children for what ends the process.

#![allow(dead_code, unused_imports)] // every test file uses its own part of this

pub use crate::common::Rng;

use greenthread::runtime::{Mode, Runtime};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Aborts when it has not been dropped after a minute.
pub struct Watchdog(#[allow(dead_code)] Sender<()>);

pub fn watchdog(test: &'static str) -> Watchdog {
    let (alive, over) = channel();
    std::thread::spawn(move || {
        if over.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("watchdog: test {test} hangs, aborting");
            std::process::abort();
        }
    });
    Watchdog(alive)
}

pub fn is_green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// In a child made by `child`: the case.
pub fn case(test: &str) -> Option<String> {
    (std::env::var("GT_CHILD").as_deref() == Ok(test))
        .then(|| std::env::var("GT_CASE").unwrap_or_default())
}

/// The test `test` of this executable again, alone, with this case.
pub fn child(test: &str, case: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs([("GT_CHILD", test), ("GT_CASE", case)])
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The child dies by abort, and says why.
#[track_caller]
pub fn aborts(test: &str, case: &str, why: &str) {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    let out = child(test, case);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.signal() == Some(SIGABRT) && said.contains(why),
        "{case}: {}, and not because of {why:?}:\n{said}",
        out.status
    );
}
