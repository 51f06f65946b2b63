//! The recruiter: a kernel thread that makes machines ahead of need, and changes the number of
//! processors (`resize`).
//!
//! Making a kernel thread, or a processor, allocates and takes libc's locks, which a preempted green thread may
//! hold; so neither the scheduler nor the monitor ever does it. They call the recruiter, who is an
//! ordinary thread.
//!
//! One call brings one machine; calls that follow each other closely, as when many threads block at
//! once, bring twice as many each time.

use std::io;

use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sched::{Cluster, Machine, switch};
use crate::sys::perturb;
use crate::sys::{clock, futex, signal};

const STACK_SIZE: usize = 256 << 10;
const CLOSELY: u64 = 5_000_000;
const AT_ONCE: usize = 32;
/// When the system refuses a kernel thread while work waits: how soon to ask again.
const ASK_AGAIN: u64 = 10_000_000;

/// Where calls arrive.
pub(crate) struct Office {
    bell: AtomicU32,
    /// Calls for a machine.
    calls: AtomicU32,
    left: AtomicBool,
}

impl Office {
    pub(crate) const fn new() -> Office {
        Office {
            bell: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            left: AtomicBool::new(false),
        }
    }

    /// A machine is needed.
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// The recruiter is to look what there is to do.
    pub(crate) fn ring(&self) {
        // Release: pairs with the Acquire in `work`.
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake(&self.bell, 1);
    }

    /// Whether the recruiter of a stopping cluster has done its last: it makes no more machines, and
    /// the processors that have retired are no longer its own.
    pub(crate) fn has_left(&self) -> bool {
        // Acquire: pairs with the Release in `work`.
        self.left.load(Ordering::Acquire)
    }
}

/// Starts the recruiter.
pub(crate) fn open(cluster: &'static Cluster) -> io::Result<()> {
    std::thread::Builder::new()
        .name("gt-recruiter".into())
        .stack_size(STACK_SIZE)
        .spawn(move || work(cluster))
        .map(drop)
}

fn work(cluster: &'static Cluster) {
    signal::set_mask(signal::ALL);
    let (mut heard, mut seen, mut last, mut batch, mut refused) = (0, 0, 0, 1, false);
    while !cluster.stopping.load(Ordering::SeqCst) {
        let again = refused.then(|| clock::now() + ASK_AGAIN);
        let office = &cluster.recruiter;
        futex::wait(&office.bell, heard, again);
        // Acquire: pairs with the Release in `ring`.
        heard = office.bell.load(Ordering::Acquire);
        perturb::point("recruiter: heard");
        cluster.see_to_size();
        let calls = office.calls.load(Ordering::Relaxed);
        let needed = cluster.spare_count() == 0;
        if (calls == seen && !refused) || !needed {
            seen = calls;
            refused = false;
            continue;
        }
        seen = calls;
        let now = clock::now();
        batch = if now - last < CLOSELY {
            (batch * 2).min(AT_ONCE)
        } else {
            1
        };
        last = now;
        refused = (0..batch).try_for_each(|_| recruit(cluster)).is_err();
    }
    // Release: what it did to processors that have retired; pairs with the Acquire in `has_left`.
    cluster.recruiter.left.store(true, Ordering::Release);
    perturb::point("recruiter: left");
    cluster.emptied.wake();
}

/// Makes one machine.
pub(crate) fn recruit(cluster: &'static Cluster) -> io::Result<()> {
    // Those that are bound come on top: were they all that there may be, nobody would run anything.
    let bound = cluster.bound.load(Ordering::Relaxed);
    let limit = cluster.config.max_kernel_threads + bound;
    let counted = cluster
        .machines
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < limit).then_some(n + 1)
        });
    if counted.is_err() {
        return Err(io::Error::other(format!(
            "the limit of {limit} kernel threads is reached"
        )));
    }
    let made = Machine::new(cluster).and_then(|machine| {
        std::thread::Builder::new()
            .name(format!("gt-machine-{}", machine.index))
            .stack_size(STACK_SIZE)
            .spawn(move || live(machine))
            .inspect_err(|_| machine.end())
            .map(drop)
    });
    made.inspect_err(|_| {
        cluster.machines.fetch_sub(1, Ordering::Relaxed);
    })
}

/// The whole life of a machine's kernel thread.
fn live(machine: &'static Machine) {
    perturb::point("machine: begins");
    let cluster = machine.cluster();
    if machine.begin().is_ok() {
        super::run(machine);
        machine.come_home();
        switch::leave_cache(machine);
        signal::drop_alternate_stack();
    } else {
        // No memory for its alternate stack. Whoever needs a machine asks again.
        std::thread::sleep(std::time::Duration::from_nanos(ASK_AGAIN));
        cluster.recruiter.call();
    }
    machine.end();
    perturb::point("machine: ended");
    // SeqCst: pairs with `close`, which stores `stopping` before it loads the count.
    if cluster.machines.fetch_sub(1, Ordering::SeqCst) == 1
        && cluster.stopping.load(Ordering::SeqCst)
    {
        cluster.emptied.wake();
    }
}
