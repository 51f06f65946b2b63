//! The newer calls on futexes, and threads that wait in the kernel: whoever wakes by `syscall` finds threads that
//! wait in any way.
//!
//! A thread that wakes others goes on until it has woken one, so it need not know when that waits. A wake-up that
//! never finds the thread is a test that hangs.
#![cfg(feature = "unmodified")]

use crate::common::futex::*;
use crate::common::*;
use greenthread as thread;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

const WAITV: i64 = 449;
const FUTEX_WAKE: i64 = 454;
const FUTEX_WAIT: i64 = 455;
const FUTEX_REQUEUE: i64 = 456;

/// A private word of 32 bits.
const PRIVATE_WORD: u32 = 2 | 128;
const EVERY: usize = u32::MAX as usize;

#[repr(C)]
#[derive(Clone, Copy)]
struct Futex {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

fn futex(word: &AtomicU32, value: u64) -> Futex {
    Futex {
        value,
        address: at(word) as u64,
        flags: PRIVATE_WORD,
        reserved: 0,
    }
}

type CallOf = fn(i64, [usize; 6]) -> Answer;

/// Whether the kernel has the call.
fn has(number: i64) -> bool {
    let wrong = u32::MAX as usize;
    call_by_hand(number, [0, wrong, wrong, wrong, 0, 0]) == Err(libc::EINVAL)
}

/// All calls that end at once.
fn answers(call: CallOf) -> Vec<(String, Answer)> {
    let mut found = Vec::new();
    let (word, other) = (AtomicU32::new(5), AtomicU32::new(6));
    let mut ask = |what: String, number, arguments| found.push((what, call(number, arguments)));
    let past = [time(0, 0), time(1, 0)];
    let bad = [time(-1, 0), time(0, -1), time(0, 1_000_000_000)];
    let mut times = vec![16, usize::MAX - 7];
    times.extend(
        past.iter()
            .chain(&bad)
            .map(|time| std::ptr::from_ref(time) as usize),
    );
    let private = PRIVATE_WORD as usize;
    let places = [
        at(&word),
        at(&word) + 2,
        0,
        16,
        0xffff_8000_0000_0000,
        0x1234_5678_9abc_def0,
    ];
    for place in places {
        for flags in [private, 2, 128, 0, 3 | 128, 2 | 1 << 20] {
            for events in [EVERY, 1, 0, 1 << 32] {
                for most in [0, 1, ALL, usize::MAX] {
                    let what = format!("wake {place:x} {events:x} {most:x} {flags:x}");
                    ask(what, FUTEX_WAKE, [place, events, most, flags, 0, 0]);
                }
                for (value, clock, &time) in [5, 6, 1 << 32 | 5]
                    .iter()
                    .flat_map(|value| [1, 0, 7].map(|clock| (value, clock)))
                    .flat_map(|(value, clock)| times.iter().map(move |time| (*value, clock, time)))
                {
                    let what =
                        format!("wait {place:x} {value:x} {events:x} {flags:x} {time:x} {clock}");
                    ask(what, FUTEX_WAIT, [place, value, events, flags, time, clock]);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for flags in [PRIVATE_WORD, 2, 0, 3 | 128, 2 | 1 << 20] {
        for (value, reserved) in [(5, 0), (6, 0), (1 << 32 | 5, 0), (5, 1)] {
            for address in places.map(|place| place as u64) {
                let odd = Futex {
                    value,
                    address,
                    flags,
                    reserved,
                };
                rows.push(vec![odd, futex(&other, 6)]);
                rows.push(vec![futex(&other, 6), odd]);
            }
        }
    }
    rows.extend([
        vec![futex(&word, 5); 128],
        vec![futex(&word, 5); 129],
        vec![],
    ]);
    for (number, row) in rows.iter().enumerate() {
        let (at, count) = (row.as_ptr() as usize, row.len());
        for flags in [0, 1] {
            for (clock, &time) in [1, 0, 7]
                .iter()
                .flat_map(|clock| times.iter().map(move |t| (clock, t)))
            {
                let what = format!("row {number} {flags} {time:x} {clock}");
                ask(what, WAITV, [at, count, flags, time, *clock, 0]);
            }
            for (woken, moved) in [(0, 0), (1, 1), (0, usize::MAX), (1 << 31, 0), (0, ALL)] {
                if count == 2 {
                    let what = format!("requeue {number} {flags} {woken:x} {moved:x}");
                    ask(what, FUTEX_REQUEUE, [at, flags, woken, moved, 0, 0]);
                }
            }
        }
    }
    for place in [0, 16, 0xffff_8000_0000_0000] {
        ask("no row".into(), WAITV, [place, 1, 0, times[2], 1, 0]);
        ask("no row".into(), FUTEX_REQUEUE, [place, 0, 1, 1, 0, 0]);
    }
    // The addresses of times differ from thread to thread.
    let texts = found.into_iter().enumerate();
    texts
        .map(|(number, (what, answer))| (format!("{number}: {what}"), answer))
        .collect()
}

#[test]
fn the_answers_are_the_kernels() {
    let _w = watchdog("futex2::the_answers_are_the_kernels");
    thread::spawn(|| ()).join().unwrap();
    let kernels = answers(call_by_hand);
    let ours = [
        (
            "kernel",
            std::thread::spawn(|| answers(call_by_name)).join(),
        ),
        ("green", thread::spawn(|| answers(call_by_name)).join()),
    ];
    let mut wrong = 0;
    for (who, ours) in ours {
        for (theirs, ours) in kernels.iter().zip(&ours.unwrap()) {
            if theirs.1 != ours.1 {
                println!("{who}, {ours:x?}; the kernel: {theirs:x?}");
                wrong += 1;
            }
        }
    }
    println!("{} calls", kernels.len());
    assert_eq!(wrong, 0);
}

/// The ways to wait until the word is no longer 0.
const WAYS: [&str; 8] = [
    "wait",
    "futex_wait",
    "waitv",
    "one of three",
    "one of six",
    "with a shared one",
    "by hand",
    "waitv by hand",
];

/// Waits, and says whether the answer is right.
fn wait(way: &str, word: &AtomicU32) -> bool {
    let others: [AtomicU32; 6] = Default::default();
    let mut row = others.each_ref().map(|other| futex(other, 0));
    let mut wait_in = |call: CallOf, count: usize, place: usize| {
        row[place] = futex(word, 0);
        call(WAITV, [row.as_ptr() as usize, count, 0, 0, 0, 0]) == Ok(place)
    };
    match way {
        "wait" => simple(by_name, word, WAIT, 0) == Ok(0),
        "futex_wait" => {
            let arguments = [at(word), 0, EVERY, PRIVATE_WORD as usize, 0, 0];
            !has(FUTEX_WAIT) || call_by_name(FUTEX_WAIT, arguments) == Ok(0)
        }
        "waitv" => wait_in(call_by_name, 1, 0),
        "one of three" => wait_in(call_by_name, 3, 1),
        "one of six" => wait_in(call_by_name, 6, 5),
        "with a shared one" => {
            row[0].flags = 2;
            row[1] = futex(word, 0);
            call_by_name(WAITV, [row.as_ptr() as usize, 2, 0, 0, 0, 0]) == Ok(1)
        }
        "by hand" => simple(by_hand, word, WAIT, 0) == Ok(0),
        _ => wait_in(call_by_hand, 2, 1),
    }
}

/// Each way to wait, on a thread of each kind, beside each way to wake.
#[test]
fn every_wait_meets_every_wake() {
    let _w = watchdog("futex2::every_wait_meets_every_wake");
    if !has(WAITV) {
        return;
    }
    thread::spawn(|| ()).join().unwrap();
    for (number, way) in (0..2).flat_map(|number| WAYS.map(|way| (number, way))) {
        for waker in [
            "wake",
            "bits",
            "futex_wake",
            "change",
            "move",
            "futex_requeue",
        ] {
            let words: Arc<[AtomicU32; 2]> = Arc::default();
            let has_call = match (way, waker) {
                (_, "futex_wake") | ("futex_wait", _) => has(FUTEX_WAKE),
                (_, "futex_requeue") => has(FUTEX_REQUEUE),
                _ => true,
            };
            if !has_call {
                continue;
            }
            let theirs = words.clone();
            let join = spawn(number, move || {
                assert!(wait(way, &theirs[0]), "{way}, {waker}")
            });
            let [word, other] = &*words;
            let woken = || match waker {
                "wake" => wake(by_name, word, 1),
                "bits" => by_name([at(word), WAKE_BITSET as usize, ALL, 0, 0, 6]).unwrap(),
                "futex_wake" => {
                    let arguments = [at(word), EVERY, ALL, PRIVATE_WORD as usize, 0, 0];
                    call_by_name(FUTEX_WAKE, arguments).unwrap()
                }
                "change" => {
                    let change = (libc::FUTEX_OP_OR << 28) as u32 as usize;
                    by_name([at(other), WAKE_OP as usize, 1, 1, at(word), change]).unwrap()
                }
                "move" => requeue(by_name, word, other, 0, ALL).min(wake(by_name, other, ALL)),
                _ => {
                    let row = [futex(word, 0), futex(other, 0)];
                    let arguments = [row.as_ptr() as usize, 0, 0, ALL, 0, 0];
                    let moved = call_by_name(FUTEX_REQUEUE, arguments).unwrap();
                    moved.min(wake(by_name, other, ALL))
                }
            };
            wait_until(|| woken() == 1);
            join();
            assert_eq!(
                (wake(by_name, word, ALL), wake(by_name, other, ALL)),
                (0, 0)
            );
        }
    }
}

/// Ten threads wait for two words each; each wake-up ends one wait, and no thread stays in a list.
#[test]
fn one_wake_up_ends_one_wait() {
    let _w = watchdog("futex2::one_wake_up_ends_one_wait");
    // In the kernel two wake-ups may end one wait: it counts each word.
    if !has(WAITV) || !hooked() {
        return;
    }
    const MANY: usize = 10;
    let words: Arc<[AtomicU32; 2]> = Arc::default();
    let joins: Vec<_> = (0..MANY)
        .map(|number| {
            let words = words.clone();
            spawn(number, move || {
                for _ in 0..50 {
                    let row = [futex(&words[0], 0), futex(&words[1], 0)];
                    let answer = call_by_name(WAITV, [row.as_ptr() as usize, 2, 0, 0, 0, 0]);
                    assert!(matches!(answer, Ok(0 | 1)), "{answer:?}");
                }
            })
        })
        .collect();
    let mut woken = [0; 2];
    wait_until(|| {
        for (word, woken) in words.iter().zip(&mut woken) {
            *woken += wake(by_name, word, 1);
        }
        woken[0] + woken[1] >= 50 * MANY
    });
    joins.into_iter().for_each(|join| join());
    assert_eq!(woken[0] + woken[1], 50 * MANY);
    assert!(words.iter().all(|word| wake(by_name, word, ALL) == 0));
}

/// No time-out comes early, or is missed.
#[test]
fn times() {
    let _w = watchdog("futex2::times");
    both(|| {
        for n in 0..20_u64 {
            let pause = Duration::from_micros(n * 97);
            for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
                let word = AtomicU32::new(0);
                let row = [futex(&word, 0)];
                let end = read(clock) + pause;
                let time = timespec(end);
                let time = &raw const time as usize;
                let clock_of = clock as usize;
                let wait = |call: &dyn Fn() -> Answer, number| {
                    let mut answer = call();
                    while answer == Err(libc::EINTR) && !hooked() {
                        answer = call();
                    }
                    assert_eq!(answer, Err(libc::ETIMEDOUT));
                    assert!(read(clock) >= end, "{number}");
                };
                if has(WAITV) {
                    let arguments = [row.as_ptr() as usize, 1, 0, time, clock_of, 0];
                    wait(&|| call_by_name(WAITV, arguments), WAITV);
                }
                if has(FUTEX_WAIT) {
                    let arguments = [at(&word), 0, EVERY, PRIVATE_WORD as usize, time, clock_of];
                    wait(&|| call_by_name(FUTEX_WAIT, arguments), FUTEX_WAIT);
                }
            }
        }
    });
}

/// Threads that wait for several words are parked.
#[test]
fn waits_for_several_words_park() {
    const NAME: &str = "futex2::waits_for_several_words_park";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    if !has(WAITV) || !hooked() {
        return;
    }
    const MANY: usize = 100;
    let runtime = greenthread::runtime::Runtime::builder().processors(2);
    let runtime = runtime.build().unwrap();
    let words: Arc<[AtomicU32; 6]> = Arc::default();
    let waiters: Vec<_> = (0..MANY)
        .map(|number| {
            let words = words.clone();
            runtime.spawn(move || {
                let row = words.each_ref().map(|word| futex(word, 0));
                let count = 1 + number % 6;
                call_by_name(WAITV, [row.as_ptr() as usize, count, 0, 0, 0, 0])
            })
        })
        .collect();
    wait_until(|| runtime.metrics().parked_calls >= MANY as u64);
    hold_no_kernel_thread(&runtime);
    let mut woken = 0;
    wait_until(|| {
        woken += wake(by_name, &words[0], ALL);
        woken >= MANY
    });
    assert!(
        waiters
            .into_iter()
            .all(|waiter| waiter.join().unwrap() == Ok(0))
    );
    runtime.shutdown();
}

/// A program that is linked with the crate, and has no green threads: its calls are the kernel's.
#[test]
fn without_green_threads() {
    const NAME: &str = "futex2::without_green_threads";
    let _w = watchdog(NAME);
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    for (wakes, waits) in [(by_hand as Call, by_name as Call), (by_name, by_hand)] {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = word.clone();
        let waiter = std::thread::spawn(move || simple(waits, &theirs, WAIT, 0));
        while wake(wakes, &word, 1) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waiter.join().unwrap(), Ok(0));
    }
    // One that waits since then is woken later, too.
    let word = Arc::new(AtomicU32::new(0));
    let theirs = word.clone();
    let waiter = std::thread::spawn(move || simple(by_name, &theirs, WAIT, 0));
    std::thread::sleep(Duration::from_millis(20)); // most likely it waits
    let woken = thread::spawn(move || {
        wait_until(|| wake(by_name, &word, 1) == 1);
    });
    woken.join().unwrap();
    assert_eq!(waiter.join().unwrap(), Ok(0));
}

/// Waits that io_uring makes.
#[cfg(feature = "io-uring")]
#[test]
fn waits_by_io_uring_are_met() {
    use io_uring::{IoUring, opcode, types};
    let _w = watchdog("futex2::waits_by_io_uring_are_met");
    let Ok(mut ring) = IoUring::new(8) else {
        return;
    };
    let mut probe = io_uring::Probe::new();
    let is_probed = ring.submitter().register_probe(&mut probe).is_ok();
    if !is_probed || !probe.is_supported(opcode::FutexWait::CODE) {
        return;
    }
    for number in 0..4 {
        let word = Arc::new(AtomicU32::new(0));
        let row = [types::FutexWaitV::new()
            .val(0)
            .uaddr(at(&word) as u64)
            .flags(PRIVATE_WORD)];
        let entry = match number / 2 {
            0 => opcode::FutexWait::new(word.as_ptr(), 0, EVERY as u64, PRIVATE_WORD).build(),
            _ => opcode::FutexWaitV::new(row.as_ptr(), 1).build(),
        };
        // SAFETY: the word and the row live until the operation has ended, below.
        unsafe { ring.submission().push(&entry).unwrap() };
        ring.submit().unwrap();
        let theirs = word.clone();
        spawn(number, move || {
            wait_until(|| wake(by_name, &theirs, 1) == 1)
        })();
        ring.submit_and_wait(1).unwrap();
        let completion = ring.completion().next().unwrap();
        assert_eq!(completion.result(), 0);
    }
}
