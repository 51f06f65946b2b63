//! One look of the monitor: what it sees and does at a processor.
//!
//! Its memory of earlier looks is kept with the processor ([`Seen`]), so the monitor itself
//! allocates nothing.

use crate::engine::atomic::Ordering;
use crate::engine::green::Green;
use crate::engine::probe::{self, Lost};
use crate::engine::sched::tuning::{
    CROWDED_PART, LATE, LONGEST_TICK, NOT_RUN_FOR, RETRY, SETTLING_PART, SHORTEST_TICK, SOON,
};
use crate::engine::sched::{Cluster, Machine, Owned, Processor, preempt};
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::kernel_thread;
use crate::engine::sys::observer::Observer;
use crate::engine::sys::perturb;

/// The monitor's memory of a processor at the last look.
#[derive(Default)]
pub(in crate::engine::sched) struct Seen {
    machine: usize,
    dry: u64,
    slice: u32,
    since: u64,
    cpu: u64,
    /// When the CPU time was last seen to grow.
    moved_at: u64,
    /// Since when the slice is over.
    over: Option<Over>,
}

/// When a slice was first found to be over: on the clock, and in the machine's CPU time.
#[derive(Clone, Copy)]
struct Over {
    at: u64,
    cpu: u64,
}

impl Over {
    /// Signals the thread. False: it does so no more, since the thread has declined for long
    /// enough, and its processor goes to others.
    fn insist(self, now: u64, cpu: u64, send: impl FnOnce() -> bool) -> bool {
        // This counts CPU time: a kernel thread that the system does not run declines nothing. A
        // smaller time than before is that of another kernel thread, which has taken the place of
        // one that has ended.
        let declined_for = cpu.saturating_sub(self.cpu);
        let insists = declined_for < SOON && now - self.at < NOT_RUN_FOR;
        if insists {
            // If it is not sent, the thread is in the runtime, on its way out, or blocked, as the
            // next look finds.
            let _is_sent = send();
        }
        insists
    }
}

/// One look at everything.
pub(super) struct Look<'a> {
    pub(super) cluster: &'static Cluster,
    pub(super) observer: &'a mut Observer,
    pub(super) now: u64,
    /// A thread is ready and not running.
    waiting: bool,
    /// A thread has been ready since the last look, without running.
    pub(super) stuck: bool,
    /// A hand-off: the next look comes soon.
    pub(super) event: bool,
    /// The latest time of the next look.
    pub(super) next: u64,
}

impl<'a> Look<'a> {
    pub(super) fn new(cluster: &'static Cluster, observer: &'a mut Observer, now: u64) -> Look<'a> {
        Look {
            cluster,
            observer,
            now,
            waiting: cluster.has_work(),
            stuck: cluster.policy.len(None) != 0,
            event: false,
            next: NEVER,
        }
    }

    /// Looks at one processor: at the work that waits there, and then at the thread that runs.
    pub(super) fn at(&mut self, processor: &'static Processor, seen: &mut Seen) {
        self.at_queue(processor, seen);
        // Acquire: pairs with the Release in `give_to`.
        let Some(machine) = processor.machine.load(Ordering::Acquire) else {
            seen.machine = 0;
            return;
        };
        let Some(green) = machine.running() else {
            return;
        };
        let slice = machine.slice.load(Ordering::Relaxed);
        let identity = core::ptr::from_ref(machine) as usize;
        if (seen.machine, seen.slice) != (identity, slice) {
            let cpu = machine.cpu_time();
            *seen = Seen {
                machine: identity,
                dry: seen.dry,
                slice,
                since: self.now,
                cpu,
                moved_at: self.now,
                over: None,
            };
            self.at_slice_end(processor, seen);
            if self.waiting {
                // The slice may be a short one: then the next thread would be seen late, and given
                // more.
                let settled = self.now + self.slice(processor) / SETTLING_PART;
                self.next = self.next.min(settled);
            }
            return;
        }
        let is_surplus = processor.is_surplus();
        if is_surplus {
            processor.attention.store(true, Ordering::Relaxed);
        }
        if self.is_blocked(machine, green, seen) {
            let is_missed = self.waiting || is_surplus || self.cluster.needs_a_watch(self.now);
            let is_due = is_missed || self.now - seen.since >= LONGEST_TICK;
            if is_due && (self.cluster.config.ideas.hand_off || is_surplus) {
                let thread = machine.kernel_thread.load(Ordering::Relaxed) as i32;
                let doing = self.observer.doing(thread);
                preempt::note_own_call(green, &doing);
                machine.rest.note(machine);
                let blocked_calls = &self.cluster.blocked_calls;
                let place = blocked_calls.find(&doing, machine, green);
                if self.take(processor, machine, green, Lost::Blocked(place)) {
                    blocked_calls.note(&doing, place);
                }
            }
        } else if (self.waiting && self.cluster.config.ideas.preemption || is_surplus)
            && self.now - seen.since >= self.slice(processor)
        {
            self.preempt(processor, machine, green, seen);
        } else {
            self.at_slice_end(processor, seen);
        }
    }

    /// Looks at the threads that wait at `processor`, for it or for what is held back there.
    fn at_queue(&mut self, processor: &Processor, seen: &mut Seen) {
        if processor.holds.load(Ordering::Relaxed) {
            // Nobody knew how long the thread would run that they wait for.
            processor.attention.store(true, Ordering::Relaxed);
            self.waiting = true;
        }
        if self.cluster.policy.len(Some(processor.index)) != 0 {
            // A processor that comes to the end of its queue again and again, as with events, keeps
            // up. Otherwise the threads in the queue may have been there since the last look.
            if processor.dry.get() - seen.dry <= 1 {
                self.stuck = true;
            } else {
                self.next = self.next.min(self.now + SOON);
            }
        }
        seen.dry = processor.dry.get();
    }

    /// The slice is shorter while others wait behind the running thread.
    fn slice(&self, processor: &Processor) -> u64 {
        let slice = self.cluster.config.time_slice.as_nanos() as u64;
        match self.cluster.policy.out_of_reach(processor.index) {
            0 => slice,
            _ => (slice / CROWDED_PART).max(SHORTEST_TICK),
        }
    }

    /// Comes back when this slice ends; if it is over, and no thread waits, comes back soon.
    fn at_slice_end(&mut self, processor: &Processor, seen: &Seen) {
        let slice = self.slice(processor);
        let end = seen.since + slice;
        let next = match end > self.now {
            true => end,
            false => self.now + SOON.min(slice),
        };
        self.next = self.next.min(next);
    }

    pub(super) fn at_timers(&mut self, processor: &'static Processor) {
        let deadline = processor.next_deadline.load(Ordering::Relaxed);
        if deadline <= self.now {
            // The processor's owner, if it has one, is on its way out, or runs a thread that
            // computes: then the processor whose slice ends first fires the timers of all.
            if processor.is_surplus() || self.now - deadline >= LATE {
                for active in self.cluster.processors().take(self.cluster.active()) {
                    active.attention.store(true, Ordering::Relaxed);
                }
            } else {
                processor.attention.store(true, Ordering::Relaxed);
                self.next = self.next.min(deadline + LATE);
            }
            if self.cluster.idle.sleeping() != 0 {
                // A processor that searches fires the timers of all.
                self.cluster.notify();
            }
            self.waiting = true;
        } else if deadline != NEVER {
            self.next = self.next.min(deadline.max(self.now + LATE));
        }
    }

    fn is_blocked(&mut self, machine: &Machine, green: &Green, seen: &mut Seen) -> bool {
        if green.announced.load(Ordering::Relaxed) {
            return true;
        }
        let cpu = machine.cpu_time();
        if cpu != core::mem::replace(&mut seen.cpu, cpu) {
            seen.moved_at = self.now;
            return false;
        }
        let thread = machine.kernel_thread.load(Ordering::Relaxed) as i32;
        let stands_for_long = self.now - seen.moved_at >= NOT_RUN_FOR;
        green.off.load(Ordering::Relaxed) == 0
            && self.observer.is_blocked(thread).unwrap_or(stands_for_long)
    }

    /// Goes through the three steps: the flag, the signal, and taking the processor.
    fn preempt(
        &mut self,
        processor: &'static Processor,
        machine: &'static Machine,
        green: &'static Green,
        seen: &mut Seen,
    ) {
        machine.end_slice(seen.slice);
        let cpu = machine.cpu_time();
        let over = *seen.over.get_or_insert(Over { at: self.now, cpu });
        let signal = self.cluster.config.signal;
        let has_moved = seen.moved_at == self.now;
        let send = || preempt::send(machine, green, signal, self.now, has_moved, self.observer);
        if !green.calls_itself.load(Ordering::Relaxed) && over.insist(self.now, cpu, send) {
            self.next = self.next.min(self.now + RETRY);
        } else {
            let _is_taken = self.take(processor, machine, green, Lost::Computing);
        }
    }

    /// Takes the processor away from `machine`, whose thread goes on without. False: it was too late.
    fn take(
        &mut self,
        processor: &'static Processor,
        machine: &'static Machine,
        green: &'static Green,
        how: Lost,
    ) -> bool {
        let tick = machine.tick.load(Ordering::Relaxed);
        if machine
            .running()
            .is_none_or(|now| !core::ptr::eq(now, green))
        {
            return false;
        }
        perturb::point("monitor: taking");
        let retake = || {
            let word = &machine.processor;
            let taken = word.retake(processor.into(), kernel_thread::barrier, || {
                // Acquire: pairs with the Release on the way out of the runtime (`current`).
                green.off.load(Ordering::Acquire) == 0
                    && machine
                        .running()
                        .is_some_and(|now| core::ptr::eq(now, green))
                    && machine.tick.load(Ordering::Relaxed) == tick
            });
            // SAFETY: it was taken for good, so it is in hand.
            taken.then(|| unsafe { Owned::assume(processor) })
        };
        let Some(processor) = probe::blocked(machine, green, how, retake) else {
            return false;
        };
        self.event = true;
        self.cluster.hand_offs.add_shared(1);
        self.cluster.lay_to_rest(processor);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cpu_time_declines() {
        const MS: u64 = 1_000_000;
        for (clock, cpu, insists) in [
            (0, 0, true),
            (MS / 2, MS / 2, true),
            // The thread runs, and does not give way.
            (MS, MS, false),
            (19 * MS, MS, false),
            // The system does not run the thread.
            (MS, 0, true),
            (19 * MS, MS / 2, true),
            // The monitor does not wait for it for ever.
            (20 * MS, 0, false),
        ] {
            let over = Over { at: MS, cpu: MS };
            // It does not matter whether a signal could be sent.
            for is_sent in [true, false] {
                let mut signals = 0;
                let send = || {
                    signals += 1;
                    is_sent
                };
                assert_eq!(over.insist(MS + clock, MS + cpu, send), insists);
                assert_eq!(
                    signals, insists as u32,
                    "after {clock} ns, {cpu} of them run"
                );
            }
            assert!(over.insist(MS, 0, || true), "another's CPU time");
        }
    }
}
