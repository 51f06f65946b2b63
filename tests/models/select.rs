//! Models of select, and of the rights that it gives: threads send letters and open them, by select
//! or plainly. Who must not wait for ever ends.
//!
//! A select here is biased: a random order would not be the same in each execution.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Duration,
};

use loom::thread;

use crate::{
    channel::{Receiver, Select, Sender},
    letters::{Letter, Post, receive, send, with_capacity},
};

/// A select of a thread.
enum Want<'a> {
    Send(&'a Sender<Letter>),
    Receive(&'a Receiver<Letter>),
}

use Want::{Receive, Send};

/// Selects one of these, and does it: which.
fn select_of<const N: usize>(wants: [Want<'_>; N], letter: Option<Letter>) -> usize {
    let mut select = Select::new_biased();
    for want in &wants {
        match want {
            Send(sender) => select.send(sender),
            Receive(receiver) => select.recv(receiver),
        };
    }
    let operation = select.select();
    let index = operation.index();
    match wants[index] {
        Send(sender) => {
            let letter = letter.expect("a letter to send").write();
            assert!(operation.send(sender, letter).is_ok(), "lost or doubled");
        }
        Receive(receiver) => operation.recv(receiver).expect("lost or doubled").open(),
    }
    index
}

/// Two selects, each of which could send to and receive from the other, on two channels: one sends.
/// At most 4 preemptions.
pub(crate) fn select_meets_select() {
    crate::check(Some(4), || {
        let (post, [first, second]) = Post::<2>::new();
        let ((to_second, from_first), (to_first, from_second)) =
            (with_capacity(0), with_capacity(0));
        let second = thread::spawn(move || {
            let wants = [Send(&to_first), Receive(&from_first)];
            (select_of(wants, Some(second)), to_first, from_first)
        });
        let first = thread::spawn(move || {
            let wants = [Send(&to_second), Receive(&from_second)];
            (select_of(wants, Some(first)), to_second, from_second)
        });
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert!(first.0 != second.0, "lost or doubled");
        drop((first, second));
        post.check(1);
    });
}

/// The same on one channel, where a select could meet itself. At most 4 preemptions.
pub(crate) fn select_is_not_its_own_peer() {
    crate::check(Some(4), || {
        let (post, letters) = Post::<2>::new();
        let (sender, receiver) = with_capacity(0);
        let both = letters.map(|letter| {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            thread::spawn(move || select_of([Send(&sender), Receive(&receiver)], Some(letter)))
        });
        let both = both.map(|one| one.join().unwrap());
        assert!(both[0] != both[1], "lost or doubled");
        post.check(1);
    });
}

/// Two threads send on a channel each, a third receives both by select.
fn select_receives_of(capacity: usize) {
    crate::check(Some(3), move || {
        let (post, letters) = Post::<2>::new();
        let channels = [with_capacity(capacity), with_capacity(capacity)];
        let [first, second] = channels.each_ref().map(|(_, receiver)| receiver.clone());
        let mut senders = channels.into_iter().map(|(sender, _)| sender);
        let senders = letters.map(|letter| {
            let sender = senders.next().unwrap();
            thread::spawn(move || {
                send(&sender, letter);
                sender
            })
        });
        let receiver = thread::spawn(move || {
            select_of([Receive(&first), Receive(&second)], None);
            select_of([Receive(&first), Receive(&second)], None);
        });
        // The channels stay connected.
        let _senders = senders.map(|sender| sender.join().unwrap());
        receiver.join().unwrap();
        post.check(2);
    });
}

/// At most 3 preemptions.
pub(crate) fn select_receives() {
    select_receives_of(1);
}

/// At most 3 preemptions.
pub(crate) fn select_receives_from_zero() {
    select_receives_of(0);
}

/// Two threads receive from a channel each; a third sends to both by select. At most 2 preemptions.
pub(crate) fn select_sends() {
    crate::check(Some(2), || {
        let (post, letters) = Post::<2>::new();
        let channels = [with_capacity(0), with_capacity(0)];
        let [first, second] = channels.each_ref().map(|(sender, _)| sender.clone());
        let receivers = channels.map(|(_, receiver)| {
            thread::spawn(move || {
                receive(&receiver);
                receiver
            })
        });
        let sender = thread::spawn(move || {
            for letter in letters {
                select_of([Send(&first), Send(&second)], Some(letter));
            }
        });
        sender.join().unwrap();
        let _receivers = receivers.map(|receiver| receiver.join().unwrap());
        post.check(2);
    });
}

/// One sends by select and another plainly; one receives by select and another plainly.
fn beside_another(capacity: usize, select_to_send: bool) {
    crate::check(Some(2), move || {
        let (post, letters) = Post::<2>::new();
        let (sender, receiver) = with_capacity(capacity);
        let mut threads = Vec::new();
        if select_to_send {
            let [first, second] = letters;
            let other = sender.clone();
            threads.push(thread::spawn(move || {
                select_of([Send(&other)], Some(first));
            }));
            threads.push(thread::spawn(move || send(&sender, second)));
            threads.push(thread::spawn(move || {
                receive(&receiver);
                receive(&receiver);
            }));
        } else {
            let other = receiver.clone();
            threads.push(thread::spawn(move || {
                select_of([Receive(&other)], None);
            }));
            threads.push(thread::spawn(move || receive(&receiver)));
            threads.push(thread::spawn(move || {
                for letter in letters {
                    send(&sender, letter);
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        post.check(2);
    });
}

/// At most 2 preemptions.
pub(crate) fn select_beside_another() {
    for capacity in [0, 1, usize::MAX] {
        beside_another(capacity, true);
        beside_another(capacity, false);
    }
}

/// A letter is sent while the time of a select runs out, too early: it goes round again. At most 4
/// preemptions.
pub(crate) fn select_with_a_deadline() {
    for capacity in [0, 1] {
        crate::check(Some(4), move || {
            let (post, [letter]) = Post::<1>::new();
            let (sender, receiver) = with_capacity(capacity);
            let (_other, never) = with_capacity(0);
            let receiver = thread::spawn(move || {
                let mut select = Select::new_biased();
                select.recv(&never);
                select.recv(&receiver);
                let operation = select.select_timeout(Duration::from_secs(3600));
                let operation = operation.expect("lost or doubled");
                operation.recv(&receiver).expect("lost or doubled").open();
            });
            let sender = thread::spawn(move || send(&sender, letter));
            sender.join().unwrap();
            receiver.join().unwrap();
            post.check(1);
        });
    }
}

/// At any moment one of two channels has a letter, so a select with a default gets one. At most 4
/// preemptions.
pub(crate) fn default_looks_at_one_moment() {
    crate::check(Some(4), || {
        let (post, [first, second]) = Post::<2>::new();
        let ((to_early, early), (to_late, late)) = (with_capacity(1), with_capacity(1));
        send(&to_early, first);
        let both = (early.clone(), late.clone());
        let mover = thread::spawn(move || {
            send(&to_late, second);
            early.try_recv().map(Letter::open).is_ok()
        });
        let selecting = thread::spawn(move || {
            let (early, late) = both;
            let mut select = Select::new_biased();
            let late_index = select.recv(&late);
            select.recv(&early);
            let operation = select.try_select().expect("lost or doubled");
            let receiver = match operation.index() {
                index if index == late_index => &late,
                _ => &early,
            };
            operation.recv(receiver).expect("lost or doubled").open();
        });
        let moved = mover.join().unwrap();
        selecting.join().unwrap();
        drop(late);
        post.check(1 + usize::from(moved));
    });
}

/// Does not do what it has selected.
fn select_and_panic(select: &mut Select<'_>) {
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _operation = select.select();
        // In silence; and while it goes on, giving the operation back does not panic.
        resume_unwind(Box::new(()));
    }));
    assert!(panic.is_err());
}

/// One sends and one receives, while a third selects receiving, and gives it back.
fn received_right_is_given_back_to(capacity: usize) {
    crate::check(Some(3), move || {
        let (post, [letter]) = Post::<1>::new();
        let (sender, receiver) = with_capacity(capacity);
        let fickle = receiver.clone();
        let fickle = thread::spawn(move || {
            let mut select = Select::new_biased();
            select.recv(&fickle);
            select_and_panic(&mut select);
        });
        let connection = sender.clone();
        let receiver = thread::spawn(move || {
            receive(&receiver);
            // Nobody waits for another letter then.
            drop(connection);
        });
        let sender = thread::spawn(move || send(&sender, letter));
        fickle.join().unwrap();
        receiver.join().unwrap();
        sender.join().unwrap();
        post.check(1);
    });
}

/// At most 3 preemptions.
pub(crate) fn received_right_is_given_back() {
    received_right_is_given_back_to(1);
}

/// At most 3 preemptions.
pub(crate) fn received_right_is_given_back_at_zero() {
    received_right_is_given_back_to(0);
}

/// One sends and one receives, while a third selects sending, and gives it back. At most 2
/// preemptions.
pub(crate) fn sent_right_is_given_back() {
    for capacity in [0, 1] {
        crate::check(Some(2), move || {
            let (post, [letter]) = Post::<1>::new();
            let (sender, receiver) = with_capacity(capacity);
            let fickle = sender.clone();
            let fickle = thread::spawn(move || {
                let mut select = Select::new_biased();
                select.send(&fickle);
                select_and_panic(&mut select);
            });
            let sender = thread::spawn(move || send(&sender, letter));
            let receiver = thread::spawn(move || receive(&receiver));
            fickle.join().unwrap();
            sender.join().unwrap();
            receiver.join().unwrap();
            post.check(1);
        });
    }
}

/// One waits until it could receive, and then does; another receives at once; a third sends twice.
fn observes(capacity: usize) {
    crate::check(Some(2), move || {
        let (post, letters) = Post::<2>::new();
        let (sender, receiver) = with_capacity(capacity);
        let observer = receiver.clone();
        let observer = thread::spawn(move || {
            let mut select = Select::new_biased();
            select.recv(&observer);
            assert_eq!(select.ready(), 0);
            receive(&observer);
        });
        let receiver = thread::spawn(move || receive(&receiver));
        let sender = thread::spawn(move || {
            for letter in letters {
                send(&sender, letter);
            }
        });
        observer.join().unwrap();
        receiver.join().unwrap();
        sender.join().unwrap();
        post.check(2);
    });
}

/// At most 2 preemptions.
pub(crate) fn observers() {
    observes(1);
}

/// At most 2 preemptions.
pub(crate) fn observers_at_zero() {
    observes(0);
}
