//! Green threads that are locked to a kernel thread
//! ([`lock_kernel_thread`](crate::lock_kernel_thread)).
//!
//! Such a thread is in queues like any other. If a worker takes the thread out and is not the one
//! that it is locked to, the worker hands over its processor, with the thread; the other worker
//! runs the thread. When the thread leaves its stack, its worker lets its processor go, and sleeps
//! until the thread is handed back. If the thread has ended, its kernel thread ends too, and takes
//! along the thread's changes to it: names, affinity, namespaces. A thread whose call makes such a change
//! is locked for good before the call ([`for_good`]).

use crate::engine::atomic::Ordering::*;
use crate::engine::policy::Readied;
use crate::engine::probe;
use crate::engine::sched::run::{complete, ready_again};
use crate::engine::sched::tuning::IDLE_BEFORE_RETIREMENT;
use crate::engine::sched::{
    Green, Owned, RunLoop, ThreadFlags, Worker, current, idle::Rested, switch::Action,
};
#[cfg(sim)]
use crate::engine::sys::simulated;
use crate::engine::sys::{clock, kernel_thread, perturb, signal};

/// A thread that has been locked so often stays locked: its count can be no higher, or the thread was locked for good.
const FOR_GOOD: u16 = u16::MAX;

/// The calling green thread stays on its kernel thread, once more.
pub(crate) fn lock() {
    if let Some(entered) = super::enter() {
        add(entered.green, entered.worker);
    }
}

/// Takes one [`lock`] back.
pub(crate) fn unlock() {
    if let Some(entered) = super::enter() {
        take_back(entered.green);
    }
}

/// Makes a change of the calling kernel thread. A green thread that makes it is locked from before the call on, for the
/// rest of its life if the change succeeds: no other thread must find itself changed.
///
/// It needs no processor, so that a thread which has lost its own can call it; and a handler that has interrupted the thread's
/// own code is that thread's. Where the thread cannot be locked, the
/// change is made as it is: in a handler that has interrupted the runtime's code, and in a child of `vfork`.
pub(crate) fn for_good<T, E>(change: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // While the thread runs its own code on this kernel thread, no other thread writes the count; and a thread in a handler
    // is not preempted.
    let is_free = |green: &&'static Green| is_here(green) && green.off.load(Relaxed) == 0;
    let Some(green) = current::owner().filter(is_free) else {
        return change();
    };
    let off = current::preemption_off();
    add(green, green.worker());
    drop(off);
    let result = change();
    let _off = current::preemption_off();
    match result {
        Ok(_) => green.locks.set(FOR_GOOD),
        Err(_) => take_back(green),
    }
    result
}

/// Whether `green`, whose thread pointer this is, runs on this kernel thread. It may be running
/// elsewhere: a handler may have interrupted the scheduler before that has its own thread pointer again, and a child of
/// `vfork` has its parent's.
pub(super) fn is_here(green: &'static Green) -> bool {
    let stay = || {
        let worker = green.last_worker()?;
        let tick = worker.tick.load(Relaxed);
        Some((worker.thread(), worker.index, tick))
    };
    loop {
        let before = stay();
        if before.is_some_and(|(thread, ..)| thread == kernel_thread::id()) {
            return true;
        }
        // Two equal answers mean that the thread was not preempted between them, and so has not moved.
        if before == stay() {
            return false;
        }
    }
}

/// The caller is `green`, which stays on `worker` with preemption off.
fn add(green: &Green, worker: &'static Worker) {
    if green.locks.get() == 0 {
        worker.had_children.set(kernel_thread::has_children());
    }
    green.locks.set(green.locks.get().saturating_add(1));
    green.locked_to.set(Some(worker));
    // There is one kernel thread in a simulated process.
    #[cfg(sim)]
    if simulated::is_on() {
        return;
    }
    green.flags.add(ThreadFlags::LOCKED);
}

/// The caller is `green`, with preemption off.
fn take_back(green: &Green) {
    if green.locks.get() != FOR_GOOD {
        green.locks.set(green.locks.get() - 1);
    }
    if green.locks.get() == 0 {
        green.flags.remove(ThreadFlags::LOCKED);
    }
}

/// Whether `green`, which has left its stack on this worker with a mask of its own, leaves the mask here and stays, too: it is
/// locked, or a signal that it blocks has come for it.
pub(super) fn keeps_mask(worker: &'static Worker, green: &Green) -> bool {
    if green.locks.get() != 0 {
        return true;
    }
    let has_signal = signal::pending() & !worker.base_mask.get() != 0;
    #[cfg(sim)]
    let has_signal = has_signal && !simulated::is_on();
    if has_signal {
        green.locked_to.set(Some(worker));
        green.flags.add(ThreadFlags::LOCKED);
    } else {
        green.flags.remove(ThreadFlags::LOCKED);
    }
    has_signal
}

/// `green` is locked to another worker: that one gets this processor and runs it; this worker
/// becomes spare.
#[cold]
#[inline(never)]
pub(super) fn hand_to_its_worker(run: &mut RunLoop, green: &'static Green) -> Rested {
    let worker = run.worker();
    let cluster = worker.cluster();
    let Some(bound) = green.locked_to.get() else {
        crate::engine::sys::die("a locked thread is locked to no worker")
    };
    let Some(processor) = run.surrender() else {
        ready_again(worker, None, green, Readied::Yielded);
        return cluster.wait_for_processor(run);
    };
    bound.handed.set(Some(green));
    perturb::point("locked: handing");
    processor.give_to(bound);
    bound.parker.wake();
    cluster.wait_for_processor(run)
}

/// The thread that is locked to this worker has left its stack: the processor goes to others until
/// the thread is handed back, or this worker ends with the thread. The worker gives its processor
/// up before any worker can pick the thread.
#[cold]
#[inline(never)]
pub(super) fn stay(run: &mut RunLoop, green: &'static Green, action: Action) -> Rested {
    let worker = run.worker();
    let cluster = worker.cluster();
    let has_ended = matches!(action, Action::Exit);
    // A thread that was locked because of a signal has a count of 0: nobody has asked for children then.
    let had_children = worker.had_children.get() || green.locks.get() == 0;
    worker.use_native_tls();
    // Relaxed, here and below: a spawner that reads an old count and is refused a worker tries again.
    cluster.bound.fetch_add(1, Relaxed);
    let mut processor = run.surrender();
    probe::stopped(processor.as_mut().map(Owned::lend), green, action);
    if let Some(processor) = processor {
        cluster.put_taken_to_sleep(processor);
    }
    complete(worker, None, green, action);
    if has_ended {
        // The children that this thread has made may be told of its end now (PR_SET_PDEATHSIG), but not those that other
        // threads have made on this kernel thread.
        while had_children && !cluster.stopping.load(SeqCst) && kernel_thread::has_children() {
            let look_again = clock::now() + IDLE_BEFORE_RETIREMENT;
            worker.parker.sleep(Some(look_again));
        }
        cluster.bound.fetch_sub(1, Relaxed);
        return Rested::Dismissed;
    }
    cluster.live_count.outside.switches.add_shared(1);
    // The thread may have armed a timer, which this worker does not watch.
    cluster.monitor.kick();
    perturb::point("locked: staying");
    worker.sleep_until_woken();
    cluster.bound.fetch_sub(1, Relaxed);
    Rested::Working { searching: false }
}
