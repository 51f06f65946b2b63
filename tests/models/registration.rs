//! Models of a descriptor that is closed while threads begin to wait for it.
//!
//! Who closes it finds the record, and ends the waits in it; or who waits finds the descriptor closed.
//! Nothing else ends a wait here: no event comes, no call finds anything, and who is not woken is a deadlock.
//! (In the library, closing a socket also shuts it down, which is an event.)

use std::sync::Arc;

use loom::thread;

use crate::{driver::epoll::Registration, wait::wait_reason};

struct Source {
    registration: Registration,
}

impl Source {
    /// As a call does that would block. Returns when the descriptor is closed.
    fn read(&self) {
        while let Ok(record) = self.registration.look() {
            if let Some(record) = record {
                record.0.begin();
            }
            // The call would block.
            let record = self.registration.register(0).unwrap();
            let _ = record.0.wait(wait_reason(), None);
        }
    }

    fn close(&self) {
        self.registration.close();
        self.end_waits();
    }

    fn end_waits(&self) {
        if let Some(record) = self.registration.record() {
            record.close();
        }
    }
}

impl Source {
    fn new() -> Arc<Source> {
        Arc::new(Source {
            registration: Registration::default(),
        })
    }
}

/// In a thread of its own.
fn read(source: &Arc<Source>) -> thread::JoinHandle<()> {
    let source = source.clone();
    thread::spawn(move || source.read())
}

/// One is the first to wait. At most 3 preemptions.
pub(crate) fn closed_beside_one() {
    crate::check(Some(3), || {
        let source = Source::new();
        let reader = read(&source);
        source.close();
        reader.join().unwrap();
    });
}

/// Two begin to wait, and one of them brings the record. At most 1 preemption.
pub(crate) fn closed_beside_two() {
    crate::check(Some(1), || {
        let source = Source::new();
        let readers = [(); 2].map(|()| read(&source));
        let closer = thread::spawn(move || source.close());
        for thread in readers.into_iter().chain([closer]) {
            thread.join().unwrap();
        }
    });
}

/// One that has looked before it was closed brings the record after that, and leaves; another one begins to
/// wait. At most 3 preemptions.
pub(crate) fn closed_before_the_record() {
    crate::check(Some(3), || {
        let source = Source::new();
        let reader = read(&source);
        source.close();
        source.registration.register(0).unwrap();
        reader.join().unwrap();
    });
}
