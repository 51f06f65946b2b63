//! Models of what is known of a socket: two readers, a kernel that tells of each change once, and
//! somebody who collects what it tells.
//!
//! Who is never woken is a deadlock: everything was announced before the last join.

use std::sync::Arc;

use loom::thread;

use crate::atomic::{AtomicBool, AtomicU32};
use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::driver::epoll::Readiness;
use crate::sched::Fifo;
use crate::wait::queue::Waited;
use crate::wait::wait_reason;

/// The other side has sent all it will.
const END: u32 = 1 << 16;

struct Socket {
    /// Bytes to be read, and [`END`]. All Relaxed: it is the flags that order a call after the
    /// change that an event tells of.
    content: AtomicU32,
    /// Something changed and nobody was told.
    event: AtomicBool,
    readiness: Readiness,
}

impl Socket {
    fn new() -> Arc<Socket> {
        Arc::new(Socket {
            content: AtomicU32::new(0),
            event: AtomicBool::new(false),
            readiness: Readiness::new(),
        })
    }

    /// The other side sends, or ends.
    fn change(&self, by: u32) {
        let _ = self
            .content
            .fetch_update(Relaxed, Relaxed, |content| Some(content + by));
        // Release: the kernel's; pairs with the Acquire in `collect`.
        self.event.swap(true, Release);
    }

    fn collect(&self) {
        if self.event.swap(false, Acquire) {
            let has_ended = self.content.load(Relaxed) & END != 0;
            self.readiness.announce(has_ended, &mut Fifo::new());
        }
    }

    /// The call: as many bytes as there are, 0 at the end. `None`: it would block.
    fn call(&self, asked: u32) -> Option<u32> {
        let read = |content: u32| asked.min(content & !END);
        self.content
            .fetch_update(Relaxed, Relaxed, |content| {
                (content != 0).then(|| content - read(content))
            })
            .ok()
            .map(read)
    }

    /// As a source does. `None`: the time was up.
    fn read(&self, asked: u32, deadline: Option<u64>) -> Option<u32> {
        let (mut must_try, mut is_last) = (false, false);
        loop {
            let may_find = self.readiness.begin();
            if may_find || must_try {
                let answer = self.call(asked);
                if let Some(count) = answer {
                    self.readiness.answered(0 < count && count < asked);
                }
                if answer.is_some() || is_last {
                    return answer;
                }
            }
            is_last = match self.readiness.wait(wait_reason(), deadline) {
                Waited::Refused | Waited::Woken(_) => false,
                Waited::TimedOut => true,
            };
            must_try = true;
        }
    }
}

/// Three bytes come in two parts; one reader asks for one byte, the other for two. At most 1
/// preemption; 3 with newest values only.
pub(crate) fn two_read() {
    fn model() {
        let socket = Socket::new();
        let readers = [1, 2].map(|asked| {
            let socket = socket.clone();
            thread::spawn(move || socket.read(asked, None).unwrap())
        });
        socket.change(1);
        socket.collect();
        socket.change(2);
        socket.collect();
        let read = readers.map(|reader| reader.join().unwrap());
        assert!(read[0] == 1 && (1..3).contains(&read[1]), "lost or doubled");
    }
    crate::check_newest(Some(3), model);
    crate::check(Some(1), model);
}

/// Two bytes and behind them the end: one reader finds the bytes, the other the end. At most 1
/// preemption; 3 with newest values only.
pub(crate) fn the_end_is_behind() {
    fn model() {
        let socket = Socket::new();
        let readers = [0, 1].map(|_| {
            let socket = socket.clone();
            thread::spawn(move || socket.read(3, None).unwrap())
        });
        socket.change(2 + END);
        socket.collect();
        let read: u32 = readers.map(|reader| reader.join().unwrap()).iter().sum();
        assert_eq!(read, 2, "lost or doubled");
    }
    crate::check_newest(Some(3), model);
    crate::check(Some(1), model);
}

/// Two bytes at once for two readers that ask for one; one of them may give up. At most 1
/// preemption; 3 with newest values only.
pub(crate) fn one_gives_up_reading() {
    fn model() {
        let socket = Socket::new();
        let readers = [None, Some(0)].map(|deadline| {
            let socket = socket.clone();
            thread::spawn(move || socket.read(1, deadline))
        });
        socket.change(2);
        socket.collect();
        let read = readers.map(|reader| reader.join().unwrap());
        assert!(read[0] == Some(1) && read[1].is_none_or(|n| n == 1), "lost or doubled");
    }
    crate::check_newest(Some(3), model);
    crate::check(Some(1), model);
}

/// It is closed while two wait, and nothing has come. At most 2 preemptions; 3 with newest values only.
pub(crate) fn closed() {
    fn model() {
        let socket = Socket::new();
        let readers = [0, 1].map(|_| {
            let socket = socket.clone();
            thread::spawn(
                move || while socket.readiness.wait(wait_reason(), None) != Waited::Refused {},
            )
        });
        socket.readiness.begin();
        socket.readiness.close(&mut Fifo::new());
        for reader in readers {
            reader.join().unwrap();
        }
    }
    crate::check_newest(Some(3), model);
    crate::check(Some(2), model);
}
