//! Models of the channels, by their public functions: threads send letters and open them. Who must
//! not wait for ever ends.

use std::time::Duration;

use loom::thread;

use crate::letters::{Post, receive, send, with_capacity};

/// Two threads send a letter each, a third receives both, and then finds the channel disconnected.
fn each_once(capacity: usize, bound: usize) {
    crate::check(Some(bound), move || {
        let (post, letters) = Post::<2>::new();
        let (sender, receiver) = with_capacity(capacity);
        let senders = letters.map(|letter| {
            let sender = sender.clone();
            thread::spawn(move || send(&sender, letter))
        });
        drop(sender);
        let receiver = thread::spawn(move || {
            receive(&receiver);
            receive(&receiver);
            assert!(receiver.recv().is_err(), "lost or doubled");
        });
        for sender in senders {
            sender.join().unwrap();
        }
        receiver.join().unwrap();
        post.check(2);
    });
}

/// At most 3 preemptions.
pub(crate) fn bounded() {
    each_once(1, 3);
}

/// At most 3 preemptions.
pub(crate) fn unbounded() {
    each_once(usize::MAX, 3);
}

/// At most 2 preemptions.
pub(crate) fn zero() {
    each_once(0, 2);
}

/// The time of both sides runs out; what was sent is received, or is still there.
fn with_deadlines(capacity: usize, nanos: [u64; 2], bound: usize) {
    crate::check(Some(bound), move || {
        let (post, [first, second]) = Post::<2>::new();
        let (sender, receiver) = with_capacity(capacity);
        let late = receiver.clone();
        let [to_send, to_receive] = nanos.map(Duration::from_nanos);
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for letter in [first, second] {
                sent += usize::from(sender.send_timeout(letter.write(), to_send).is_ok());
            }
            sent
        });
        let receiver = thread::spawn(move || {
            let letter = receiver.recv_timeout(to_receive);
            letter.map_or(0, |letter| {
                letter.open();
                1
            })
        });
        let sent = sender.join().unwrap();
        let mut received = receiver.join().unwrap();
        for letter in late.try_iter() {
            letter.open();
            received += 1;
        }
        assert_eq!(sent, received, "lost or doubled");
        post.check(sent);
    });
}

/// At most 4 preemptions.
pub(crate) fn bounded_with_deadlines() {
    with_deadlines(1, [0, 0], 4);
    with_deadlines(1, [1, 0], 4);
}

/// At most 4 preemptions.
pub(crate) fn zero_with_deadlines() {
    with_deadlines(0, [0, 1], 4);
    with_deadlines(0, [1, 0], 4);
}

/// Whoever is on the other side of a thread that goes, ends. At most 2 preemptions.
pub(crate) fn last_receiver_goes() {
    for capacity in [0, 1] {
        crate::check(Some(2), move || {
            let (post, [first, second, third]) = Post::<3>::new();
            let (sender, receiver) = with_capacity(capacity);
            let receiver = thread::spawn(move || receive(&receiver));
            let other = sender.clone();
            let other = thread::spawn(move || {
                let _ = other.send(third.write());
            });
            let sender = thread::spawn(move || {
                let _ = sender.send(first.write());
                let _ = sender.send(second.write());
            });
            receiver.join().unwrap();
            other.join().unwrap();
            sender.join().unwrap();
            post.check(1);
        });
    }
}
