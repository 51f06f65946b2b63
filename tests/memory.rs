//! What an allocator keeps for each thread goes when the thread does: memory does not grow with the
//! number of threads that there have been. Over whatever allocator the tests are linked with.

mod common;

use common::*;
use std::hint::black_box;

/// So many threads at once, which allocate things of many sizes and give way in between.
fn generation(threads: usize) -> usize {
    let threads: Vec<_> = (0..threads)
        .map(|thread| {
            greenthread::spawn(move || {
                let sizes = (0..60).map(|i| 1 + (thread * 31 + i * i * 17) % (8 << 10));
                let kept: Vec<_> = sizes.map(|size| black_box(vec![1u8; size])).collect();
                greenthread::yield_now();
                let formatted = black_box(format!("{thread} {}", kept.len()));
                formatted.len() + kept.iter().map(Vec::len).sum::<usize>()
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).sum()
}

/// A hundred generations take what ten take.
#[test]
fn an_ended_thread_leaves_no_memory_behind() {
    const NAME: &str = "an_ended_thread_leaves_no_memory_behind";
    const THREADS: usize = 500;
    /// What one thread may leave: less than any allocator's cache for a thread.
    const LEFT: u64 = 256;
    if child_case(NAME).is_none() {
        let _w = watchdog(NAME);
        return assert_code(&child(NAME, ""), 0);
    }
    let generations = |count: usize| {
        for _ in 0..count {
            black_box(generation(THREADS));
        }
        resident()
    };
    let few = generations(10);
    let many = generations(90);
    let grown = many.saturating_sub(few);
    println!("after 10 generations {few} bytes, after 100 {many}");
    assert!(
        grown <= (1 << 20) + LEFT * 90 * THREADS as u64,
        "{few} bytes after 10 generations, {many} after 100"
    );
}
