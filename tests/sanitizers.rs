//! Sanitizers: a program that has one inside runs, and the sanitizer finds the program's faults and no others.
//!
//! Without a sanitizer, this program has a function of ThreadSanitizer's, and takes that for one. `.ci/sanitizers` builds it
//! with real ones: then the faults below are planted, and must be found.

mod common;

use common::*;
use greenthread::runtime::{Mode, Runtime};
use std::hint::black_box;

/// What `Runtime::mode` is under the sanitizer.
const EXPECTED: Mode = match cfg!(asan) {
    true => Mode::Green,
    false => Mode::Kernel,
};

/// Never called: the name is all.
#[cfg(not(sanitized))]
#[unsafe(no_mangle)]
extern "C" fn __tsan_init() {}

const NAME: &str = if cfg!(sanitized = "address") {
    "AddressSanitizer"
} else if cfg!(sanitized = "leak") {
    "LeakSanitizer"
} else {
    "ThreadSanitizer"
};

/// The runtime says once why threads are kernel threads, if they are; whoever asks for green ones gets an error.
#[test]
fn beside_a_sanitizer_threads_are_what_it_knows() {
    const TEST: &str = "beside_a_sanitizer_threads_are_what_it_knows";
    let _w = watchdog(TEST);
    match child_case(TEST).as_deref() {
        None => {
            let mut command = child_command(TEST, "plain");
            let out = command.env_remove("GREENTHREAD_MODE").output().unwrap();
            assert_code(&out, 0);
            let said = said(&out);
            let lines = said
                .lines()
                .filter(|line| line.contains("is a kernel thread"));
            let lines: Vec<_> = lines.collect();
            match EXPECTED {
                Mode::Green => assert!(lines.is_empty(), "{said}"),
                _ => assert!(matches!(lines[..], [line] if line.contains(NAME)), "{said}"),
            }
            assert_code(
                &child_with(TEST, "green", &[("GREENTHREAD_MODE", "green")]),
                0,
            );
        }
        Some("plain") => {
            for _ in 0..2 {
                let runtime = Runtime::new().unwrap();
                assert_eq!(runtime.mode(), EXPECTED);
                assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
                runtime.shutdown();
            }
        }
        Some(_) => match (Runtime::new(), EXPECTED) {
            (Ok(runtime), Mode::Green) => assert_eq!(runtime.mode(), Mode::Green),
            (Err(error), Mode::Kernel) => {
                assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
                assert!(error.to_string().contains(NAME), "{error}");
            }
            (outcome, _) => panic!("{:?}", outcome.map(|runtime| runtime.mode())),
        },
    }
}

/// Runs `fault` on a thread of a runtime with one processor, in a process of its own. The sanitizer ends it, and says
/// `words`.
#[cfg(any(sanitized = "address", sanitized = "thread"))]
#[track_caller]
fn is_found(test: &'static str, words: &str, fault: fn()) {
    let _w = watchdog(test);
    if child_case(test).is_none() {
        let out = child(test, "");
        assert!(!out.status.success(), "{}", said(&out));
        let line = line_with(&out, &[NAME, words]);
        println!("{line}");
        return;
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    runtime.spawn(fault).join().unwrap();
    // ThreadSanitizer's exit status.
    std::process::exit(0);
}

#[cfg(sanitized = "address")]
mod address {
    use super::*;

    #[test]
    fn memory_that_is_used_after_it_was_freed() {
        is_found(
            "address::memory_that_is_used_after_it_was_freed",
            "heap-use-after-free",
            || {
                let value = Box::new(7_u64);
                let place = black_box(&raw const *value);
                drop(black_box(value));
                greenthread::yield_now();
                // SAFETY: none: this is the fault.
                black_box(unsafe { place.read() });
            },
        );
    }

    #[test]
    fn a_value_that_is_used_after_its_scope() {
        is_found(
            "address::a_value_that_is_used_after_its_scope",
            "stack-use-after-scope",
            || {
                let place;
                {
                    let value = black_box([7_u64; 8]);
                    place = black_box(&raw const value);
                }
                greenthread::yield_now();
                // SAFETY: none: this is the fault.
                black_box(unsafe { (*place)[black_box(3)] });
            },
        );
    }

    #[test]
    fn a_write_behind_an_array_on_the_stack() {
        is_found(
            "address::a_write_behind_an_array_on_the_stack",
            "stack-buffer-overflow",
            || {
                let mut array = black_box([7_u64; 8]);
                let end = black_box(array.as_mut_ptr()).wrapping_add(black_box(8));
                greenthread::yield_now();
                // SAFETY: none: this is the fault.
                unsafe { end.write(1) };
                black_box(array);
            },
        );
    }

    #[test]
    fn a_stack_that_is_used_up() {
        #[allow(unconditional_recursion)]
        fn deeper(depth: u64) -> u64 {
            let array = black_box([depth; 64]);
            array[3] + black_box(deeper)(depth + 1)
        }
        const TEST: &str = "address::a_stack_that_is_used_up";
        let _w = watchdog(TEST);
        if child_case(TEST).is_none() {
            let out = child(TEST, "");
            assert!(!out.status.success(), "{}", said(&out));
            let said = said(&out);
            let is_said = ["stack-overflow", "has overflowed its stack"];
            assert!(is_said.iter().any(|words| said.contains(words)), "{said}");
            return;
        }
        greenthread::spawn(|| deeper(0)).join().unwrap();
    }
}

/// Two threads of one processor: no two kernel threads touch the word at the same time.
#[cfg(sanitized = "thread")]
#[test]
fn a_race_between_two_threads() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    is_found("a_race_between_two_threads", "data race", || {
        let word = Arc::new(AtomicUsize::new(0));
        let add = |word: Arc<AtomicUsize>| {
            let place = word.as_ptr();
            let place = place.expose_provenance();
            move || {
                let place = black_box(place) as *mut usize;
                // SAFETY: none: this is the fault.
                unsafe { *place += 1 };
                greenthread::yield_now();
                drop(word);
            }
        };
        let other = greenthread::spawn(add(word.clone()));
        add(word.clone())();
        other.join().unwrap();
        assert!(word.load(Relaxed) <= 2);
    });
}

/// Threads that share nothing that they must not, in all ways.
#[test]
fn sound_threads_are_not_complained_of() {
    use greenthread::channel;
    use std::sync::Mutex;
    use std::time::Duration;
    const TEST: &str = "sound_threads_are_not_complained_of";
    let _w = watchdog(TEST);
    if child_case(TEST).is_none() {
        let out = child(TEST, "");
        assert_code(&out, 0);
        assert!(!said(&out).contains("ERROR: "), "{}", said(&out));
        assert!(!said(&out).contains("WARNING: "), "{}", said(&out));
        return;
    }
    fn frames(depth: u64) -> u64 {
        let mut array = black_box([depth; 16]);
        if depth != 0 {
            array[5] = black_box(frames)(depth - 1);
            greenthread::yield_now();
        }
        array[5] + array[6]
    }
    let sum = Mutex::new(0_u64);
    let green_sum = greenthread::sync::Mutex::new(0_u64);
    for round in 0..20 {
        let (send, receive) = channel::bounded(1);
        greenthread::scope(|scope| {
            for number in 0..20_u64 {
                let (send, sum, green_sum) = (send.clone(), &sum, &green_sum);
                scope.spawn(move || {
                    let text = format!("{number}");
                    frames(number);
                    *sum.lock().unwrap() += number;
                    *green_sum.lock().unwrap() += number;
                    greenthread::sleep(Duration::from_micros(10 * number));
                    send.send(text).unwrap();
                });
            }
            drop(send);
            assert_eq!(receive.iter().count(), 20);
        });
        // A panic leaves frames behind; the next thread on the stack finds none of them.
        let panics = greenthread::spawn(move || {
            if frames(round) < u64::MAX {
                std::panic::resume_unwind(Box::new(round));
            }
        });
        assert_eq!(
            *panics.join().unwrap_err().downcast::<u64>().unwrap(),
            round
        );
    }
    assert_eq!(*sum.lock().unwrap(), 20 * 190);
    assert_eq!(*green_sum.lock().unwrap(), 20 * 190);
}
