//! The spawner: a kernel thread that makes workers ahead of need, changes the number of
//! processors (`resize`), and returns stacks that nobody uses (`stack::reclaim`).
//!
//! Making a processor allocates, and making a kernel thread takes libc's locks, which a green
//! thread without a processor may hold; so neither the scheduler nor the monitor ever does it. They
//! call the spawner, which is an ordinary thread.
//!
//! A worker is made without the program's allocator, and comes to its first thread without it:
//! when many threads wait for the allocator, its holders are preempted threads in a queue, which
//! wait for a new worker. Its record is mapped (`worker`), and its kernel thread is libc's, not
//! std's. (libc has a vector from `calloc` for each thread. `thread_limit` covers a `calloc` of the
//! program's own, and a spawner that is held up or refused.)
//!
//! One call brings one worker, which calls for the next one if it finds work for others.

use core::ffi::c_void;
use core::fmt;
use std::io;

use crate::engine::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::sched::parker::Parker;
use crate::engine::sched::thread_stack::ThreadStack;
use crate::engine::sched::tuning::RETRY_SPAWN;
use crate::engine::sched::{
    Cluster, Owned, RunLoop, Worker, current, helper, switch, thread_limit, worker,
};
use crate::engine::stack::reclaim::{self, Looks, Stays};
use crate::engine::stack::{List, Slot};
use crate::engine::sys::{clock, kernel_thread, perturb, sanitizer, signal};

/// Where calls arrive.
pub(crate) struct Spawner {
    bell: Parker,
    /// Calls for a worker.
    calls: AtomicU32,
    /// Whether the last attempt to make one was refused.
    is_refused: AtomicBool,
    /// The error with which no preemption signal could be sent; 0: none.
    no_signals: AtomicU32,
}

/// Why there can be no worker.
#[derive(Clone, Copy)]
pub(crate) enum Refusal {
    /// There are as many as there may be.
    Limit(usize),
    /// The system says so, by this error number.
    System(i32),
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Limit(_) => io::Error::other(refusal.to_string()),
            Refusal::System(number) => io::Error::from_raw_os_error(number),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Limit(limit) => write!(f, "the limit of {limit} kernel threads is reached"),
            Refusal::System(number) => {
                write!(f, "the system refuses more kernel threads (error {number})")
            }
        }
    }
}

impl Spawner {
    pub(crate) const fn new() -> Spawner {
        Spawner {
            bell: Parker::new(),
            calls: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
            no_signals: AtomicU32::new(0),
        }
    }

    /// A worker is needed.
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Whether nobody knows when there will be another worker.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// No preemption signal can be sent now, by this error number: the spawner says so.
    pub(crate) fn tell_of_signals(&self, number: i32) {
        if self.no_signals.swap(number as u32, Ordering::Relaxed) == 0 {
            self.ring();
        }
    }

    /// Asks the spawner to look what there is to do.
    pub(crate) fn ring(&self) {
        self.bell.wake();
    }
}

/// Starts the spawner.
pub(crate) fn open(cluster: &'static Cluster) -> io::Result<()> {
    cluster.employ("gt-spawner", work)
}

/// The spawner's work. When it returns it makes no more workers, and the processors that have
/// retired are no longer its own.
fn work(cluster: &'static Cluster) {
    let mut seen = 0;
    // After a refusal another attempt is due.
    let mut asks_again = false;
    let mut looks = Looks::new();
    while !cluster.stopping.load(Ordering::SeqCst) {
        let spawner = &cluster.spawner;
        let look_at = looks.see_to(|now| {
            let go_on = || !spawner.bell.is_woken();
            let idle = || idle_stacks(cluster);
            reclaim::look(now, cluster.active(), idle, dismantle, go_on)
        });
        let again = asks_again.then(|| clock::now() + RETRY_SPAWN);
        let next = again.into_iter().chain(look_at).min();
        // Told, or the time is up: it looks at everything.
        let _ = spawner.bell.sleep(next);
        perturb::point("spawner: heard");
        cluster.see_to_size();
        match spawner.no_signals.load(Ordering::Relaxed) {
            0 => {}
            number => thread_limit::report_signals(number as i32),
        }
        let calls = spawner.calls.load(Ordering::Relaxed);
        let needed = cluster.spare_count() == 0;
        if (calls == seen && !asks_again) || !needed {
            seen = calls;
            asks_again = false;
            continue;
        }
        seen = calls;
        let refusal = spawn_worker(cluster).err();
        asks_again = refusal.is_some();
        let was_refused = spawner.is_refused.swap(asks_again, Ordering::Relaxed);
        if let (Some(refusal), true) = (refusal, was_refused) {
            thread_limit::report(cluster, refusal);
        }
    }
}

/// Asks the spawner to look at the stacks that nobody uses. Preemption is off.
pub(super) fn ask_to_reclaim(cluster: &Cluster) {
    let is_asked = core::mem::replace(&mut cluster.idlers.lock().look_is_due, true);
    if !is_asked {
        cluster.spawner.ring();
    }
}

/// Takes the stacks of an idle processor, if one has some.
fn idle_stacks(cluster: &Cluster) -> Option<List> {
    let mut idlers = cluster.idlers.lock();
    idlers.look_is_due = false;
    let mut stacks = None;
    idlers.processors.take_out(|processor| {
        // SAFETY: nobody owns a processor that lies in the list, and this has the list's lock.
        let mut processor = unsafe { Owned::assume(processor) };
        stacks = stacks.take().or_else(|| processor.own().stacks.take());
        false
    });
    stacks
}

fn dismantle(slot: &'static Slot) -> Result<(), Stays> {
    ThreadStack::dismantle(slot, switch::spare_cache)
}

/// The cluster has ended, and its stacks are in the common lists: another cluster's spawner looks
/// after them. If there is none, the caller is no green thread, and returns them now.
pub(super) fn leave_stacks(cluster: &Cluster) {
    let is_there = |cluster: &&Cluster| !cluster.stopping.load(Ordering::SeqCst);
    match worker::clusters().find(is_there) {
        Some(other) => {
            let _off = current::preemption_off();
            ask_to_reclaim(other);
        }
        None => reclaim::all(cluster.active(), dismantle),
    }
}

/// Makes one worker, without the program's allocator.
pub(crate) fn spawn_worker(cluster: &'static Cluster) -> Result<(), Refusal> {
    let _unseen = sanitizer::unseen();
    // Bound workers come on top: if they were all that there may be, no worker would run other
    // threads.
    let bound = cluster.bound.load(Ordering::Relaxed);
    let limit = cluster.config.max_kernel_threads + bound;
    let counted = cluster
        .workers
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < limit).then_some(n + 1)
        });
    if counted.is_err() {
        return Err(Refusal::Limit(limit));
    }
    let made = Worker::new(cluster).and_then(|worker| {
        let argument = core::ptr::from_ref(worker).cast_mut().cast();
        // SAFETY: `live` expects a worker's record, which is never freed, and aborts rather than
        // unwinds.
        unsafe { helper::bare(live, argument) }.inspect_err(|_| worker.end())
    });
    made.map_err(|number| {
        cluster.workers.fetch_sub(1, Ordering::Relaxed);
        Refusal::System(number)
    })
}

/// The whole life of a worker's kernel thread.
extern "C" fn live(worker: *mut c_void) -> *mut c_void {
    let _unseen = sanitizer::unseen();
    // SAFETY: the record that `spawn_worker` gave, which is never freed.
    let worker: &'static Worker = unsafe { &*worker.cast::<Worker>() };
    perturb::point("worker: begins");
    let cluster = worker.cluster();
    kernel_thread::set_name(format_args!("gt-worker-{}", worker.index));
    KernelThread::begin(true);
    if worker.begin().is_ok() {
        // SAFETY: this is its kernel thread, and it runs here only.
        super::run::run(unsafe { RunLoop::new(worker) });
        worker.use_native_tls();
        switch::leave_cache(worker);
        signal::drop_alternate_stack();
        KernelThread::end();
    } else {
        // There is no memory for its alternate stack. A thread that needs a worker asks again.
        std::thread::sleep(std::time::Duration::from_nanos(RETRY_SPAWN));
        cluster.spawner.call();
    }
    worker.end();
    perturb::point("worker: ended");
    // SeqCst: pairs with `Cluster::end`, which stores `stopping` before it loads the count.
    if cluster.workers.fetch_sub(1, Ordering::SeqCst) == 1
        && cluster.stopping.load(Ordering::SeqCst)
    {
        cluster.emptied.wake();
    }
    core::ptr::null_mut()
}
