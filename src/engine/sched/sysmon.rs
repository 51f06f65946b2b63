//! The monitor: a kernel thread without a processor that looks after those that have one.
//!
//! It looks every tick: 20 µs after a hand-off, backing off to 10 ms while there is none,
//! but never past the end of a time slice or a deadline. It counts a slice from the look that first saw it;
//! while work waits it looks once more soon after, lest that was a short one. When every processor sleeps it sleeps too,
//! until it is kicked.
//!
//! What it does at a processor whose thread has not left it since the last look:
//!
//! | the thread … | the monitor … |
//! |---|---|
//! | announced that it blocks | takes the processor if work waits, or nobody looks for events (`io`), or after 10 ms |
//! | is blocked in the kernel (no CPU time used, and the kernel says so, or nobody knows and it is so for 20 ms) | the same, without a signal |
//! | runs longer than its slice while work waits, or than a 20th of it while others wait behind the thread, out of reach | ends the slice, sends the signal, again every 50 µs |
//! | … and is in a call that may block (`thread::may_block`) | the same, but for the signal: the thread looks at the end of the call |
//! | … and 1 ms of CPU time later still runs | takes the processor; the thread goes on under the OS |
//!
//! A processor that is to go (`resize`) is taken or its slice ended even if nothing waits.
//!
//! At a machine without a processor that burns CPU time: sends the signal, so that the thread
//! queues for a processor.
//!
//! When no machine is left for a processor: `shortage`.
//!
//! Taking a processor: `ownership`. What is taken is laid to rest, and a sleeper woken for what
//! waits in it.
//!
//! It runs with signals blocked and never allocates: what it needs to remember is in the processors.

use std::io;

use crate::engine::atomic::{AtomicU32, Ordering, fence};
use crate::engine::green::Green;
use crate::engine::sched::events::events;
use crate::engine::sched::shortage::Shortage;
use crate::engine::sched::{Cluster, Machine, Owned, Processor, machine, preempt};
use crate::engine::sys::clock::NEVER;
use crate::engine::sys::observer::Observer;
use crate::engine::sys::perturb;
use crate::engine::sys::{clock, futex, kernel_thread, signal};

const SHORTEST: u64 = 20_000;
const LONGEST: u64 = 10_000_000;
/// Looks in a row without an event before the tick doubles.
const PATIENCE: u32 = 5;
const RETRY: u64 = 50_000;
const DECLINED_FOR: u64 = 1_000_000;
/// So long a kernel thread that the system does not run, or may not run, is waited for.
const NOT_RUN_FOR: u64 = 20_000_000;
/// A thread that blocks while nothing waits keeps its processor this long.
const QUIET: u64 = 10_000_000;
/// Deadlines are watched this closely at most: a busy processor sees its timers by itself most of
/// the time.
const DEADLINE_TICK: u64 = 500_000;
/// Who has run out of threads so often since the last look keeps up.
const SEVERAL: u64 = 3;
/// While work waits, a slice that is seen for the first time is looked at again after this part of it: a
/// short one is over by then, and the next would be counted from its own end, a whole slice later.
const SETTLING_PART: u64 = 8;
/// Who has others behind it whom no other processor can take has this part of a time slice: those
/// that yield would wait as long as the busiest of them likes.
const CROWDED_PART: u64 = 20;
/// How soon to look whether anything waits for a thread whose slice is over.
const OVERTIME: u64 = 1_000_000;
/// How soon to look again whether somebody has collected events.
const EVENTS: u64 = 1_000_000;
/// How often the quota of CPU time is read again, while anything runs.
const QUOTA: u64 = 1_000_000_000;
/// How often machines without a processor are looked at, and how many at once: of ten thousand, one
/// look at each takes as long as a time slice.
const STRAYS: u64 = 5_000_000;
const STRAYS_AT_ONCE: usize = 256;
/// A signal that is declined takes less CPU time than this.
pub(super) const HANDLING: u64 = 100_000;
const STACK_SIZE: usize = 256 << 10;

/// Where the monitor sleeps.
pub(crate) struct Post(AtomicU32);

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

impl Post {
    pub(crate) const fn new() -> Post {
        Post(AtomicU32::new(AWAKE))
    }

    /// A processor has woken up, after which the caller comes here: the monitor must not sleep.
    #[inline]
    pub(crate) fn kick_if_asleep(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees that a processor is awake, or
        // we that it sleeps.
        fence(Ordering::SeqCst);
        if self.0.load(Ordering::Relaxed) == ASLEEP {
            self.kick();
        }
    }

    #[cold]
    pub(crate) fn kick(&self) {
        if self.0.swap(AWAKE, Ordering::Relaxed) == ASLEEP {
            futex::wake(&self.0, 1);
        }
    }

    /// The cluster stops, after which the caller comes here: the monitor sleeps no more.
    pub(crate) fn stop(&self) {
        // SeqCst: partner of the fence in `sleep`: the monitor sees that the cluster stops, or we are
        // the last to change the word.
        fence(Ordering::SeqCst);
        self.0.store(AWAKE, Ordering::Relaxed);
        // Even if it was awake: it may wait for its next look.
        futex::wake(&self.0, 1);
    }

    /// Sleeps until it is kicked: true. Or until a deadline that no sleeping machine watches.
    fn sleep(
        &self,
        cluster: &'static Cluster,
        not_before: u64,
        everybody_sleeps: impl Fn() -> bool,
    ) -> bool {
        self.0.store(ASLEEP, Ordering::Relaxed);
        perturb::point("monitor: asleep");
        fence(Ordering::SeqCst);
        let mut kicked = true;
        while kicked && self.0.load(Ordering::Relaxed) == ASLEEP && everybody_sleeps() {
            let watches = cluster.watch_deadline();
            futex::wait(
                &self.0,
                ASLEEP,
                watches.map(|deadline| deadline.max(not_before)),
            );
            if let Some(deadline) = watches {
                cluster.watched.store(NEVER, Ordering::SeqCst);
                kicked = clock::now() < deadline;
            }
        }
        self.0.store(AWAKE, Ordering::Relaxed);
        kicked
    }
}

/// Starts the monitor.
pub(crate) fn post(cluster: &'static Cluster) -> io::Result<()> {
    cluster.employ("gt-monitor", STACK_SIZE, watch)
}

/// What was seen of a processor at the last look.
#[derive(Default)]
pub(super) struct Seen {
    machine: usize,
    dry: u64,
    slice: u32,
    since: u64,
    cpu: u64,
    /// When the CPU time was last seen to be more than before.
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
    /// Signals the thread; or, false, does so no more: it has declined for long enough, and its
    /// processor goes to others.
    fn insist(self, now: u64, cpu: u64, send: impl FnOnce() -> bool) -> bool {
        // CPU time: a kernel thread that the system does not run declines nothing. Less than before
        // is that of another, which has come into the place of one that has ended.
        let declined_for = cpu.saturating_sub(self.cpu);
        let insists = declined_for < DECLINED_FOR && now - self.at < NOT_RUN_FOR;
        if insists {
            // Not sent: it is in the runtime, on its way out, or blocked, as the next look finds.
            let _is_sent = send();
        }
        insists
    }
}

fn watch(cluster: &'static Cluster) {
    signal::set_mask(signal::ALL);
    kernel_thread::set_precise_timers();
    let (mut tick, mut quiet, mut strays_at) = (SHORTEST, 0, 0);
    let mut switched_before = 0;
    let mut observer = Observer::new();
    let mut quota_at = clock::now() + QUOTA;
    let mut first_stray = 0;
    let mut shortage = Shortage::new();
    while !cluster.stopping.load(Ordering::SeqCst) {
        let now = clock::now();
        let switched: u64 = cluster.processors().map(|p| p.switches.get()).sum();
        let mut look = Look {
            cluster,
            observer: &mut observer,
            now,
            waiting: cluster.has_work(),
            stuck: cluster.policy.len(None) != 0,
            event: false,
            next: NEVER,
        };
        for processor in cluster.processors() {
            look.at_timers(processor);
            if !processor.is_retired() {
                let mut seen = processor.seen.take();
                look.at(processor, &mut seen);
                processor.seen.set(seen);
            }
        }
        if now >= quota_at {
            cluster.doubt_quota();
            quota_at = now + QUOTA;
        }
        if now >= strays_at {
            first_stray = look.at_strays(first_stray);
            strays_at = now + STRAYS;
        }
        if look.stuck && cluster.idle.sleeping() != 0 {
            cluster.notify();
        }
        if let Some(next) = shortage.relieve(cluster, now, look.observer) {
            look.next = look.next.min(next);
        }
        if cluster.see_to_events(now) {
            look.next = look.next.min(now + EVENTS);
        }
        if look.event {
            (tick, quiet) = (SHORTEST, 0);
        } else if quiet < PATIENCE {
            quiet += 1;
        } else {
            tick = (tick * 2).min(LONGEST);
        }
        let everybody_sleeps = || {
            cluster.idle.awake() == 0
                && !cluster.stopping.load(Ordering::SeqCst)
                && !events().is_unwatched()
                && !cluster.is_short()
        };
        // Not at once: those that sleep for moments only would have to kick it each time.
        let at_rest = tick == LONGEST
            && !look.event
            && switched == core::mem::replace(&mut switched_before, switched);
        if at_rest && everybody_sleeps() {
            if cluster.monitor.sleep(cluster, now + tick, everybody_sleeps) {
                (tick, quiet) = (SHORTEST, 0);
            }
        } else {
            let until = look.next.min(now + tick).max(now + SHORTEST);
            while clock::now() < until && !cluster.stopping.load(Ordering::SeqCst) {
                // A plain sleep, which a stop cuts short.
                futex::wait(&cluster.monitor.0, AWAKE, Some(until));
            }
        }
    }
}

/// One look at everything.
struct Look<'a> {
    cluster: &'static Cluster,
    observer: &'a mut Observer,
    now: u64,
    /// Something is ready and not running.
    waiting: bool,
    /// Something has been ready since the last look, and not run.
    stuck: bool,
    /// A hand-off: the next look comes soon.
    event: bool,
    /// When the next look must be at the latest.
    next: u64,
}

impl Look<'_> {
    fn at(&mut self, processor: &'static Processor, seen: &mut Seen) {
        if !processor.has_no_sends() {
            // Those in it cannot know how long the thread runs that they wait for.
            processor.attention.store(true, Ordering::Relaxed);
            self.waiting = true;
        }
        if self.cluster.policy.len(Some(processor.index)) != 0 {
            // Who comes to the end of the queue again and again, as with events, keeps up. Else
            // what is in it may have been there since the last look.
            if processor.dry.get() - seen.dry < SEVERAL {
                self.stuck = true;
            } else {
                self.next = self.next.min(self.now + EVENTS);
            }
        }
        let dry = processor.dry.get();
        seen.dry = dry;
        // Acquire: pairs with the Release in `give_to`. SAFETY: null or a record, which is never
        // freed.
        let Some(machine) = (unsafe { processor.machine.load(Ordering::Acquire).as_ref() }) else {
            seen.machine = 0;
            return;
        };
        let Some(green) = running(machine) else {
            return;
        };
        let slice = machine.slice.load(Ordering::Relaxed);
        let identity = core::ptr::from_ref(machine) as usize;
        if (seen.machine, seen.slice) != (identity, slice) {
            let cpu = cpu_time(machine);
            *seen = Seen {
                machine: identity,
                dry,
                slice,
                since: self.now,
                cpu,
                moved_at: self.now,
                over: None,
            };
            self.at_slice_end(processor, seen);
            if self.waiting {
                // It may be a short one: who comes next would have been seen late, and given more.
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
            let is_due = is_missed || self.now - seen.since >= QUIET;
            if is_due && (self.cluster.config.ideas.hand_off || is_surplus) {
                self.take(processor, machine, green);
            }
        } else if (self.waiting && self.cluster.config.ideas.preemption || is_surplus)
            && self.now - seen.since >= self.slice(processor)
        {
            self.preempt(processor, machine, green, seen);
        } else {
            self.at_slice_end(processor, seen);
        }
    }

    /// Shorter while others wait behind who runs.
    fn slice(&self, processor: &Processor) -> u64 {
        let slice = self.cluster.config.time_slice.as_nanos() as u64;
        match self.cluster.policy.out_of_reach(processor.index) {
            0 => slice,
            _ => (slice / CROWDED_PART).max(SHORTEST),
        }
    }

    /// Be back when this slice ends; if it is over, and nothing waits, soon.
    fn at_slice_end(&mut self, processor: &Processor, seen: &Seen) {
        let slice = self.slice(processor);
        let end = seen.since + slice;
        let next = match end > self.now {
            true => end,
            false => self.now + OVERTIME.min(slice),
        };
        self.next = self.next.min(next);
    }

    fn at_timers(&mut self, processor: &'static Processor) {
        let deadline = processor.next_deadline.load(Ordering::Relaxed);
        if deadline <= self.now {
            // Its owner, if it has one, is on its way out, or runs a thread that computes: then whose
            // slice ends first fires for all.
            if processor.is_surplus() || self.now - deadline >= DEADLINE_TICK {
                for active in self.cluster.processors().take(self.cluster.active()) {
                    active.attention.store(true, Ordering::Relaxed);
                }
            } else {
                processor.attention.store(true, Ordering::Relaxed);
                self.next = self.next.min(deadline + DEADLINE_TICK);
            }
            if self.cluster.idle.sleeping() != 0 {
                // A processor that searches fires the timers of all.
                self.cluster.notify();
            }
            self.waiting = true;
        } else if deadline != NEVER {
            self.next = self.next.min(deadline.max(self.now + DEADLINE_TICK));
        }
    }

    fn is_blocked(&mut self, machine: &Machine, green: &Green, seen: &mut Seen) -> bool {
        if green.announced.load(Ordering::Relaxed) {
            return true;
        }
        let cpu = cpu_time(machine);
        if cpu != core::mem::replace(&mut seen.cpu, cpu) {
            seen.moved_at = self.now;
            return false;
        }
        let thread = machine.kernel_thread.load(Ordering::Relaxed) as i32;
        let stands_for_long = self.now - seen.moved_at >= NOT_RUN_FOR;
        green.off.load(Ordering::Relaxed) == 0
            && self.observer.is_blocked(thread).unwrap_or(stands_for_long)
    }

    /// The three steps: the flag, the signal, and taking the processor.
    fn preempt(
        &mut self,
        processor: &'static Processor,
        machine: &'static Machine,
        green: &'static Green,
        seen: &mut Seen,
    ) {
        machine.end_slice(seen.slice);
        let cpu = cpu_time(machine);
        let over = *seen.over.get_or_insert(Over { at: self.now, cpu });
        let signal = self.cluster.config.signal;
        let has_moved = seen.moved_at == self.now;
        let send = || preempt::send(machine, green, signal, has_moved, self.observer);
        if over.insist(self.now, cpu, send) {
            self.next = self.next.min(self.now + RETRY);
        } else {
            self.take(processor, machine, green);
        }
    }

    /// Takes the processor away from `machine`, whose thread goes on without.
    fn take(
        &mut self,
        processor: &'static Processor,
        machine: &'static Machine,
        green: &'static Green,
    ) {
        let tick = machine.tick.load(Ordering::Relaxed);
        if running(machine).is_none_or(|now| !core::ptr::eq(now, green)) {
            return;
        }
        perturb::point("monitor: taking");
        let taken = machine
            .processor
            .retake(processor.into(), kernel_thread::barrier, || {
                // Acquire: pairs with the Release on the way out of the runtime (`current`).
                green.off.load(Ordering::Acquire) == 0
                    && running(machine).is_some_and(|now| core::ptr::eq(now, green))
                    && machine.tick.load(Ordering::Relaxed) == tick
            });
        if taken {
            self.event = true;
            self.cluster.hand_offs.add_shared(1);
            // SAFETY: it was taken for good: it is in hand.
            self.cluster
                .lay_to_rest(unsafe { Owned::assume(processor) });
        }
    }

    /// Threads that lost their processor and use the CPU without one are sent to the queue. Some
    /// machines, from index `first` on; returns which is the next one.
    fn at_strays(&mut self, first: usize) -> usize {
        let next = first + STRAYS_AT_ONCE;
        let some = (first..next).map_while(machine::get);
        for machine in some.filter(|machine| machine.is_of(self.cluster)) {
            let Some(green) = running(machine) else {
                continue;
            };
            if machine.processor.get().is_some() {
                continue;
            }
            let cpu = cpu_time(machine);
            let used = cpu.wrapping_sub(machine.seen_cpu.replace(cpu));
            let signal = self.cluster.config.signal;
            // What the handler has used is no reason for another signal.
            let has_moved = used >= HANDLING;
            if used != 0 && preempt::send(machine, green, signal, has_moved, self.observer) {
                self.event = true;
            }
        }
        if next < machine::count() { next } else { 0 }
    }
}

/// The green thread that `machine` runs.
pub(super) fn running(machine: &Machine) -> Option<&'static Green> {
    // Acquire: pairs with the Release in `switch`. SAFETY: null or a record, which is never freed.
    unsafe { machine.current.load(Ordering::Acquire).as_ref() }
}

pub(super) fn cpu_time(machine: &Machine) -> u64 {
    clock::cpu_time(kernel_thread::cpu_clock(
        machine.kernel_thread.load(Ordering::Relaxed) as i32,
    ))
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
            // It runs, and does not give way.
            (MS, MS, false),
            (19 * MS, MS, false),
            // It is not run.
            (MS, 0, true),
            (19 * MS, MS / 2, true),
            // It is not waited for for ever.
            (20 * MS, 0, false),
        ] {
            let over = Over { at: MS, cpu: MS };
            // Whether a signal could be sent decides nothing.
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
