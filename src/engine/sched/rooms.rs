//! Rooms that nobody needs are given back to the system.
//!
//! Rooms are let to one thread after another. After a crowd of threads there are many, and each
//! holds two pages or more. So an *interval* after such a moment the recruiter looks which of the
//! rooms in the common list nobody has needed in all that time (`stack::Excess`), and dismantles
//! those. A program whose crowd comes again within an interval keeps its rooms.
//!
//! ```text
//!   a processor lies down, or     an appointment      the interval    the caches of idle processors are
//!   a second has gone by,     --> is made         --> is over     --> emptied; the excess is dismantled;
//!   and there are too many                                            if too many are left, another appointment
//! ```
//!
//! So rooms in a processor's cache go after two intervals, and an idle cluster is left alone after
//! those. Nothing of this is on the road of a thread that starts or ends. A processor that is never
//! idle keeps what is in its cache. In the caches and in the common list some rooms stay for ever.
//!
//! The recruiter is an ordinary thread, which may free memory and block. A call comes first: it
//! dismantles one room or folds one slab at a time, and goes on later. If it waits for malloc's lock, which
//! a preempted thread may hold, `shortage` helps as if it waited for that while it makes a machine.
//!
//! A cluster that ends leaves its rooms to the recruiter of another; the last one dismantles them.
//!
//! # No excess is forgotten
//! `IS_MADE` is set with the appointment, and lowered when its time has come, before the recruiter looks. A
//! processor lies down, under the idlers' lock, and then reads the flag. If the recruiter, under the same lock,
//! did not find it among the idle ones, then the processor reads what was written before: no appointment.
//!
//! # Others at the same time
//! - A spawn takes a room from a list, or finds none and furnishes one. The recruiter has the rooms
//!   that it dismantles for itself: it took them out of the common list. It puts those of a cache there while
//!   the processor lies among the idle ones and it holds their lock: nobody owns the processor then.
//! - `resize` is the recruiter's, too.
//! - `dlopen` and `dlclose`: a block is reset when its thread ends. The loader's memory in it is freed as
//!   when a kernel thread ends. The proxy of a `dlclose` looks into rooms in an inspection.
//! - Reports: `green::room`.
//! - A forked child has no recruiter, and uses no rooms.

use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::green::Room;
use crate::engine::green::current;
use crate::engine::green::room::Stays;
use crate::engine::sched::{Cluster, Owned, caches, machine};
use crate::engine::stack::{self, Excess};
use crate::engine::sys::{clock, perturb};

/// For so long nobody has needed a room that is given back.
const INTERVAL: u64 = 5_000_000_000;

/// Rooms cannot be dismantled here.
static STAY_FOR_EVER: AtomicBool = AtomicBool::new(false);

/// Whether the recruiter is to look for rooms that nobody needs.
pub(crate) struct Appointment {
    is_made: AtomicBool,
}

impl Appointment {
    pub(crate) const fn new() -> Appointment {
        Appointment {
            is_made: AtomicBool::new(false),
        }
    }
}

/// The recruiter's work with rooms.
pub(super) struct Giving {
    /// When the interval ends.
    due: Option<u64>,
    /// The rooms that are being dismantled, if that is so.
    excess: Option<Excess>,
}

impl Giving {
    pub(super) const fn new() -> Giving {
        Giving {
            due: None,
            excess: None,
        }
    }

    /// Does what is due, as long as `go_on` agrees. Returns when there is more to do.
    pub(super) fn see_to(
        &mut self,
        cluster: &'static Cluster,
        go_on: impl Fn() -> bool,
    ) -> Option<u64> {
        let now = clock::now();
        if self.due.is_none() && cluster.appointment.is_made.load(Ordering::Relaxed) {
            self.due = Some(now + interval());
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            cluster.appointment.is_made.store(false, Ordering::Relaxed);
            perturb::point("rooms: due");
            cluster.empty_idle_caches();
            let _off = current::preemption_off();
            self.excess = Excess::of_interval(now, interval());
        }
        if let Some(excess) = &mut self.excess {
            if dismantle(excess, go_on) == Outcome::Interrupted {
                return Some(now);
            }
            self.excess = None;
        }
        if self.due.is_none() && is_worth_while() {
            cluster.appointment.is_made.store(true, Ordering::Relaxed);
            self.due = Some(clock::now() + interval());
        }
        self.due
    }
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Done,
    Interrupted,
}

/// Dismantles rooms, as long as `go_on` agrees. Takes malloc's locks.
fn dismantle(excess: &mut Excess, go_on: impl Fn() -> bool) -> Outcome {
    loop {
        if !go_on() {
            return Outcome::Interrupted;
        }
        let slot = {
            let _off = current::preemption_off();
            excess.next()
        };
        let Some(slot) = slot else { break };
        if let Err(stays) = Room::dismantle(slot, spare_cache) {
            let _off = current::preemption_off();
            stack::release(slot);
            if matches!(stays, Stays::ForEver) {
                STAY_FOR_EVER.store(true, Ordering::Relaxed);
            }
            return Outcome::Done;
        }
    }
    while go_on() {
        let _off = current::preemption_off();
        if !stack::fold() {
            return Outcome::Done;
        }
    }
    Outcome::Interrupted
}

fn spare_cache(cache: usize) -> bool {
    let _off = current::preemption_off();
    caches::spare(cache)
}

fn is_worth_while() -> bool {
    stack::is_overstocked() && !STAY_FOR_EVER.load(Ordering::Relaxed)
}

impl Cluster {
    /// A processor has lain down: if its cache has too many rooms, or the common list has, the
    /// recruiter sees to that in time.
    #[inline]
    pub(super) fn see_to_rooms_later(&self, has_too_many: bool) {
        if (has_too_many || stack::is_overstocked())
            && !self.appointment.is_made.load(Ordering::Relaxed)
        {
            self.make_appointment();
        }
    }

    #[cold]
    fn make_appointment(&self) {
        if !STAY_FOR_EVER.load(Ordering::Relaxed)
            && !self.appointment.is_made.swap(true, Ordering::Relaxed)
        {
            self.recruiter.ring();
        }
    }

    /// Gives the rooms that idle processors have in their caches to all, but for a few.
    fn empty_idle_caches(&self) {
        let take = || {
            let _off = current::preemption_off();
            let mut idlers = self.idlers.lock();
            let mut taken = None;
            idlers.processors.take_out(|processor| {
                if taken.is_none() {
                    // SAFETY: nobody owns a processor in the list, and this has the list's lock.
                    let mut processor = unsafe { Owned::assume(processor) };
                    taken = processor.own().stacks.take_excess();
                }
                false
            });
            taken
        };
        while let Some(taken) = take() {
            let _off = current::preemption_off();
            taken.release();
        }
    }

    /// The cluster has ended, and its rooms are in the common list: another cluster's recruiter looks
    /// after them. If there is none, they are dismantled now. The caller is preemptible.
    pub(super) fn leave_rooms(&'static self) {
        let is_there = |cluster: &&'static Cluster| !cluster.stopping.load(Ordering::SeqCst);
        if let Some(other) = machine::clusters().find(is_there) {
            return other.see_to_rooms_later(false);
        }
        if is_worth_while() {
            let mut excess = {
                let _off = current::preemption_off();
                Excess::all()
            };
            dismantle(&mut excess, || true);
        }
    }
}

fn interval() -> u64 {
    #[cfg(test)]
    if let Some(interval) = tests::interval() {
        return interval;
    }
    INTERVAL
}

#[cfg(test)]
mod tests;
