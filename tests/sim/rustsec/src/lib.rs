//! RUSTSEC-2025-0024, a double free in crossbeam-channel 0.5.12 to 0.5.14, in the crate as it was published. It needs points at
//! atomic operations (`.ci/sim`).
#![cfg(all(test, greenthread_points))]

use greenthread::sim::{Builder, FailureKind};

/// A send that makes a channel's first block races with the drop of the receiver.
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
