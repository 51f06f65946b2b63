//! Channels and mutexes between kernel threads, which take as many CPUs as there are: std's, and
//! crossbeam-channel's.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::blocking::{self, Kernel};
use crate::work::{CAPACITY, Work};

/// The time `ops` operations take with std's channels and mutexes, after a warm-up.
pub fn measure(work: Work, _workers: usize, ops: u64) -> Duration {
    let once = |ops| match work {
        Work::PingPong(capacity) => {
            let channel = || ends(mpsc::sync_channel(capacity));
            blocking::ping_pong::<Kernel>(ops, channel(), channel())
        }
        Work::Stream(pairs) => {
            assert_eq!(pairs, 1, "std's receivers cannot be cloned");
            let (send, receive) = ends(mpsc::sync_channel(CAPACITY));
            blocking::stream::<Kernel>(ops, vec![send], vec![receive])
        }
        Work::Mutex(threads) => {
            static COUNT: Mutex<u64> = Mutex::new(0);
            blocking::mutex::<Kernel, _>(threads as u64, ops, || COUNT.lock().unwrap())
        }
        _ => panic!("not measured for kernel threads"),
    };
    once(ops / 5);
    once(ops)
}

/// The time `ops` operations take with crossbeam's channels, after a warm-up.
pub fn measure_crossbeam(work: Work, _workers: usize, ops: u64) -> Duration {
    let bounded = |capacity| {
        let (sender, receiver) = crossbeam_channel::bounded(capacity);
        (
            move |message| sender.send(message).unwrap(),
            move || receiver.recv().unwrap(),
        )
    };
    let once = |ops| match work {
        Work::PingPong(capacity) => {
            blocking::ping_pong::<Kernel>(ops, bounded(capacity), bounded(capacity))
        }
        Work::Stream(pairs) => {
            let (send, receive) = bounded(CAPACITY);
            blocking::stream::<Kernel>(ops, vec![send; pairs], vec![receive; pairs])
        }
        _ => panic!("crossbeam-channel has only channels"),
    };
    once(ops / 5);
    once(ops)
}

/// A channel's send and receive operations.
fn ends(
    (sender, receiver): (mpsc::SyncSender<u64>, mpsc::Receiver<u64>),
) -> (impl Fn(u64), impl Fn() -> u64) {
    (
        move |message| sender.send(message).unwrap(),
        move || receiver.recv().unwrap(),
    )
}
