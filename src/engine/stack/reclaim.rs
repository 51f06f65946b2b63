//! Stacks that nobody uses go back to the system.
//!
//! After many threads have ended there are many free slots, each with two pages or more. Once an interval the
//! spawner *looks*, and halves in each class what nobody has taken from the common list since the last
//! look (what caches do with magazines: Bonwick and Adams, "Magazines and Vmem", 2001). So most of this
//! memory has gone back to the system after some intervals, and as many threads that start soon find most of the
//! stacks. A batch for each processor stays for ever.
//!
//! ```text
//!   caches of idle processors --all--> common list --half of the excess--> destroyed --> decommitted --> folded
//!   cache of a busy one      --half-->    ^  |
//!                 threads that end -------'  '------> threads that start
//! ```
//!
//! # When
//! The monitor *asks* once a second while anything runs, and before it sleeps. It raises a flag then
//! and rings the spawner; a look lowers the flag. Rounds are an interval apart. They go on without
//! being asked as long as a list has more than is kept; then an idle cluster is left alone.
//!
//! No cache is forgotten: the flag is under the lock under which processors go to sleep. A look lowers the flag
//! and takes the caches of those that sleep. If a processor goes to sleep after that, then the monitor,
//! which asks after all processors have gone to sleep, finds the flag lowered, and there is another look.
//!
//! # Which thread may touch what
//! - *A slot that is being returned* cannot be taken: it is in no cache and no list, since the look took
//!   it out of the common list, under its lock. Others come to it only by its address
//!   ([`find`](super::find), [`visit`](super::visit)), and only read; `inspect::notes` keeps it from
//!   being destroyed meanwhile. It can be had again when [`decommit`](super::decommit) has set its bit, under
//!   the slabs' lock, and is cut then as if new. Slots are folded under that lock, too.
//! - *A common list* is anybody's, under its lock.
//! - *A cache* belongs to its processor's owner, and that of an idle processor to the holder of the idlers' lock: there
//!   the look takes it as a whole, which takes no time, and trims the slots later. Busy processors are
//!   asked by `WANTED`: the next one that gets a slot back halves its cache.
//! - *A look* is the spawner's, an ordinary thread, which may free memory and block. A call comes first:
//!   then the look ends, and the next one goes on. If it waits for malloc's lock, which a preempted thread
//!   may hold, the monitor helps as if it waited for that while it makes a worker.
//! - *A cluster that ends* leaves its slots to the spawner of another; the last one returns them ([`all`]).
//! - *`dlopen` and `dlclose`*: a block is reset when its thread ends. The loader's memory in it is freed as
//!   when a kernel thread ends.
//! - *A forked child* has no spawner, and uses no slots.
//!
//! # Memory orderings
//! All passes under locks. `WANTED` is a hint: relaxed.

use super::{BATCH, COMMON, Common, List, Slot, WANTED, release, slab};
use crate::engine::sys::{perturb, shared::Lock};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// From one look to the next, in nanoseconds; tests shorten it.
pub(crate) static INTERVAL: AtomicU64 = AtomicU64::new(1_000_000_000);

/// For how long the owner cannot take its data away from a slot.
pub(crate) enum Stays {
    ForNow,
    ForEver,
}

/// Returns half of what nobody has taken, as long as `go_on` agrees. True: there is more for another
/// look.
///
/// The cluster has `processors` processors. `idle` takes the cache of one that is idle, until there is none;
/// `destroy` takes the owner's data out of a slot, and decommits it. The caller is a kernel thread that
/// runs no green thread: it may wait for malloc's locks.
pub(crate) fn look(
    now: u64,
    processors: usize,
    mut idle: impl FnMut() -> Option<List>,
    destroy: impl Fn(&'static Slot) -> Result<(), Stays>,
    go_on: impl Fn() -> bool,
) -> bool {
    perturb::point("reclaim: looks");
    while let Some(stacks) = idle() {
        stacks.release();
        if !go_on() {
            return true;
        }
    }
    WANTED.store(true, Relaxed);
    let kept = processors * BATCH;
    let mut more = false;
    for common in &COMMON {
        let excess = common.lock().unused(now).saturating_sub(kept);
        match give_back(common, excess.div_ceil(2), kept, &destroy, &go_on) {
            Ok(()) => more |= common.lock().list.len() > kept,
            Err(Stays::ForNow) => return true,
            Err(Stays::ForEver) => return false,
        }
    }
    while slab::fold() {
        if !go_on() {
            return true;
        }
    }
    more
}

/// Returns all slots that no cache has, but for a batch for each of `processors`.
pub(crate) fn all(processors: usize, destroy: impl Fn(&'static Slot) -> Result<(), Stays>) {
    for common in &COMMON {
        // Slots that cannot be destroyed now stay: no spawner is left that would look again.
        let _ = give_back(common, usize::MAX, processors * BATCH, &destroy, || true);
    }
    while slab::fold() {}
}

/// Returns `count` slots of a list, but leaves `kept`.
fn give_back(
    common: &Lock<Common>,
    count: usize,
    kept: usize,
    destroy: impl Fn(&'static Slot) -> Result<(), Stays>,
    go_on: impl Fn() -> bool,
) -> Result<(), Stays> {
    for _ in 0..count {
        if !go_on() {
            return Err(Stays::ForNow);
        }
        let mut free = common.lock();
        let slot = (free.list.len() > kept).then(|| free.pop()).flatten();
        drop(free);
        let Some(slot) = slot else { break };
        destroy(slot).inspect_err(|_| release(slot))?;
    }
    Ok(())
}

impl Common {
    /// How many slots nobody has taken in the interval that ends now. None, if another cluster's look
    /// was less than an interval ago.
    fn unused(&mut self, now: u64) -> usize {
        if now < self.looked_at + INTERVAL.load(Relaxed) {
            return 0;
        }
        self.looked_at = now;
        std::mem::replace(&mut self.fewest, self.list.len())
    }
}

#[cfg(test)]
mod tests;
