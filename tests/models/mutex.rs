//! Models of the mutex.

use std::sync::Arc;

use loom::{
    cell::UnsafeCell,
    thread::{self, JoinHandle},
};

use crate::{sync::raw_mutex::RawMutex, sys::clock};

struct Mutex {
    raw: RawMutex,
    data: UnsafeCell<usize>,
}

impl Mutex {
    /// True: it was locked.
    fn use_it(&self, deadline: Option<u64>) -> bool {
        let locked = self.raw.lock(deadline);
        if locked {
            // SAFETY: what the model checks.
            self.data.with_mut(|data| unsafe { *data += 1 });
            self.raw.unlock();
        }
        locked
    }

    fn new() -> Arc<Mutex> {
        Arc::new(Mutex {
            raw: RawMutex::new(),
            data: UnsafeCell::new(0),
        })
    }

    /// Threads that each use it once, with these deadlines.
    fn users<const N: usize>(self: &Arc<Mutex>, deadlines: [Option<u64>; N]) -> [JoinHandle<bool>; N] {
        deadlines.map(|deadline| {
            let mutex = self.clone();
            thread::spawn(move || mutex.use_it(deadline))
        })
    }

    /// All have ended. It was used so many times.
    fn check(&self, used: usize) {
        // SAFETY: what the model checks.
        let counted = self.data.with(|data| unsafe { *data });
        assert_eq!(counted, used, "lost or doubled");
        assert!(self.raw.is_at_rest(), "lost or doubled");
    }

    /// Two users come while it is held. The holder gives it back and takes it again, if it can,
    /// before anybody else. Each look at the clock takes `step`; the second user has `deadline`.
    fn held_at_first(step: u64, deadline: Option<u64>) {
        clock::each_look_takes(step);
        let mutex = Mutex::new();
        mutex.raw.lock(None);
        let users = mutex.users([None, deadline]);
        thread::yield_now(); // both queue, unless the checker has other plans
        mutex.raw.unlock();
        let barged = mutex.raw.try_lock();
        if barged {
            // SAFETY: what the model checks.
            mutex.data.with_mut(|data| unsafe { *data += 1 });
            thread::yield_now(); // who was woken queues again
            mutex.raw.unlock();
        }
        let used = users.map(|user| user.join().unwrap());
        assert!(used[0] && (used[1] || deadline.is_some()));
        mutex.check(used.into_iter().chain([barged]).filter(|&used| used).count());
    }
}

/// More than a waiter waits before it is handed the mutex.
const LONG: u64 = 1_000_000;

/// Three threads, each of which uses it once. At most 2 preemptions; 4 with newest values only.
pub(crate) fn excludes() {
    let model = || {
        let mutex = Mutex::new();
        for user in mutex.users([None; 3]) {
            assert!(user.join().unwrap());
        }
        mutex.check(3);
    };
    crate::check_newest(Some(4), model);
    crate::check(Some(2), model);
}

/// Nobody waits long. At most 3 preemptions, newest values only.
pub(crate) fn barging() {
    crate::check_newest(Some(3), || Mutex::held_at_first(0, None));
}

/// Nobody waits long; the time of one runs out. At most 3 preemptions, newest values only.
pub(crate) fn with_a_deadline() {
    crate::check_newest(Some(3), || Mutex::held_at_first(0, Some(0)));
}

/// Everybody who is woken has waited too long. At most 3 preemptions, newest values only.
pub(crate) fn starving() {
    crate::check_newest(Some(3), || Mutex::held_at_first(LONG, None));
}

/// Who is woken has waited too long if another looked at the clock meanwhile; the time of one runs
/// out. At most 3 preemptions, newest values only.
pub(crate) fn starving_at_times() {
    crate::check_newest(Some(3), || Mutex::held_at_first(LONG / 2, Some(0)));
}
