//! The run loop and the search for work, after `src/engine/sched/run.rs`, step by step. Left out: threads
//! that are locked to a kernel thread, hand-overs from thread to thread, preemption, what is held back, and
//! processors that are taken, or too many.

use super::idle::Rested;
use super::start::{self, fetch};
use super::tuning::{LOOK_AT_EVENTS, LOOK_AT_TIMERS, PASSES, PAUSES};
use super::{Cluster, Owned, RunLoop, Worker, events};
use crate::engine::atomic::{Ordering, fence};
use crate::engine::policy::{ForOthers, Next, Others, Readied, Ready, Victims};
use crate::engine::sched::Green;
use crate::engine::sys::{kernel_thread, topology};
use crate::virtual_time;

// What a park state says; the library's is `sched::park`.
const RUNS: u32 = 0;
const PARKED: u32 = 1;
const NOTIFIED: u32 = 2;

/// What a thread wants when it leaves its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Yield,
    Park,
    Exit,
}

/// What the threads do.
pub(crate) trait Program {
    /// The switch to `green`, which then runs on `worker` until it leaves its stack.
    fn step(&self, worker: &'static Worker, green: &'static Green) -> Action;

    /// `green` has ended.
    fn ended(&self, green: &'static Green);
}

/// The life of a worker, from when all have processors until the cluster stops.
pub(crate) fn run(worker: &'static Worker, program: &dyn Program) {
    // SAFETY: each CPU of the simulation is one worker.
    let mut run = unsafe { RunLoop::new(worker) };
    let cluster = worker.cluster();
    let mut rested = Rested::Working { searching: false };
    while let Rested::Working { searching } = rested {
        rested = match find_work(&mut run, searching) {
            Ok(next) => {
                worker.was_woken.set(false);
                run_one_after_another(&mut run, program, next)
            }
            Err(NothingFound { searching }) => {
                if worker.was_woken.replace(false) {
                    cluster
                        .tally
                        .idle_wake_ups
                        .set(cluster.tally.idle_wake_ups.get() + 1);
                }
                cluster.rest(&mut run, searching)
            }
        };
    }
}

fn owned<'a>(run: &'a mut RunLoop) -> Owned<'a> {
    run.owned().expect("nobody takes processors")
}

fn run_one_after_another(run: &mut RunLoop, program: &dyn Program, mut next: Next) -> Rested {
    let worker = run.worker();
    loop {
        let green = next.thread.into_green();
        let mut processor = owned(run);
        if green.stack.get().is_none() {
            start::move_in(&mut processor, green);
        }
        fetch(green);
        green.park_state.store(RUNS, Ordering::Relaxed);
        let action = program.step(worker, green);
        let processor = &mut owned(run);
        match action {
            Action::Yield => ready_from(processor, green, Readied::Yielded),
            Action::Park => park(processor, green),
            Action::Exit => {
                start::end(processor, green);
                program.ended(green);
            }
        }
        processor.switches.add(1);
        let switches = processor.switches.get();
        if switches.is_multiple_of(LOOK_AT_TIMERS) || processor.attention.load(Ordering::Relaxed) {
            look_around(processor, switches.is_multiple_of(LOOK_AT_EVENTS));
        }
        match own_queues(processor) {
            Some(following) => next = following,
            None => return Rested::Working { searching: false },
        }
    }
}

/// Serves a busy processor now and then between two threads.
fn look_around(processor: &mut Owned<'_>, io: bool) {
    processor.note_cpu();
    if io && events::is_in_use() && !events::look(processor) {
        kernel_thread::give_way();
    }
    events::fire_own_timers(processor);
}

/// Parks `green`, unless it has been notified meanwhile.
fn park(processor: &Owned<'_>, green: &'static Green) {
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    let parked = green
        .park_state
        .compare_exchange(RUNS, PARKED, success, failure);
    if parked.is_err() {
        ready_from(processor, green, Readied::Yielded);
    }
}

/// Wakes `green`, which is parked or about to be, in the name of `processor`. Once a wait.
pub(crate) fn wake_up(processor: &Owned<'_>, green: &'static Green) {
    if green.park_state.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
        ready_from(processor, green, Readied::Woken);
    }
}

/// Makes `green` ready; the caller runs on `processor`.
pub(crate) fn ready_from(processor: &Owned<'_>, green: &'static Green, how: Readied) {
    let cluster = processor.cluster();
    let thread = Ready::new(green);
    tell(
        cluster,
        cluster.policy.ready(thread, how, Some(processor.seat())),
    );
}

/// Makes `green` ready, on any processor that takes it.
pub(crate) fn ready_globally(green: &'static Green, how: Readied) {
    let cluster = green.cluster();
    tell(cluster, cluster.policy.ready(Ready::new(green), how, None));
}

fn tell(cluster: &'static Cluster, for_others: ForOthers) {
    if for_others == ForOthers::Work {
        cluster.notify();
    }
}

/// The processor of `worker`, for the thread that runs there and has entered the runtime.
///
/// # Safety
/// The caller is that thread; it uses one at a time, and none after it has left its stack.
pub(crate) unsafe fn enter(worker: &'static Worker) -> Owned<'static> {
    let processor = worker.processor.get().expect("nobody takes processors");
    // SAFETY: the run loop uses it no more until the thread has left; the rest is the caller's promise.
    unsafe { Owned::assume(processor) }
}

// ---- finding work ----

struct NothingFound {
    searching: bool,
}

fn find_work(run: &mut RunLoop, mut searching: bool) -> Result<Next, NothingFound> {
    let worker = run.worker();
    let processor = &mut owned(run);
    processor.dry.add(1);
    processor.note_cpu();
    events::fire_own_timers(processor);
    if let Some(next) = own_queues(processor).or_else(|| arrivals(processor)) {
        if searching {
            stop_searching(processor.cluster());
        }
        return Ok(next);
    }
    if !searching && let Some(next) = look_at_others(processor, false) {
        return Ok(next);
    }
    let cluster = worker.cluster();
    searching = searching || cluster.idle.start_search(cluster.search_limit());
    if searching {
        search(worker, processor)
    } else {
        Err(NothingFound { searching })
    }
}

fn own_queues(processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = processor.cluster();
    let others = match cluster.idle.is_everybody_busy() {
        true => Others::Busy,
        false => Others::Idle,
    };
    cluster.policy.next(processor.seat(), others)
}

fn arrivals(processor: &mut Owned<'_>) -> Option<Next> {
    events::look(processor)
        .then(|| own_queues(processor))
        .flatten()
}

/// A searcher has found something. If it was the last, it wakes the next one for any other work.
pub(super) fn stop_searching(cluster: &'static Cluster) {
    if cluster.idle.found() {
        fence(Ordering::SeqCst);
        if cluster.policy.work_for_others() == ForOthers::Work {
            cluster.notify();
        }
    }
}

fn search(worker: &'static Worker, processor: &mut Owned<'_>) -> Result<Next, NothingFound> {
    let cluster = worker.cluster();
    loop {
        if let Some(next) = steal(worker, processor) {
            stop_searching(cluster);
            return Ok(next);
        }
        let vain = &cluster.tally.vain_searches;
        vain.set(vain.get() + 1);
        if events::spin(processor).is_none() {
            return Err(NothingFound { searching: true });
        }
    }
}

fn steal(worker: &'static Worker, processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = worker.cluster();
    let alone = cluster.idle.awake() <= 1 || !cluster.config.ideas.spinning;
    for pass in if alone { PASSES } else { 1 }..=PASSES {
        events::fire_all_timers(processor);
        if let Some(next) = own_queues(processor) {
            return Some(next);
        }
        if let Some(next) = look_at_others(processor, pass == PASSES) {
            return Some(next);
        }
        if !alone {
            virtual_time::pause_for(PAUSES);
        }
    }
    None
}

fn look_at_others(processor: &mut Owned<'_>, last_pass: bool) -> Option<Next> {
    let cluster = processor.cluster();
    let thief = processor.shared();
    let distance = |other: usize| thief.distance(cluster.processor(other));
    let victims = victims(processor, last_pass, &distance);
    processor.steal_attempts.add(1);
    let thread = cluster.policy.steal(processor.seat(), victims)?;
    processor.steals.add(1);
    Some(thread.into())
}

fn victims<'a>(
    thief: &mut Owned<'_>,
    last_pass: bool,
    distance: &'a dyn Fn(usize) -> usize,
) -> Victims<'a> {
    let count = thief.cluster().seats();
    let mut victims = Victims::new(thief.index, count, thief.own().random(), last_pass);
    victims.distance = topology::machine().map(|_| distance);
    victims
}
