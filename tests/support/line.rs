//! One channel in a storm, with its books.

use super::ledger::{Ledger, Message};
use super::storm::actors;
use greenthread::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded, unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// `None` says that there will be no more.
pub type Parcel = Option<Message>;

pub struct Line {
    pub sender: Sender<Parcel>,
    pub receiver: Receiver<Parcel>,
    pub ledger: Arc<Ledger>,
    /// Senders still at it.
    pub senders: AtomicUsize,
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

impl Line {
    pub fn new(capacity: Option<usize>) -> Line {
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
    pub fn book(&self, me: usize, returned: Option<Parcel>) {
        if let Some(parcel) = returned {
            self.ledger.returned(me, parcel.expect("a message"));
        } else {
            self.sent.fetch_add(1, Relaxed);
            self.ledger.sent(me);
        }
    }

    pub fn arrived(&self, message: Message, last: &mut [u64]) {
        self.received.fetch_add(1, Relaxed);
        self.ledger.received(message, last);
    }

    pub fn show(&self) -> String {
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
    pub fn check(self) {
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
                sender.try_send(Some(ledger.message(0))).unwrap();
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
