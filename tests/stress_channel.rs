//! A storm for each flavour of channel, for `Select` and `select!` (see `support/storm.rs`): every
//! way to send against every way to receive, with time-outs on both sides, unparks that mean
//! nothing, and preemption every 100 µs.
//!
//! The books (`support/ledger.rs`) say that every message whose sender was told "sent" has arrived
//! once and in its sender's order, and that every other came back. Afterwards the channel is empty,
//! is used once more, and is let go of: then no message is left.
//!
//! `GT_STRESS_SECS` seconds each (2 unless given). `GT_SEED` repeats a run's choices.

mod support;

use greenthread::channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, TrySendError,
    after, bounded, never, tick, unbounded,
};
use greenthread::{select, select_biased};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::ledger::{Ledger, Message};
use support::storm::{Actor, actors, storm, storm_with};

/// `None` says that there will be no more.
type Parcel = Option<Message>;

struct Line {
    sender: Sender<Parcel>,
    receiver: Receiver<Parcel>,
    ledger: Arc<Ledger>,
    /// Senders still at it.
    senders: AtomicUsize,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Line {
    fn new(capacity: Option<usize>) -> Line {
        let (sender, receiver) = match capacity {
            Some(capacity) => bounded(capacity),
            None => unbounded(),
        };
        Line {
            sender,
            receiver,
            ledger: Ledger::new(),
            senders: AtomicUsize::new(actors() / 2),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Books what has become of this sender's last message.
    fn book(&self, me: usize, returned: Option<Parcel>) {
        if let Some(parcel) = returned {
            self.ledger.returned(me, parcel.expect("a message"));
        } else {
            self.sent.fetch_add(1, Relaxed);
            self.ledger.sent(me);
        }
    }

    fn arrived(&self, message: Message, last: &mut [u64]) {
        self.received.fetch_add(1, Relaxed);
        self.ledger.received(message, last);
    }

    fn show(&self) -> String {
        format!(
            "{:?} of {:?} in it, {:?} sent, {:?} received, {:?} senders",
            self.sender.len(),
            self.sender.capacity(),
            self.sent,
            self.received,
            self.senders
        )
    }

    /// Empty, as new, and all accounted for.
    fn check(self) {
        let Line {
            sender,
            receiver,
            ledger,
            ..
        } = self;
        assert_eq!((sender.len(), receiver.len()), (0, 0));
        assert!(sender.is_empty() && receiver.is_empty());
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Empty);
        assert!(ledger.balance() > 0);
        match sender.capacity() {
            Some(0) => {
                // Nobody stands there any more.
                let full = sender.try_send(None);
                assert!(matches!(full, Err(TrySendError::Full(None))), "{full:?}");
                let receiver = receiver.clone();
                let other = std::thread::spawn(move || receiver.recv());
                sender.send(None).unwrap();
                assert!(other.join().unwrap().unwrap().is_none());
            }
            capacity => {
                for _ in 0..capacity.unwrap_or(100) {
                    sender.try_send(Some(ledger.message(0))).unwrap();
                }
                assert_eq!(sender.try_send(None).is_err(), capacity.is_some());
                assert_eq!(sender.is_full(), capacity.is_some());
                assert!(receiver.try_recv().unwrap().is_some());
            }
        }
        let other = receiver.clone();
        drop(receiver);
        drop(sender);
        if other.capacity() != Some(0) {
            assert!(other.try_recv().unwrap().is_some()); // what was sent is still had
        }
        drop(other); // with messages in it
        ledger.close();
    }
}

fn send(line: &Line, actor: &mut Actor) {
    let (me, sender) = (actor.index, &line.sender);
    while actor.goes_on() {
        if sender.len() > 1_000 {
            greenthread::yield_now();
            continue;
        }
        let message = Some(line.ledger.message(me));
        let returned = match actor.rng.below(8) {
            0 | 1 => sender.send(message).err().map(|error| error.0),
            2 => sender
                .try_send(message)
                .err()
                .map(|error| error.into_inner()),
            3 | 4 => {
                let mut returned = None;
                actor.timed(|timeout| match sender.send_timeout(message, timeout) {
                    Ok(()) => Some(()),
                    Err(SendTimeoutError::Timeout(message)) => {
                        returned = Some(message);
                        None
                    }
                    Err(SendTimeoutError::Disconnected(_)) => panic!("disconnected"),
                });
                returned
            }
            5 => {
                let mut returned = None;
                actor.timed_until(|deadline| match sender.send_deadline(message, deadline) {
                    Ok(()) => Some(()),
                    Err(SendTimeoutError::Timeout(message)) => {
                        returned = Some(message);
                        None
                    }
                    Err(SendTimeoutError::Disconnected(_)) => panic!("disconnected"),
                });
                returned
            }
            6 => {
                let mut message = Some(message);
                let timeout = actor.timeout();
                select! {
                    send(sender, message.take().unwrap()) -> sent => sent.unwrap(),
                    default(timeout) => {}
                }
                message
            }
            _ => {
                let mut select = Select::new();
                let index = select.send(sender);
                let operation = select.select();
                assert_eq!(operation.index(), index);
                operation.send(sender, message).unwrap();
                None
            }
        };
        line.book(me, returned);
        actor.dawdle();
    }
    if line.senders.fetch_sub(1, AcqRel) == 1 {
        for _ in 0..actors() - actors() / 2 {
            actor.at();
            sender.send(None).unwrap();
        }
    }
}

fn receive(line: &Line, actor: &mut Actor) {
    let (receiver, mut last) = (&line.receiver, Ledger::last());
    loop {
        actor.at();
        let parcel = match actor.rng.below(10) {
            0 | 1 => receiver.recv().ok(),
            2 => receiver.try_recv().ok(),
            3 | 4 => actor.timed(|timeout| match receiver.recv_timeout(timeout) {
                Ok(parcel) => Some(parcel),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => panic!("disconnected"),
            }),
            5 => actor.timed_until(|deadline| receiver.recv_deadline(deadline).ok()),
            6 => receiver.iter().next(),
            7 => receiver.try_iter().next(),
            8 => {
                let timeout = actor.timeout();
                select! {
                    recv(receiver) -> parcel => Some(parcel.unwrap()),
                    default(timeout) => None,
                }
            }
            _ => {
                let mut select = Select::new();
                select.recv(receiver);
                match actor.timed(|timeout| select.ready_timeout(timeout).ok()) {
                    Some(_) => receiver.try_recv().ok(), // another may have been quicker
                    None => None,
                }
            }
        };
        match parcel {
            Some(None) => return,
            Some(Some(message)) => line.arrived(message, &mut last),
            None => {}
        }
        actor.dawdle();
    }
}

fn channel_storm(name: &'static str, capacity: Option<usize>) {
    let act = |line: &Line, actor: &mut Actor| {
        if actor.index % 2 == 0 {
            send(line, actor)
        } else {
            receive(line, actor)
        }
    };
    storm_with(name, Line::new(capacity), act, Line::show).check();
}

#[test]
fn zero_capacity() {
    channel_storm("zero capacity", Some(0));
}

#[test]
fn capacity_of_one() {
    channel_storm("capacity of one", Some(1));
}

#[test]
fn capacity_of_seven() {
    channel_storm("capacity of seven", Some(7));
}

#[test]
fn without_bound() {
    channel_storm("without bound", None);
}

/// Nothing but time-outs, on both sides, about as long as it takes the other to come.
#[test]
fn zero_capacity_with_both_sides_giving_up() {
    let act = |line: &Line, actor: &mut Actor| {
        let (me, mut last) = (actor.index, Ledger::last());
        while actor.goes_on() {
            let timeout = actor.rng.micros_below(150);
            if me % 2 == 0 {
                let message = Some(line.ledger.message(me));
                let sent = line.sender.send_timeout(message, timeout);
                line.book(me, sent.err().map(|error| error.into_inner()));
            } else if let Ok(parcel) = line.receiver.recv_timeout(timeout) {
                line.arrived(parcel.unwrap(), &mut last);
            }
            actor.dawdle();
        }
    };
    let line = storm_with("giving up", Line::new(Some(0)), act, Line::show);
    assert_eq!(line.sent.load(Relaxed), line.received.load(Relaxed));
    line.check();
}

struct Lines {
    lines: [Line; 4],
    over: Receiver<()>,
    /// Let go of when it is over.
    going_on: Mutex<Option<Sender<()>>>,
    own: AtomicU64,
    timeouts: AtomicU64,
}

impl Lines {
    fn new() -> Lines {
        let (going_on, over) = bounded(0);
        Lines {
            lines: [Some(0), Some(0), Some(2), None].map(Line::new),
            over,
            going_on: Mutex::new(Some(going_on)),
            own: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    fn show(&self) -> String {
        self.lines.each_ref().map(Line::show).join("\n")
    }

    /// Nothing is waited for any more; what is in the queues is had, then all balances.
    fn check(self) {
        for line in self.lines {
            let mut last = Ledger::last();
            while let Ok(parcel) = line.receiver.try_recv() {
                // Receivers that are gone may have had later ones of the same sender.
                line.arrived(parcel.unwrap(), &mut last);
            }
            line.check();
        }
    }

    fn arrived(&self, index: usize, parcel: Parcel, me: usize, last: &mut [Vec<u64>; 4]) {
        let message = parcel.unwrap();
        if message.sender == me {
            // One select is one thread at one point: it cannot meet itself.
            assert!(self.lines[index].sender.capacity() != Some(0), "met itself");
            self.own.fetch_add(1, Relaxed);
        }
        self.lines[index].arrived(message, &mut last[index]);
    }
}

/// Selects over any set of operations on four channels, both sides of one among them.
#[test]
fn select_of_anything() {
    let act = |s: &Lines, actor: &mut Actor| {
        let (me, mut last) = (actor.index, [(); 4].map(|()| Ledger::last()));
        let lines = &s.lines;
        while actor.goes_on() {
            let mut select = if actor.one_in(4) {
                Select::new_biased()
            } else {
                Select::new()
            };
            let over = select.recv(&s.over);
            let mut operations = vec![(0, false); over + 1];
            for _ in 0..1 + actor.rng.below(6) {
                let (index, sends) = (actor.rng.below(4) as usize, actor.one_in(2));
                let line = &lines[index];
                if sends && line.sender.len() > 1_000 {
                    continue;
                }
                let place = if sends {
                    select.send(&line.sender)
                } else {
                    select.recv(&line.receiver)
                };
                assert_eq!(place, operations.len());
                operations.push((index, sends));
            }
            if operations.len() > 2 && actor.one_in(4) {
                let gone = 1 + actor.rng.below(operations.len() as u64 - 1) as usize;
                select.remove(gone);
                operations[gone] = (usize::MAX, false);
            }
            let operation = match actor.rng.below(6) {
                0 | 1 => Some(select.select()),
                2 => select.try_select().ok(),
                3 => actor.timed_until(|deadline| select.select_deadline(deadline).ok()),
                4 => actor.timed(|timeout| select.select_timeout(timeout).ok()),
                _ => {
                    // Ready only says that it is worth trying.
                    let ready = actor.timed(|timeout| select.ready_timeout(timeout).ok());
                    if let Some(ready) = ready.filter(|&ready| ready != over) {
                        let (index, sends) = operations[ready];
                        let line = &lines[index];
                        if sends {
                            let sent = line.sender.try_send(Some(line.ledger.message(me)));
                            line.book(me, sent.err().map(|error| error.into_inner()));
                        } else if let Ok(parcel) = line.receiver.try_recv() {
                            s.arrived(index, parcel, me, &mut last);
                        }
                    }
                    continue;
                }
            };
            let Some(operation) = operation else {
                s.timeouts.fetch_add(1, Relaxed);
                continue;
            };
            let place = operation.index();
            if place == over {
                operation.recv(&s.over).unwrap_err();
                continue;
            }
            let (index, sends) = operations[place];
            let line = &lines[index];
            if actor.one_in(50) {
                actor.dawdle(); // begun, not yet done: the other one must wait
            }
            if sends {
                let sent = operation.send(&line.sender, Some(line.ledger.message(me)));
                line.book(me, sent.err().map(|error| error.0));
            } else {
                s.arrived(
                    index,
                    operation.recv(&line.receiver).unwrap(),
                    me,
                    &mut last,
                );
            }
            actor.dawdle();
        }
        s.going_on.lock().unwrap().take();
    };
    let s = storm_with("select", Lines::new(), act, Lines::show);
    assert!(s.timeouts.load(Relaxed) > 0 && s.own.load(Relaxed) > 0);
    s.check();
}

#[test]
fn select_macro() {
    let act = |s: &Lines, actor: &mut Actor| {
        let (me, mut last) = (actor.index, [(); 4].map(|()| Ledger::last()));
        let [a, b, c, d] = &s.lines;
        let ticks = tick(Duration::from_micros(500));
        while actor.goes_on() {
            let timeout = actor.timeout();
            let full = d.sender.len() > 1_000;
            match actor.rng.below(6) {
                0 => select! {
                    send(a.sender, Some(a.ledger.message(me))) -> sent => {
                        a.book(me, sent.err().map(|error| error.0));
                    }
                    recv(a.receiver) -> parcel => s.arrived(0, parcel.unwrap(), me, &mut last),
                    send(b.sender, Some(b.ledger.message(me))) -> sent => {
                        b.book(me, sent.err().map(|error| error.0));
                    }
                    recv(c.receiver) -> parcel => s.arrived(2, parcel.unwrap(), me, &mut last),
                    recv(s.over) -> over => assert!(over.is_err()),
                },
                1 => select! {
                    recv(b.receiver) -> parcel => s.arrived(1, parcel.unwrap(), me, &mut last),
                    recv(d.receiver) -> parcel => s.arrived(3, parcel.unwrap(), me, &mut last),
                    recv(a.receiver) -> parcel => s.arrived(0, parcel.unwrap(), me, &mut last),
                    send(c.sender, Some(c.ledger.message(me))) -> sent => {
                        c.book(me, sent.err().map(|error| error.0));
                    }
                    recv(ticks) -> at => assert!(at.unwrap() <= Instant::now()),
                },
                2 if !full => select_biased! {
                    recv(c.receiver) -> parcel => s.arrived(2, parcel.unwrap(), me, &mut last),
                    recv(a.receiver) -> parcel => s.arrived(0, parcel.unwrap(), me, &mut last),
                    send(d.sender, Some(d.ledger.message(me))) -> sent => {
                        d.book(me, sent.err().map(|error| error.0));
                    }
                },
                3 => select! {
                    recv(a.receiver) -> parcel => s.arrived(0, parcel.unwrap(), me, &mut last),
                    send(b.sender, Some(b.ledger.message(me))) -> sent => {
                        b.book(me, sent.err().map(|error| error.0));
                    }
                    default => {}
                },
                4 => {
                    let start = Instant::now();
                    select! {
                        send(a.sender, Some(a.ledger.message(me))) -> sent => {
                            a.book(me, sent.err().map(|error| error.0));
                        }
                        recv(b.receiver) -> parcel => s.arrived(1, parcel.unwrap(), me, &mut last),
                        recv(never::<()>()) -> _ => panic!("never"),
                        default(timeout) => {
                            assert!(start.elapsed() >= timeout);
                            s.timeouts.fetch_add(1, Relaxed);
                        }
                    }
                }
                _ => {
                    let start = Instant::now();
                    select! {
                        recv(d.receiver) -> parcel => s.arrived(3, parcel.unwrap(), me, &mut last),
                        recv(b.receiver) -> parcel => s.arrived(1, parcel.unwrap(), me, &mut last),
                        recv(after(timeout)) -> at => {
                            let at = at.unwrap();
                            assert!(at - start >= timeout && at <= Instant::now());
                            s.timeouts.fetch_add(1, Relaxed);
                        }
                    }
                }
            }
            actor.dawdle();
        }
        s.going_on.lock().unwrap().take();
    };
    let s = storm_with("select!", Lines::new(), act, Lines::show);
    assert!(s.timeouts.load(Relaxed) > 0);
    s.check();
}

/// Channels that live for moments only: whoever waits when the other side goes is told so, once,
/// and messages that nobody had go with the channel.
#[test]
fn channels_that_are_let_go_of() {
    struct Short {
        channels: Mutex<Vec<(Sender<Parcel>, Receiver<Parcel>)>>,
        ledger: Arc<Ledger>,
    }
    let act = |s: &Short, actor: &mut Actor| {
        let me = actor.index;
        while actor.goes_on() {
            let choice = actor.rng.below(8) as usize;
            let (sender, receiver) = s.channels.lock().unwrap()[choice].clone();
            // Actor 2 replaces channels; who has one of the old ones keeps one end of it.
            if me == 2 {
                let fresh = match actor.rng.below(4) {
                    3 => unbounded(),
                    n => bounded(n as usize),
                };
                s.channels.lock().unwrap()[choice] = fresh;
            } else if me % 2 == 0 {
                drop(receiver);
                for _ in 0..20 {
                    actor.at();
                    let message = Some(s.ledger.message(me));
                    let error = match actor.rng.below(3) {
                        0 => sender.send(message).err().map(|error| error.0),
                        1 => match sender.send_timeout(message, actor.timeout()) {
                            Ok(()) | Err(SendTimeoutError::Timeout(_)) => None,
                            Err(SendTimeoutError::Disconnected(message)) => Some(message),
                        },
                        _ => select! {
                            send(sender, message) -> sent => sent.err().map(|error| error.0),
                        },
                    };
                    if let Some(message) = error {
                        s.ledger.returned(me, message.unwrap());
                        assert!(sender.try_send(None).is_err_and(|e| e.is_disconnected()));
                        break;
                    }
                }
            } else {
                drop(sender);
                loop {
                    actor.at();
                    let received = match actor.rng.below(3) {
                        0 => receiver.recv().ok(),
                        1 => match receiver.recv_timeout(actor.timeout()) {
                            Err(RecvTimeoutError::Timeout) => continue,
                            received => received.ok(),
                        },
                        _ => select! { recv(receiver) -> parcel => parcel.ok() },
                    };
                    if received.is_none() {
                        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
                        break;
                    }
                }
            }
            actor.dawdle();
        }
        if me == 2 {
            // So that those who wait at the last ones go home. Who comes later finds ends that are
            // cut off already.
            for channel in s.channels.lock().unwrap().iter_mut() {
                let (sender, _) = bounded(1);
                let (_, receiver) = bounded(1);
                *channel = (sender, receiver);
            }
        }
    };
    let shared = Short {
        channels: Mutex::new((0..8).map(bounded).collect()),
        ledger: Ledger::new(),
    };
    let s = storm("let go of", shared, act);
    drop(s.channels);
    s.ledger.close();
}
