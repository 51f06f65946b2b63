//! Threads that are killed by panics, and the messages they leave to others.
//!
//! Every message that has been made is dropped once, and received at most once; one whose sender
//! was told "sent" has been received, unless its receivers were all dead; one that came back, or
//! never went, has not. A million are received through each flavour of channel (100,000 with debug
//! assertions), by threads that die anywhere but in the channel itself: with a message in hand, in
//! the body of a select, after an operation, in a message's destructor.
//!
//! Locks and panics: `poison.rs`.

use crate::common::*;
use crate::dying::*;
use greenthread as thread;
use greenthread::channel::{Receiver, Select, Sender, bounded, never, unbounded};
use greenthread::select;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};
use std::time::Duration;

const SENT: u8 = 1;
const RECEIVED: u8 = 2;
const DROPPED: u8 = 4;

/// What has become of each message of one channel.
struct Fates(Vec<AtomicU8>);

impl Fates {
    fn mark(&self, number: usize, what: u8) -> u8 {
        let before = self.0[number].fetch_or(what, Relaxed);
        assert!(
            before & what == 0,
            "message {number}: {what} twice ({before})"
        );
        before
    }
}

struct Message {
    number: usize,
    fates: Arc<Fates>,
    /// Kills its receiver in its destructor, unless that is dying anyway.
    deadly: bool,
}

impl Drop for Message {
    fn drop(&mut self) {
        let before = self.fates.mark(self.number, DROPPED);
        if self.deadly && before & RECEIVED != 0 && !thread::panicking() {
            die();
        }
    }
}

/// One channel, with some senders and receivers, until all of them are dead or done.
struct Life {
    fates: Arc<Fates>,
    next: AtomicUsize,
    received: AtomicUsize,
    deaths: AtomicUsize,
    /// Receivers that came to the end of the channel.
    survivors: AtomicUsize,
}

const MESSAGES: usize = 2_000;

impl Life {
    /// Sends until there is nothing to send or nobody to send to. One in `danger` operations kills.
    fn send(&self, sender: &Sender<Message>, rng: &mut Rng, danger: usize) {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= MESSAGES {
                return;
            }
            let message = Message {
                number,
                fates: self.fates.clone(),
                deadly: rng.below(danger) == 0,
            };
            if rng.below(danger) == 0 {
                die(); // with the message in hand
            }
            let sent = match rng.below(4) {
                0 => sender
                    .send_timeout(message, Duration::from_secs(3_600))
                    .is_ok(),
                1 => select! { send(sender, message) -> sent => sent.is_ok() },
                2 => {
                    let mut select = Select::new();
                    select.send(sender);
                    select.select().send(sender, message).is_ok()
                }
                _ => sender.send(message).is_ok(), // else it is dropped here
            };
            if !sent {
                return;
            }
            self.fates.mark(number, SENT);
            if rng.below(danger) == 0 {
                die();
            }
        }
    }

    fn receive(&self, receiver: &Receiver<Message>, rng: &mut Rng, danger: usize) {
        let take = |message: Message| {
            self.fates.mark(message.number, RECEIVED);
            self.received.fetch_add(1, Relaxed);
            message
        };
        loop {
            let message = match rng.below(5) {
                0 => receiver.recv_timeout(Duration::from_secs(3_600)).ok(),
                1 => select! {
                    recv(receiver) -> message => {
                        let message = message.ok().map(take);
                        if rng.below(danger) == 0 {
                            die(); // in the body of a select
                        }
                        if message.is_none() {
                            return;
                        }
                        continue; // dropped here
                    }
                    recv(never::<()>()) -> _ => panic!("never"),
                },
                2 => {
                    let mut select = Select::new();
                    select.recv(receiver);
                    select.select().recv(receiver).ok()
                }
                3 => receiver.try_iter().next().or_else(|| receiver.recv().ok()),
                _ => receiver.iter().next(),
            };
            let Some(message) = message.map(take) else {
                return;
            };
            if rng.below(danger) == 0 {
                die(); // with the message in hand
            }
            drop(message); // which may kill as well
        }
    }
}

/// Channels of one flavour, one after the other, until enough has been received.
fn massacre(test: &'static str, channel: fn() -> (Sender<Message>, Receiver<Message>)) {
    quietly();
    let pairs = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    let (mut rng, mut received, mut deaths, mut lost) = (Rng::new(test), 0, 0, 0);
    while received < pairs {
        let _w = watchdog(test);
        let (sender, receiver) = channel();
        let life = Arc::new(Life {
            fates: Arc::new(Fates((0..MESSAGES).map(|_| AtomicU8::new(0)).collect())),
            next: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            deaths: AtomicUsize::new(0),
            survivors: AtomicUsize::new(0),
        });
        // Senders and receivers die at different rates, so that either side may be the last.
        let dangers = [0, 1].map(|_| 30 + rng.below(2_000));
        let (mut green, mut kernel) = (Vec::new(), Vec::new());
        for index in 0..16 {
            let (life, mut rng) = (life.clone(), rng.fork());
            let ends = if index % 2 == 0 {
                (Some(sender.clone()), None)
            } else {
                (None, Some(receiver.clone()))
            };
            let body = move || {
                let died = catch_unwind(AssertUnwindSafe(|| match ends {
                    (Some(sender), _) => life.send(&sender, &mut rng, dangers[0]),
                    (_, Some(receiver)) => {
                        life.receive(&receiver, &mut rng, dangers[1]);
                        life.survivors.fetch_add(1, Relaxed);
                    }
                    _ => unreachable!(),
                }));
                if let Err(payload) = died {
                    assert!(payload.is::<Killed>(), "a check has failed");
                    life.deaths.fetch_add(1, Relaxed);
                    die(); // really
                }
            };
            if index < 2 {
                kernel.push(std::thread::spawn(body));
            } else {
                green.push(thread::spawn(body));
            }
        }
        let capacity = sender.capacity();
        drop((sender, receiver));
        let mut ended: Vec<_> = green.into_iter().map(|handle| handle.join()).collect();
        ended.extend(kernel.into_iter().map(|handle| handle.join()));
        let dead = ended.iter().filter_map(|end| end.as_ref().err());
        assert!(dead.clone().all(|payload| payload.is::<Killed>()));
        assert_eq!(dead.count(), life.deaths.load(Relaxed));
        let made = life.next.load(Relaxed).min(MESSAGES);
        let mut left = 0;
        for (number, fate) in life.fates.0.iter().enumerate() {
            let fate = fate.load(Relaxed);
            match (number < made, fate) {
                (false, 0) | (true, DROPPED) => {}
                (true, fate) if fate == SENT | RECEIVED | DROPPED => {}
                // It went with the channel.
                (true, fate) if fate == SENT | DROPPED => left += 1,
                _ => panic!("message {number} of {made}: {fate:#b}"),
            }
        }
        // A receiver that lives to the end has seen the channel empty, and its senders gone.
        let lived = life.survivors.load(Relaxed) > 0;
        assert!(left == 0 || (!lived && capacity != Some(0)), "{left} lost");
        assert_eq!(Arc::strong_count(&life.fates), 1, "a message has leaked");
        received += life.received.load(Relaxed);
        deaths += life.deaths.load(Relaxed);
        lost += left;
    }
    println!("{test}: {received} received, {lost} left behind, {deaths} threads killed");
    assert!(deaths > pairs / 10_000);
}

#[test]
fn messages_between_dying_threads_zero_capacity() {
    massacre(
        "panics::messages_between_dying_threads_zero_capacity",
        || bounded(0),
    );
}

#[test]
fn messages_between_dying_threads_bounded() {
    massacre("panics::messages_between_dying_threads_bounded", || {
        bounded(5)
    });
}

#[test]
fn messages_between_dying_threads_unbounded() {
    massacre(
        "panics::messages_between_dying_threads_unbounded",
        unbounded,
    );
}

#[test]
fn select_bodies_handles_and_time_outs_may_die() {
    let _w = watchdog("panics::select_bodies_handles_and_time_outs_may_die");
    both(|| {
        for (sender, receiver) in [bounded(0), bounded(1), unbounded()] {
            let counted = Arc::new(());
            let round = |i: u32| {
                let (theirs, message) = (sender.clone(), counted.clone());
                if i < 2 {
                    let other = thread::spawn(move || theirs.send(message).unwrap());
                    killed(|| {
                        select! {
                            recv(receiver) -> _message => die(),
                            recv(never::<()>()) -> _ => {}
                        }
                    });
                    other.join().unwrap();
                } else {
                    let theirs = receiver.clone();
                    let other = thread::spawn(move || drop(theirs.recv().unwrap()));
                    killed(|| {
                        select! {
                            send(sender, message) -> sent => {
                                sent.unwrap();
                                die()
                            }
                        }
                    });
                    other.join().unwrap();
                }
            };
            (0..4).for_each(round);
            killed(|| {
                select! {
                    recv(receiver) -> _ => {}
                    recv({ die(); #[allow(unreachable_code)] never::<()>() }) -> _ => {}
                }
            });
            killed(|| {
                select! {
                    recv(receiver) -> _ => {}
                    default({ die(); #[allow(unreachable_code)] Duration::ZERO }) => {}
                }
            });
            killed(|| {
                select! {
                    recv(receiver) -> _ => {}
                    default => die(),
                }
            });
            assert_eq!((receiver.len(), Arc::strong_count(&counted)), (0, 1));
            assert!(receiver.try_recv().is_err());
            assert!(receiver.recv_timeout(Duration::ZERO).is_err());
            let theirs = receiver.clone();
            let other = thread::spawn(move || theirs.recv().unwrap());
            sender.send(counted).unwrap();
            other.join().unwrap();
        }
    });
}

/// A message's expression must not die (its operation has begun): as with crossbeam-channel the
/// process aborts, with a word about it, or else all is as if the select had never been.
#[test]
fn a_message_expression_that_dies_is_no_silent_end() {
    const NAME: &str = "panics::a_message_expression_that_dies_is_no_silent_end";
    fn message() -> Arc<()> {
        die()
    }
    let _w = watchdog(NAME);
    if let Some(case) = child_case(NAME) {
        quietly();
        let (sender, receiver) = bounded::<Arc<()>>(case.parse().unwrap());
        let theirs = receiver.clone();
        let other = thread::spawn(move || theirs.recv().is_ok());
        thread::sleep(Duration::from_millis(20));
        killed(|| {
            select! {
                send(sender, message()) -> _ => {}
            }
        });
        sender.send(Arc::new(())).unwrap();
        assert!(other.join().unwrap());
        assert_eq!((receiver.len(), sender.len()), (0, 0));
        return;
    }
    for case in ["0", "1"] {
        let out = child(NAME, case);
        let aborted = std::os::unix::process::ExitStatusExt::signal(&out.status);
        assert!(
            out.status.code() == Some(0)
                || aborted == Some(libc::SIGABRT) && said(&out).contains("panic"),
            "{}",
            said(&out)
        );
    }
}

/// A message whose destructor dies kills whoever drops it, once, and hurts nobody else.
#[test]
fn destructors_of_messages_may_die() {
    struct Deadly(Arc<AtomicUsize>);
    impl Drop for Deadly {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
            die();
        }
    }
    let _w = watchdog("panics::destructors_of_messages_may_die");
    both(|| {
        let dead = Arc::new(AtomicUsize::new(0));
        for (sender, receiver) in [bounded(1), bounded(5), unbounded()] {
            dead.store(0, Relaxed);
            sender.send(Deadly(dead.clone())).unwrap();
            killed(|| receiver.recv().map(drop));
            assert_eq!((dead.load(Relaxed), receiver.len()), (1, 0));
            // The channel goes on, for others who wait as well.
            let theirs = receiver.clone();
            let other = thread::spawn(move || killed(|| theirs.recv().map(drop)));
            sender.send(Deadly(dead.clone())).unwrap();
            other.join().unwrap();
            // Left behind: it kills the last receiver, and the senders are told.
            sender.send(Deadly(dead.clone())).unwrap();
            killed(move || drop(receiver));
            assert_eq!(dead.load(Relaxed), 3);
            killed(|| sender.send(Deadly(dead.clone())).map_err(drop));
            drop(sender);
        }
        assert_eq!(Arc::strong_count(&dead), 1);
    });
}
