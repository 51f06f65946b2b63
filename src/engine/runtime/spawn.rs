//! The beginning and end of a green thread: the parts that the thread itself runs.
//!
//! [`start`] makes a thread ready whose first code is [`body`]. It gets a stack when it runs
//! (`sched::start`). `body` runs the closure, which leaves its result with the joiner, runs the
//! thread-local destructors, and says that the thread has ended (`end`); the run loop buries it.

use std::io;

use super::handle::{Shared, Thread};
use super::packet::{Job, ThreadOptions};
use crate::engine::arch::FloatControl;
use crate::engine::atomic::{Ordering, fence};
use crate::engine::inspect::notes;
use crate::engine::policy::Readied;
use crate::engine::probe::{self, By};
use crate::engine::sched::start::{ThreadStack, stock_up};
use crate::engine::sched::{self, Cluster, Green, ThreadFlags, current, thread::Records};
use crate::engine::sys::{sanitizer, signal};
use crate::engine::tls;

/// Starts a green thread.
pub(super) fn start(
    cluster: &'static Cluster,
    options: &ThreadOptions,
    job: Job,
) -> io::Result<()> {
    let green = {
        let _unseen = sanitizer::unseen();
        new_green(cluster, options.stack_size)?
    };
    let share = job.into_raw();
    sanitizer::publish(green);
    let _unseen = sanitizer::unseen();
    // SAFETY: the thread is new; `body` does not unwind, and gets the job's address, once.
    unsafe { green.prepare(cluster, (body, share.cast())) };
    let identity = share.cast_mut().cast();
    // Release: a report finds the record in the roster, not in a queue; partner: Acquire in `inspect::threads`.
    green.identity.store(identity, Ordering::Release);
    green
        .priority
        .store(options.priority.get(), Ordering::Relaxed);
    inherit_mask(cluster, green);
    inherit_floats(green);
    green.since.note_time();
    match &mut sched::enter() {
        Some(entered) if core::ptr::eq(entered.worker().cluster(), cluster) => {
            entered.processor().counts.spawned.add(1);
            probe::spawned(By::Thread(entered), green);
            sched::ready_from(&entered.processor(), green, Readied::Spawned);
        }
        _ => {
            let _off = current::preemption_off();
            cluster.live_count.outside.spawned.add_shared(1);
            probe::spawned(By::Outside, green);
            sched::ready_globally(green, Readied::Spawned);
        }
    }
    Ok(())
}

/// Gives a new thread the signal mask of its creator, as std does.
fn inherit_mask(cluster: &'static Cluster, new: &'static Green) {
    let may_differ = match current::green() {
        Some(green) => green.flags.has(ThreadFlags::MASK),
        None => true,
    };
    if may_differ {
        let mask = signal::mask() & !signal::bit(cluster.config.signal);
        if mask != cluster.base_mask {
            new.mask.set(mask);
            new.flags.add(ThreadFlags::MASK);
        }
    }
}

/// Gives a new thread the floating-point settings of its creator, as std does.
fn inherit_floats(new: &'static Green) {
    let floats = FloatControl::current();
    if floats != FloatControl::DEFAULT {
        new.flags.keep_floats(floats);
    }
}

/// Makes a record for a new thread. A thread with the common stack size gets its stack when it first
/// runs; a stack was free a moment ago. Any other thread has its stack from now on.
fn new_green(cluster: &'static Cluster, size: Option<usize>) -> io::Result<&'static Green> {
    let (free, is_stocked) = match sched::enter() {
        Some(mut entered) if core::ptr::eq(entered.worker().cluster(), cluster) => {
            let mut processor = entered.processor();
            let own = processor.own();
            (own.records.pop(), !own.stacks.is_empty())
        }
        _ => (None, false),
    };
    let green = free.map_or_else(Records::create, Ok)?;
    let prepared = match size.filter(|&size| size != cluster.config.stack_size) {
        Some(size) => ThreadStack::find(size).map(|stack| green.start_on(stack)),
        None if is_stocked => Ok(()),
        None => stock_up(cluster),
    };
    if let Err(error) = prepared {
        let _off = current::preemption_off();
        Records::release(green);
        return Err(error);
    }
    Ok(green)
}

/// Runs the whole life of a green thread, on its own stack. Starts and ends with preemption off.
///
/// # Safety
/// `job` is the address of this thread's job ([`Job::into_raw`]), for this call alone.
unsafe fn body(green: &'static Green, job: *const ()) {
    sanitizer::see_again();
    sanitizer::observe(green);
    current::begin(Some(green));
    // SAFETY: `start` has made the address of the job, and nobody else has it.
    let job = unsafe { Job::from_raw(job.cast::<Shared>()) };
    // Preemption is on for the first time: user code runs.
    current::on(green);
    // SAFETY: the block is the thread's own, at the start of its life.
    unsafe { tls::enter() };
    if green.took_last.get() {
        // If there is no memory, the next thread that needs it waits for some.
        let _ = stock_up(green.cluster());
        tls::forget_errno();
    }
    // SAFETY: libc's function only reads the thread pointer.
    let pthread = unsafe { libc::pthread_self() } as usize;
    // Release: partner: Acquire in `Shared::pthread` (`runtime::handle`), whose caller may read the control block.
    job.thread()
        .shared()
        .pthread
        .store(pthread, Ordering::Release);
    leave(green, job.run());
}

/// Ends a green thread: all that comes after its closure, up to its stack's last frame. `thread` is the share that `start`
/// gave to the thread.
fn leave(green: &'static Green, thread: Thread) {
    // SAFETY: the block is the thread's own, at the end of its life.
    unsafe { tls::exit() };
    if sched::fork::is_child() && current::green().is_none() {
        // The thread that forked has returned in the child, and no other thread is there. The
        // process ends, as libc has it when the last pthread ends. (std's `exit` takes a lock that
        // may be held for ever: see `pthread`.)
        // SAFETY: no other thread runs, or else it is as in any C program.
        unsafe { libc::exit(0) };
    }
    if thread.shared().end() {
        // SAFETY: the block is the thread's own, at the end of its life again.
        unsafe { tls::exit() };
    }
    sanitizer::publish(green.cluster());
    probe::ended(green);
    green
        .identity
        .store(core::ptr::null_mut(), Ordering::Relaxed);
    // Release: who reads memory that is used again sees that the thread has ended; partner: the Acquire
    // fence in `spawned_at` (`sched::monitor`).
    fence(Ordering::Release);
    // No code asks for the current thread any more.
    notes::leave_behind(thread, true);
    current::forbid_preemption(green);
}
