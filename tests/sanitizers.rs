//! Sanitizers: a program that has one inside runs, and the sanitizer finds the program's faults and no others.
//!
//! Without a sanitizer, this program has a function of ThreadSanitizer's, and takes that for one. `.ci/sanitizers` builds it
//! with real ones: then the faults below are planted, and must be found.

#[path = "support/checking_allocator.rs"]
mod checking_allocator;
mod common;

use common::*;
use greenthread::runtime::{Mode, Runtime};
use std::hint::black_box;

/// What `Runtime::mode` is under the sanitizer.
const EXPECTED: Mode = match cfg!(any(asan, tsan)) {
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

/// On a runtime with one processor no two kernel threads touch the word at the same time.
#[cfg(sanitized = "thread")]
mod thread {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Two threads that add to one word without a word to each other; each calls `pause` after that.
    fn two_that_add(pause: fn()) {
        let word = Arc::new(AtomicUsize::new(0));
        let add = || {
            let word = word.clone();
            move || {
                // SAFETY: none: this is the fault.
                unsafe { *black_box(word.as_ptr()) += 1 };
                pause();
                // Giving a reference up would be a word to the other.
                core::mem::forget(word);
            }
        };
        let other = greenthread::spawn(add());
        add()();
        other.join().unwrap();
    }

    #[test]
    fn a_race_between_two_threads() {
        is_found("thread::a_race_between_two_threads", "data race", || {
            two_that_add(greenthread::yield_now);
        });
    }

    /// Each begins when the one before has ended, in its room.
    #[test]
    fn a_race_between_threads_that_follow_each_other() {
        const TEST: &str = "thread::a_race_between_threads_that_follow_each_other";
        is_found(TEST, "data race", || two_that_add(|| ()));
    }

    /// The one is suspended in the middle of its loop.
    #[test]
    fn a_race_with_a_thread_that_is_preempted() {
        const TEST: &str = "thread::a_race_with_a_thread_that_is_preempted";
        is_found(TEST, "data race", || {
            let word = Arc::new(AtomicUsize::new(0));
            let hog = word.clone();
            let hog = greenthread::spawn(move || {
                // SAFETY: none: this is the fault.
                while unsafe { hog.as_ptr().read_volatile() } == 0 {
                    core::hint::spin_loop();
                }
                core::mem::forget(hog);
            });
            greenthread::yield_now();
            // SAFETY: none, as above.
            unsafe { word.as_ptr().write_volatile(1) };
            hog.join().unwrap();
        });
    }
}

/// Threads that share nothing that they must not, in all ways.
#[test]
fn sound_threads_are_not_complained_of() {
    use greenthread::channel;
    use greenthread::coroutine::{Coroutine, Yielder};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Arc, Mutex};
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

    // Values pass from coroutines.
    let sums = [1, 2, 3].map(|factor| {
        greenthread::spawn(move || {
            let boxes = Coroutine::new(move |yielder: &Yielder<(), Box<u64>>, ()| {
                (0..100).for_each(|number| yielder.suspend(Box::new(factor * number)));
            });
            boxes.map(|number| *number).sum::<u64>()
        })
    });
    assert_eq!(sums.map(|sum| sum.join().unwrap()), [4_950, 9_900, 14_850]);

    // Threads that compute, preempted, on one processor.
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let hogs = [(); 3].map(|()| {
        let stop = stop.clone();
        runtime.spawn(move || {
            let mut numbers = vec![1_u64; 100];
            while !stop.load(Relaxed) {
                numbers.rotate_left(1);
            }
            numbers.iter().sum::<u64>()
        })
    });
    let stopper = runtime.spawn(move || {
        greenthread::sleep(Duration::from_millis(1));
        stop.store(true, Relaxed);
    });
    stopper.join().unwrap();
    assert_eq!(hogs.map(|hog| hog.join().unwrap()), [100; 3]);
}

/// A green thread's child, of which the sanitizer knows one thread. (For AddressSanitizer see README; LeakSanitizer looks for
/// leaks in the child, too.)
#[cfg(not(any(sanitized = "address", sanitized = "leak")))]
#[test]
fn a_forked_child_runs_to_its_end() {
    const TEST: &str = "a_forked_child_runs_to_its_end";
    let _w = watchdog(TEST);
    if child_case(TEST).is_none() {
        // By default, ThreadSanitizer lets each child sleep for a second before it ends.
        let out = child_with(TEST, "", &[("TSAN_OPTIONS", "atexit_sleep_ms=0")]);
        assert_code(&out, 0);
        assert!(!said(&out).contains("WARNING: "), "{}", said(&out));
        return;
    }
    for round in 0..20 {
        let status = greenthread::spawn(move || {
            // SAFETY: the child uses what it has alone.
            match unsafe { libc::fork() } {
                0 => std::process::exit(vec![round; 1_000].len() as i32 % 7),
                child => {
                    let mut status = 0;
                    // SAFETY: the place is valid.
                    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                    libc::WEXITSTATUS(status)
                }
            }
        });
        assert_eq!(status.join().unwrap(), 1_000 % 7);
    }
}
