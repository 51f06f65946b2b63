//! Timers: a green thread that waits until a deadline is in the heap of the processor that it left.
//!
//! A heap is under its own lock, so that any thread can fire its due timers: its owner between
//! threads, a thief before it steals, a sleeper whose deadline has come. All of a firing happens
//! under that lock. So does disarming, which every thread does itself when it goes on after a wait
//! with a deadline. Hence nobody touches a timer after its thread has moved on.
//!
//! A processor that has always something to run looks at its timers every 2 µs or so, between two
//! threads ([`Looks`]), and a thread whose deadline has passed runs next.
//!
//! Ordering: `next_deadline` is a hint, Relaxed. A machine that goes to sleep looks at it after the
//! fence of its announcement (`idle`), and timers are armed on processors that are awake.

use core::mem::offset_of;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use crate::engine::atomic::Ordering;
use crate::engine::green::Green;
use crate::engine::green::current;
use crate::engine::green::fifo::Fifo;
use crate::engine::green::timer::{Entry, Heap};
use crate::engine::policy::{Readied, Ready};
use crate::engine::probe::{self, By, Readied as Why};
use crate::engine::sched::tuning::{LOOK_AT_TIMERS, PACE};
use crate::engine::sched::{Cluster, Owned, Processor};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{perturb, sanitizer};

/// When a busy processor looks at its timers, in switches. It doubles or halves their number to
/// keep to [`PACE`], whatever its threads do.
pub(super) struct Looks {
    next: u64,
    /// A power of two, up to [`LOOK_AT_TIMERS`].
    switches: u64,
    /// When it looked.
    last: u64,
    /// After this switch it flushes what a driver holds back (`io`).
    flush: u64,
}

impl Looks {
    pub(super) const fn new() -> Looks {
        Looks {
            next: 0,
            switches: LOOK_AT_TIMERS,
            last: 0,
            flush: NEVER,
        }
    }

    /// The number of the switch after which it looks.
    #[inline(always)]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Every [`LOOK_AT_TIMERS`]th switch is among those after which it looks.
    fn plan(&mut self, switches: u64) {
        let all = (switches / LOOK_AT_TIMERS + 1) * LOOK_AT_TIMERS;
        self.next = all.min(switches + self.switches).min(self.flush);
    }

    /// What is held back goes out after this switch, if not before.
    pub(super) fn flush_by(&mut self, switch: u64) {
        self.flush = self.flush.min(switch);
        self.next = self.next.min(switch);
    }

    pub(super) fn is_flush_due(&self, switches: u64) -> bool {
        switches >= self.flush
    }

    pub(super) fn flushed(&mut self) {
        self.flush = NEVER;
    }

    fn keep_pace(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        if elapsed > PACE {
            self.switches = (self.switches / 2).max(1);
        } else if elapsed < PACE / 2 {
            self.switches = (self.switches * 2).min(LOOK_AT_TIMERS);
        }
    }
}

/// `green`, which has left its stack, is to be woken at `deadline`.
pub(crate) fn arm(green: &'static Green, home: &'static Processor, deadline: u64) {
    green.set_timer_home(home);
    perturb::point("timers: arming");
    let mut heap = home.timers.lock();
    // SAFETY: the entry is in no heap: its thread disarms before it waits again. It lives in the
    // record.
    unsafe { heap.insert(entry_of(green), deadline) };
    publish(home, &heap);
}

/// `green`, which runs again, takes its timer back, whether it has fired or not.
pub(crate) fn disarm(green: &'static Green) {
    let (_off, _unseen) = (current::preemption_off(), sanitizer::unseen());
    if let Some(home) = green.take_timer_home() {
        perturb::point("timers: disarming");
        let mut heap = home.timers.lock();
        // SAFETY: it was armed in this heap, and if it was fired, then under the heap's lock.
        if unsafe { heap.remove(entry_of(green)) } {
            publish(home, &heap);
        }
    }
}

/// Fires the timers that are due at this processor. If the monitor says so, it fires those of all
/// processors: the owners are late, or have gone.
#[inline(never)]
pub(super) fn fire_own(processor: &mut Owned<'_>) {
    if processor.attention.load(Ordering::Relaxed) {
        processor.attention.store(false, Ordering::Relaxed);
        for home in processor.cluster().processors() {
            fire_at(processor, home);
        }
    } else {
        fire_at(processor, processor.shared());
    }
}

/// [`fire_own`] by a processor that has other threads to run, after its switch number `switches`.
/// The first thread whose deadline has passed runs next, as long as the time slice that it would go
/// on in is not over.
pub(super) fn fire_when_busy(processor: &mut Owned<'_>, switches: u64, is_slice_over: bool) {
    match processor.next_deadline.load(Ordering::Relaxed) {
        NEVER => processor.own().looks.switches = LOOK_AT_TIMERS,
        deadline => {
            let now = clock::now();
            processor.own().looks.keep_pace(now);
            if deadline <= now {
                let first = match is_slice_over {
                    true => Readied::Arrived,
                    false => Readied::Woken,
                };
                hand_over(processor, fire(processor.shared(), now), first);
            }
        }
    }
    if processor.attention.load(Ordering::Relaxed) {
        fire_own(processor);
    }
    processor.own().looks.plan(switches);
}

/// Fires the timers that are due at `home`, and hands their threads to the policy in the name of
/// `processor`.
#[inline(never)]
pub(super) fn fire_at(processor: &mut Owned<'_>, home: &Processor) {
    if home.next_deadline.load(Ordering::Relaxed) == NEVER {
        return;
    }
    hand_over(processor, fire(home, clock::now()), Readied::Arrived);
}

/// Hands threads to the policy in the name of `processor`: how the first became ready, and the
/// others by arriving.
fn hand_over(processor: &mut Owned<'_>, mut ready: Fifo, first: Readied) {
    perturb::point("timers: fired");
    let mut how = first;
    let mut any = false;
    let policy = &processor.cluster().policy;
    while let Some(green) = ready.pop() {
        probe::readied(By::Processor(processor.lend()), green, Why::Fired);
        policy.ready(Ready::new(green), how, Some(&processor.seat()));
        how = Readied::Arrived;
        any = true;
    }
    if any {
        processor.cluster().notify();
    }
}

/// Fires the timers that are due at `home`. Returns the threads that are ready now, in order.
fn fire(home: &Processor, now: u64) -> Fifo {
    let mut ready = Fifo::new();
    if home.next_deadline.load(Ordering::Relaxed) > now {
        return ready;
    }
    let mut heap = home.timers.lock();
    while let Some(entry) = heap.pop_due(now) {
        let green = green_of(entry);
        perturb::point("timers: expiring");
        // SAFETY: the thread left its parking before the run loop armed the timer, and cannot go on before the
        // lock is free.
        if unsafe { &*(*green.parking()).waiter }.expire() {
            ready.push(green);
        }
    }
    publish(home, &heap);
    ready
}

/// Whether any timer of the cluster is due.
pub(crate) fn any_due(cluster: &Cluster) -> bool {
    let earliest = earliest(cluster);
    earliest != NEVER && earliest <= clock::now()
}

/// The cluster's earliest deadline; [`NEVER`] if no timer is armed.
pub(crate) fn earliest(cluster: &Cluster) -> u64 {
    let deadlines = cluster
        .processors()
        .map(|p| p.next_deadline.load(Ordering::Relaxed));
    deadlines.min().unwrap_or(NEVER)
}

fn publish(home: &Processor, heap: &Heap) {
    perturb::point("timers: publishing");
    home.next_deadline
        .store(heap.next_deadline().unwrap_or(NEVER), Ordering::Relaxed);
}

fn entry_of(green: &'static Green) -> NonNull<Entry> {
    // Derived from the whole record, to which `green_of` leads back.
    let at = |record: NonZeroUsize| record.saturating_add(offset_of!(Green, timer));
    NonNull::from(green).map_addr(at).cast()
}

fn green_of(entry: NonNull<Entry>) -> &'static Green {
    let offset = offset_of!(Green, timer);
    // SAFETY: every entry in a heap of ours is the `timer` field of a record, which is never freed.
    unsafe { &*entry.as_ptr().byte_sub(offset).cast::<Green>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_keep_pace_with_threads_of_any_length() {
        for length in [20, 100, 1_000, 50_000] {
            let (mut looks, mut now) = (Looks::new(), 0);
            let (mut longest, mut last) = (0, 0);
            for switches in 1..10_000 {
                now += length;
                if switches < looks.next() {
                    assert!(switches % LOOK_AT_TIMERS != 0, "it looks at each of these");
                    continue;
                }
                looks.keep_pace(now);
                looks.plan(switches);
                // It has found its pace by then.
                if switches > 4 * LOOK_AT_TIMERS {
                    longest = longest.max(now - last);
                }
                last = now;
            }
            assert!(longest <= PACE.max(length), "{longest} for {length}");
        }
    }
}
