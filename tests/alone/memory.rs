//! What an allocator keeps for each thread goes when the thread does: memory does not grow with the
//! number of threads that there have been. Over whatever allocator the tests are linked with.

use crate::common::*;
use greenthread::policy::{LeastLoaded, Priorities, RelaxedFifo, WorkStealing};
use greenthread::runtime::Runtime;
use greenthread::sync::Barrier;
use std::hint::black_box;
use std::sync::Arc;

/// So many threads, which allocate things of many sizes and then are there all at once: an allocator
/// may keep something for each of the most that there were at a time.
///
/// A thread keeps one thing of six until it ends. If it kept all, the holes between living things would be megabytes,
/// more or less by chance.
fn generation(threads: usize) -> usize {
    let all = Arc::new(Barrier::new(threads));
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            let all = all.clone();
            greenthread::spawn(move || {
                let sizes = (0..60).map(|i| 1 + (thread * 31 + i * i * 17) % (8 << 10));
                let things = sizes.map(|size| black_box(vec![1u8; size]));
                let kept: Vec<_> = things.step_by(6).collect();
                all.wait();
                let formatted = black_box(format!("{thread} {}", kept.len()));
                formatted.len() + kept.iter().map(Vec::len).sum::<usize>()
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).sum()
}

/// The later of many generations take no more than the earlier. An allocator may give memory back
/// when it likes, so the least of some readings counts, against the most of those before.
#[test]
fn an_ended_thread_leaves_no_memory_behind() {
    let _alone = crate::support::alone();
    const NAME: &str = "memory::an_ended_thread_leaves_no_memory_behind";
    const THREADS: usize = 100;
    const GENERATIONS: usize = 50;
    /// What one thread may leave: less than any allocator's cache for a thread.
    const LEFT: u64 = 256;
    if child_case(NAME).is_none() {
        let _w = watchdog(NAME);
        return assert_code(&child(NAME, ""), 0);
    }
    let reading = |_| {
        for _ in 0..GENERATIONS {
            black_box(generation(THREADS));
        }
        resident()
    };
    let readings: Vec<u64> = (0..10).map(reading).collect();
    let (earlier, later) = readings.split_at(5);
    let most = *earlier.iter().max().unwrap();
    let grown = later.iter().min().unwrap().saturating_sub(most);
    assert!(
        grown <= (1 << 20) + LEFT * (GENERATIONS * THREADS) as u64,
        "bytes after each {GENERATIONS} generations of {THREADS} threads: {readings:?}"
    );
}

/// A builder makes a policy of its own like the one that it is given.
#[test]
fn a_policy_that_no_runtime_uses_leaves_no_memory_behind() {
    let _alone = crate::support::alone();
    const NAME: &str = "memory::a_policy_that_no_runtime_uses_leaves_no_memory_behind";
    const BUILDERS: u64 = 20_000;
    if child_case(NAME).is_none() {
        let _w = watchdog(NAME);
        return assert_code(&child(NAME, ""), 0);
    }
    let make_all = |count| {
        for _ in 0..count {
            drop(black_box(Runtime::builder().policy(LeastLoaded::new())));
            drop(black_box(Runtime::builder().policy(Priorities::new())));
            drop(black_box(Runtime::builder().policy(RelaxedFifo::new())));
            drop(black_box(Runtime::builder().policy(WorkStealing::new())));
        }
    };
    make_all(100);
    let before = resident();
    make_all(BUILDERS);
    let grown = resident().saturating_sub(before);
    assert!(
        grown < 64 * BUILDERS,
        "{grown} bytes after {BUILDERS} builders with each policy"
    );
}

/// So many threads of std's wait in less than 16 KiB each, page tables included.
#[test]
#[cfg(all(feature = "unmodified", not(greenthread_allocator = "jemalloc")))]
fn adopted_threads_wait_in_little_memory() {
    let _alone = crate::support::alone();
    if !green() {
        return;
    }
    // The frames of a build that is not optimised are larger.
    const MOST: u64 = if cfg!(debug_assertions) {
        24 << 10
    } else {
        16 << 10
    };
    const THREADS: usize = 10_000;
    let memory = || memory_of("self", "VmRSS:") + memory_of("self", "VmPTE:");
    let gate = std::sync::Arc::new((
        std::sync::Mutex::new(0),
        std::sync::Condvar::new(),
        std::sync::Condvar::new(),
    ));
    let run = || {
        std::thread::spawn(|| ()).join().unwrap();
        let before = memory();
        let all: Vec<_> = (0..THREADS)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || {
                    let (count, come, open) = &*gate;
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    come.notify_one();
                    drop(open.wait_while(count, |count| *count <= THREADS).unwrap());
                })
            })
            .collect();
        let (count, come, open) = &*gate;
        let mut all_here = come
            .wait_while(count.lock().unwrap(), |count| *count < THREADS)
            .unwrap();
        let each = (memory() - before) / THREADS as u64;
        println!("{each} bytes for each");
        *all_here += 1;
        drop(all_here);
        open.notify_all();
        all.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(each < MOST, "{each} bytes for each");
    };
    greenthread::thread::adopt(run).unwrap();
}
