//! Models of the monitor's sleep: somebody gives it something to do while it goes to sleep.
//!
//! The monitor sleeps until it has seen that. If it is not woken, that is a deadlock: nobody else wakes it.
//! The thing is Relaxed, so that only the two fences let the monitor see it, or the other see that the
//! monitor sleeps. It may sleep twice: the first wake-up may come before it sees what it is about.

use std::sync::Arc;

use loom::thread;

use crate::{
    atomic::{self, AtomicBool, Ordering::Relaxed},
    sched::{Cluster, idle::Parker},
};

fn woken_by(tell: fn(&Parker)) {
    crate::check(Some(3), move || {
        atomic::stores_come_in_order(true);
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster::new()));
        let shared = Arc::new((Parker::awake(), AtomicBool::new(false)));
        let monitor = thread::spawn({
            let shared = shared.clone();
            move || {
                let (post, thing) = &*shared;
                let nothing_to_do = || !thing.load(Relaxed);
                while nothing_to_do() {
                    post.sleep_beside(cluster, 0, nothing_to_do);
                }
            }
        });
        let (post, thing) = &*shared;
        thing.store(true, Relaxed);
        tell(post);
        monitor.join().unwrap();
    });
}

/// A processor wakes up, or nobody watches a deadline now. At most 3 preemptions, as below.
pub(crate) fn kicked() {
    woken_by(Parker::kick);
}

/// A thread is handed over, or the cluster stops.
pub(crate) fn roused() {
    woken_by(Parker::rouse);
}
