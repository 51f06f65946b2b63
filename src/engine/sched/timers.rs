//! Timers: a green thread that waits until a deadline is in the heap of the processor that it left.
//!
//! A heap is under its own lock, so that any thread can fire its due timers: its owner between
//! threads, a thief before it steals, a sleeper whose deadline has come. All of a firing happens
//! under that lock. So does disarming, which every thread does itself when it goes on after a wait
//! with a deadline. Hence nobody touches a timer after its thread has moved on.
//!
//! Ordering: `next_deadline` is a hint, Relaxed. A machine that goes to sleep looks at it after the
//! fence of its announcement (`idle`), and timers are armed on processors that are awake.

use core::mem::offset_of;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use crate::engine::atomic::Ordering;
use crate::engine::green::Green;
use crate::engine::green::fifo::Fifo;
use crate::engine::green::timer::{Entry, Heap};
use crate::engine::policy::{Readied, Ready};
use crate::engine::sched::witness::{self, Arrival};
use crate::engine::sched::{Cluster, Owned, Processor};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::perturb;

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
    let _off = crate::engine::green::current::preemption_off();
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

/// Fires the timers that are due at `home`, and hands their threads to the policy in the name of
/// `processor`.
#[inline(never)]
pub(super) fn fire_at(processor: &mut Owned<'_>, home: &Processor) {
    if home.next_deadline.load(Ordering::Relaxed) == NEVER {
        return;
    }
    let mut ready = fire(home, clock::now());
    perturb::point("timers: fired");
    let mut any = false;
    let policy = &processor.cluster().policy;
    while let Some(green) = ready.pop() {
        witness::arrived(processor, green, Arrival::Deadline);
        policy.ready(Ready::new(green), Readied::Arrived, Some(&processor.seat()));
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
