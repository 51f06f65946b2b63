//! Spawning: `thread::spawn` and `Builder`.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{Builder, JoinHandle};

const MIB: usize = 1 << 20;

pub fn a_value_comes_back() {
    assert_eq!(thread::spawn(|| 6 * 7).join().unwrap(), 42);
    assert_eq!(thread::spawn(|| "text").join().unwrap(), "text");
    thread::spawn(|| ()).join().unwrap();
}

pub fn a_large_value_comes_back() {
    let values: [u64; 4_096] = thread::spawn(|| std::array::from_fn(|i| i as u64 * 3))
        .join()
        .unwrap();
    assert!(values.iter().enumerate().all(|(i, v)| *v == i as u64 * 3));
}

pub fn a_closure_takes_what_it_captures() {
    let (text, list, boxed) = (String::from("a"), vec![1, 2, 3], Box::new(4));
    let joined = thread::spawn(move || (text + "b", list.len(), *boxed + 1)).join();
    assert_eq!(joined.unwrap(), ("ab".to_string(), 3, 5));
}

pub fn a_closure_may_be_large() {
    let values = [7u64; 4_096];
    let sum = thread::spawn(move || values.iter().sum::<u64>()).join();
    assert_eq!(sum.unwrap(), 7 * 4_096);
}

pub fn a_closure_is_dropped_before_join_returns() {
    let shared = Arc::new(());
    let captured = shared.clone();
    thread::spawn(move || {
        let _captured = &captured;
    })
    .join()
    .unwrap();
    assert_eq!(Arc::strong_count(&shared), 1);
}

pub fn what_spawn_follows_is_seen() {
    for round in 0..200 {
        let word = Arc::new(AtomicUsize::new(0));
        word.store(round, Relaxed);
        let seen = word.clone();
        assert_eq!(
            thread::spawn(move || seen.load(Relaxed)).join().unwrap(),
            round
        );
    }
}

pub fn what_happened_is_seen_after_join() {
    for round in 0..200 {
        let word = Arc::new(AtomicUsize::new(0));
        let written = word.clone();
        thread::spawn(move || written.store(round, Relaxed))
            .join()
            .unwrap();
        assert_eq!(word.load(Relaxed), round);
    }
}

fn named(name: &str) -> JoinHandle<Option<String>> {
    let body = || thread::current().name().map(String::from);
    Builder::new().name(name.into()).spawn(body).unwrap()
}

pub fn a_name_is_seen_inside_and_outside() {
    let handle = named("worker");
    assert_eq!(handle.thread().name(), Some("worker"));
    assert_eq!(handle.join().unwrap().as_deref(), Some("worker"));
}

pub fn without_a_name_there_is_none() {
    let handle = thread::spawn(|| thread::current().name().map(String::from));
    assert_eq!(handle.thread().name(), None);
    assert_eq!(handle.join().unwrap(), None);
    let unnamed_by_named = || {
        thread::spawn(|| thread::current().name().is_none())
            .join()
            .unwrap()
    };
    let handle = Builder::new().name("parent".into()).spawn(unnamed_by_named);
    assert!(handle.unwrap().join().unwrap());
}

pub fn a_long_name_is_kept() {
    for length in [14, 15, 16, 17, 63, 64, 300] {
        let name = "n".repeat(length);
        let handle = named(&name);
        assert_eq!(handle.thread().name(), Some(name.as_str()));
        assert_eq!(handle.join().unwrap(), Some(name));
    }
}

pub fn a_name_may_be_any_text() {
    for name in [
        "with spaces",
        "Fäden",
        "\u{1f9f5}\u{1f9f5}\u{1f9f5}\u{1f9f5}",
        "a\nb",
        "%s%n",
    ] {
        assert_eq!(named(name).join().unwrap().as_deref(), Some(name));
    }
}

pub fn an_empty_name_is_a_name() {
    assert_eq!(named("").join().unwrap().as_deref(), Some(""));
}

pub fn a_name_with_nul_panics() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let body = move || counted.fetch_add(1, SeqCst);
    let spawned = caught(|| Builder::new().name("a\0b".into()).spawn(body));
    assert!(spawned.is_err());
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(Arc::strong_count(&runs), 1);
}

pub fn names_may_be_the_same() {
    let handles: Vec<_> = (0..5).map(|_| named("twin")).collect();
    let ids: HashSet<_> = handles.iter().map(|handle| handle.thread().id()).collect();
    assert_eq!(ids.len(), 5);
    for handle in handles {
        assert_eq!(handle.join().unwrap().as_deref(), Some("twin"));
    }
}

pub fn a_builder_says_that_it_has_spawned() {
    let builder = Builder::new()
        .name("first".into())
        .name("second".into())
        .stack_size(MIB);
    let handle = builder.spawn(|| 5).expect("a thread");
    assert_eq!(handle.thread().name(), Some("second"));
    assert_eq!(handle.join().unwrap(), 5);
}

/// 12 of 16 MiB.
pub fn a_deep_stack_is_deep() {
    let handle = Builder::new().stack_size(16 * MIB);
    let handle = handle.spawn(|| dig_here(12 * MIB)).unwrap();
    assert!(handle.join().unwrap() > 1_000);
}

/// 1 of 2 MiB.
pub fn the_usual_stack_is_deep() {
    assert!(thread::spawn(|| dig_here(MIB)).join().unwrap() > 100);
}

pub fn a_small_stack_is_enough_for_little() {
    for size in [0, 1, 1 << 10, 1 << 14, 1 << 16] {
        let handle = Builder::new().stack_size(size).spawn(|| black_box(3) + 4);
        assert_eq!(handle.unwrap().join().unwrap(), 7, "{size}");
    }
}

pub fn an_odd_stack_size_is_taken() {
    for size in [MIB - 1, MIB + 1, MIB + 4_095, 1_234_567] {
        let handle = Builder::new().stack_size(size);
        let handle = handle.spawn(|| dig_here(MIB / 2)).unwrap();
        assert!(handle.join().unwrap() > 10, "{size}");
    }
}

/// Nobody writes to another's stack.
pub fn many_deep_stacks_at_once() {
    const COUNT: usize = 16;
    fn write_deep(number: usize, levels: usize, bottom: &Barrier) -> usize {
        let mine = black_box([number; 256]);
        match levels {
            0 => _ = bottom.wait(),
            _ => _ = write_deep(number, levels - 1, bottom),
        }
        mine.iter().filter(|value| **value == number).count()
    }
    let bottom = Arc::new(Barrier::new(COUNT));
    let handles: Vec<_> = (0..COUNT)
        .map(|number| {
            let bottom = bottom.clone();
            let body = move || write_deep(number, 200, &bottom);
            Builder::new().stack_size(4 * MIB).spawn(body).unwrap()
        })
        .collect();
    for handle in handles {
        assert_eq!(handle.join().unwrap(), 256);
    }
}

/// No address space is so large. The closure is dropped, and other threads still start.
pub fn a_stack_that_cannot_be_is_an_error() {
    let shared = Arc::new(());
    let captured = shared.clone();
    let builder = Builder::new().stack_size(usize::MAX / 8);
    let spawned = builder.spawn(move || drop(captured));
    assert!(spawned.unwrap_err().raw_os_error().is_some());
    assert_eq!(Arc::strong_count(&shared), 1);
    assert_eq!(thread::spawn(|| 1).join().unwrap(), 1);
}

pub fn an_unchecked_thread_borrows() {
    let (words, count) = (vec!["a", "b", "c"], AtomicUsize::new(0));
    let body = || {
        count.store(words.len(), Relaxed);
        words[1]
    };
    // SAFETY: it is joined before what it borrows goes.
    let handle = unsafe { Builder::new().spawn_unchecked(body) };
    assert_eq!(handle.unwrap().join().unwrap(), "b");
    assert_eq!(count.load(Relaxed), 3);
}

pub fn threads_start_threads() {
    fn depth(left: usize) -> usize {
        match left {
            0 => 0,
            _ => 1 + thread::spawn(move || depth(left - 1)).join().unwrap(),
        }
    }
    assert_eq!(depth(50), 50);
}

/// Nobody joins anybody: the channel ends when all have ended.
pub fn a_tree_of_threads() {
    fn grow(left: usize, leaves: Sender<()>) {
        if left == 0 {
            return leaves.send(()).unwrap();
        }
        for _ in 0..3 {
            let leaves = leaves.clone();
            thread::spawn(move || grow(left - 1, leaves));
        }
    }
    let (leaves, grown) = channel();
    grow(5, leaves);
    assert_eq!(grown.iter().count(), 243);
}

pub fn a_thousand_at_once() {
    const COUNT: usize = 1_000;
    let meet = Arc::new(Barrier::new(COUNT + 1));
    let handles: Vec<_> = (0..COUNT)
        .map(|number| {
            let meet = meet.clone();
            let body = move || {
                meet.wait();
                meet.wait();
                number
            };
            Builder::new().stack_size(MIB / 4).spawn(body).unwrap()
        })
        .collect();
    meet.wait();
    assert!(!handles.iter().any(JoinHandle::is_finished));
    meet.wait();
    for (number, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().unwrap(), number);
    }
}

pub fn a_thousand_in_turn() {
    let sum: usize = (0..1_000)
        .map(|i| thread::spawn(move || i).join().unwrap())
        .sum();
    assert_eq!(sum, 499_500);
}

pub fn parallelism_is_at_least_one() {
    let here = thread::available_parallelism().unwrap();
    let there = thread::spawn(|| thread::available_parallelism().unwrap());
    assert!(here.get() >= 1 && there.join().unwrap().get() >= 1);
}
