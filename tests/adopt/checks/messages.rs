//! `std::sync::mpsc` between threads.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc::*;
use std::time::{Duration, Instant};

pub fn all_arrive_in_order() {
    let (sender, receiver) = channel();
    for number in 0..10 {
        let sender = sender.clone();
        thread::spawn(move || (0..200).for_each(|i| sender.send((number, i)).unwrap()));
    }
    drop(sender);
    let mut next = [0; 10];
    for (number, i) in receiver {
        assert_eq!(next[number], i);
        next[number] += 1;
    }
    assert_eq!(next, [200; 10]);
}

/// A send is over when somebody has come for the message.
pub fn a_rendezvous_meets() {
    for _ in 0..50 {
        let (sender, receiver) = sync_channel(0);
        let came = Arc::new(AtomicBool::new(false));
        let comes = came.clone();
        let handle = thread::spawn(move || {
            comes.store(true, Relaxed);
            receiver.recv().unwrap()
        });
        sender.send(4).unwrap();
        assert!(came.load(Relaxed));
        assert_eq!(handle.join().unwrap(), 4);
    }
}

pub fn a_full_channel_says_so() {
    let (sender, receiver) = sync_channel(2);
    let handle = thread::spawn(move || {
        sender.try_send(1).unwrap();
        sender.try_send(2).unwrap();
        assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
        sender
    });
    let sender = handle.join().unwrap();
    assert_eq!(receiver.recv(), Ok(1));
    sender.try_send(4).unwrap();
    drop(sender);
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 4]);
    let (sender, receiver) = sync_channel(2);
    drop(receiver);
    assert_eq!(sender.try_send(5), Err(TrySendError::Disconnected(5)));
}

/// Never more are under way than there is room for.
pub fn a_full_channel_waits() {
    const ROOM: usize = 3;
    let (sender, receiver) = sync_channel(ROOM);
    let sent = Arc::new(AtomicUsize::new(0));
    let sends = sent.clone();
    let handle = thread::spawn(move || {
        for i in 0..300 {
            sender.send(i).unwrap();
            sends.fetch_add(1, Relaxed);
        }
    });
    for i in 0..300 {
        assert!(sent.load(Relaxed) <= i + ROOM);
        assert_eq!(receiver.recv(), Ok(i));
    }
    handle.join().unwrap();
}

pub fn an_empty_channel_says_so() {
    let (sender, receiver) = channel::<u8>();
    let handle = thread::spawn(move || {
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        receiver
    });
    let receiver = handle.join().unwrap();
    thread::spawn(move || drop(sender)).join().unwrap();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(receiver.recv(), Err(RecvError));
}

pub fn what_was_sent_arrives_after_the_end() {
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || (0..100).for_each(|i| sender.send(i).unwrap()));
    handle.join().unwrap();
    assert!(receiver.iter().eq(0..100));
}

pub fn a_message_without_receiver_comes_back() {
    let (sender, receiver) = channel();
    thread::spawn(move || drop(receiver)).join().unwrap();
    assert_eq!(sender.send("back"), Err(SendError("back")));
    // A sender that waits for room is told, too.
    let (sender, receiver) = sync_channel(0);
    let handle = thread::spawn(move || sender.send("back"));
    thread::yield_now();
    drop(receiver);
    assert_eq!(handle.join().unwrap(), Err(SendError("back")));
}

pub fn messages_go_with_the_receiver() {
    let shared = Arc::new(());
    let (sender, receiver) = channel();
    for _ in 0..70 {
        sender.send(shared.clone()).unwrap();
    }
    thread::spawn(move || drop(receiver)).join().unwrap();
    assert_eq!(Arc::strong_count(&shared), 1);
    drop(sender);
}

pub fn recv_timeout_is_long_enough() {
    let (sender, receiver) = channel::<u8>();
    let body = move || {
        for limit in [Duration::ZERO, Duration::from_millis(15)] {
            let begun = Instant::now();
            let received = receiver.recv_timeout(limit);
            assert_eq!(received, Err(RecvTimeoutError::Timeout));
            assert!(begun.elapsed() >= limit);
        }
    };
    thread::spawn(body).join().unwrap();
    drop(sender);
}

pub fn recv_timeout_sees_the_end() {
    const LONG: Duration = Duration::from_secs(10_000);
    let (sender, receiver) = channel();
    let handle = thread::spawn(move || {
        let first = receiver.recv_timeout(LONG);
        (first, receiver.recv_timeout(LONG))
    });
    sender.send(1).unwrap();
    drop(sender);
    let expected = (Ok(1), Err(RecvTimeoutError::Disconnected));
    assert_eq!(handle.join().unwrap(), expected);
}

pub fn an_iterator_ends() {
    let (sender, receiver) = channel();
    let summing = thread::spawn(move || receiver.iter().sum::<u64>());
    let senders: Vec<_> = (0..20).map(|i| (i, sender.clone())).collect();
    drop(sender);
    for (i, sender) in senders {
        thread::spawn(move || sender.send(i).unwrap());
    }
    assert_eq!(summing.join().unwrap(), 190);
}

pub fn a_channel_through_a_channel() {
    let (requests, requested) = channel::<(u64, Sender<u64>)>();
    let server = thread::spawn(move || {
        let answer = |(number, to): (u64, Sender<u64>)| to.send(number * number).unwrap();
        requested.into_iter().map(answer).count()
    });
    let clients: Vec<_> = (0..50)
        .map(|i| {
            let requests = requests.clone();
            thread::spawn(move || {
                let (answers, answered) = channel();
                requests.send((i, answers)).unwrap();
                assert_eq!(answered.recv(), Ok(i * i));
            })
        })
        .collect();
    drop(requests);
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(server.join().unwrap(), 50);
}

/// A token goes round and counts.
pub fn a_ring_of_threads() {
    let (first, mut last) = channel::<u32>();
    for _ in 0..100 {
        let (sender, receiver) = channel();
        let before = std::mem::replace(&mut last, receiver);
        thread::spawn(move || before.iter().for_each(|n| sender.send(n + 1).unwrap()));
    }
    let mut token = 0;
    for _ in 0..10 {
        first.send(token).unwrap();
        token = last.recv().unwrap();
    }
    drop(first);
    assert_eq!(token, 1_000);
    assert_eq!(last.recv(), Err(RecvError));
}

pub fn a_message_carries_what_was_written() {
    let words: Arc<[AtomicUsize; 200]> = Arc::new([const { AtomicUsize::new(0) }; 200]);
    let (sender, receiver) = channel();
    let written = words.clone();
    let handle = thread::spawn(move || {
        for i in 0..200 {
            written[i].store(i + 1, Relaxed);
            sender.send(i).unwrap();
        }
    });
    for i in receiver {
        assert_eq!(words[i].load(Relaxed), i + 1);
    }
    handle.join().unwrap();
}
