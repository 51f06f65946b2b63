//! Faults that advisories tell of, in crates as they were published. They need points at atomic operations (`.ci/sim`).
#![cfg(all(test, greenthread_points))]

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use greenthread::sim::{Builder, FailureKind};

/// A compiler's pass is not a stable interface: each toolchain in use is to make a point of each operation.
#[test]
fn ten_operations_are_ten_points() {
    let count = |operations: u32| {
        let builder = Builder::new().seeds(1).require_atomics();
        let ended = builder.run(move || {
            let word = AtomicU32::new(0);
            for _ in 0..operations {
                word.fetch_add(1, SeqCst);
            }
            assert_eq!(word.into_inner(), operations);
        });
        ended.unwrap_or_else(|failure| panic!("{failure}")).atomics
    };
    assert_eq!(count(10) - count(0), 10);
}

/// RUSTSEC-2025-0024, crossbeam-channel 0.5.12 to 0.5.14: a send that makes a channel's first block races with the drop of the
/// receiver.
#[test]
fn a_double_free_is_found() {
    let failure = Builder::new().seeds(500).run(|| {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let senders = [sender.clone(), sender];
        let send = |sender: crossbeam_channel::Sender<_>| {
            greenthread::spawn(move || _ = sender.send(Box::new(7)))
        };
        let senders = senders.map(send);
        let receiver = greenthread::spawn(move || drop(receiver));
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        receiver.join().unwrap();
    });
    let failure = failure.expect_err("version 0.5.14 has the fault");
    println!("{failure}");
    assert_eq!(failure.kind(), FailureKind::Signal, "{failure}");
    assert!(failure.to_string().contains("double free"), "{failure}");
}
