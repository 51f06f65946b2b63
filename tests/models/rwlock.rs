//! Models of the reader-writer lock: three threads take it once each, and pairs of which one must
//! be let in while the other holds it.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::{sync::raw_rwlock::RawRwLock, sys::clock};

struct RwLock {
    raw: RawRwLock,
    data: UnsafeCell<usize>,
}

/// What a thread wants, and until when.
#[derive(Clone, Copy)]
enum Wish {
    Read(Option<u64>),
    Write(Option<u64>),
    /// Write, and then read.
    Downgrade,
}

use Wish::{Downgrade, Read, Write};

/// So long a waiter waits before it is handed the lock.
const LONG: u64 = 1 << 20;
const NOW: Option<u64> = Some(0);

impl RwLock {
    /// Each look at the clock takes `step`.
    fn new(step: u64) -> Arc<RwLock> {
        clock::each_look_takes(step);
        Arc::new(RwLock {
            raw: RawRwLock::new(),
            data: UnsafeCell::new(0),
        })
    }

    fn see(&self) -> usize {
        // SAFETY: what the model checks.
        self.data.with(|data| unsafe { *data })
    }

    fn count(&self) {
        // SAFETY: what the model checks.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    /// True: it has written.
    fn fulfil(&self, wish: Wish) -> bool {
        match wish {
            Read(by) => {
                if self.raw.read(by) {
                    self.see();
                    self.raw.unlock_read();
                } else {
                    assert!(by.is_some(), "lost or doubled");
                }
                return false;
            }
            Write(by) => {
                if !self.raw.write(by) {
                    assert!(by.is_some(), "lost or doubled");
                    return false;
                }
                self.count();
                self.raw.unlock_write();
            }
            Downgrade => {
                assert!(self.raw.write(None), "lost or doubled");
                self.count();
                // SAFETY: locked above.
                self.raw.downgrade();
                self.see();
                self.raw.unlock_read();
            }
        }
        true
    }

    fn spawn(self: &Arc<Self>, wish: Wish) -> thread::JoinHandle<bool> {
        let lock = self.clone();
        thread::spawn(move || lock.fulfil(wish))
    }

    fn check<const N: usize>(step: u64, wishes: [Wish; N]) {
        let lock = RwLock::new(step);
        let users = wishes.map(|wish| lock.spawn(wish));
        let writes = users.map(|user| usize::from(user.join().unwrap()));
        assert_eq!(lock.see(), writes.iter().sum(), "lost or doubled");
        assert!(lock.raw.is_at_rest(), "lost or doubled");
    }
}

/// Nobody waits long. At most 2 preemptions.
pub(crate) fn two_writers() {
    crate::check(Some(2), || RwLock::check(0, [Write(None), Write(None), Read(None)]));
}

/// Nobody waits long. At most 2 preemptions.
pub(crate) fn two_readers() {
    crate::check(Some(2), || RwLock::check(0, [Read(None), Write(None), Read(None)]));
}

/// Everybody who looks has waited too long. At most 2 preemptions.
pub(crate) fn late() {
    crate::check(Some(2), || RwLock::check(LONG, [Write(None), Write(None), Read(None)]));
}

/// Who looks has waited too long if another looked at the clock meanwhile; the time of one runs
/// out. At most 2 preemptions.
pub(crate) fn late_at_times() {
    crate::check(Some(2), || RwLock::check(LONG / 2, [Write(None), Write(NOW), Read(None)]));
}

/// The time of one runs out. At most 2 preemptions.
pub(crate) fn reader_gives_up() {
    crate::check(Some(2), || RwLock::check(0, [Write(None), Write(None), Read(NOW)]));
}

/// One downgrades. At most 2 preemptions.
pub(crate) fn downgrades() {
    crate::check(Some(2), || RwLock::check(0, [Downgrade, Write(None), Read(None)]));
}

/// While a reader holds the lock, a late writer gives up, and another reader need not wait any
/// more. At most 2 preemptions.
pub(crate) fn behind_who_gives_up() {
    crate::check(Some(2), || {
        let lock = RwLock::new(LONG);
        assert!(lock.raw.try_read());
        let writer = lock.spawn(Write(NOW));
        lock.spawn(Read(None)).join().unwrap();
        lock.raw.unlock_read();
        writer.join().unwrap();
        assert!(lock.raw.is_at_rest(), "lost or doubled");
    });
}

/// A writer downgrades, and a reader that has waited for it need not wait any more. At most 3
/// preemptions.
pub(crate) fn behind_who_downgrades() {
    crate::check(Some(3), || {
        let lock = RwLock::new(0);
        assert!(lock.raw.try_write());
        let reader = lock.spawn(Read(None));
        lock.count();
        // SAFETY: locked above.
        lock.raw.downgrade();
        reader.join().unwrap();
        lock.raw.unlock_read();
        assert!(lock.raw.is_at_rest(), "lost or doubled");
    });
}
