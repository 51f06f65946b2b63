//! The books of a channel: who has sent what, and that it has arrived, once, and in order.
//!
//! 1. A sender numbers what it has sent, per ledger: 0, 1, 2, … without a gap, since the number is
//!    used up only when the message is gone.
//! 2. A receiver sees the numbers of each sender rise ([`Ledger::received`] with its own `last`).
//! 3. In the end, of each sender, as many have arrived as were sent, and the hashes of their
//!    numbers have the same sum: none twice, none instead of another ([`Ledger::balance`]).
//! 4. Every message holds its ledger: once all are balanced, the ledger is held by nobody else
//!    ([`Ledger::close`]), or a message has leaked. A message that is dropped twice is a use after
//!    free, of `weight` as well.

use super::storm::actors;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

#[derive(Default)]
struct Account {
    sent: AtomicU64,
    received: AtomicU64,
    hashes: AtomicU64,
}

pub struct Ledger(Vec<Account>);

pub struct Message {
    pub sender: usize,
    pub number: u64,
    weight: Box<u64>,
    _ledger: Arc<Ledger>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({}, {})", self.sender, self.number)
    }
}

fn hash(number: u64) -> u64 {
    let x = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) | 1
}

impl Ledger {
    #[allow(clippy::new_ret_no_self)] // messages hold it
    pub fn new() -> Arc<Ledger> {
        Arc::new(Ledger((0..actors()).map(|_| Account::default()).collect()))
    }

    /// What a receiver keeps: the number it must see next or later, of each sender.
    pub fn last() -> Vec<u64> {
        vec![0; actors()]
    }

    pub fn message(self: &Arc<Self>, sender: usize) -> Message {
        let number = self.0[sender].sent.load(Relaxed);
        Message {
            sender,
            number,
            weight: Box::new(hash(number)),
            _ledger: self.clone(),
        }
    }

    /// The last message made for this sender is gone.
    pub fn sent(&self, sender: usize) {
        self.0[sender].sent.fetch_add(1, Relaxed);
    }

    /// The last message made for this sender has come back.
    pub fn returned(&self, sender: usize, message: Message) {
        let number = self.0[sender].sent.load(Relaxed);
        assert_eq!((message.sender, message.number), (sender, number));
        assert_eq!(*message.weight, hash(number));
    }

    pub fn received(&self, message: Message, last: &mut [u64]) {
        let Message { sender, number, .. } = message;
        assert_eq!(*message.weight, hash(number), "a message was overwritten");
        assert!(
            number >= last[sender],
            "{message:?} twice or out of order, {} was expected or later",
            last[sender]
        );
        last[sender] = number + 1;
        self.0[sender].received.fetch_add(1, Relaxed);
        self.0[sender].hashes.fetch_add(hash(number), Relaxed);
    }

    /// How many messages have been sent and received.
    pub fn balance(&self) -> u64 {
        let mut sum = 0;
        for (sender, account) in self.0.iter().enumerate() {
            let sent = account.sent.load(Relaxed);
            assert_eq!(account.received.load(Relaxed), sent, "of sender {sender}");
            let hashes = (0..sent).fold(0u64, |sum, number| sum.wrapping_add(hash(number)));
            assert_eq!(account.hashes.load(Relaxed), hashes, "of sender {sender}");
            sum += sent;
        }
        sum
    }

    /// The channel is gone: so are all messages.
    pub fn close(self: Arc<Self>) {
        assert_eq!(Arc::strong_count(&self), 1, "messages have leaked");
    }
}
