//! Models of the wait queue: a gate that lets all through, and tokens that are given to one each.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::{
    atomic::Ordering::{Acquire, Relaxed, Release},
    wait::queue::{Position, State, WaitQueue, Waited},
};

/// Two threads wait until a flag is set by a third, which sets it without taking the list. At most
/// 3 preemptions.
pub(crate) fn gate() {
    const OPEN: usize = WaitQueue::flag(0);

    struct Gate {
        queue: WaitQueue,
        behind: UnsafeCell<u32>,
    }

    crate::check(Some(3), || {
        let gate = Arc::new(Gate {
            queue: WaitQueue::new(0),
            behind: UnsafeCell::new(0),
        });
        let waiters = [0, 1].map(|_| {
            let gate = gate.clone();
            thread::spawn(move || {
                while !gate.queue.state(Acquire).has(OPEN) {
                    let closed = |state: State| (!state.has(OPEN)).then_some(state);
                    let _ = gate.queue.wait(Position::Back, 0, None, closed);
                }
                // SAFETY: what the model checks.
                gate.behind.with(|behind| assert_eq!(unsafe { *behind }, 1));
            })
        });
        // SAFETY: written before it is opened.
        gate.behind.with_mut(|behind| unsafe { *behind = 1 });
        gate.queue.set(OPEN, Release);
        if gate.queue.state(Relaxed).has_waiters() {
            let mut locked = gate.queue.lock();
            let waiters = locked.pop_all();
            drop(locked);
            waiters.wake();
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(gate.queue.is_at_rest(OPEN), "lost or doubled");
    });
}

/// A token lies here, one flag each.
const TOKENS: [usize; 2] = [WaitQueue::flag(0), WaitQueue::flag(1)];
/// How a wait ends that got one.
const GOT_ONE: usize = 1;

struct Tokens {
    queue: WaitQueue,
    /// Written by who gives a token, read by who gets one.
    messages: [UnsafeCell<u32>; 2],
}

impl Tokens {
    /// True: got one. False: the time was up.
    fn take(&self, position: Position, deadline: Option<u64>) -> bool {
        loop {
            let state = self.queue.state(Relaxed);
            if let Some(token) = TOKENS.into_iter().find(|&token| state.has(token)) {
                if self.queue.change(state, state.without(token), Acquire).is_ok() {
                    return true;
                }
                continue;
            }
            let none = |state: State| (!state.has(TOKENS[0] | TOKENS[1])).then_some(state);
            match self.queue.wait(position, 0, deadline, none) {
                Waited::Refused => {}
                Waited::Woken(outcome) => {
                    assert_eq!(outcome, GOT_ONE);
                    return true;
                }
                Waited::TimedOut => return false,
            }
        }
    }

    /// Gives both tokens, one after the other.
    fn give(&self) {
        for (token, message) in TOKENS.into_iter().zip(&self.messages) {
            // SAFETY: nobody has the token.
            message.with_mut(|message| unsafe { *message = 1 });
            let mut locked = self.queue.lock();
            let first = locked.pop(GOT_ONE);
            let lies_here = if first.is_none() { token } else { 0 };
            let released = locked.release_if(|state| Some(state.with(lies_here)));
            drop(released);
            if let Some(first) = first {
                first.wake();
            }
        }
    }

    fn check(deadline: Option<u64>) {
        let tokens = Arc::new(Tokens {
            queue: WaitQueue::new(0),
            messages: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let takers = [(Position::Back, deadline), (Position::Front, None)].map(|(position, by)| {
            let tokens = tokens.clone();
            thread::spawn(move || {
                let got = tokens.take(position, by);
                if got {
                    // Whichever it got, the first had been given. SAFETY: what the model checks.
                    tokens.messages[0].with(|message| assert_eq!(unsafe { *message }, 1));
                }
                got
            })
        });
        tokens.give();
        let got = takers.map(|taker| taker.join().unwrap());
        assert!(got[1], "lost or doubled");
        assert!(got[0] || deadline.is_some(), "lost or doubled");
        let left = TOKENS
            .into_iter()
            .filter(|&token| tokens.queue.state(Relaxed).has(token));
        let left: Vec<_> = left.collect();
        let taken = got.into_iter().filter(|&got| got).count();
        assert_eq!(left.len() + taken, 2, "lost or doubled");
        assert!(tokens.queue.is_at_rest(left.iter().sum()), "lost or doubled");
    }
}

/// Two threads each wait for a token. At most 2 preemptions.
pub(crate) fn tokens() {
    crate::check(Some(2), || Tokens::check(None));
}

/// The same while one's time runs out. At most 2 preemptions.
pub(crate) fn tokens_and_a_deadline() {
    crate::check(Some(2), || Tokens::check(Some(0)));
}
