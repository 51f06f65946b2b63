//! What a program that was written for std's threads takes for granted, and no type says: how deep a
//! stack is, what a backtrace shows, what C is told of a thread.

use crate::common::*;
use greenthread::os::unix::thread::JoinHandleExt;
use greenthread::thread::{self, Builder};
use std::hint::black_box;
use std::io::ErrorKind;

/// Goes so many bytes deep.
fn dig(top: usize, deep: usize) -> usize {
    let here = black_box([0u8; 512]);
    match top - (&raw const here as usize) < deep {
        true => dig(top, deep) + black_box(1),
        false => 1,
    }
}

fn dig_here(deep: usize) -> usize {
    let here = black_box(0u8);
    dig(&raw const here as usize, deep)
}

fn survives(name: &str, case: &str, variables: &[(&str, &str)]) -> bool {
    let output = child_with(name, case, variables);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || said.contains("overflowed its stack"),
        "{said}"
    );
    output.status.success()
}

/// Of several ways to say how deep a stack is, the strongest counts.
#[test]
fn stacks_are_as_deep_as_stds() {
    const NAME: &str = "drop_in::stacks_are_as_deep_as_stds";
    const MIB: usize = 1 << 20;
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        let (who, deep) = case.split_once(' ').unwrap();
        let deep = deep.parse::<usize>().unwrap() * MIB / 8;
        let dig = move || dig_here(deep);
        assert!(
            match who {
                "std" => std::thread::spawn(dig).join(),
                "ours" => thread::spawn(dig).join(),
                "runtime" => {
                    let builder = greenthread::runtime::Builder::new().stack_size(MIB);
                    builder.build().unwrap().spawn(dig).join()
                }
                "builder" => Builder::new().stack_size(MIB).spawn(dig).unwrap().join(),
                _ => unreachable!(),
            }
            .is_ok()
        );
        return;
    }
    let std = ("RUST_MIN_STACK", "8388608");
    let own = ("GREENTHREAD_STACK_SIZE", "4194304");
    // Who digs, how many eighths of a MiB; and whether that may overflow the stack.
    for (who, eighths, variables, overflows) in [
        ("std", 15, &[][..], false),
        ("ours", 15, &[], false),
        ("ours", 18, &[], true),
        ("std", 62, &[std], false),
        ("ours", 62, &[std], false),
        ("ours", 31, &[own], false),
        ("ours", 34, &[std, own], true),
        ("ours", 15, &[("RUST_MIN_STACK", "deep")], false),
        ("runtime", 7, &[std, own], false),
        ("runtime", 10, &[std, own], true),
        ("builder", 7, &[std, own], false),
        ("builder", 10, &[std, own], true),
    ] {
        // A kernel thread's stack has thread-locals on it and may have more than was asked for.
        if green() || !overflows {
            let survived = survives(NAME, &format!("{who} {eighths}"), variables);
            assert_eq!(
                survived, !overflows,
                "{who}, {eighths}/8 MiB, {variables:?}"
            );
        }
    }
}

#[test]
fn small_stacks_are_made_larger_and_absurd_ones_refused() {
    let _w = watchdog("drop_in::small_stacks_are_made_larger_and_absurd_ones_refused");
    both(|| {
        for size in [0, 1, 4096, 16_383] {
            let thread = Builder::new().stack_size(size).spawn(|| dig_here(4 << 10));
            assert!(thread.unwrap().join().unwrap() > 1);
            let runtime = greenthread::runtime::Builder::new()
                .processors(1)
                .stack_size(size);
            let thread = runtime.build().unwrap().spawn(|| dig_here(4 << 10));
            assert!(thread.join().unwrap() > 1);
        }
        for size in [usize::MAX, usize::MAX / 2, (64 << 30) + 1] {
            let error = Builder::new().stack_size(size).spawn(|| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&size.to_string()), "{error}");
        }
    });
}

/// A `pthread_t` is the one that C code in the thread is told.
#[test]
fn threads_have_a_pthread_t() {
    let _w = watchdog("drop_in::threads_have_a_pthread_t");
    both(|| {
        // SAFETY: it only asks.
        let me = || unsafe { libc::pthread_self() as usize };
        let threads: Vec<_> = (0..50)
            .map(|_| {
                thread::spawn(move || {
                    thread::park();
                    me()
                })
            })
            .collect();
        let mut known: Vec<_> = threads.iter().map(|t| t.as_pthread_t() as usize).collect();
        for (thread, &known) in threads.into_iter().zip(&known) {
            assert_eq!(thread.as_pthread_t() as usize, known);
            thread.thread().unpark();
            assert_eq!(thread.join().unwrap(), known);
        }
        known.sort();
        known.dedup();
        assert_eq!(known.len(), 50);
        let thread = thread::spawn(thread::park);
        let unparker = thread.thread().clone();
        let known = thread.into_pthread_t();
        unparker.unpark();
        if !green() {
            // SAFETY: a kernel thread's is the caller's to join.
            let joined =
                unsafe { libc::pthread_join(known as libc::pthread_t, std::ptr::null_mut()) };
            assert_eq!(joined, 0);
        }
    });
}

#[inline(never)]
fn fails_on_purpose() {
    black_box(());
    panic!("on purpose");
}

/// The frames of the first backtrace in `text`.
fn frames(text: &str) -> Vec<&str> {
    let is_frame = |line: &&str| {
        let number = line
            .trim_start()
            .split_once(": ")
            .map(|(number, _)| number.parse::<u32>());
        matches!(number, Some(Ok(_)))
    };
    text.lines().filter(is_frame).collect()
}

/// A backtrace is as short as std's, or as full, whoever prints it: std's hook or ours, which knows
/// names.
#[test]
fn backtraces_are_as_short_as_stds() {
    const NAME: &str = "drop_in::backtraces_are_as_short_as_stds";
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        let result = match &*case {
            "std" => std::thread::spawn(fails_on_purpose).join(),
            "unnamed" => thread::spawn(fails_on_purpose).join(),
            "scoped" => thread::scope(|s| s.spawn(fails_on_purpose).join()),
            "named" => {
                let builder = Builder::new().name("somebody".into());
                let first = builder.spawn(fails_on_purpose).unwrap().join();
                let builder = Builder::new().name("somebody else".into());
                let _ = builder.spawn(fails_on_purpose).unwrap().join();
                first
            }
            _ => unreachable!(),
        };
        assert!(result.is_err());
        return;
    }
    let said = |case: &str, backtrace: &str| {
        let output = child_with(NAME, case, &[("RUST_BACKTRACE", backtrace)]);
        assert_code(&output, 0);
        String::from_utf8(output.stderr).unwrap()
    };
    let (short, full) = (said("std", "1"), said("std", "full"));
    let (short, full) = (frames(&short).len(), frames(&full).len());
    for case in ["unnamed", "scoped", "named"] {
        let text = said(case, "1");
        let (_, trace) = text.split_once("stack backtrace:\n").expect("a backtrace");
        let (trace, _) = trace
            .split_once("note: Some details are omitted")
            .expect("std's note");
        let shown = frames(trace);
        println!("{case}: {shown:#?}; std shows {short}, and {full} in full");
        assert!(
            shown.iter().any(|frame| frame.contains("fails_on_purpose")),
            "{text}"
        );
        assert!((2..=short).contains(&shown.len()), "{text}");
        assert!(shown[0].starts_with("   0: "), "{text}");

        let text = said(case, "full");
        let shown = frames(&text);
        assert!(shown.len() > short, "{text}");
        assert!(
            shown.iter().any(|frame| frame.contains("fails_on_purpose")),
            "{text}"
        );
        assert!(!text.contains("Some details are omitted"), "{text}");

        let text = said(case, "0");
        assert!(frames(&text).is_empty(), "{text}");
        assert_eq!(
            text.matches("note: run with `RUST_BACKTRACE=1`").count(),
            1,
            "{text}"
        );
        if case == "named" {
            assert!(text.contains("thread 'somebody'"), "{text}");
        }
    }
}
