//! `GREENTHREAD_WARN=1`: programs that cost their threads time, and what they are told.
//!
//! Each program is this test's own binary, started again with the name of a function in `GT_PROGRAM`. It goes on
//! until the test has read the warning that it waits for and kills it; a program that is not to be warned ends by
//! itself after a number of looks, which a warning of another kind tells.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common::alone;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use greenthread::sync::Mutex;
use greenthread::{channel, thread};

/// Starts one of the programs below, with warnings.
fn program(name: &str, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "warnings::run_a_program",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .envs([
            ("GT_PROGRAM", name),
            ("GREENTHREAD_WARN", "1"),
            ("GREENTHREAD_PROCS", "2"),
        ])
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether threads are kernel threads: then the system preempts them, and they hold up nobody.
fn kernel() -> bool {
    std::env::var("GREENTHREAD_MODE").as_deref() == Ok("kernel")
}

/// Each policy, for the environment. Kernel threads have none of these.
fn policies() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [
        "work-stealing",
        "relaxed-fifo",
        "least-loaded",
        "priority",
        "global-queue",
    ];
    let count = if kernel() { 1 } else { all.len() };
    all.into_iter()
        .take(count)
        .map(|policy| ("GREENTHREAD_POLICY", policy))
}

/// The first warning of a program: its lines up to the next one, or to the end of its backtrace.
fn first_warning(mut child: Child) -> Vec<String> {
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut warning: Vec<String> = Vec::new();
    for line in lines.map(Result::unwrap) {
        let is_head = line.starts_with("greenthread: warning: ");
        if is_head && !warning.is_empty() || !is_head && warning.is_empty() {
            if !warning.is_empty() {
                break;
            }
            continue;
        }
        warning.push(line);
        let is_own = |line: &String| line.contains("warnings::");
        if warning.iter().any(is_own) && warning.len() > 2 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    warning
}

/// Those of a program that is started with each policy, all at the same time.
fn first_warnings(name: &str, environment: &[(&str, &str)]) -> Vec<Vec<String>> {
    let start = |policy| program(name, &[environment, &[policy]].concat());
    let running: Vec<_> = policies().map(start).collect();
    running.into_iter().map(first_warning).collect()
}

#[track_caller]
fn check(warning: &[String], head: &[&str], functions: &[&str]) {
    let first = warning.first().map_or("", String::as_str);
    for part in head {
        assert!(first.contains(part), "{part:?} in {warning:#?}");
    }
    assert!(
        warning[1].starts_with("  spawned at tests/observe/warnings.rs:"),
        "{warning:#?}"
    );
    for name in functions {
        assert!(
            warning[2..].iter().any(|line| line.contains(name)),
            "{name:?} in {warning:#?}"
        );
    }
}

/// It waits for what no frame ends.
#[inline(never)]
fn goes_on_late() {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _late = greenthread::time::timeout(Duration::ZERO, || receiver.recv().is_ok());
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) {
    let spawned = thread::Builder::new().name(name.into()).spawn(body);
    if let Err(error) = spawned {
        panic!("{error}");
    }
}

/// Not a test: the programs.
#[test]
fn run_a_program() {
    match std::env::var("GT_PROGRAM").as_deref() {
        Ok("blocks") => named("blocker", blocks),
        Ok("late") => named("late", goes_on_late),
        Ok("hogs") => {
            (0..2).for_each(|_| named("hog", computes));
            named("other", || {
                loop {
                    thread::yield_now();
                }
            });
        }
        Ok("holds") => {
            let lock = Arc::new(Mutex::new(()));
            let (tell, told) = channel::bounded(0);
            named("holder", {
                let lock = lock.clone();
                move || holds(&lock, &tell)
            });
            told.recv().unwrap();
            named("waiter", move || drop(lock.lock()));
        }
        Ok("leaks") => named("forgotten", waits_for_ever),
        Ok(other) => panic!("there is no program {other:?}"),
        Err(_) => return,
    }
    std::thread::sleep(Duration::from_secs(60));
}

#[inline(never)]
fn blocks() {
    // By a call that begins anew after a signal: of others a report may miss the callers.
    let program = || std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let (one, other) = (program(), program());
    greenthread::unhooked(|| one.lock().and_then(|()| other.lock())).unwrap();
}

#[inline(never)]
fn computes() {
    let mut number = 1_u64;
    loop {
        number = std::hint::black_box(number).wrapping_mul(3);
    }
}

#[inline(never)]
fn holds(lock: &Mutex<()>, tell: &channel::Sender<()>) {
    let _held = lock.lock().unwrap();
    tell.send(()).unwrap();
    thread::sleep(Duration::from_secs(60));
}

#[inline(never)]
fn waits_for_ever() {
    loop {
        thread::park();
        std::hint::black_box(());
    }
}

#[test]
fn who_blocks_is_told_to_say_so() {
    alone!();
    if kernel() {
        return;
    }
    for warning in first_warnings("blocks", &[]) {
        let head = [
            "\"blocker\" blocks its kernel thread",
            "greenthread::blocking says so",
        ];
        check(&warning, &head, &["warnings::blocks"]);
    }
}

#[test]
fn a_hog_is_named() {
    alone!();
    if kernel() {
        return;
    }
    for warning in first_warnings("hogs", &[]) {
        let head = ["\"hog\" keeps a processor while others wait: it ran in"];
        check(&warning, &head, &["warnings::computes"]);
    }
}

#[test]
fn who_holds_a_lock_and_sleeps_is_named() {
    alone!();
    for warning in first_warnings("holds", &[]) {
        let head = [
            "\"holder\" holds a lock for which 1 wait, and is itself parked for",
            "waits for end of sleep, for ",
        ];
        check(&warning, &head, &["warnings::holds"]);
    }
}

#[test]
fn a_thread_that_nobody_can_unpark_has_leaked() {
    alone!();
    for warning in first_warnings("leaks", &[("GREENTHREAD_WARN_LEAK", "1")]) {
        let head = [
            "\"forgotten\" has leaked: nobody has a handle to unpark it",
            "waits for unpark",
            "(handles 0)",
        ];
        check(&warning, &head, &["warnings::waits_for_ever"]);
    }
}

#[test]
fn who_goes_on_after_its_frame_is_named() {
    alone!();
    for warning in first_warnings("late", &[]) {
        let head = [
            "\"late\" goes on in a frame that has ended: it is ",
            "in a frame that ended ",
        ];
        check(&warning, &head, &["warnings::goes_on_late"]);
    }
}

#[test]
fn what_is_not_accepted_is_refused() {
    alone!();
    for (variable, value) in [("GREENTHREAD_WARN", "yes"), ("GREENTHREAD_WARN_LEAK", "0")] {
        let output = program("leaks", &[(variable, value)])
            .wait_with_output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(
            text.contains(&format!("{variable}={value:?}: accepted is")),
            "{text}"
        );
    }
}
