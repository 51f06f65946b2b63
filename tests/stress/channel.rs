//! A storm for each flavour of channel (see `support/storm.rs`): every way to send against every
//! way to receive, with time-outs on both sides, unparks that mean nothing, and preemption every
//! 100 µs.
//!
//! The books (`support/ledger.rs`) say that every message whose sender was told "sent" has arrived
//! once and in its sender's order, and that every other came back. Afterwards the channel is empty,
//! is used once more, and is let go of: then no message is left.
//!
//! `GT_STRESS_SECS` seconds each (1 unless given). `GT_SEED` repeats a run's choices.

use crate::support::ledger::Ledger;
use crate::support::line::{Line, Parcel};
use crate::support::storm::{Actor, actors, storm, storm_with};
use greenthread::channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, bounded, unbounded,
};
use greenthread::select;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex};

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
        if actor.index.is_multiple_of(2) {
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
            if me.is_multiple_of(2) {
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
            } else if me.is_multiple_of(2) {
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
