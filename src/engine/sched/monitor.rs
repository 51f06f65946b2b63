//! The monitor: a kernel thread without a processor that looks after the kernel threads that have
//! one.
//!
//! It looks every tick: 20 µs after a hand-off, backing off to 10 ms while there is none, but never
//! past the end of a time slice or a deadline. It counts a slice from the look that first saw it;
//! while work waits it looks once more soon after, since that slice may have been a short one. When
//! every processor sleeps it sleeps too, until it is kicked.
//!
//! Its actions at a processor whose thread has not left it since the last look:
//!
//! | the thread … | the monitor … |
//! |---|---|
//! | announced that it blocks | takes the processor if work waits, or nobody looks for events (`io`), or after 10 ms |
//! | is blocked in the kernel (it uses no CPU time, and the kernel says so, or the kernel does not tell and this lasts 20 ms) | the same, without a signal |
//! | runs longer than its slice while work waits, or than a 20th of it while others wait behind the thread, out of reach | ends the slice, sends the signal, again every 50 µs |
//! | … and is in a call that may block (`current::may_block`) | the same, except the signal: the thread looks at the end of the call |
//! | … and 1 ms of CPU time later still runs, or was seen blocked in a call of the program's own assembly | takes the processor; the thread goes on under the OS |
//!
//! It takes a surplus processor (`resize`), or ends its time slice, even if nothing waits.
//!
//! At a worker without a processor that computes for long, it sends the signal, so that the thread
//! queues for a processor (*strays*).
//!
//! When no worker is left for a processor: `thread_limit`.
//!
//! Taking a processor: `processor`. A processor that was taken is laid to rest, and a sleeper is
//! woken for the threads that wait in it.
//!
//! It runs with signals blocked and never allocates: its memory of each processor is in the
//! processor ([`Seen`]).
//!
//! # Strays
//!
//! Strays are workers that burn CPU time without a processor.
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

use std::io;

use crate::engine::atomic::{AtomicU64, Ordering};
use crate::engine::inspect::kernel::quiet;
use crate::engine::probe::{self, Lost};
use crate::engine::sched::events::events;
use crate::engine::sched::thread_limit::Shortage;
use crate::engine::sched::tuning::{
    CERTAIN, CROWDED_PART, LATE, LONGEST_TICK, NOT_RUN_FOR, QUIET_LOOKS, QUOTA, RETRY,
    SETTLING_PART, SHORTEST_TICK, SOON, STRAYS_AT_ONCE,
};
use crate::engine::sched::{Cluster, Green, Owned, Processor, Worker, preempt, spawner, worker};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::observer::Observer;
use crate::engine::sys::{kernel_thread, perturb};

/// Starts the monitor.
pub(crate) fn post(cluster: &'static Cluster) -> io::Result<()> {
    cluster.employ("gt-monitor", watch)
}

/// How often the monitor looks.
struct Pace {
    tick: u64,
    /// Looks in a row without an event.
    quiet: u32,
}

impl Pace {
    const QUICK: Pace = Pace {
        tick: SHORTEST_TICK,
        quiet: 0,
    };

    /// Called after a look. An event calls for the next look soon; without events, looks become
    /// rare.
    fn adapt(&mut self, event: bool) {
        if event {
            *self = Pace::QUICK;
        } else if self.quiet < QUIET_LOOKS {
            self.quiet += 1;
        } else {
            self.tick = (self.tick * 2).min(LONGEST_TICK);
        }
    }
}

/// The monitor's memory from one look to the next.
struct Watch {
    cluster: &'static Cluster,
    observer: Observer,
    shortage: Shortage,
    pace: Pace,
    /// When the quota of CPU time is to be read again, and strays looked at.
    quota_at: u64,
    strays_at: u64,
    first_stray: usize,
    /// How many switches there had been at the last look.
    switched: u64,
}

/// The result of a look.
struct Looked {
    at: u64,
    /// The latest time of the next look.
    next: u64,
    /// Nothing has happened, and no thread was run.
    at_rest: bool,
}

/// The monitor's life.
fn watch(cluster: &'static Cluster) {
    kernel_thread::set_precise_timers();
    let mut watch = Watch {
        cluster,
        observer: Observer::new(),
        shortage: Shortage::new(),
        pace: Pace::QUICK,
        quota_at: clock::now() + QUOTA,
        strays_at: 0,
        first_stray: 0,
        switched: 0,
    };
    while !cluster.stopping.load(Ordering::SeqCst) {
        let seen = watch.look();
        watch.wait(seen);
    }
}

impl Watch {
    /// Looks at everything once.
    fn look(&mut self) -> Looked {
        let cluster = self.cluster;
        cluster.take_handed();
        let now = clock::now();
        clock::note(now);
        let switched: u64 = cluster.processors().map(|p| p.switches.get()).sum();
        let mut look = Look::new(cluster, &mut self.observer, now);
        for processor in cluster.processors() {
            look.at_timers(processor);
            if !processor.is_retired() {
                let mut seen = processor.seen.take();
                look.at(processor, &mut seen);
                processor.seen.set(seen);
            }
        }
        if now >= self.quota_at {
            cluster.doubt_quota();
            spawner::ask_to_reclaim(cluster);
            self.quota_at = now + QUOTA;
        }
        if now >= self.strays_at {
            self.first_stray = look.at_strays(self.first_stray);
            self.strays_at = now + LONGEST_TICK;
        }
        if look.stuck && cluster.idle.sleeping() != 0 {
            cluster.notify();
        }
        let relief = self.shortage.relieve(cluster, now, look.observer);
        look.next = look.next.min(relief);
        if cluster.see_to_events(now) {
            look.next = look.next.min(now + SOON);
        }
        let (event, next) = (look.event, look.next);
        self.pace.adapt(event);
        let has_switched = switched != core::mem::replace(&mut self.switched, switched);
        Looked {
            at: now,
            next,
            // It does not sleep at once: processors that sleep only for moments would have to kick
            // it each time.
            at_rest: self.pace.tick == LONGEST_TICK && !event && !has_switched,
        }
    }

    /// Waits for the next look; or sleeps, if all processors do.
    fn wait(&mut self, seen: Looked) {
        let cluster = self.cluster;
        let tick = self.pace.tick;
        let everybody_sleeps = || {
            let sleeps = cluster.idle.awake() == 0
                && !cluster.stopping.load(Ordering::SeqCst)
                && !events().is_unwatched()
                && !cluster.is_short()
                && cluster.deferred.is_empty();
            if sleeps {
                // While this sleeps nobody else asks.
                spawner::ask_to_reclaim(cluster);
            }
            sleeps
        };
        if seen.at_rest && everybody_sleeps() {
            quiet::tell();
            if cluster
                .monitor
                .sleep_beside(cluster, seen.at + tick, everybody_sleeps)
            {
                self.pace = Pace::QUICK;
            }
            return;
        }
        let until = seen.next.min(seen.at + tick).max(seen.at + SHORTEST_TICK);
        let is_over = || {
            clock::now() >= until
                || cluster.stopping.load(Ordering::SeqCst)
                || !cluster.deferred.is_empty()
        };
        while !is_over() {
            cluster.monitor.rest(until);
        }
    }
}

// ==== at one processor ====

/// The monitor's memory of a processor at the last look.
#[derive(Default)]
pub(super) struct Seen {
    worker: usize,
    dry: u64,
    slice: u32,
    since: u64,
    cpu: u64,
    /// When the CPU time was last seen to grow.
    moved_at: u64,
    /// Since when the slice is over.
    over: Option<Over>,
}

/// When a slice was first found to be over: on the clock, and in the worker's CPU time.
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
struct Look<'a> {
    cluster: &'static Cluster,
    observer: &'a mut Observer,
    now: u64,
    /// A thread is ready and not running.
    waiting: bool,
    /// A thread has been ready since the last look, without running.
    stuck: bool,
    /// A hand-off: the next look comes soon.
    event: bool,
    /// The latest time of the next look.
    next: u64,
}

impl<'a> Look<'a> {
    fn new(cluster: &'static Cluster, observer: &'a mut Observer, now: u64) -> Look<'a> {
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
    fn at(&mut self, processor: &'static Processor, seen: &mut Seen) {
        self.at_queue(processor, seen);
        // Acquire: pairs with the Release in `give_to`.
        let Some(worker) = processor.worker.load(Ordering::Acquire) else {
            seen.worker = 0;
            return;
        };
        let Some(green) = worker.running() else {
            return;
        };
        let slice = worker.slice.load(Ordering::Relaxed);
        let identity = core::ptr::from_ref(worker) as usize;
        if (seen.worker, seen.slice) != (identity, slice) {
            let cpu = worker.cpu_time();
            *seen = Seen {
                worker: identity,
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
        if self.is_blocked(worker, green, seen) {
            let is_missed = self.waiting || is_surplus || self.cluster.needs_a_watch(self.now);
            let is_due = is_missed || self.now - seen.since >= LONGEST_TICK;
            if is_due && (self.cluster.config.ideas.hand_off || is_surplus) {
                let thread = worker.kernel_thread.load(Ordering::Relaxed) as i32;
                let doing = self.observer.doing(thread);
                preempt::note_own_call(green, &doing);
                worker.rest.note(worker);
                let blocked_calls = &self.cluster.blocked_calls;
                let place = blocked_calls.find(&doing, worker, green);
                if self.take(processor, worker, green, Lost::Blocked(place)) {
                    blocked_calls.note(&doing, place);
                }
            }
        } else if (self.waiting && self.cluster.config.ideas.preemption || is_surplus)
            && self.now - seen.since >= self.slice(processor)
        {
            self.preempt(processor, worker, green, seen);
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

    fn at_timers(&mut self, processor: &'static Processor) {
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

    fn is_blocked(&mut self, worker: &Worker, green: &Green, seen: &mut Seen) -> bool {
        if green.announced.load(Ordering::Relaxed) {
            return true;
        }
        let cpu = worker.cpu_time();
        if cpu != core::mem::replace(&mut seen.cpu, cpu) {
            seen.moved_at = self.now;
            return false;
        }
        let thread = worker.kernel_thread.load(Ordering::Relaxed) as i32;
        let stands_for_long = self.now - seen.moved_at >= NOT_RUN_FOR;
        green.off.load(Ordering::Relaxed) == 0
            && self.observer.is_blocked(thread).unwrap_or(stands_for_long)
    }

    /// Goes through the three steps: the flag, the signal, and taking the processor.
    fn preempt(
        &mut self,
        processor: &'static Processor,
        worker: &'static Worker,
        green: &'static Green,
        seen: &mut Seen,
    ) {
        worker.end_slice(seen.slice);
        let cpu = worker.cpu_time();
        let over = *seen.over.get_or_insert(Over { at: self.now, cpu });
        let signal = self.cluster.config.signal;
        let has_moved = seen.moved_at == self.now;
        let send = || preempt::send(worker, green, signal, self.now, has_moved, self.observer);
        if !green.calls_itself.load(Ordering::Relaxed) && over.insist(self.now, cpu, send) {
            self.next = self.next.min(self.now + RETRY);
        } else {
            let _is_taken = self.take(processor, worker, green, Lost::Computing);
        }
    }

    /// Takes the processor away from `worker`, whose thread goes on without. False: it was too late.
    fn take(
        &mut self,
        processor: &'static Processor,
        worker: &'static Worker,
        green: &'static Green,
        how: Lost,
    ) -> bool {
        let tick = worker.tick.load(Ordering::Relaxed);
        if worker
            .running()
            .is_none_or(|now| !core::ptr::eq(now, green))
        {
            return false;
        }
        perturb::point("monitor: taking");
        let retake = || {
            let word = &worker.processor;
            let taken = word.retake(processor.into(), kernel_thread::barrier, || {
                // Acquire: pairs with the Release on the way out of the runtime (`current`).
                green.off.load(Ordering::Acquire) == 0
                    && worker
                        .running()
                        .is_some_and(|now| core::ptr::eq(now, green))
                    && worker.tick.load(Ordering::Relaxed) == tick
            });
            // SAFETY: it was taken for good, so it is in hand.
            taken.then(|| unsafe { Owned::assume(processor) })
        };
        let Some(processor) = probe::blocked(worker, green, how, retake) else {
            return false;
        };
        self.event = true;
        self.cluster.hand_offs.add_shared(1);
        self.cluster.lay_to_rest(processor);
        true
    }
}

// ==== strays ====

/// What a worker had used when its thread was last seen at rest: blocked, or not run since the look before.
/// A record serves several clusters in turn, and so several monitors.
#[derive(Default)]
pub(super) struct Rest {
    cpu: AtomicU64,
    user: AtomicU64,
    /// The CPU time at the last look.
    seen: AtomicU64,
}

impl Rest {
    /// The worker's thread is at rest.
    fn note(&self, worker: &Worker) {
        self.cpu.store(worker.cpu_time(), Ordering::Relaxed);
        self.user.store(worker.user_time(), Ordering::Relaxed);
    }

    /// The worker has another kernel thread, whose clocks begin anew.
    pub(super) fn begin(&self) {
        for clock in [&self.cpu, &self.user, &self.seen] {
            clock.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the worker, which has used `cpu` by now, has computed for long since.
    fn is_over(&self, worker: &Worker, cpu: u64) -> bool {
        let since = |then: &AtomicU64, now: u64| now.saturating_sub(then.load(Ordering::Relaxed));
        let computes = || since(&self.user, worker.user_time()) >= LONGEST_TICK;
        let is_on_a_cpu = || worker.cpu_time() != cpu;
        since(&self.cpu, cpu) >= CERTAIN || computes() && is_on_a_cpu()
    }
}

impl Look<'_> {
    /// Sends strays to the queue. Looks at some workers, from index `first` on; returns the index of the next one.
    fn at_strays(&mut self, first: usize) -> usize {
        let next = first + STRAYS_AT_ONCE;
        let some = (first..next).map_while(worker::get);
        for worker in some.filter(|worker| worker.is_of(self.cluster)) {
            let Some(green) = worker.running() else {
                continue;
            };
            if worker.processor.get().is_some() {
                continue;
            }
            let cpu = worker.cpu_time();
            let used = cpu.wrapping_sub(worker.rest.seen.swap(cpu, Ordering::Relaxed));
            if used == 0 || self.observer.is_blocked(worker.thread()) == Some(true) {
                worker.rest.note(worker);
                continue;
            }
            let signal = self.cluster.config.signal;
            // The CPU time of the handler is no reason for another signal.
            let has_moved = used >= preempt::HANDLING;
            if worker.rest.is_over(worker, cpu)
                && preempt::send(worker, green, signal, self.now, has_moved, self.observer)
            {
                green.calls_itself.store(false, Ordering::Relaxed);
                self.event = true;
            }
        }
        if next < worker::count() { next } else { 0 }
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
