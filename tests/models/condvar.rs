//! Models of the condition variable, with the library's mutex: tokens are put down, and taken by
//! threads that wait for them.

use std::{sync::Arc, time::Duration};

use loom::{cell::UnsafeCell, thread};

use crate::sync::{
    condvar::Condvar,
    mutex::{Mutex, MutexGuard},
};

struct Tokens {
    /// How many there are.
    count: Mutex<UnsafeCell<usize>>,
    changed: Condvar,
}

type Guard<'a> = MutexGuard<'a, UnsafeCell<usize>>;

impl Tokens {
    fn new() -> Arc<Tokens> {
        Arc::new(Tokens {
            count: Mutex::new(UnsafeCell::new(0)),
            changed: Condvar::new(),
        })
    }

    fn are_none(count: &Guard<'_>) -> bool {
        // SAFETY: what the model checks.
        count.with(|count| unsafe { *count }) == 0
    }

    fn take_from(count: &Guard<'_>) {
        assert!(!Tokens::are_none(count), "lost or doubled");
        // SAFETY: what the model checks.
        count.with_mut(|count| unsafe { *count -= 1 });
    }

    fn put(&self, more: usize) {
        // SAFETY: what the model checks.
        self.count
            .lock()
            .unwrap()
            .with_mut(|count| unsafe { *count += more });
    }

    /// Waits for a token.
    fn take(&self) {
        let mut count = self.count.lock().unwrap();
        while Tokens::are_none(&count) {
            count = self.changed.wait(count).unwrap();
        }
        Tokens::take_from(&count);
    }

    fn give_one(&self) {
        self.put(1);
        self.changed.notify_one();
    }

    /// Waits for a notification, so long (see `sys::clock::after`); passes it on if there was one.
    fn wait<const NANOS: u64>(&self) {
        let count = self.count.lock().unwrap();
        if Tokens::are_none(&count) {
            let time = Duration::from_nanos(NANOS);
            let (count, result) = self.changed.wait_timeout(count, time).unwrap();
            drop(count);
            if !result.timed_out() {
                self.changed.notify_one();
            }
        }
    }

    fn spawn(self: &Arc<Self>, task: fn(&Tokens)) -> thread::JoinHandle<()> {
        let tokens = self.clone();
        thread::spawn(move || task(&tokens))
    }

    /// All that these do comes to an end, and all tokens are taken.
    fn check<const N: usize>(tasks: [fn(&Tokens); N]) {
        let tokens = Tokens::new();
        for task in tasks.map(|task| tokens.spawn(task)) {
            task.join().unwrap();
        }
        let count = tokens.count.lock().unwrap();
        assert!(Tokens::are_none(&count), "lost or doubled");
    }
}

/// One waits for one. At most 4 preemptions.
pub(crate) fn one_waits() {
    crate::check(Some(4), || {
        Tokens::check([Tokens::take, Tokens::give_one]);
    });
}

/// Two wait, and are notified one after the other. At most 1 preemption.
pub(crate) fn two_wait() {
    crate::check(Some(1), || {
        Tokens::check([Tokens::take, Tokens::take, |tokens| {
            tokens.put(2);
            tokens.changed.notify_one();
            tokens.changed.notify_one();
        }]);
    });
}

/// Two wait, and are notified together. At most 1 preemption.
pub(crate) fn all_are_notified() {
    crate::check(Some(1), || {
        Tokens::check([Tokens::take, Tokens::take, |tokens| {
            tokens.put(2);
            tokens.changed.notify_all();
        }]);
    });
}

/// Two wait, one of them not at all or until nobody else can go on. At most 1 preemption.
pub(crate) fn one_gives_up() {
    crate::check(Some(1), || {
        Tokens::check([Tokens::wait::<0>, Tokens::take, Tokens::give_one]);
    });
    crate::check(Some(1), || {
        Tokens::check([Tokens::wait::<1>, Tokens::take, Tokens::give_one]);
    });
}
