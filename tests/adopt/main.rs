//! Code that starts threads with `std::thread` alone: it finds the same, whether its threads are kernel threads or adopted.
//!
//! 1. `checks.rs` has what std's documentation says. All of it runs on std's threads, and again on adopted ones.
//! 2. `pthreads.rs` has what C is told of adopted threads: races, signals, cancellation, and all of it beside other things.
//! 3. The tests here are of whole processes: what they say when a thread panics or overflows its stack, and what std's
//!    harness for tests captures of it.

#![cfg(target_os = "linux")]
// jemalloc has a `pthread_create` of its own.
#![cfg(not(greenthread_allocator = "jemalloc"))]

mod adopted;
#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
mod checks;
#[path = "../common/mod.rs"]
mod common;
mod pthreads;

use adopted::{adopted, as_named};
use checks::CHECKS;
use common::*;
use std::hint::black_box;
use std::panic::catch_unwind;
use std::process::{Command, Output, Stdio};
use std::thread;

/// Runs every check and says in the end which ones failed. `GT_CHECK` in the environment, a part of a name, chooses some.
fn run_all() {
    let chosen = std::env::var("GT_CHECK").unwrap_or_default();
    let chosen = CHECKS.iter().filter(|(name, _)| name.contains(&chosen));
    let (mut count, mut failed) = (0, Vec::new());
    for (name, check) in chosen {
        // The last one named is the one that hangs.
        println!("check {name}");
        count += 1;
        if let Err(payload) = catch_unwind(check) {
            let said = payload.downcast_ref::<String>().map(String::as_str);
            let said = said.or(payload.downcast_ref::<&str>().copied());
            failed.push(format!("{name}: {}", said.unwrap_or("(no text)")));
        }
    }
    println!("{count} checks");
    let list = failed.join("\n  ");
    assert!(
        failed.is_empty(),
        "{} of {count} failed:\n  {list}",
        failed.len()
    );
}

/// In a process of its own: some checks change its panic hook.
#[test]
fn checks_on_stds_threads() {
    alone!();
    let _w = watchdog("checks_on_stds_threads");
    run_all();
}

#[test]
fn checks_on_adopted_threads() {
    alone!();
    let _w = watchdog("checks_on_adopted_threads");
    adopted(run_all);
}

#[test]
fn every_check_has_a_name_of_its_own() {
    let names: std::collections::HashSet<_> = CHECKS.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), CHECKS.len());
    assert!(names.len() >= 100);
}

/// A child's stderr, with `#` for each number.
fn numberless(out: &Output) -> String {
    let stderr = String::from_utf8_lossy(&out.stderr);
    let mut text = String::new();
    for char in stderr.chars() {
        match char.is_ascii_digit() {
            true if text.ends_with('#') => {}
            true => text.push('#'),
            false => text.push(char),
        }
    }
    text
}

/// Runs a case in a child, plain and adopted, and gives both results.
fn both_ways(test: &str, case: &str, env: &[(&str, &str)]) -> [Output; 2] {
    ["plain", "adopted"].map(|way| child_with(test, &format!("{case} {way}"), env))
}

#[inline(never)]
fn function_that_panics(number: usize) {
    panic!("it says {number}");
}

#[inline(never)]
fn function_that_calls_it(number: usize) {
    function_that_panics(black_box(number));
    black_box(number);
}

#[test]
fn a_panic_is_told_alike() {
    const NAME: &str = "a_panic_is_told_alike";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        return as_named(&case, || {
            let builder = match case.split(' ').next() {
                Some("named") => thread::Builder::new().name("worker".into()),
                _ => thread::Builder::new(),
            };
            let handle = builder.spawn(|| function_that_calls_it(42)).unwrap();
            assert!(handle.join().is_err());
        });
    }
    for (case, name) in [("named", "worker"), ("unnamed", "<unnamed>")] {
        for backtrace in ["0", "1"] {
            let outs = both_ways(NAME, case, &[("RUST_BACKTRACE", backtrace)]);
            for out in &outs {
                assert_code(out, 0);
                let line = line_with(out, &["panicked at tests/adopt/main.rs:"]);
                assert!(line.starts_with(&format!("thread '{name}'")), "{line}");
                let stderr = String::from_utf8_lossy(&out.stderr);
                let after = stderr.split_once(&line).unwrap().1;
                assert!(after.starts_with("\nit says 42\n"), "{}", said(out));
                if backtrace == "1" {
                    let inner = stderr.find("function_that_panics");
                    let outer = stderr.find("function_that_calls_it");
                    assert!(inner.is_some() && inner < outer, "{}", said(out));
                }
            }
            let [plain, adopted] = &outs;
            assert_eq!(numberless(plain), numberless(adopted));
        }
    }
}

#[test]
fn a_stack_overflow_is_told_alike() {
    const NAME: &str = "a_stack_overflow_is_told_alike";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        #[allow(unconditional_recursion)]
        fn fall(level: usize) -> usize {
            let here = black_box([level; 64]);
            fall(level + 1) + here[0]
        }
        return as_named(&case, || {
            let builder = match case.split(' ').next() {
                Some("named") => thread::Builder::new().name("worker".into()),
                _ => thread::Builder::new(),
            };
            let _ = builder.spawn(|| fall(0)).unwrap().join();
        });
    }
    for (case, name) in [("named", "thread 'worker'"), ("unnamed", "thread '<un")] {
        for out in both_ways(NAME, case, &[]) {
            use std::os::unix::process::ExitStatusExt;
            let signal = out.status.signal();
            let is_killed = matches!(signal, Some(libc::SIGABRT | libc::SIGSEGV));
            assert!(is_killed, "{}", said(&out));
            // One without a name is called "<unnamed>" or "<unknown>".
            line_with(&out, &["overflowed its stack", name]);
        }
    }
}

/// What the helper says is seen only if it fails, on a thread of the test or on one that such a thread started.
#[test]
fn output_is_captured_alike() {
    let _w = watchdog("output_is_captured_alike");
    let run = |case: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", HELPER, "--include-ignored"])
            .env("GT_CHILD", HELPER)
            .env("GT_CASE", case)
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_TEST_NOCAPTURE")
            .stdin(Stdio::null());
        known_state::of_child(&mut command);
        let out = command.output().unwrap();
        let stdout = String::from_utf8_lossy(&out.stdout);
        assert!(stdout.contains("running 1 test"), "{}", said(&out));
        out
    };
    for way in ["plain", "adopted"] {
        let passes = run(&format!("passes {way}"));
        assert_code(&passes, 0);
        assert!(
            !said(&passes).contains("a thread says"),
            "{}",
            said(&passes)
        );
        let fails = run(&format!("fails {way}"));
        assert_code(&fails, 101);
        let stdout = String::from_utf8_lossy(&fails.stdout);
        for words in ["on stdout", "on stderr", "from another", "in its panic"] {
            let words = format!("a thread says {words}");
            let count = stdout.matches(&words).count();
            assert_eq!(count, 1, "{words}: {}", said(&fails));
        }
        let stderr = String::from_utf8_lossy(&fails.stderr);
        assert!(!stderr.contains("a thread says"), "{}", said(&fails));
    }
}

const HELPER: &str = "helper_of_the_test_of_capture";

#[test]
#[ignore = "a part of output_is_captured_alike"]
fn helper_of_the_test_of_capture() {
    let Some(case) = child_case(HELPER) else {
        return;
    };
    as_named(&case, || {
        let handle = thread::spawn(|| {
            println!("a thread says on stdout");
            eprintln!("a thread says on stderr");
            thread::spawn(|| println!("a thread says from another"))
                .join()
                .unwrap();
            panic!("a thread says in its panic");
        });
        assert!(handle.join().is_err());
        assert!(case.starts_with("passes"));
    });
}
