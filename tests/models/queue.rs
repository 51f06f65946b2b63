//! Models of the wait queue: a gate that lets all through, and a token that is handed from one to
//! the next.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::{
    atomic::Ordering::{Acquire, Relaxed, Release},
    wait::{
        wait_reason,
        queue::{Position, State, WaitQueue, Waited},
    },
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
                    let _ = gate.queue.wait(wait_reason(), Position::Back, 0, None, closed);
                }
                // SAFETY: what the model checks.
                gate.behind.with(|behind| assert_eq!(unsafe { *behind }, 1));
            })
        });
        // SAFETY: written before it is opened.
        gate.behind.with_mut(|behind| unsafe { *behind = 1 });
        gate.queue.set(OPEN, Release);
        if gate.queue.state(Relaxed).has_waiters() {
            gate.queue.lock().wake_all(|state| state);
        }
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert!(gate.queue.is_at_rest(OPEN), "lost or doubled");
    });
}

/// The token lies here.
const TOKEN: usize = WaitQueue::flag(0);
/// How a wait ends that got it.
const GOT_IT: usize = 1;

/// One token: who has it uses the data, and gives it to the next.
struct Baton {
    queue: WaitQueue,
    data: UnsafeCell<usize>,
}

impl Baton {
    /// False: the time was up.
    fn take(&self, position: Position, deadline: Option<u64>) -> bool {
        loop {
            let state = self.queue.state(Relaxed);
            if state.has(TOKEN) {
                // Acquire: pairs with the Release in `give`.
                let taken = self.queue.change(state, state.without(TOKEN), Acquire);
                if taken.is_ok() {
                    return true;
                }
                continue;
            }
            let none = |state: State| (!state.has(TOKEN)).then_some(state);
            match self.queue.wait(wait_reason(), position, 0, deadline, none) {
                Waited::Refused => {}
                Waited::Woken(outcome) => {
                    assert_eq!(outcome, GOT_IT, "lost or doubled");
                    return true;
                }
                Waited::TimedOut => return false,
            }
        }
    }

    fn give(&self) {
        let mut locked = self.queue.lock();
        let first = locked.pop(GOT_IT);
        let lies_here = if first.is_none() { TOKEN } else { 0 };
        locked.release(|state| state.with(lies_here));
        if let Some(first) = first {
            first.wake();
        }
    }

    fn check(deadline: Option<u64>) {
        let baton = Arc::new(Baton {
            queue: WaitQueue::new(0),
            data: UnsafeCell::new(0),
        });
        let takers = [(Position::Front, deadline), (Position::Back, None)].map(|(position, by)| {
            let baton = baton.clone();
            thread::spawn(move || {
                let got = baton.take(position, by);
                if got {
                    // SAFETY: what the model checks.
                    baton.data.with_mut(|data| unsafe { *data += 1 });
                    baton.give();
                }
                got
            })
        });
        thread::yield_now(); // both queue, unless the checker has other plans
        // SAFETY: nobody else has the token.
        baton.data.with_mut(|data| unsafe { *data += 1 });
        baton.give();
        let got = takers.map(|taker| taker.join().unwrap());
        assert!(got[1] && (got[0] || deadline.is_some()), "lost or doubled");
        let used = 1 + got.into_iter().filter(|&got| got).count();
        // SAFETY: all have ended.
        let counted = baton.data.with(|data| unsafe { *data });
        assert_eq!(counted, used, "lost or doubled");
        assert!(baton.queue.is_at_rest(TOKEN), "lost or doubled");
    }
}

/// A token goes round. At most 1 preemption; 3 with newest values only.
pub(crate) fn baton() {
    crate::check_newest(Some(3), || Baton::check(None));
    crate::check(Some(1), || Baton::check(None));
}

/// The same while one's time runs out. At most 1 preemption; 3 with newest values only.
pub(crate) fn baton_and_a_deadline() {
    crate::check_newest(Some(3), || Baton::check(Some(0)));
    crate::check(Some(1), || Baton::check(Some(0)));
}
