//! `Select`: what it may choose, what it leaves behind, and what happens to those it met.

use crate::common;
use crate::common::watchdog;
use greenthread as thread;
use greenthread::channel::*;
use greenthread::runtime::Runtime;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

fn both(test: fn()) {
    let _watchdog = watchdog("select");
    common::both(test);
}

const LONG: Duration = Duration::from_secs(40);
const SHORT: Duration = Duration::from_millis(2);

/// Blocks until a receiver waits at the other side of a channel of capacity 0.
fn until_receiver<T>(s: &Sender<T>) {
    let mut select = Select::new();
    select.send(s);
    select.ready();
}

/// Blocks until a sender waits at the other side of a channel of capacity 0.
fn until_sender<T>(r: &Receiver<T>) {
    let mut select = Select::new();
    select.recv(r);
    select.ready();
}

#[test]
fn nothing_to_wait_for() {
    both(|| {
        assert!(catch_unwind(|| Select::new().ready()).is_err());
        assert!(catch_unwind(|| drop(Select::new().select())).is_err());
        assert!(Select::new().try_select().is_err());
        let start = Instant::now();
        assert!(Select::new().select_timeout(SHORT).is_err());
        assert!(Select::new().ready_deadline(start + 2 * SHORT).is_err());
        assert!(start.elapsed() >= 2 * SHORT);
    });
}

#[test]
fn indices_stay() {
    both(|| {
        let (s, r) = unbounded();
        let (_s, empty) = unbounded::<u8>();
        let mut select = Select::new();
        let first = select.recv(&empty);
        let second = select.recv(&r);
        select.remove(first);
        assert!(select.try_ready().is_err());
        s.send(1).unwrap();
        let third = select.recv(&empty);
        assert_eq!((first, second, third), (0, 1, 2));
        assert_eq!(select.ready(), second);
        let mut select = select.clone();
        let operation = select.select();
        assert_eq!(operation.index(), second);
        assert_eq!(operation.recv(&r), Ok(1));
        for index in [first, 3] {
            let mut select = AssertUnwindSafe(select.clone());
            assert!(catch_unwind(move || select.remove(index)).is_err());
        }
    });
}

#[test]
fn chance_is_fair_and_bias_is_not() {
    both(|| {
        let channels: Vec<_> = (0..5).map(|_| unbounded()).collect();
        for i in [1, 2, 4] {
            channels[i].0.send(()).unwrap();
        }
        let mut hits = [0; 5];
        let mut biased = Select::new_biased();
        let mut select = Select::new();
        for (_, r) in &channels {
            select.recv(r);
            biased.recv(r);
        }
        for _ in 0..6_000 {
            hits[select.ready()] += 1;
            assert_eq!(biased.ready(), 1);
        }
        // 2,000 each are expected; 6 standard deviations are 220.
        assert!([1, 2, 4].iter().all(|&i| hits[i] > 1_780), "{hits:?}");
    });
}

/// A sender that has a choice of those channels that are empty, and a receiver that has one of all.
/// If each were served by the operation that the other one happens to complete, the two would go on
/// in turn over two of the channels and never meet at the third.
#[test]
fn two_that_choose_meet_at_every_channel() {
    const COUNT: usize = 10_000;
    let rounds = std::env::var("GT_ROUNDS").map_or(10, |rounds| rounds.parse().unwrap());
    let _watchdog = watchdog("select::two_that_choose_meet_at_every_channel");
    for round in 0..rounds {
        let processors = 1 + round % 2;
        let runtime = Runtime::builder().processors(processors).build().unwrap();
        let both = runtime.spawn(|| {
            let channels = [unbounded(), bounded(1), bounded(0)].into_iter().unzip();
            let (senders, receivers): (Vec<Sender<()>>, Vec<Receiver<()>>) = channels;
            let mut hits = [0; 3];
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..COUNT {
                        let mut select = Select::new();
                        let is_open = |s: &&Sender<()>| s.is_empty() || s.capacity() == Some(0);
                        let open: Vec<_> = senders.iter().filter(is_open).collect();
                        open.iter().for_each(|s| _ = select.send(s));
                        let operation = select.select();
                        let chosen = open[operation.index()];
                        operation.send(chosen, ()).unwrap();
                    }
                });
                for _ in 0..COUNT {
                    let mut select = Select::new();
                    receivers.iter().for_each(|r| _ = select.recv(r));
                    let operation = select.select();
                    let index = operation.index();
                    operation.recv(&receivers[index]).unwrap();
                    hits[index] += 1;
                }
            });
            hits
        });
        let hits = both.join().unwrap();
        runtime.shutdown();
        // A fiftieth of its share is crossbeam's own bound.
        let least = COUNT / hits.len() / 50;
        assert!(hits.iter().all(|&n| n >= least), "round {round}: {hits:?}");
    }
}

#[test]
fn a_select_does_not_meet_itself() {
    both(|| {
        for capacity in [0, 1] {
            let (s, r) = bounded::<u8>(capacity);
            if capacity == 0 {
                let late = select! {
                    recv(r) -> _ => false,
                    send(s, 1) -> _ => false,
                    recv(r) -> _ => false,
                    default(SHORT) => true,
                };
                assert!(late);
                let mut select = Select::new();
                select.recv(&r);
                select.send(&s);
                assert!(select.try_ready().is_err());
                assert!(select.ready_timeout(SHORT).is_err());
            }
            // Two of them meet each other.
            let (s2, r2) = (s.clone(), r.clone());
            let other = thread::spawn(move || {
                select! {
                    recv(r2) -> message => message.unwrap(),
                    send(s2, 1) -> sent => { sent.unwrap(); 0 }
                }
            });
            let mine = select! {
                recv(r) -> message => message.unwrap(),
                send(s, 1) -> sent => { sent.unwrap(); 0 }
            };
            let theirs = other.join().unwrap();
            if capacity == 0 {
                assert_eq!(mine + theirs, 1);
            }
        }
    });
}

#[test]
fn a_right_given_back_goes_to_the_next() {
    both(|| {
        // A promised message.
        let (s, r) = bounded(1);
        s.send(1).unwrap();
        let mut select = Select::new();
        select.recv(&r);
        let operation = select.select();
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        let next = {
            let r = r.clone();
            thread::spawn(move || r.recv())
        };
        thread::yield_now();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        assert_eq!(next.join().unwrap(), Ok(1));

        // A reserved place.
        let mut select = Select::new();
        select.send(&s);
        let operation = select.select();
        assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
        let next = {
            let s = s.clone();
            thread::spawn(move || s.send(2))
        };
        thread::yield_now();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        assert_eq!(next.join().unwrap(), Ok(()));
        assert_eq!(r.recv(), Ok(2));
    });
}

/// A select has a place; senders wait for it, and then a receiver comes. The message goes straight
/// to the receiver, so the place is free after all.
#[test]
fn a_place_that_was_not_needed_goes_to_the_next() {
    both(|| {
        let (s, r) = bounded(1);
        let mut select = Select::new();
        select.send(&s);
        let operation = select.select();
        let (theirs, others) = (s.clone(), s.clone());
        let plain = thread::spawn(move || theirs.send(2));
        // Time to queue. If it is too short there is less to test, and nothing fails.
        thread::sleep(10 * SHORT);
        let observer = thread::spawn(move || {
            let mut select = Select::new();
            select.send(&others);
            select.ready_timeout(LONG)
        });
        let theirs = r.clone();
        let receiver = thread::spawn(move || theirs.recv());
        thread::sleep(10 * SHORT);
        operation.send(&s, 1).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(1));
        assert_eq!(plain.join().unwrap(), Ok(()));
        assert_eq!(r.recv(), Ok(2));
        assert_eq!(observer.join().unwrap(), Ok(0));
    });
}

#[test]
fn a_peer_given_back_tries_again() {
    both(|| {
        let (s, r) = bounded(0);
        // A plain receiver, and one in a select.
        let theirs = r.clone();
        let plain = thread::spawn(move || theirs.recv());
        let mut select = Select::new();
        select.send(&s);
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        select.select().send(&s, 1).unwrap();
        assert_eq!(plain.join().unwrap(), Ok(1));

        let theirs = r.clone();
        let selecting = thread::spawn(move || select! { recv(theirs) -> m => m });
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        select.select().send(&s, 2).unwrap();
        assert_eq!(selecting.join().unwrap(), Ok(2));

        // A plain sender, and one in a select.
        let theirs = s.clone();
        let plain = thread::spawn(move || theirs.send(3));
        let mut select = Select::new();
        select.recv(&r);
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        assert_eq!(select.select().recv(&r), Ok(3));
        assert_eq!(plain.join().unwrap(), Ok(()));

        let theirs = s.clone();
        let selecting = thread::spawn(move || select! { send(theirs, 4) -> sent => sent });
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        assert_eq!(select.select().recv(&r), Ok(4));
        assert_eq!(selecting.join().unwrap(), Ok(()));

        // A message that panics: the receiver that was to have it gets another.
        let theirs = r.clone();
        let plain = thread::spawn(move || theirs.recv());
        fn no_message() -> u8 {
            panic!("as expected")
        }
        let fails = AssertUnwindSafe(|| select! { send(s, no_message()) -> _ => {} });
        assert!(catch_unwind(fails).is_err());
        s.send(5).unwrap();
        assert_eq!(plain.join().unwrap(), Ok(5));
    });
}

#[test]
fn a_message_sent_to_a_select_that_drops_it_is_not_lost() {
    both(|| {
        let (s, r) = bounded(0);
        let theirs = r.clone();
        let dropping = thread::spawn(move || {
            let mut select = Select::new();
            select.recv(&theirs);
            let operation = select.select();
            assert!(catch_unwind(AssertUnwindSafe(|| drop(operation))).is_err());
        });
        until_receiver(&s);
        s.send(Box::new(7)).unwrap();
        dropping.join().unwrap();
        assert_eq!(s.len(), 0);
        assert_eq!(r.recv(), Ok(Box::new(7)));
    });
}

#[test]
fn try_operations_meet_selects() {
    both(|| {
        let (s, r) = bounded(0);
        let theirs = r.clone();
        let selecting = thread::spawn(move || select! { recv(theirs) -> m => m });
        until_receiver(&s);
        assert_eq!(s.try_send([1usize; 20]), Ok(()));
        assert_eq!(selecting.join().unwrap(), Ok([1; 20]));

        let theirs = s.clone();
        let selecting =
            thread::spawn(move || select! { send(theirs, [2; 20]) -> sent => sent.is_ok() });
        until_sender(&r);
        assert_eq!(r.try_recv(), Ok([2; 20]));
        assert!(selecting.join().unwrap());
    });
}

#[test]
fn observers_take_nothing() {
    both(|| {
        for capacity in [0, 1] {
            let (s, r) = bounded(capacity);
            let watching: Vec<_> = (0..3)
                .map(|_| {
                    let r = r.clone();
                    thread::spawn(move || {
                        let mut select = Select::new();
                        select.recv(&r);
                        select.ready_timeout(LONG)
                    })
                })
                .collect();
            let theirs = r.clone();
            let receiving = thread::spawn(move || theirs.recv());
            thread::yield_now();
            s.send(1).unwrap();
            assert_eq!(receiving.join().unwrap(), Ok(1));
            // What nobody takes is seen by all.
            let sending = thread::spawn(move || s.send(2));
            for watcher in watching {
                assert_eq!(watcher.join().unwrap(), Ok(0));
            }
            assert_eq!(r.recv(), Ok(2));
            sending.join().unwrap().unwrap();
            // As is a disconnection.
            let mut select = Select::new();
            select.recv(&r);
            assert_eq!(select.ready(), 0);
            assert_eq!(select.select().recv(&r), Err(RecvError));
        }
    });
}

#[test]
fn the_wrong_handle() {
    both(|| {
        let ((s1, r1), (s2, r2)) = (bounded::<u8>(1), bounded::<u8>(1));
        let mut select = Select::new();
        select.send(&s1);
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| operation.send(&s2, 1))).is_err());
        s1.try_send(1).unwrap(); // the place was given back
        let mut select = Select::new();
        select.recv(&r1);
        let operation = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| operation.recv(&r2))).is_err());
        assert_eq!(r1.try_recv(), Ok(1));
    });
}

#[test]
fn timers_end_a_select() {
    both(|| {
        let (_s, r) = bounded::<u8>(0);
        let start = Instant::now();
        let (ticker, late) = (tick(SHORT), after(4 * SHORT));
        let mut ticks = 0;
        loop {
            select! {
                recv(r) -> _ => unreachable!(),
                recv(ticker) -> _ => ticks += 1,
                recv(late) -> when => {
                    assert!(when.unwrap() >= start + 4 * SHORT);
                    break;
                }
                recv(never::<u8>()) -> _ => unreachable!(),
            }
        }
        assert!(start.elapsed() >= ticks * SHORT);
        let mut select = Select::new();
        let soon = after(SHORT);
        select.recv(&r);
        let soon_index = select.recv(&soon);
        assert_eq!(select.ready(), soon_index);
        assert!(soon.try_recv().is_ok());
    });
}

/// Rings of selects, each of which sends to its right and receives from its left.
#[test]
fn rings_of_selects() {
    both(|| {
        const N: usize = 6;
        const EACH: usize = 500;
        for capacity in [0, 1, 5] {
            let channels: Vec<_> = (0..N).map(|_| bounded(capacity)).collect();
            let threads: Vec<_> = (0..N)
                .map(|i| {
                    let (s, r) = (channels[i].0.clone(), channels[(i + 1) % N].1.clone());
                    thread::spawn(move || {
                        let (mut sent, mut received, mut sum) = (0, 0, 0);
                        let mut select = Select::new();
                        let sending = select.send(&s);
                        let receiving = select.recv(&r);
                        while sent < EACH || received < EACH {
                            let operation = select.select();
                            if operation.index() == sending {
                                sent += 1;
                                operation.send(&s, sent).unwrap();
                                if sent == EACH {
                                    select.remove(sending);
                                }
                            } else {
                                received += 1;
                                sum += operation.recv(&r).unwrap();
                                if received == EACH {
                                    select.remove(receiving);
                                }
                            }
                        }
                        sum
                    })
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), EACH * (EACH + 1) / 2);
            }
        }
    });
}

/// One of two channels always has a message. A select that looked at one after the other would
/// sometimes find neither, when the message goes from one to the other in between.
#[test]
fn a_default_is_taken_only_if_nothing_was_ready_at_one_moment() {
    const ROUNDS: usize = if cfg!(debug_assertions) {
        20_000
    } else {
        100_000
    };
    both(|| {
        for capacity in [1, 2] {
            let [(s1, r1), (s2, r2), (start, started), (end, ended)] =
                std::array::from_fn(|_| bounded::<()>(capacity));
            let other = {
                let (r1, s2) = (r1.clone(), s2.clone());
                thread::spawn(move || {
                    for () in started {
                        s2.send(()).unwrap();
                        let _ = r1.try_recv();
                        end.send(()).unwrap();
                    }
                })
            };
            for _ in 0..ROUNDS {
                s1.send(()).unwrap();
                start.send(()).unwrap();
                select! {
                    recv(r1) -> message => message.unwrap(),
                    recv(r2) -> message => message.unwrap(),
                    default => panic!("neither was ready"),
                }
                ended.recv().unwrap();
                let _ = (r1.try_recv(), r2.try_recv());
            }
            drop(start);
            other.join().unwrap();
        }
    });
}
