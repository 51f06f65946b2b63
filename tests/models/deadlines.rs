//! A model of the deadline that sleepers watch: one that watches a late deadline wakes up while another one,
//! which has just set an earlier or a later timer, goes to sleep. One of them watches the earliest, or
//! nobody would come in time.

use std::sync::Arc;

use loom::thread;

use crate::{
    atomic::{self, AtomicU64, Ordering::Relaxed},
    sched::idle::Watched,
    sys::clock::NEVER,
};

struct Cluster {
    watched: Watched,
    /// The other's timer. Relaxed, as in `sched::events`.
    deadline: AtomicU64,
}

impl Cluster {
    fn watch(&self) -> Option<u64> {
        self.watched.watch(self.deadline.load(Relaxed))
    }
}

/// The first watches `first`; then the earliest deadline is `then`, as far as it knows. Full exploration.
fn watched_in_turn(first: u64, then: u64, second: u64) {
    crate::check(None, move || {
        atomic::stores_come_in_order(true);
        let cluster = Arc::new(Cluster {
            watched: Watched::new(),
            deadline: AtomicU64::new(then),
        });
        assert_eq!(cluster.watched.watch(first), Some(first), "nobody else watches");
        let waking = thread::spawn({
            let cluster = cluster.clone();
            move || {
                cluster.watched.watch_no_more();
                cluster.watch()
            }
        });
        cluster.deadline.store(second, Relaxed);
        let here = cluster.watch();
        let there = waking.join().unwrap();
        let watches = |sleeper: Option<u64>| sleeper.is_some_and(|until| until <= second);
        assert!(watches(here) || watches(there), "nobody watches");
    });
}

/// The timer of the first has fired, and the other's is later.
pub(crate) fn a_later_one() {
    watched_in_turn(1, NEVER, 2);
}

/// The other's timer is earlier.
pub(crate) fn an_earlier_one() {
    watched_in_turn(2, 2, 1);
}
