//! Where the monitor sleeps while all processors do, and how it is woken.
//!
//! The monitor says that it sleeps, fences, and looks whether there is something to do. Who gives it something to
//! do says so, fences, and looks whether it sleeps. One of the two sees the other: so it never sleeps beside a
//! processor that is awake, or a thread that was handed over.

use crate::engine::atomic::{AtomicU32, Ordering, const_fn, fence};
use crate::engine::sched::Cluster;
use crate::engine::sys::{clock, futex, perturb};

/// Where the monitor sleeps.
pub(crate) struct Post(AtomicU32);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

impl Post {
    const_fn! {
        pub(crate) const fn new() -> Post {
            Post(AtomicU32::new(AWAKE))
        }
    }

    /// A processor has woken up, and its waker calls this: the monitor must not sleep.
    #[inline]
    pub(crate) fn kick_if_asleep(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees that a processor is awake, or
        // we see that the monitor sleeps.
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == ASLEEP {
            self.kick();
        }
    }

    #[cold]
    pub(crate) fn kick(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees what the caller has done, or we see
        // that it sleeps.
        fence(Ordering::SeqCst);
        if self.0.swap(AWAKE, Ordering::Relaxed) == ASLEEP {
            futex::wake(&self.0, 1);
        }
    }

    /// A thread was handed over, and its waker calls this: the monitor looks soon, asleep or not.
    pub(crate) fn rouse(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees the thread, or we see that it sleeps.
        fence(Ordering::SeqCst);
        self.0.store(AWAKE, Ordering::Relaxed);
        futex::wake(&self.0, 1);
    }

    /// The cluster stops, and its closer calls this: the monitor sleeps no more.
    pub(crate) fn stop(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees that the cluster stops, or we are
        // the last to change the word.
        fence(Ordering::SeqCst);
        self.0.store(AWAKE, Ordering::Relaxed);
        // This wakes it even if it was awake: it may wait for its next look.
        futex::wake(&self.0, 1);
    }

    /// Sleeps until it is kicked (true), or until a deadline that no sleeping machine watches.
    pub(crate) fn sleep(
        &self,
        cluster: &'static Cluster,
        not_before: u64,
        everybody_sleeps: impl Fn() -> bool,
    ) -> bool {
        self.0.store(ASLEEP, Ordering::Relaxed);
        perturb::point("monitor: asleep");
        // SeqCst: partner of the fences in `kick_if_asleep`, `kick`, `rouse` and `stop`.
        fence(Ordering::SeqCst);
        let mut kicked = true;
        while kicked && self.0.load(Ordering::Relaxed) == ASLEEP && everybody_sleeps() {
            let watches = cluster.watch_deadline();
            futex::wait(
                &self.0,
                ASLEEP,
                watches.map(|deadline| deadline.max(not_before)),
            );
            if let Some(deadline) = watches {
                cluster.watched.watch_no_more();
                kicked = clock::now() < deadline;
            }
        }
        self.0.store(AWAKE, Ordering::Relaxed);
        kicked
    }

    /// A plain sleep until the next look, which a stop, or a thread that is handed over, cuts short.
    pub(super) fn rest(&self, until: u64) {
        futex::wait(&self.0, AWAKE, Some(until));
    }
}
