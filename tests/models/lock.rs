//! A model of the scheduler's own lock.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::sys::shared::Lock;

/// Three threads take it once each. At most 3 preemptions.
pub(crate) fn three_lock() {
    crate::check(Some(3), || {
        let lock = Arc::new(Lock::new(UnsafeCell::new(0)));
        let users = [(); 3].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || {
                // SAFETY: what the model checks.
                lock.lock().with_mut(|count| unsafe { *count += 1 });
            })
        });
        for user in users {
            user.join().unwrap();
        }
        // SAFETY: all have ended.
        let count = lock.lock().with(|count| unsafe { *count });
        assert_eq!(count, 3, "lost or doubled");
    });
}
