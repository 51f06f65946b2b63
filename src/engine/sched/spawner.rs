//! The spawner: a kernel thread that makes workers ahead of need, changes the number of processors with the quota and
//! clears up after those that have gone (`cluster`), returns stacks that nobody uses (`stack::reclaim`), and asks the
//! system which CPUs are near each other (`topology`).
//!
//! Making a kernel thread takes libc's locks, which a green thread without a processor may hold; so neither the
//! scheduler nor the monitor ever does it. They call the spawner, which is an ordinary thread.
//!
//! A worker is made without the program's allocator, and comes to its first thread without it:
//! when many threads wait for the allocator, its holders are preempted threads in a queue, which
//! wait for a new worker. Its record is mapped (`processor`), and its kernel thread is libc's, not
//! std's. (libc has a vector from `calloc` for each thread. While a `calloc` of the program's own holds the
//! spawner up, or the spawner is refused, the monitor evicts threads: `monitor`.)
//!
//! One call brings one worker, which calls for the next one if it finds work for others.
//!
//! # Helpers
//!
//! Helpers are kernel threads that work for the runtime and run no green threads of their own accord. A search for
//! deadlocks counts no helper among the threads that could wake another.
//!
//! | function | the thread | for |
//! |---|---|---|
//! | [`spawn_helper`] | std's, with all signals blocked | monitor, spawner, keeper of a ring, reporters |
//! | [`bare`] | libc's, which never touches the program's allocator | workers, and the proxy of `dlclose` |

use core::{ffi::c_void, fmt};
use std::{io, thread::JoinHandle};

use crate::engine::atomic::{AtomicBool, Ordering::*};
use crate::engine::inspect::kernel::{self, KernelThread};
use crate::engine::sched::start::{self, ThreadStack};
use crate::engine::sched::tuning::RETRY_SPAWN;
use crate::engine::sched::{Cluster, Owned, RunLoop, Worker, idle::Parker, monitor, switch};
use crate::engine::stack::{List, reclaim};
use crate::engine::sys::{self, clock, kernel_thread, perturb, sanitizer, signal, topology};
use crate::engine::tls;

/// Where calls arrive.
#[derive(Default)]
pub(crate) struct Spawner {
    parker: Parker,
    /// A worker is needed.
    is_called: AtomicBool,
    /// The spawner was asked to look at the stacks that the processors have left, and has not yet.
    is_asked: AtomicBool,
    /// Whether a worker is needed, and the last attempt to make one was refused.
    pub(super) is_refused: AtomicBool,
}

/// In the place of an error number of the system's: there are as many workers as there may be.
const AT_LIMIT: i32 = 0;

impl Spawner {
    /// A worker is needed.
    pub(crate) fn call(&self) {
        self.is_called.store(true, Relaxed);
        self.ring();
    }

    /// Asks the spawner to look at the stacks that nobody uses, unless it was asked.
    pub(super) fn ask_to_reclaim(&self) {
        if !self.is_asked.swap(true, Relaxed) {
            self.ring();
        }
    }

    /// Asks the spawner to look what there is to do.
    pub(crate) fn ring(&self) {
        self.parker.wake();
    }
}

/// Starts the first worker, and the spawner.
pub(super) fn start(cluster: &'static Cluster) -> io::Result<()> {
    // There is no worker yet, so the limit is not reached.
    spawn_worker(cluster).map_err(io::Error::from_raw_os_error)?;
    cluster.employ("gt-spawner", work)
}

/// The spawner's work. When it returns it makes no more workers, and the processors that have
/// retired are no longer its own.
fn work(cluster: &'static Cluster) {
    // When the spawner looks for unused stacks, and at the quota. `None` after a look: no stack is left to return before
    // somebody rings.
    let (mut last_look, mut look_at) = (clock::now(), None);
    let mut failures = 0;
    let spawner = &cluster.spawner;
    while !cluster.stopping.load(SeqCst) {
        let now = clock::now();
        if *look_at.get_or_insert(last_look + reclaim::INTERVAL.load(Relaxed)) <= now {
            last_look = now;
            cluster.see_to_quota();
            // This reads files, and a program that runs for a moment should not wait for them: so the start does not do it.
            topology::discover();
            let go_on = || !spawner.parker.is_woken();
            let idle = || idle_stacks(cluster);
            let more = reclaim::look(now, cluster.active(), idle, ThreadStack::destroy, go_on);
            look_at = more.then_some(now + reclaim::INTERVAL.load(Relaxed));
        }
        // After a refusal another attempt is due.
        let is_refused = spawner.is_refused.load(Relaxed);
        let again = is_refused.then(|| clock::now() + RETRY_SPAWN);
        let next = again.into_iter().chain(look_at).min();
        // Whether a thread has called or the time is up, the spawner looks at all its duties.
        let _ = spawner.parker.sleep(next);
        perturb::point("spawner: heard");
        start::supply(cluster, &mut failures);
        cluster.clear_up();
        let is_asked = spawner.is_called.swap(false, Relaxed) || is_refused;
        let is_needed = is_asked && cluster.spare_count() == 0;
        let refusal = is_needed.then(|| spawn_worker(cluster).err()).flatten();
        spawner.is_refused.store(refusal.is_some(), Relaxed);
        if let Some(refusal) = refusal.filter(|_| is_refused) {
            report_shortage(cluster, refusal);
        }
    }
}

/// Takes the stacks of an idle processor, if one has some.
fn idle_stacks(cluster: &Cluster) -> Option<List> {
    cluster.spawner.is_asked.store(false, Relaxed);
    let idlers = cluster.idlers.lock();
    idlers.processors.iter().find_map(|processor| {
        // SAFETY: nobody owns a processor that lies in the list, and this has the list's lock.
        let mut processor = unsafe { Owned::assume(processor) };
        processor.own().stacks.take()
    })
}

/// The cluster has ended, and its stacks are in the common lists: another cluster's spawner looks
/// after them. If there is none, the caller is no green thread, and returns them now.
pub(super) fn leave_stacks(cluster: &Cluster) {
    let is_there = |cluster: &&Cluster| !cluster.stopping.load(SeqCst);
    match Worker::clusters().find(is_there) {
        Some(other) => other.spawner.ask_to_reclaim(),
        None => reclaim::all(cluster.active(), ThreadStack::destroy),
    }
}

/// How many workers there may be now. Bound workers come on top: if they were all that there may be, no worker would run
/// other threads.
fn limit(cluster: &Cluster) -> usize {
    cluster.config.max_kernel_threads + cluster.bound.load(Relaxed)
}

/// Makes one worker, without the program's allocator. The error is the system's number, or [`AT_LIMIT`].
fn spawn_worker(cluster: &'static Cluster) -> Result<(), i32> {
    let _unseen = sanitizer::unseen();
    let limit = limit(cluster);
    let more = |count: usize| (count < limit).then_some(count + 1);
    let counted = cluster.workers.fetch_update(Relaxed, Relaxed, more);
    if counted.is_err() {
        return Err(AT_LIMIT);
    }
    let made = Worker::new(cluster).and_then(|worker| {
        let argument = core::ptr::from_ref(worker).cast_mut().cast();
        // SAFETY: `live` expects a worker's record, which is never freed, and aborts rather than
        // unwinds.
        unsafe { bare(live, argument) }.inspect_err(|_| worker.end())
    });
    made.inspect_err(|_| {
        cluster.workers.fetch_sub(1, Relaxed);
    })
}

/// The calling kernel thread, the only one of a simulated process, is the worker of `cluster` from now on.
#[cfg(sim)]
pub(crate) fn work_here(cluster: &'static Cluster) -> Result<(), i32> {
    cluster.workers.fetch_add(1, Relaxed);
    live(core::ptr::from_ref(Worker::new(cluster)?).cast_mut().cast());
    Ok(())
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
        // There is no memory for the alternate stack. The spawner makes another worker after a while.
        std::thread::sleep(std::time::Duration::from_nanos(RETRY_SPAWN));
        cluster.spawner.call();
    }
    worker.end();
    perturb::point("worker: ended");
    // SeqCst: pairs with `Cluster::end`, which stores `stopping` before it loads the count.
    if cluster.workers.fetch_sub(1, SeqCst) == 1 && cluster.stopping.load(SeqCst) {
        cluster.closer.wake();
    }
    core::ptr::null_mut()
}

// ==== helpers ====

/// The stack of a helper.
pub(crate) const HELPER_STACK: usize = 256 << 10;
/// The stack of a helper that looks at threads: it unwinds stacks, and reads debug information.
pub(crate) const OBSERVER_STACK: usize = 2 << 20;

/// Starts a helper that does `work`. It runs no handler of the program's.
// The closure is boxed, so that std's code for a thread is in the binary once.
pub(crate) fn spawn_helper(
    name: &str,
    stack_size: usize,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<JoinHandle<()>> {
    // A new thread begins with its creator's mask.
    let mask = signal::set_mask(signal::ALL);
    let started = kernel::spawn_helper(name, tls::with_thread_locals(stack_size), work);
    signal::set_mask(mask);
    started
}

/// Starts a kernel thread that calls `main(argument)`, with libc's means alone. A thread of std's allocates and takes
/// locks of std's at its start, before any code of ours runs: one that is made so that a preempted holder of the
/// allocator's lock can go on would wait for that holder.
///
/// # Safety
/// `main` may be called so, on a thread of its own, and does not unwind.
pub(super) unsafe fn bare(
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<(), i32> {
    let size = tls::with_thread_locals(HELPER_STACK);
    // SAFETY: `main` may be called with `argument`, as the caller of this function has promised.
    unsafe { kernel_thread::start(size, libc::PTHREAD_CREATE_DETACHED, main, argument) }.map(drop)
}

// ==== reports ====

/// Reports, once, that there has been a shortage for a while: the system refuses workers by this error number, or there
/// are as many as there may be.
fn report_shortage(cluster: &Cluster, number: i32) {
    static IS_MADE: AtomicBool = AtomicBool::new(false);
    const WHAT_NOW: &str = "while other threads are ready: those that wait on a futex (std's locks, and other \
         libraries'), a file's lock or a child take turns from now on, and all is slower. What waits in greenthread's own \
         locks, channels and sockets needs no kernel thread. Builder::max_kernel_threads raises the limit; the system's \
         are ulimit -u and the cgroup's pids.max";
    if !monitor::is_short(cluster) {
        return;
    }
    let limit = limit(cluster);
    let why = match number {
        AT_LIMIT => format!("the limit of {limit} kernel threads is reached"),
        _ => format!("the system refuses more kernel threads (error {number})"),
    };
    say_once(&IS_MADE, format_args!("{why}, {WHAT_NOW}"));
}

/// Reports, once, that no preemption signals can be sent now, by this error number.
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
            "{why}: while that is so, threads that compute are not preempted, and each \
             keeps a kernel thread to itself"
        ),
    );
}

/// Writes to stderr, if that blocks nobody. Without std's lock, which a preempted thread may hold, and
/// without the allocator.
fn say_once(is_said: &AtomicBool, text: fmt::Arguments<'_>) {
    let is_read = sys::poll_now(libc::STDERR_FILENO, libc::POLLOUT)
        .is_ok_and(|ready| ready & libc::POLLOUT != 0);
    if is_read && !is_said.swap(true, Relaxed) {
        sys::say(text);
    }
}
