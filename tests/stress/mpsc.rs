//! A storm for `sync::mpsc` (see `support/storm.rs`): every way to send against every way to
//! receive, by the books of `support/ledger.rs`.
//!
//! `GT_STRESS_SECS` seconds (1 unless given). `GT_SEED` repeats a run's choices.

use crate::support::ledger::{Ledger, Message};
use crate::support::storm::{Actor, storm};
use greenthread::sync::mpsc::{self, RecvTimeoutError, TryRecvError, TrySendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::*};

/// Six receivers, two of each kind of channel, the kernel thread 0 among them.
#[test]
fn std_channels() {
    #[derive(Clone)]
    enum Sender {
        Unbounded(mpsc::Sender<Message>),
        Bounded(mpsc::SyncSender<Message>),
    }
    struct Line {
        ledger: Arc<Ledger>,
        sender: std::sync::Mutex<Option<Sender>>,
        receiver: std::sync::Mutex<Option<mpsc::Receiver<Message>>>,
        ahead: AtomicIsize,
    }
    const LINES: usize = 6;
    fn line(index: usize) -> Line {
        let (sender, receiver) = match index % 3 {
            0 => {
                let (sender, receiver) = mpsc::sync_channel(0);
                (Sender::Bounded(sender), receiver)
            }
            1 => {
                let (sender, receiver) = mpsc::sync_channel(3);
                (Sender::Bounded(sender), receiver)
            }
            _ => {
                let (sender, receiver) = mpsc::channel();
                (Sender::Unbounded(sender), receiver)
            }
        };
        Line {
            ledger: Ledger::new(),
            sender: std::sync::Mutex::new(Some(sender)),
            receiver: std::sync::Mutex::new(Some(receiver)),
            ahead: AtomicIsize::new(0),
        }
    }
    fn receive(line: &Line, actor: &mut Actor) {
        let receiver = line.receiver.lock().unwrap().take().unwrap();
        let mut last = Ledger::last();
        loop {
            actor.at();
            let received = match actor.rng.below(6) {
                0 | 1 => match receiver.recv() {
                    Ok(message) => Some(message),
                    Err(_) => break,
                },
                2 => match receiver.iter().next() {
                    Some(message) => Some(message),
                    None => break,
                },
                3 => match receiver.try_recv() {
                    Ok(message) => Some(message),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => break,
                },
                4 => receiver.try_iter().next(),
                _ => {
                    let mut over = false;
                    let received = actor.timed(|timeout| match receiver.recv_timeout(timeout) {
                        Ok(message) => Some(Some(message)),
                        Err(RecvTimeoutError::Timeout) => None,
                        Err(RecvTimeoutError::Disconnected) => {
                            over = true;
                            Some(None)
                        }
                    });
                    if over {
                        break;
                    }
                    received.flatten()
                }
            };
            if let Some(message) = received {
                line.ahead.fetch_sub(1, Relaxed);
                line.ledger.received(message, &mut last);
            }
            actor.dawdle();
        }
        assert!(receiver.recv().is_err() && receiver.try_recv().is_err());
    }
    fn send(lines: &[Line], actor: &mut Actor) {
        let senders: Vec<Option<Sender>> = lines
            .iter()
            .map(|line| line.sender.lock().unwrap().clone())
            .collect();
        while actor.goes_on() {
            let choice = actor.rng.below(LINES as u64) as usize;
            let (line, Some(sender)) = (&lines[choice], &senders[choice]) else {
                return;
            };
            let (me, ledger) = (actor.index, &line.ledger);
            let message = ledger.message(me);
            match sender {
                Sender::Unbounded(_) if line.ahead.load(Relaxed) > 1_000 => {
                    greenthread::yield_now();
                    continue;
                }
                Sender::Unbounded(sender) => sender.send(message).unwrap(),
                Sender::Bounded(sender) if actor.one_in(2) => sender.send(message).unwrap(),
                Sender::Bounded(sender) => match sender.try_send(message) {
                    Ok(()) => {}
                    Err(TrySendError::Full(message)) => {
                        ledger.returned(me, message);
                        actor.dawdle();
                        continue;
                    }
                    Err(TrySendError::Disconnected(_)) => panic!("the receiver is there"),
                },
            }
            line.ahead.fetch_add(1, Relaxed);
            ledger.sent(me);
            actor.dawdle();
        }
        for line in lines {
            line.sender.lock().unwrap().take(); // the actors' are the last then
        }
    }
    let act = |lines: &Vec<Line>, actor: &mut Actor| match actor.index {
        0 => receive(&lines[0], actor),
        2..=6 => receive(&lines[actor.index - 1], actor),
        _ => send(lines, actor),
    };
    let lines: Vec<Line> = (0..LINES).map(line).collect();
    for line in storm("mpsc", lines, act) {
        assert!(line.ledger.balance() > 0);
        line.ledger.close();
    }
}
