//! Futexes of code that has never heard of green threads: `syscall(SYS_futex, …)`.
//!
//! The idea: each call is made by the kernel itself (a system call by hand, from a kernel thread), and by
//! way of libc's name from a kernel thread and from a green one. All three must answer alike.
//!
//! Threads that wait are counted by moving them: a requeue tells how many it has moved, so a test knows when a
//! thread is in the queue, and need not sleep.
#![cfg(feature = "unmodified")]

use crate::common::futex::*;
use crate::common::*;
use greenthread as thread;
use greenthread::runtime::{Mode, Runtime};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A page of that protection.
fn page(protection: i32) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let page = unsafe { libc::mmap(null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page as usize
}

/// All calls that end at once, with the answers and the word behind each.
fn answers(call: Call, [none, read_only]: [usize; 2]) -> Vec<(String, Answer, u32)> {
    let mut found = Vec::new();
    let (word, other) = (AtomicU32::new(5), AtomicU32::new(5));
    let mut ask = |what: &str, call_of: [usize; 6]| {
        let answer = call(call_of);
        found.push((what.to_string(), answer, word.load(Relaxed)));
    };
    let (w, o) = (at(&word), at(&other));
    let places = [
        ("a word", w),
        ("odd", w + 2),
        ("null", 0),
        ("page 0", 16),
        ("no access", none),
        ("read only", read_only),
        ("the kernel's", 0xffff_8000_0000_0000),
        ("nobody's", 0x1234_5678_9abc_def0),
    ];
    let times = [
        ("zero", time(0, 0)),
        ("negative", time(-1, 0)),
        ("too many", time(0, 1_000_000_000)),
        ("below 0", time(0, -1)),
        ("past", time(1, 0)),
    ];
    for (what, place) in places {
        for value in [5, 0, 7] {
            let soon = time(0, 1);
            let soon = &raw const soon as usize;
            ask(what, [place, WAIT as usize, value, soon, 0, 0]);
            ask(what, [place, WAIT_BITSET as usize, value, soon, 0, 1]);
            ask(what, [place, WAIT_BITSET as usize, value, soon, 0, 0]);
            for moved in [0, 1, ALL, usize::MAX, 1 << 31] {
                let operation = CMP_REQUEUE as usize;
                ask(what, [place, operation, 0, moved, o, value]);
                ask(what, [place, operation, moved, 0, o, value]);
                ask(what, [o, operation, 0, moved, place, value]);
                ask(what, [place, REQUEUE as usize, value, moved, o, 0]);
                ask(what, [place, REQUEUE as usize, value, moved, place, 0]);
            }
        }
        for most in [0, 1, ALL, usize::MAX, 1 << 31] {
            ask(what, [place, WAKE as usize, most, 0, 0, 0]);
            ask(what, [place, WAKE_BITSET as usize, most, 0, 0, 2]);
            ask(what, [place, WAKE_BITSET as usize, most, 0, 0, 0]);
            ask(what, [place, WAKE_OP as usize, most, most, o, 0]);
            ask(what, [o, WAKE_OP as usize, most, most, place, 0]);
        }
    }
    word.store(5, Relaxed);
    for (what, time) in &times {
        let time = std::ptr::from_ref(time) as usize;
        for value in [5, 7] {
            // A relative time of one second is not over at once.
            if *what != "past" || value == 7 {
                ask(what, [w, WAIT as usize, value, time, 0, 0]);
            }
            for operation in [WAIT_BITSET, WAIT_BITSET | REALTIME] {
                ask(what, [w, operation as usize, value, time, 0, 1]);
                ask(what, [w, operation as usize, value, time, 0, 0]);
                ask(what, [w + 1, operation as usize, value, time, 0, 0]);
            }
        }
    }
    for place in [16, none, 0xffff_8000_0000_0000] {
        for operation in [WAIT, WAIT_BITSET] {
            ask("no time", [w, operation as usize, 5, place, 0, 1]);
            ask("no time", [w, operation as usize, 7, place, 0, 1]);
        }
    }
    // Not the private ones, unknown ones, and a clock where it has no place.
    let zero = time(0, 0);
    let zero = &raw const zero as usize;
    for operation in (0..32).map(|n| n as usize) {
        for flags in [0, PRIVATE, REALTIME, REALTIME | PRIVATE, 1 << 10 | PRIVATE] {
            let what = format!("operation {operation} with {flags:x}");
            let fourth = match operation as i32 {
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => zero,
                _ => 1,
            };
            // Those that inherit priorities look for threads: FUTEX_LOCK_PI to _TRYLOCK_PI, and so on.
            if !matches!(operation, 2 | 6..=8 | 11..=13) {
                ask(&what, [w, operation | flags as usize, 5, fourth, o, 1]);
                ask(&what, [w, operation | flags as usize, 7, fourth, o, 1]);
            }
        }
    }
    for operation in 0..16_u32 {
        for comparison in 0..16 {
            for (argument, with) in [(3, 5), (0xfff, 0xffb), (0x23, 0x800), (31, 6), (0, 5)] {
                let operation = operation << 28 | comparison << 24 | argument << 12 | with;
                let what = format!("wake and change {operation:x}");
                ask(&what, [o, WAKE_OP as usize, 1, 1, w, operation as usize]);
            }
        }
    }
    found
}

#[test]
fn the_answers_are_the_kernels() {
    let _w = watchdog("futex::the_answers_are_the_kernels");
    compare_answers();
}

fn compare_answers() {
    let pages = [page(libc::PROT_NONE), page(libc::PROT_READ)];
    let kernels = std::thread::spawn(move || answers(by_hand, pages)).join();
    let kernels = kernels.unwrap();
    let ours = [
        (
            "kernel",
            std::thread::spawn(move || answers(by_name, pages)).join(),
        ),
        (
            "green",
            thread::spawn(move || answers(by_name, pages)).join(),
        ),
        (
            "unhooked",
            thread::spawn(move || thread::unhooked(|| answers(by_name, pages))).join(),
        ),
        (
            "blocking",
            thread::spawn(move || thread::blocking(|| answers(by_name, pages))).join(),
        ),
    ];
    let mut wrong = 0;
    for (who, ours) in ours {
        for (number, (theirs, ours)) in kernels.iter().zip(&ours.unwrap()).enumerate() {
            if theirs != ours {
                println!("{who}, call {number}: {ours:x?}; the kernel: {theirs:x?}");
                wrong += 1;
            }
        }
    }
    println!("{} calls", kernels.len());
    assert_eq!(wrong, 0);
}

/// A handler of the program's for faults: an address that is not there is an error all the same.
#[test]
fn beside_a_handler_of_faults() {
    const NAME: &str = "futex::beside_a_handler_of_faults";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    extern "C" fn handler(_: i32) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(7) }
    }
    thread::spawn(|| ()).join().unwrap();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        let handler = handler as extern "C" fn(i32) as libc::sighandler_t;
        // SAFETY: a handler of the right type.
        assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
    }
    compare_answers();
}

/// Ten threads wait in a known order at the second of two words, and note the order in which they go on.
struct Row {
    words: Arc<[AtomicU32; 3]>,
    ended: Arc<Mutex<Vec<usize>>>,
    joins: Vec<Box<dyn FnOnce()>>,
}

const ROW: usize = 10;

impl Row {
    fn new(events: impl Fn(usize) -> u32) -> Row {
        let mut row = Row {
            words: Arc::default(),
            ended: Arc::default(),
            joins: Vec::new(),
        };
        for number in 0..ROW {
            let (words, ended) = (row.words.clone(), row.ended.clone());
            let events = events(number) as usize;
            row.joins.push(spawn(number, move || {
                let waited = by_name([at(&words[0]), WAIT_BITSET as usize, 0, 0, 0, events]);
                assert_eq!(waited, Ok(0));
                ended.lock().unwrap().push(number);
            }));
            gather(by_name, &row.words[0], &row.words[1], 1);
        }
        row
    }

    fn ended(&self) -> Vec<usize> {
        self.ended.lock().unwrap().clone()
    }

    /// Waits until these have gone on, in any order.
    fn have_ended(&self, expected: &[usize]) {
        wait_until(|| self.ended().len() >= expected.len());
        let mut ended = self.ended();
        ended.sort_unstable();
        assert_eq!(ended, expected);
    }

    fn end(self, left: usize, place: usize) {
        assert_eq!(wake(by_name, &self.words[place], ALL), left);
        self.joins.into_iter().for_each(|join| join());
    }
}

#[test]
fn the_first_comes_first() {
    let _w = watchdog("futex::the_first_comes_first");
    let row = Row::new(|_| 1);
    for number in 0..ROW {
        assert_eq!(wake(by_name, &row.words[1], 1), 1);
        wait_until(|| row.ended().len() > number);
        assert_eq!(row.ended()[number], number);
    }
    row.end(0, 1);
}

#[test]
fn so_many_are_woken() {
    let _w = watchdog("futex::so_many_are_woken");
    let row = Row::new(|_| 1);
    assert_eq!(wake(by_name, &row.words[1], 4), 4);
    row.have_ended(&[0, 1, 2, 3]);
    // The kernel wakes one if it is asked for none.
    assert_eq!(wake(by_name, &row.words[1], 0), 1);
    row.have_ended(&[0, 1, 2, 3, 4]);
    row.end(5, 1);
}

#[test]
fn events_select() {
    let _w = watchdog("futex::events_select");
    let row = Row::new(|number| 1 << (number % 3));
    let of = |events: usize, most| {
        by_name([at(&row.words[1]), WAKE_BITSET as usize, most, 0, 0, events]).unwrap()
    };
    assert_eq!(of(1 << 5, ALL), 0);
    assert_eq!(of(0b010, 1), 1);
    row.have_ended(&[1]);
    assert_eq!(of(0b101, 3), 3);
    row.have_ended(&[0, 1, 2, 3]);
    assert_eq!(of(0b110, ALL), 4);
    row.have_ended(&[0, 1, 2, 3, 4, 5, 7, 8]);
    row.end(2, 1);
}

#[test]
fn the_moved_wait_elsewhere() {
    let _w = watchdog("futex::the_moved_wait_elsewhere");
    let row = Row::new(|_| 1);
    let [_, from, to] = &*row.words;
    assert_eq!(requeue(by_name, from, to, 2, 3), 5);
    row.have_ended(&[0, 1]);
    let compare = |expected| by_name([at(from), CMP_REQUEUE as usize, 1, 1, at(to), expected]);
    assert_eq!(compare(1), Err(libc::EAGAIN));
    assert_eq!(compare(0), Ok(2));
    row.have_ended(&[0, 1, 5]);
    assert_eq!(wake(by_name, to, 3), 3);
    row.have_ended(&[0, 1, 2, 3, 4, 5]);
    assert_eq!(wake(by_name, from, 1), 1);
    row.have_ended(&[0, 1, 2, 3, 4, 5, 7]);
    assert_eq!(requeue(by_name, from, to, 0, ALL), 2);
    row.end(3, 2);
}

/// What a requeue returns when threads wait, and what a wake-up that changes a word does.
#[test]
fn the_counts_are_the_kernels() {
    let _w = watchdog("futex::the_counts_are_the_kernels");
    fn counts(call: Call) -> Vec<usize> {
        let words: Arc<[AtomicU32; 3]> = Arc::default();
        let waiter = |_| {
            let words = words.clone();
            std::thread::spawn(move || simple(call, &words[0], WAIT, 0))
        };
        let waiters: Vec<_> = (0..6).map(waiter).collect();
        let [first, a, b] = &*words;
        gather(call, first, a, 6);
        let change = libc::FUTEX_OP_ADD << 28 | libc::FUTEX_OP_CMP_EQ << 24 | 1 << 12;
        let counts = vec![
            requeue(call, a, a, 0, 2),
            requeue(call, a, a, 1, 2),
            requeue(call, a, b, 1, 2),
            call([at(a), WAKE_OP as usize, 1, 1, at(b), change as usize]).unwrap(),
            wake(call, a, ALL),
            wake(call, b, ALL),
        ];
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(0));
        }
        counts
    }
    assert_eq!(counts(by_name), counts(by_hand));
}

#[test]
fn no_time_out_comes_early() {
    let _w = watchdog("futex::no_time_out_comes_early");
    both(|| {
        let threads = (0..50_u64).map(|n| {
            thread::spawn(move || {
                let word = AtomicU32::new(0);
                let wait = |operation: i32, time: libc::timespec| {
                    let time = &raw const time as usize;
                    let call = || by_name([at(&word), operation as usize, 0, time, 0, 1]);
                    let mut answer = call();
                    // In the kernel, the signal that preempts a thread ends its wait.
                    while !hooked() && answer == Err(libc::EINTR) {
                        answer = call();
                    }
                    assert_eq!(answer, Err(libc::ETIMEDOUT));
                };
                let pause = Duration::from_micros(n * 97);
                let start = Instant::now();
                wait(WAIT, timespec(pause));
                assert!(start.elapsed() >= pause);
                for (clock, flag) in [(libc::CLOCK_MONOTONIC, 0), (libc::CLOCK_REALTIME, REALTIME)]
                {
                    let end = read(clock) + pause;
                    wait(WAIT_BITSET | flag, timespec(end));
                    assert!(read(clock) >= end);
                }
            })
        });
        let threads = threads.collect::<Vec<_>>();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

/// Off: the kernel does it all. Another word is an error when the first runtime starts.
#[test]
fn the_environment_says_whether() {
    const NAME: &str = "futex::the_environment_says_whether";
    const VARIABLE: &str = "GREENTHREAD_UNMODIFIED";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        for value in ["on", "off"] {
            assert_code(&child_with(NAME, value, &[(VARIABLE, value)]), 0);
        }
        let out = child_with(NAME, "", &[(VARIABLE, "maybe")]);
        assert_code(&out, 101);
        line_with(&out, &[VARIABLE, "maybe", "on or off"]);
        return;
    }
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let row = Row::new(|_| 1);
    row.end(ROW, 1);
    let word = Arc::new(AtomicU32::new(0));
    let meeting = AtomicU32::new(0);
    let waits = word.clone();
    let waiter = runtime.spawn(move || simple(by_name, &waits, WAIT, 0));
    gather(by_name, &word, &meeting, 1);
    assert_eq!(wake(by_name, &meeting, 1), 1);
    assert_eq!(waiter.join().unwrap(), Ok(0));
    let is_hooked = std::env::var(VARIABLE).unwrap() == "on" && runtime.mode() == Mode::Green;
    assert_eq!(runtime.metrics().parked_calls != 0, is_hooked);
    runtime.shutdown();
}
