//! Storms for `Select` and `select!` (see `support/storm.rs`): any set of operations on four
//! channels, both sides of one among them, in every form of waiting. The books are as in
//! `channel.rs`.
//!
//! `GT_STRESS_SECS` seconds each (1 unless given). `GT_SEED` repeats a run's choices.

use crate::support::ledger::Ledger;
use crate::support::line::{Line, Parcel};
use crate::support::storm::{Actor, storm_with};
use greenthread::channel::{Receiver, Select, Sender, after, bounded, never, tick};
use greenthread::{select, select_biased};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

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
