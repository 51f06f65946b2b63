//! Faults that advisories tell of, in crates as they were published. They need points at atomic operations (`.ci/sim`).
#![cfg(all(test, greenthread_points))]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use greenthread::sim::{Builder, Failure, FailureKind};

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

/// The failure of `body`, which has one.
fn found(body: fn(), kind: FailureKind) -> Failure {
    let failure = Builder::new().seeds(10_000).run(body);
    let failure = failure.expect_err("this version has the fault");
    println!("{failure}");
    assert_eq!(failure.kind(), kind, "{failure}");
    failure
}

/// RUSTSEC-2025-0024, in crossbeam-channel 0.5.12 to 0.5.14: a send that makes a channel's first block races with the drop of the
/// receiver.
#[test]
fn crossbeam_channel_frees_twice() {
    let body = || {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let senders = [sender.clone(), sender];
        let send = |sender: crossbeam_channel::Sender<_>| {
            greenthread::spawn(move || _ = sender.send(Box::new(7)))
        };
        let senders = senders.map(send);
        let receiver = greenthread::spawn(move || drop(receiver));
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        receiver.join().unwrap();
    };
    let failure = found(body, FailureKind::Signal).to_string();
    assert!(failure.contains("double free"), "{failure}");
}

/// RUSTSEC-2021-0093, in crossbeam-deque up to 0.7.3, and 0.8.0: a thief takes a batch, while the worker's owner pops so many
/// tasks that the buffer shrinks, and pushes others. The thief goes on to read from the old buffer.
#[test]
fn crossbeam_deque_pops_a_task_twice() {
    let body = || {
        let worker = crossbeam_deque::Worker::new_lifo();
        (0..65).for_each(|task| worker.push(task)); // the last one makes the buffer of 64 grow
        let stealer = worker.stealer();
        let thief = greenthread::spawn(move || {
            let stolen = crossbeam_deque::Worker::new_lifo();
            _ = stealer.steal_batch(&stolen);
            std::iter::from_fn(|| stolen.pop()).collect::<Vec<u32>>()
        });
        let mut done: Vec<_> = (0..63).filter_map(|_| worker.pop()).collect();
        (65..130).for_each(|task| worker.push(task));
        done.extend(thief.join().unwrap());
        done.extend(std::iter::from_fn(|| worker.pop()));
        done.sort();
        assert!(done.iter().copied().eq(0..130), "{done:?}");
    };
    found(body, FailureKind::Panic);
}

/// RUSTSEC-2023-0031, in spin 0.9.7 and before: an initialisation fails, while another thread waits for its result.
#[test]
fn spin_once_gives_what_is_not_there() {
    let body = || {
        let once = spin::Once::<Box<u32>>::new();
        greenthread::scope(|scope| {
            scope.spawn(|| _ = once.try_call_once(|| Err(())));
            assert_eq!(**once.call_once(|| Box::new(7)), 7);
        });
    };
    let failure = found(body, FailureKind::Panic).to_string(); // in a release build: SIGSEGV
    assert!(failure.contains("Encountered INCOMPLETE"), "{failure}");
}

/// `Send`, and not `Sync`: no two threads may clone it at once.
#[derive(Default)]
struct Message {
    in_use: Cell<bool>,
    shared: Arc<()>,
}

impl Clone for Message {
    fn clone(&self) -> Self {
        assert!(!self.in_use.replace(true), "two threads clone it at once");
        let shared = self.shared.clone();
        self.in_use.set(false);
        Message { shared, ..Message::default() }
    }
}

/// RUSTSEC-2025-0023, in tokio up to 1.44.1: two receivers clone a message at the same time.
#[test]
fn tokio_broadcast_clones_in_parallel() {
    let body = || {
        let (sender, mut first) = tokio::sync::broadcast::channel(1);
        let mut second = sender.subscribe();
        assert!(sender.send(Message::default()).is_ok());
        let other = greenthread::spawn(move || drop(second.try_recv().unwrap()));
        drop(first.try_recv().unwrap());
        other.join().unwrap();
    };
    found(body, FailureKind::Panic);
}

/// RUSTSEC-2021-0124, in tokio 1.8.0 to 1.13.0: a message is sent while the receiver is closed, and asked for.
#[test]
fn tokio_oneshot_gives_the_message_to_none_or_both() {
    let body = || {
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        let send = greenthread::spawn(move || sender.send(Arc::new(7)).is_err());
        receiver.close();
        let received = receiver.try_recv().is_ok();
        let returned = send.join().unwrap();
        assert!(received != returned, "received: {received}, returned: {returned}");
    };
    found(body, FailureKind::Panic);
}
