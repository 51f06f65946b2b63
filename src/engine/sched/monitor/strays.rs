//! Strays: machines that burn CPU time without a processor.
//!
//! A thread that was blocked has lost its processor, and goes on without one when its call returns. Most such threads
//! soon enter the runtime, or block again. One that computes for as long as a time slice is sent to the queue by
//! the preemption signal.
//!
//! *Own calls.* A call that the program makes by assembly of its own (rustix does) fails with EINTR, or
//! does a part, if a signal interrupts it, and nobody can repeat it: no function of ours is called. The
//! threads that make such calls are strays most of the time, since they block where nobody is asked. So a stray is
//! signalled only while it is most likely in the program's code:
//! 1. It has computed since it was last seen at rest. That counts the time in user mode alone: a thread that
//!    copies has used the other.
//! 2. It is on a CPU now: its clock moves between two questions. A thread that has just been woken stands in the
//!    system's run queue, in the middle of its call, and `/proc` calls it running.
//!
//! Where the system has one CPU, no stray is seen on it; and some systems do not tell the time in user mode. There
//! a stray is signalled when it has used [`CERTAIN`] of CPU time, in whatever mode, without being seen at rest.

use crate::engine::atomic::{AtomicU64, Ordering};
use crate::engine::sched::tuning::{CERTAIN, LONGEST_TICK, STRAYS_AT_ONCE};
use crate::engine::sched::{Machine, machine, preempt};

use super::look::Look;

/// What a machine had used when its thread was last seen at rest: blocked, or not run since the look before.
/// A record serves several clusters in turn, and so several monitors.
#[derive(Default)]
pub(in crate::engine::sched) struct Rest {
    cpu: AtomicU64,
    user: AtomicU64,
    /// The CPU time at the last look.
    seen: AtomicU64,
}

impl Rest {
    /// The machine's thread is at rest.
    pub(super) fn note(&self, machine: &Machine) {
        self.cpu.store(machine.cpu_time(), Ordering::Relaxed);
        self.user.store(machine.user_time(), Ordering::Relaxed);
    }

    /// The machine has another kernel thread, whose clocks begin anew.
    pub(in crate::engine::sched) fn begin(&self) {
        for clock in [&self.cpu, &self.user, &self.seen] {
            clock.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the machine, which has used `cpu` by now, has computed for long since.
    fn is_over(&self, machine: &Machine, cpu: u64) -> bool {
        let since = |then: &AtomicU64, now: u64| now.saturating_sub(then.load(Ordering::Relaxed));
        let computes = || since(&self.user, machine.user_time()) >= LONGEST_TICK;
        let is_on_a_cpu = || machine.cpu_time() != cpu;
        since(&self.cpu, cpu) >= CERTAIN || computes() && is_on_a_cpu()
    }
}

impl Look<'_> {
    /// Sends strays to the queue. Looks at some machines, from index `first` on; returns the index of the next one.
    pub(super) fn at_strays(&mut self, first: usize) -> usize {
        let next = first + STRAYS_AT_ONCE;
        let some = (first..next).map_while(machine::get);
        for machine in some.filter(|machine| machine.is_of(self.cluster)) {
            let Some(green) = machine.running() else {
                continue;
            };
            if machine.processor.get().is_some() {
                continue;
            }
            let cpu = machine.cpu_time();
            let used = cpu.wrapping_sub(machine.rest.seen.swap(cpu, Ordering::Relaxed));
            if used == 0 || self.observer.is_blocked(machine.thread()) == Some(true) {
                machine.rest.note(machine);
                continue;
            }
            let signal = self.cluster.config.signal;
            // The CPU time of the handler is no reason for another signal.
            let has_moved = used >= preempt::HANDLING;
            if machine.rest.is_over(machine, cpu)
                && preempt::send(machine, green, signal, self.now, has_moved, self.observer)
            {
                green.calls_itself.store(false, Ordering::Relaxed);
                self.event = true;
            }
        }
        if next < machine::count() { next } else { 0 }
    }
}
