//! Models of the claim: one wait in two lists, as a select or a channel uses it, and a sender at
//! each.

use std::sync::{Arc, OnceLock};

use loom::{cell::UnsafeCell, thread};

use crate::{
    atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
    sys::shared::Patience,
    wait::{
        wait_reason,
        queue::{Ended, List, Node, Wait},
    },
};

/// A channel for one message.
struct Channel {
    locked: AtomicU32,
    /// The receivers, and whether the message is here.
    inside: UnsafeCell<(List, bool)>,
    /// The sender's, until it is handed over.
    message: UnsafeCell<u32>,
}

impl Channel {
    fn new() -> Channel {
        Channel {
            locked: AtomicU32::new(0),
            inside: UnsafeCell::new((List::default(), false)),
            message: UnsafeCell::new(0),
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&mut List, &mut bool) -> R) -> R {
        let mut patience = Patience::new();
        while self
            .locked
            .compare_exchange(0, 1, Acquire, Relaxed)
            .is_err()
        {
            patience.pause();
        }
        let result = self.inside.with_mut(|inside| {
            // SAFETY: the lock.
            let (receivers, is_full) = unsafe { &mut *inside };
            f(receivers, is_full)
        });
        self.locked.store(0, Release);
        result
    }

    fn send(&self) {
        // SAFETY: not handed over yet.
        self.message.with_mut(|message| unsafe { *message = 1 });
        let receiver = self.locked(|receivers, is_full| {
            let receiver = receivers.pop();
            *is_full = receiver.is_none();
            receiver
        });
        if let Some(receiver) = receiver {
            receiver.node().outcome.set(1);
            receiver.wake();
        }
    }

    fn read(&self) {
        // SAFETY: what the model checks.
        self.message
            .with(|message| assert_eq!(unsafe { *message }, 1));
    }
}

struct World {
    channels: [Channel; 2],
    /// Kept till the end: a second claim, were there one, must find something to destroy.
    selection: OnceLock<(Box<Wait>, [Node; 2])>,
}

// SAFETY: what one thread at a time may touch is what the model checks.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    /// Receives from one channel. False: the time was up.
    fn select(&self, deadline: Option<u64>) -> bool {
        let (wait, nodes) = self.selection.get_or_init(|| {
            let wait = Box::new(Wait::new(wait_reason()));
            let nodes = [Node::new(&*wait), Node::new(&*wait)];
            (wait, nodes)
        });
        let both = || self.channels.iter().zip(nodes);
        let full = both().find(|(channel, node)| {
            channel.locked(|receivers, is_full| {
                if !*is_full {
                    // SAFETY: taken out below.
                    unsafe { receivers.push_back(*node) };
                }
                *is_full
            })
        });
        let ended = match full {
            Some(_) if wait.give_up() => None,
            _ => Some(wait.wait(deadline)),
        };
        for (channel, node) in both() {
            // SAFETY: in this list or in none.
            channel.locked(|receivers, _| unsafe { receivers.remove(node) });
        }
        match ended {
            None => {
                let (channel, _) = full.unwrap();
                channel.locked(|_, is_full| *is_full = false);
                channel.read();
                true
            }
            Some(Ended::Taken(taken)) => {
                let (channel, node) = both().find(|(_, node)| std::ptr::eq(*node, taken)).unwrap();
                assert_eq!(node.outcome.get(), 1, "lost or doubled");
                channel.read();
                true
            }
            Some(Ended::TimedOut) => false,
        }
    }

    fn check(deadline: Option<u64>) {
        let world = Arc::new(World {
            channels: [Channel::new(), Channel::new()],
            selection: OnceLock::new(),
        });
        let selector = thread::spawn({
            let world = world.clone();
            move || world.select(deadline)
        });
        let sender = thread::spawn({
            let world = world.clone();
            move || world.channels[0].send()
        });
        world.channels[1].send();
        sender.join().unwrap();
        let received = selector.join().unwrap();
        let full = |channel: &&Channel| channel.locked(|_, is_full| *is_full);
        let left = world.channels.iter().filter(full).count();
        assert_eq!(left + usize::from(received), 2, "lost or doubled");
        assert!(received || deadline.is_some(), "lost or doubled");
    }
}

/// A select over two channels, both of which get a message. At most 4 preemptions.
pub(crate) fn two_lists() {
    crate::check(Some(4), || World::check(None));
}

/// The same while its time runs out. At most 4 preemptions.
pub(crate) fn two_lists_and_a_deadline() {
    crate::check(Some(4), || World::check(Some(0)));
}
