//! What the engine's local queue costs beside `crossbeam_deque::Worker`, which it might have been: threads
//! are pushed and popped again, or pushed and stolen by halves until none is left. An operation is one
//! thread's way through the queue. 64 threads are as many as crossbeam's deque holds before it allocates,
//! 256 as many as ours holds at all.
//!
//! The queue is compiled from the library's own source. One kernel thread is both owner and thief: it is
//! seen what the instructions cost, not what sharing their cache lines does.

use std::hint::black_box;

use criterion::Throughput;
use crossbeam_deque::Worker;

use local_queue::{HALF, LocalQueue, SLOTS};

#[allow(dead_code, reason = "its length is not asked for")]
mod local_queue {
    use crate::engine::atomic::{AtomicU32, AtomicU64, Cell, Ordering};
    use crate::engine::sched::Green;
    use crate::engine::sys::perturb;

    include!(concat!(env!("OUT_DIR"), "/local_queue.rs"));
}

/// What the source finds where the library's modules would be.
mod engine {
    pub(crate) mod atomic {
        pub(crate) use std::cell::Cell;
        pub(crate) use std::sync::atomic::*;
    }

    pub(crate) mod sched {
        pub(crate) struct Green;
    }

    pub(crate) mod sys {
        pub(crate) mod perturb {
            pub(crate) fn point(_: &str) {}
        }
    }
}

static THREAD: engine::sched::Green = engine::sched::Green;

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("local_queue");
    let (own, thiefs) = (LocalQueue::new(), LocalQueue::new());
    let (their_own, their_thiefs) = (Worker::new_fifo(), Worker::new_fifo());
    let stealer = their_own.stealer();
    for threads in [64, SLOTS] {
        group.throughput(Throughput::Elements(threads as u64));
        let push = || {
            for _ in 0..threads {
                assert_ne!(own.space(), 0);
                own.push(black_box(&THREAD));
            }
        };
        let push_theirs = || (0..threads).for_each(|_| their_own.push(black_box(&THREAD)));

        let name = format!("{threads} pushed and popped");
        group.bench_function(format!("{name}/greenthread"), |b| {
            b.iter(|| {
                push();
                while black_box(own.pop()).is_some() {}
            });
        });
        group.bench_function(format!("{name}/crossbeam"), |b| {
            b.iter(|| {
                push_theirs();
                while black_box(their_own.pop()).is_some() {}
            });
        });

        let name = format!("{threads} pushed and stolen");
        group.bench_function(format!("{name}/greenthread"), |b| {
            b.iter(|| {
                push();
                while black_box(own.steal_half(&thiefs, HALF)).is_some() {
                    while black_box(thiefs.pop()).is_some() {}
                }
            });
        });
        group.bench_function(format!("{name}/crossbeam"), |b| {
            let steal = || stealer.steal_batch_with_limit_and_pop(&their_thiefs, HALF);
            b.iter(|| {
                push_theirs();
                while black_box(steal()).is_success() {
                    while black_box(their_thiefs.pop()).is_some() {}
                }
            });
        });
    }
    group.finish();
    criterion.final_summary();
}
