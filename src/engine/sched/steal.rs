//! The search for the work of other processors.
//!
//! A processor that has run dry looks at the others' queues once, for which it does not count as a
//! searcher ([`look_at_others`]): while work is everywhere, the processors change nothing that they
//! all look at. If that finds nothing it searches, unless enough do: it looks a few times more, and
//! for events too, before it rests ([`search`]).
//!
//! Invariant: a searcher ends by [`stop_searching`] or by resting, once (`idle.md`).

use super::run::{NothingFound, own_queues};
use super::tuning::{PASSES, PAUSES};
use super::{Cluster, Owned, Worker, io, timers};
use crate::engine::atomic::{Ordering, fence};
use crate::engine::policy::{ForOthers, Next, Victims};
use crate::engine::probe::{self, Pick};
use crate::engine::sys::{perturb, topology};

/// A searcher has found something. If it was the last searcher, it wakes the next one for any other
/// work (the ramp). The caller is at home.
pub(super) fn stop_searching(cluster: &'static Cluster) {
    if cluster.idle.found() {
        perturb::point("found: last searcher");
        // SeqCst: partner: the fence in `claim_wake`. The push of a thread that relied on us comes
        // before it.
        fence(Ordering::SeqCst);
        if cluster.policy.work_for_others() == ForOthers::Work {
            cluster.notify();
        }
    }
}

/// Looks for the work of other processors, and for events while it looks. A worker that finds
/// something searches no more, even if others get it: the events may be of another cluster's
/// threads, or the threads may be stolen at once.
pub(super) fn search(
    worker: &'static Worker,
    processor: &mut Owned<'_>,
) -> Result<Next, NothingFound> {
    let cluster = processor.cluster();
    loop {
        if let Some(next) = steal(worker, processor) {
            stop_searching(cluster);
            return Ok(next);
        }
        perturb::point("search: in vain");
        match io::spin(processor) {
            io::Spun::InVain => return Err(NothingFound { searching: true }),
            io::Spun::OtherWork => {}
            io::Spun::Events(ready) => {
                // It stops before the threads are in the queue: they wake nobody.
                stop_searching(cluster);
                io::take_in(processor, ready);
                return own_queues(processor).ok_or(NothingFound { searching: false });
            }
        }
    }
}

/// Looks into all timers and all queues, a few times before it gives up.
#[inline(never)]
fn steal(worker: &'static Worker, processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = worker.cluster();
    // It waits for nobody if all others sleep, or if the cluster is not to spin.
    let alone = cluster.idle.awake() <= 1 || !cluster.config.ideas.spinning;
    for pass in if alone { PASSES } else { 1 }..=PASSES {
        for other in cluster.processors() {
            timers::fire_at(processor, other);
        }
        if let Some(next) = own_queues(processor) {
            return Some(next);
        }
        if let Some(next) = look_at_others(processor, pass == PASSES) {
            return Some(next);
        }
        if !alone {
            (0..PAUSES).for_each(|_| core::hint::spin_loop());
        }
    }
    None
}

/// Takes threads from another processor.
#[inline(never)]
pub(super) fn look_at_others(processor: &mut Owned<'_>, last_pass: bool) -> Option<Next> {
    let cluster = processor.cluster();
    let thief = processor.shared();
    let distance = |other: usize| thief.distance(cluster.processor(other));
    let victims = victims(processor, last_pass, &distance);
    processor.steal_attempts.add(1);
    let thread = cluster.policy.steal(&processor.seat(), victims)?;
    processor.steals.add(1);
    probe::picked(processor, thread.green(), Pick::Stolen);
    Some(thread.into())
}

fn victims<'a>(
    thief: &mut Owned<'_>,
    last_pass: bool,
    distance: &'a dyn Fn(usize) -> usize,
) -> Victims<'a> {
    let count = thief.cluster().seats();
    let victims = Victims::new(thief.index, count, thief.own().random(), last_pass);
    match topology::machine() {
        None => victims,
        Some(_) => victims.nearest_first(distance),
    }
}
