//! The run loop that every worker runs: find a thread, switch to it, do what it asks for. All other files feed
//! it or are called by it.
//!
//! A worker with a processor takes threads from the processor's queues until there are none, looks for the work
//! of others, and rests. A thread leaves its stack with an [`Action`], which is done here, when it has been left.
//!
//! A processor that has run dry looks at the others' queues once, for which it does not count as a searcher
//! ([`look_at_others`]): while work is everywhere, the processors change nothing that they all look at. If that finds
//! nothing the processor searches, unless enough processors do: it looks a few times more, and for events too, before
//! it rests ([`search`]).
//!
//! Invariants:
//! 1. The fast path touches no thread-local: invariant 3 of the folder.
//! 2. A searcher ends by [`stop_searching`] or by resting, once (`idle.md`).

use crate::engine::atomic::{Ordering::*, fence};
use crate::engine::policy::{ForOthers, Next, Others, Readied, Ready, Victims};
use crate::engine::probe::{self, By, Pick, ReadyReason};
use crate::engine::sched::locked::{hand_to_its_worker, stay};
use crate::engine::sched::switch::{self, Action};
use crate::engine::sched::tuning::{LOOK_AT_EVENTS, LOOK_AT_TIMERS, PASSES, PAUSES};
use crate::engine::sched::{
    Cluster, Green, Owned, RunLoop, ThreadFlags, Worker, current, enter, events, idle::Rested,
    park::ParkState, signals, start,
};
#[cfg(sim)]
use crate::engine::sys::simulated;
use crate::engine::sys::{clock, kernel_thread, perturb, sanitizer, topology};

/// The life of a worker: rest until there is a processor, then find work and run it.
pub(super) fn run(mut run: RunLoop) {
    let cluster = run.worker().cluster();
    let mut rested = cluster.wait_for_processor(&mut run);
    while let Rested::Working { searching } = rested {
        rested = match find_work(&mut run, searching) {
            Ok(next) => run_one_after_another(&mut run, next),
            #[cfg(sim)]
            Err(NothingFound { searching }) if simulated::is_on() => {
                simulated::nothing_is_ready(events::earliest_deadline(cluster));
                Rested::Working { searching }
            }
            Err(NothingFound { searching }) => cluster.rest(&mut run, searching),
        };
    }
}

/// Runs `next`, then the threads in this processor's queue, until the queue is empty or the
/// processor is gone.
#[inline(never)]
fn run_one_after_another(run: &mut RunLoop, mut next: Next) -> Rested {
    let worker = run.worker();
    loop {
        let (green, inherits_slice) = (next.thread.into_green(), next.inherits_slice);
        if green.flags.any() {
            let is_elsewhere = |bound: &Worker| !core::ptr::eq(bound, worker);
            if green.flags.has(ThreadFlags::LOCKED)
                && green.locked_to.get().is_none_or(is_elsewhere)
            {
                return hand_to_its_worker(run, green);
            }
            if green.flags.has(ThreadFlags::NEW)
                && !run.owned().is_some_and(|p| start::give_stack(p, green))
            {
                return start::find_stack(run, green);
            }
        }
        // SAFETY: the thread came out of a queue: it is ours.
        let action = unsafe { switch::to(run, green, inherits_slice) };
        // The flag is read before `complete`, after which the thread may be running elsewhere.
        if green.flags.has(ThreadFlags::LOCKED) {
            return stay(run, green, action);
        }
        let mut processor = run.owned();
        probe::stopped(processor.as_mut().map(Owned::lend), green, action);
        let successor = complete(worker, processor.as_mut(), green, action);
        let Some(mut processor) = processor else {
            worker.cluster().live_count.outside.switches.add_shared(1);
            return worker.cluster().wait_for_processor(run);
        };
        let processor = &mut processor;
        processor.counts.switches.add(1);
        let is_time = processor.counts.switches.get() >= processor.own().looks.next;
        #[cfg(sim)]
        let is_time = is_time && !simulated::is_on();
        if is_time || processor.attention.load(Relaxed) {
            if processor.is_surplus() {
                if let Some(green) = successor {
                    ready_again(worker, Some(processor), green, Readied::Woken);
                }
                // The worker goes to `find_work`, where the processor steps down.
                return Rested::Working { searching: false };
            }
            look_around(worker, processor);
        }
        next = match successor {
            Some(green) => Next {
                thread: Ready::new(green),
                inherits_slice: true,
            },
            None => match own_queues(processor) {
                Some(following) => following,
                None => return Rested::Working { searching: false },
            },
        };
        let from = match next.inherits_slice {
            true => Pick::NextSlot,
            false => Pick::Queue,
        };
        probe::picked(processor, next.thread.green(), from);
    }
}

/// Does what a thread asked for when it left its stack. Without a processor, all threads go to the
/// global queue. Returns the thread that runs next, if the thread has named one.
#[inline(always)]
pub(super) fn complete(
    worker: &'static Worker,
    mut processor: Option<&mut Owned<'_>>,
    green: &'static Green,
    action: Action,
) -> Option<&'static Green> {
    match action {
        Action::Yield => ready_again(worker, processor, green, Readied::Yielded),
        Action::Park => park(worker, processor, green),
        Action::HandOver => {
            let may_follow = |next: &&'static Green| may_follow(worker, processor.is_some(), next);
            return green.next.take().filter(may_follow);
        }
        Action::Preempt => {
            match &mut processor {
                Some(p) => p.counts.preemptions.add(1),
                None => green.cluster().live_count.outside.preemptions.add_shared(1),
            }
            ready_again(worker, processor, green, Readied::Preempted);
        }
        Action::Exit => start::end(worker, processor, green),
    }
    None
}

/// Whether a thread that was handed over to can run here and now; if not, it goes to the global
/// queue of its cluster. It goes there too when the time slice is over: two threads that hand over
/// to each other inherit the slice for ever, and would keep all others out.
#[inline(always)]
fn may_follow(worker: &'static Worker, has_processor: bool, successor: &'static Green) -> bool {
    let may = has_processor
        && core::ptr::eq(successor.cluster(), worker.cluster())
        && !worker.is_slice_over();
    if !may {
        worker.use_native_tls();
        ready_globally(successor, Readied::Woken);
    }
    may
}

/// Wakes a sleeper if the policy says that there is work for others.
#[inline(always)]
fn tell(cluster: &'static Cluster, for_others: ForOthers) {
    if for_others == ForOthers::Work {
        cluster.notify();
    }
}

/// Makes `green` ready, which has left its stack and can go on at once.
#[inline(always)]
pub(super) fn ready_again(
    worker: &Worker,
    processor: Option<&mut Owned<'_>>,
    green: &'static Green,
    how: Readied,
) {
    match processor {
        Some(p) => ready_from(p, green, how),
        None => {
            worker.use_native_tls();
            ready_globally(green, how);
        }
    }
}

/// Parks `green`, which has left its stack, unless its waiter has been notified meanwhile.
#[inline(always)]
pub(super) fn park(worker: &Worker, processor: Option<&mut Owned<'_>>, green: &'static Green) {
    perturb::point("park: left");
    green.since.note_time();
    // SAFETY: the thread has left it on its stack, and nobody else can resume the thread yet.
    let parking = unsafe { *green.parking() };
    if parking.deadline != clock::NEVER && parking.deadline != green.kept() {
        let own = processor.as_ref().map(|p| p.shared());
        let home = own.unwrap_or_else(|| worker.cluster().table.get(0));
        events::arm_timer(green, home, parking.deadline, false);
    }
    perturb::point("park: armed");
    // SAFETY: the waiter lives until its thread goes on, which is after this: nobody else can
    // resume it yet.
    if !unsafe { &*parking.waiter }.state.commit(ParkState::PARKED) {
        ready_again(worker, processor, green, Readied::Yielded);
    }
}

/// There is nothing to run, or no processor any more to run it on.
struct NothingFound {
    searching: bool,
}

/// Finds the next thread. `searching`: this worker counts as a searcher already.
#[inline(never)]
fn find_work(run: &mut RunLoop, searching: bool) -> Result<Next, NothingFound> {
    let worker = run.worker();
    let processor = &mut run.owned().ok_or(NothingFound { searching })?;
    let next = look_for_work(worker, processor, searching)?;
    probe::picked(processor, next.thread.green(), Pick::Found);
    Ok(next)
}

#[inline(always)]
fn look_for_work(
    worker: &'static Worker,
    processor: &mut Owned<'_>,
    searching: bool,
) -> Result<Next, NothingFound> {
    processor.counts.dry.add(1);
    processor.note_cpu();
    events::fire_own_timers(processor);
    events::flush(processor);
    #[cfg(sim)]
    if simulated::is_on() {
        worker.use_native_tls();
        events::look(processor);
    }
    // Another worker may have handed over a thread that is locked to this one.
    let handed = worker.handed.take().map(|green| Ready::new(green).into());
    if handed.is_none() && processor.is_surplus() {
        step_down(worker, processor);
        return Err(NothingFound { searching });
    }
    let found = handed.or_else(|| own_queues(processor)).or_else(|| {
        worker.use_native_tls();
        events::look(processor).then(|| own_queues(processor))?
    });
    if let Some(next) = found {
        if searching {
            worker.use_native_tls();
            stop_searching(processor.cluster());
        }
        return Ok(next);
    }
    perturb::point("find_work: nothing");
    if !searching && let Some(next) = look_at_others(processor, false) {
        return Ok(next);
    }
    let cluster = worker.cluster();
    // Half of the processors may search at once.
    let most = cluster.active().div_ceil(2) as u32;
    match searching || cluster.idle.start_search(most) {
        true => search(worker, processor),
        false => Err(NothingFound { searching: false }),
    }
}

/// A searcher has found something. If it was the last searcher, it wakes the next one for any other
/// work (the ramp). The caller's thread pointer is the kernel thread's own.
pub(super) fn stop_searching(cluster: &'static Cluster) {
    if cluster.idle.found() {
        perturb::point("found: last searcher");
        // SeqCst: partner: the fence in `claim_wake`. The push of a thread that relied on us comes
        // before it.
        fence(SeqCst);
        tell(cluster, cluster.policy.work_for_others());
    }
}

/// Looks for the work of other processors, and for events while it looks. A worker that finds
/// something searches no more, even if others get it: the events may be of another cluster's
/// threads, or the threads may be stolen at once.
fn search(worker: &'static Worker, processor: &mut Owned<'_>) -> Result<Next, NothingFound> {
    let cluster = processor.cluster();
    loop {
        if let Some(next) = steal(worker, processor) {
            stop_searching(cluster);
            return Ok(next);
        }
        perturb::point("search: in vain");
        let Some(ready) = events::spin(processor) else {
            return Err(NothingFound { searching: true });
        };
        if ready.len() != 0 {
            // The searcher stops before the threads are in the queue: they wake nobody.
            stop_searching(cluster);
            events::take_in(processor, ready);
            return own_queues(processor).ok_or(NothingFound { searching: false });
        }
    }
}

/// Looks into all timers and all queues, a few times before it gives up.
#[inline(never)]
fn steal(worker: &Worker, processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = worker.cluster();
    // The processor passes once, without a pause, if all others sleep, or if the cluster is not to spin.
    let alone = cluster.idle.awake() <= 1 || !cluster.config.ideas.spinning;
    for pass in if alone { PASSES } else { 1 }..=PASSES {
        for other in cluster.processors() {
            events::fire_timers_at(processor, other);
        }
        let own = own_queues(processor);
        let found = own.or_else(|| look_at_others(processor, pass == PASSES));
        if found.is_some() {
            return found;
        }
        if !alone {
            (0..PAUSES).for_each(|_| core::hint::spin_loop());
        }
    }
    None
}

/// Takes threads from another processor.
#[inline(never)]
fn look_at_others(processor: &mut Owned<'_>, last_pass: bool) -> Option<Next> {
    let cluster = processor.cluster();
    let (thief, random) = (processor.shared(), processor.own().random.u32(..));
    let distance = |other: usize| thief.distance(cluster.table.get(other));
    let mut victims = Victims::new(thief.index, cluster.seats(), random, last_pass);
    if topology::MACHINE.load(Acquire).is_some() {
        victims.distance = Some(&distance);
    }
    processor.counts.steal_attempts.add(1);
    let thread = cluster.policy.steal(processor.seat(), victims)?;
    processor.counts.steals.add(1);
    probe::picked(processor, thread.green(), Pick::Stolen);
    Some(thread.into())
}

/// There are too many processors, and this one goes to sleep next: the threads in its queue go to
/// others.
#[cold]
#[inline(never)]
fn step_down(worker: &'static Worker, processor: &mut Owned<'_>) {
    worker.use_native_tls();
    perturb::point("step_down");
    processor.cluster().policy.leave(processor.seat());
    let own = processor.own();
    own.stacks.drain();
    own.records.drain();
}

/// Takes the next thread out of the next slot, the local queue or the global queue.
#[inline(always)]
fn own_queues(processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = processor.cluster();
    let others = match cluster.idle.is_everybody_busy() {
        true => Others::Busy,
        false => Others::Idle,
    };
    cluster.policy.next(processor.seat(), others)
}

/// Serves a busy processor between two threads: what is held back there, its timers and, less often, events.
#[cold]
#[inline(never)]
fn look_around(worker: &'static Worker, processor: &mut Owned<'_>) {
    let switches = processor.counts.switches.get();
    let attention = processor.attention.load(Relaxed);
    if attention || switches >= processor.own().looks.flush {
        events::flush(processor);
    }
    if attention || switches.is_multiple_of(LOOK_AT_TIMERS) {
        processor.note_cpu();
    }
    if attention || switches.is_multiple_of(LOOK_AT_EVENTS) {
        worker.use_native_tls();
        // If no events came, the processor gives way to the OS: the sender of the next event may be waiting for this CPU,
        // and threads that only give way in turn would keep it.
        if events::is_in_use() && !events::look(processor) {
            kernel_thread::give_way();
        }
    }
    events::fire_timers_when_busy(processor, switches, worker.is_slice_over());
}

/// Makes `green` ready, which was waiting and is now the caller's, whatever the calling thread was doing: it may be in a
/// signal handler.
pub(crate) fn ready(green: &'static Green) {
    sanitizer::publish(green);
    // `enter` is matched by reference: a move would read the fields that were just written, in wider words, and so wait for
    // the writes.
    match &mut enter() {
        Some(entered) if core::ptr::eq(entered.worker.cluster(), green.cluster()) => {
            probe::readied(By::Thread(entered), green, ReadyReason::Woke);
            ready_from(&entered.processor(), green, Readied::Woken);
        }
        // The thread exists in the parent only, and cannot run in this process.
        None if current::is_forked_child() => {}
        None if current::is_hidden() => signals::defer_wake(green),
        _ => {
            let _off = current::preemption_off();
            probe::readied(By::Outside, green, ReadyReason::Woke);
            ready_globally(green, Readied::Woken);
        }
    }
}

/// Makes `green` ready; the caller runs on `processor`.
#[inline(always)]
pub(crate) fn ready_from(processor: &Owned<'_>, green: &'static Green, how: Readied) {
    let cluster = processor.cluster();
    let (thread, seat) = (Ready::new(green), Some(processor.seat()));
    tell(cluster, cluster.policy.ready(thread, how, seat));
}

/// Makes `green` ready, on any processor that takes it. The caller has its kernel thread's thread pointer, or is a green thread
/// with preemption off.
#[cold]
#[inline(never)]
pub(crate) fn ready_globally(green: &'static Green, how: Readied) {
    let _unseen = sanitizer::unseen();
    let cluster = green.cluster();
    tell(cluster, cluster.policy.ready(Ready::new(green), how, None));
}
