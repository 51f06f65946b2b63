//! A shortage of kernel threads: threads are ready, a processor is idle, and there is no worker to
//! bring the two together, because all workers are blocked, and there can be no more. There are as
//! many as there may be, or the system refuses, or the spawner is blocked itself.
//!
//! The shortage would not end by itself: the holder of the lock that the others wait for in the
//! kernel (malloc's, say, inside libc) may be among the ready threads, preempted, or back from a
//! wait of our own. So the way out needs no new kernel thread. The monitor signals a worker whose
//! thread waits in a system call that begins anew when it is interrupted
//! (`SystemCall::begins_anew`), most often on a futex. The handler (`preempt`) suspends the thread
//! before that system call, as if it had been preempted there: it goes to the global queue, behind
//! all that are ready now, and the worker runs the first of those. When it is the thread's turn it
//! makes its call again, and the kernel looks again (at the futex's word, say). To the program, the
//! thread was slow to come to its call, as it may be at any time. A wake-up that the thread was
//! given is not lost, since then the call has returned.
//!
//! So each ready thread gets a worker, one after another, as long as any thread waits on a futex
//! (a lock, a condition variable, a barrier), for a lock on a file, for the other end of a FIFO or
//! for a child. A thread blocked in anything else, or in what the kernel does not tell (`observer`),
//! keeps its kernel thread. When its call returns, it takes an idle processor and goes on
//! (`current::recover`), and its worker runs others afterwards.
//!
//! *How often.* Once the shortage has lasted for [`RETRY_SPAWN`], and again after each further one,
//! the monitor looks at the next [`PROBES`] blocked workers, round and round. So a program all of
//! whose threads wait for ever costs little. More workers may come free than there are idle
//! processors: the others are spare, and take a processor at once when the next thread blocks.
//!
//! All state is the monitor's, except the reports, which are the spawner's.

use core::fmt;
use std::io::Write;

use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::sched::spawner::Refusal;
use crate::engine::sched::tuning::RETRY_SPAWN;
use crate::engine::sched::{Cluster, Green, ThreadFlags, Worker, preempt, timers, worker};
use crate::engine::sys;
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::observer::Observer;

/// How many workers the monitor looks at in one go: time slices wait meanwhile.
const PROBES: usize = 64;

impl Cluster {
    /// Whether there is something to run, a processor for it, and no worker.
    pub(super) fn is_short(&self) -> bool {
        self.idle.sleeping() != 0
            && (self.has_work() || timers::any_due(self))
            && self.spare_count() == 0
    }
}

/// The monitor's memory of the shortage.
pub(super) struct Shortage {
    /// When to evict next; `NEVER` while there is no shortage.
    next: u64,
    /// The worker that was looked at last.
    last: usize,
}

impl Shortage {
    pub(super) const fn new() -> Shortage {
        Shortage {
            next: NEVER,
            last: 0,
        }
    }

    /// The monitor's look. Returns the latest time of the next one.
    pub(super) fn relieve(
        &mut self,
        cluster: &'static Cluster,
        now: u64,
        observer: &mut Observer,
    ) -> u64 {
        if !cluster.is_short() {
            self.next = NEVER;
            return NEVER;
        }
        if now >= self.next {
            self.evict_some(cluster, now, observer);
            self.next = NEVER;
        }
        self.next = self.next.min(now + RETRY_SPAWN);
        self.next
    }

    /// Asks the next threads to give up their workers.
    fn evict_some(&mut self, cluster: &'static Cluster, now: u64, observer: &mut Observer) {
        let (last, count) = (self.last, worker::count());
        let all = (1..=count).filter_map(|i| worker::get((last + i) % count));
        let of_cluster = all.filter(|worker| worker.is_of(cluster));
        let strays = of_cluster.filter_map(|worker| Some((worker, stray(worker)?)));
        for (worker, green) in strays.take(PROBES) {
            preempt::evict(worker, green, now, observer);
            self.last = worker.index as usize;
        }
    }
}

/// The thread on `worker`, if it has no processor and can leave its worker to others.
fn stray(worker: &'static Worker) -> Option<&'static Green> {
    let green = worker.running()?;
    let stays = ThreadFlags::LOCKED | ThreadFlags::HIDDEN;
    (worker.processor.get().is_none() && !green.flags.has(stays)).then_some(green)
}

/// Reports, once, that there has been a shortage for a while, for the reason `why`.
pub(super) fn report(cluster: &Cluster, why: Refusal) {
    static IS_MADE: AtomicBool = AtomicBool::new(false);
    if cluster.is_short() {
        say_once(
            &IS_MADE,
            format_args!(
                "greenthread: {why}, while other threads are ready: those that wait on a futex (std's \
                 locks, and other libraries'), a file's lock or a child take turns from now on, and \
                 all is slower. What waits in greenthread's own locks, channels and sockets needs no \
                 kernel thread. Builder::max_kernel_threads raises the limit; the system's are ulimit \
                 -u and the cgroup's pids.max\n"
            ),
        );
    }
}

/// Reports, once, that no preemption signals can be sent, by this error number.
pub(super) fn report_signals(number: i32) {
    static IS_MADE: AtomicBool = AtomicBool::new(false);
    let why = match number {
        libc::EAGAIN => {
            "too many signals wait for this user's processes (RLIMIT_SIGPENDING, ulimit -i)"
        }
        _ => "the system refuses rt_tgsigqueueinfo (a seccomp filter?)",
    };
    say_once(
        &IS_MADE,
        format_args!(
            "greenthread: {why}: while that is so, threads that compute are not preempted, and each \
             keeps a kernel thread to itself\n"
        ),
    );
}

/// Writes to stderr, if that blocks nobody. Without std's lock, which a preempted thread may hold, and
/// without the allocator.
fn say_once(is_said: &AtomicBool, text: fmt::Arguments<'_>) {
    let is_read = sys::poll_now(libc::STDERR_FILENO, libc::POLLOUT)
        .is_ok_and(|ready| ready & libc::POLLOUT != 0);
    if is_read && !is_said.swap(true, Ordering::Relaxed) {
        let mut space = [0; 640];
        let mut rest = &mut space[..];
        let _ = rest.write_fmt(text); // what does not fit is left out
        let unused = rest.len();
        let length = space.len() - unused;
        sys::print(&space[..length]);
    }
}
