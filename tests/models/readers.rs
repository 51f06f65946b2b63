//! A model of the reader–writer lock around policies' arrays.

use std::sync::Arc;

use loom::{cell::UnsafeCell, thread};

use crate::policy::{Seat, readers::Readers};
use crate::sys::kernel_thread;

/// One reads twice at its seat, one from outside, while one writes. At most 3 preemptions.
pub(crate) fn reads_while_written() {
    crate::check(Some(3), || {
        let value = Arc::new(Readers::new(UnsafeCell::new(0)));
        value.write(1, |_| ());
        // SAFETY: what the model checks.
        let look = |value: &UnsafeCell<u32>| value.with(|value| unsafe { *value });
        let (seated, other) = (value.clone(), value.clone());
        let readers = [
            thread::spawn(move || {
                let first = seated.read(Some(&Seat(0)), look);
                assert!(first <= seated.read(Some(&Seat(0)), look), "out of order");
            }),
            thread::spawn(move || assert!(other.read(None, look) <= 1)),
        ];
        // SAFETY: what the model checks.
        value.write(1, |value| value.with_mut(|value| unsafe { *value += 1 }));
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(value.read(None, look), 1, "lost");
    });
}

/// Where there is no barrier nobody has a seat: two read from outside, one twice, while one writes.
/// At most 3 preemptions.
pub(crate) fn reads_without_barrier() {
    crate::check(Some(3), || {
        kernel_thread::has_barrier(false);
        let value = Arc::new(Readers::new(UnsafeCell::new(0)));
        // SAFETY: what the model checks.
        let look = |value: &UnsafeCell<u32>| value.with(|value| unsafe { *value });
        let (one, other) = (value.clone(), value.clone());
        let readers = [
            thread::spawn(move || {
                let first = one.read(None, look);
                assert!(first <= one.read(None, look), "out of order");
            }),
            thread::spawn(move || assert!(other.read(None, look) <= 1)),
        ];
        // SAFETY: what the model checks.
        value.write(1, |value| value.with_mut(|value| unsafe { *value += 1 }));
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(value.read(None, look), 1, "lost");
    });
}
