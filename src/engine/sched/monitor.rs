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
//! | announced that it blocks | takes the processor if work waits, or nobody looks for events (`events`), or after 10 ms |
//! | is blocked in the kernel (it uses no CPU time, and the kernel says so, or the kernel does not tell and this lasts 20 ms) | the same, without a signal |
//! | runs longer than its slice while work waits, or than a 20th of it while others wait behind the thread, out of reach | ends the slice, sends the signal, again every 50 µs |
//! | … and is in a call that may block (`current::may_block`) | the same, except the signal: the thread looks at the end of the call |
//! | … and 1 ms of CPU time later still runs, or was seen blocked in a call of the program's own assembly | takes the processor; the thread goes on under the OS |
//!
//! It takes a surplus processor (`cluster`), or ends its time slice, even if nothing waits.
//!
//! At a worker without a processor that computes for long, it sends the signal, so that the thread
//! queues for a processor (*strays*).
//!
//! Taking a processor: `processor`. A processor that was taken goes to sleep, and a sleeper is
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
//!
//! # The limit of kernel threads
//!
//! There is a shortage when threads are ready, a processor is idle, and there is no worker to
//! bring the two together, because all workers are blocked, and there can be no more. There are as
//! many as there may be, or the system refuses, or the spawner is blocked itself.
//!
//! The shortage would not end by itself: the holder of the lock that the others wait for in the
//! kernel (malloc's, say, inside libc) may be among the ready threads, preempted, or back from a
//! wait of our own. So the way out needs no new kernel thread. The monitor signals a worker whose
//! thread waits in a system call that begins anew when it is interrupted
//! (`kernel_thread::begins_anew`), most often on a futex. The handler (`signals`) suspends the thread
//! before that system call, as if it had been preempted there: it goes to the global queue, behind
//! all that are ready now, and the worker runs the first of those. When it is the thread's turn it
//! makes its call again, and the kernel looks again (at the futex's word, say). To the program, the
//! thread was slow to come to its call, as it may be at any time. A wake-up that the thread was
//! given is not lost, since then the call has returned.
//!
//! So each ready thread gets a worker, one after another, as long as any thread waits on a futex
//! (a lock, a condition variable, a barrier), for a lock on a file, for the other end of a FIFO or
//! for a child. A thread blocked in anything else, or in what the kernel does not tell (`kernel_thread`),
//! keeps its kernel thread. When its call returns, it takes an idle processor and goes on
//! (`current::recover`), and its worker runs others afterwards.
//!
//! *How often.* Once the shortage has lasted for [`RETRY_SPAWN`], and again after each further one,
//! the monitor looks at the next [`PROBES`] blocked workers, round and round. So a program all of
//! whose threads wait for ever costs little. More workers may come free than there are idle
//! processors: the others are spare, and take a processor at once when the next thread blocks.
//!
//! The spawner reports a shortage.
//!
//! # Blocked calls
//!
//! A table counts the system calls in which threads were blocked when the monitor took their processors: by places, and a
//! place is a call and where its thread was spawned. A user who reads the counts sees which calls still hold kernel
//! threads, and whose they are.
//!
//! The monitor alone writes the table; the kernel threads that were blocked add times, while times are measured
//! (`observe::measure`). The table is never cleared. Its last entries are for calls of threads
//! whose place of spawn is not known, or finds no entry.
//!
//! The monitor does not own the thread, which may end at any moment, and another thread may have its record: then the call
//! counts for that one.
//!
//! Ordering: a place's number is stored with Release when its other half is there; readers load it with Acquire.

use core::{panic::Location, ptr};

use crate::engine::atomic::{AtomicI64, AtomicU64, Ordering::*};
use crate::engine::inspect::kernel::quiet;
use crate::engine::probe::{self, Lost};
#[cfg(hooks)]
use crate::engine::sched::directed;
use crate::engine::sched::tuning::{
    CERTAIN, CROWDED_PART, LATE, LONGEST_TICK, NOT_RUN_FOR, QUIET_LOOKS, QUOTA, RETRY, RETRY_SPAWN,
    SETTLING_PART, SHORTEST_TICK, SOON, STRAYS_AT_ONCE,
};
use crate::engine::sched::{
    Cluster, Counter, Green, Owned, Processor, ThreadFlags, Worker, events, signals,
};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{kernel_thread, perturb, shared::AtomicStatic};

/// How many workers the monitor asks at once to leave their threads: time slices wait meanwhile.
const PROBES: usize = 64;

struct Monitor {
    cluster: &'static Cluster,
    /// The time between two looks.
    tick: u64,
    /// Looks in a row without an event.
    quiet: u32,
    /// When the spawner is to read the quota of CPU time again, and strays are looked at.
    quota_at: u64,
    strays_at: u64,
    first_stray: usize,
    /// When to evict threads next; `NEVER` while there is no shortage.
    evict_at: u64,
    /// The worker from which a thread was evicted last.
    evicted: usize,
    /// How many workers there were at the last look: the spawner goes on if there are more.
    workers: usize,
    /// How many switches there had been at the last look.
    switched: u64,

    // ---- of one look ----
    now: u64,
    /// A thread is ready and not running.
    waiting: bool,
    /// A thread has been ready since the last look, without running.
    stuck: bool,
    /// The latest time of the next look.
    next: u64,
}

/// The monitor's life.
pub(super) fn run(cluster: &'static Cluster) {
    kernel_thread::set_precise_timers();
    let mut monitor = Monitor {
        cluster,
        tick: SHORTEST_TICK,
        quiet: 0,
        quota_at: clock::now() + QUOTA,
        strays_at: 0,
        first_stray: 0,
        evict_at: NEVER,
        evicted: 0,
        workers: 0,
        switched: 0,
        now: 0,
        waiting: false,
        stuck: false,
        next: NEVER,
    };
    while !cluster.stopping.load(SeqCst) {
        monitor.look();
        monitor.wait();
    }
}

impl Monitor {
    /// Looks at everything once.
    fn look(&mut self) {
        let cluster = self.cluster;
        // Looks become rare, unless this one finds an event.
        if self.quiet < QUIET_LOOKS {
            self.quiet += 1;
        } else {
            self.tick = (self.tick * 2).min(LONGEST_TICK);
        }
        cluster.take_handed();
        self.now = clock::now();
        clock::note(self.now);
        self.waiting = cluster.has_work();
        self.stuck = false;
        self.next = NEVER;
        for processor in cluster.processors() {
            self.at_timers(processor);
            if !processor.is_retired() {
                let mut seen = processor.seen.take();
                self.at(processor, &mut seen);
                processor.seen.set(seen);
            }
        }
        if self.now >= self.quota_at {
            // The spawner reads the quota, and looks at the stacks.
            cluster.spawner.ring();
            self.quota_at = self.now + QUOTA;
        }
        if self.now >= self.strays_at {
            self.at_strays();
            self.strays_at = self.now + LONGEST_TICK;
        }
        if cluster.idle.sleeping() != 0 && (self.stuck || cluster.policy.len(None) != 0) {
            cluster.notify();
        }
        self.at_shortage();
        // The thread that has the turn may give it back at any time.
        if events::SOURCES.load(Relaxed) != 0 {
            self.see_to_events();
            self.look_by(self.now + SOON);
        }
    }

    /// The next look comes at `time` at the latest.
    fn look_by(&mut self, time: u64) {
        self.next = self.next.min(time);
    }

    /// There was an event, such as a hand-off: the next looks come soon.
    fn be_quick(&mut self) {
        (self.tick, self.quiet) = (SHORTEST_TICK, 0);
    }

    /// Waits for the next look; or sleeps, if all processors do.
    fn wait(&mut self) {
        let cluster = self.cluster;
        let everybody_sleeps = || {
            let sleeps = cluster.idle.awake() == 0
                && !cluster.stopping.load(SeqCst)
                && !events::is_unwatched()
                && !is_short(cluster)
                && cluster.deferred.is_empty();
            if sleeps {
                // While the monitor sleeps, no other thread asks the spawner for this.
                cluster.spawner.ask_to_reclaim();
            }
            sleeps
        };
        let switched: u64 = cluster.processors().map(|p| p.counts.switches.get()).sum();
        let has_switched = switched != core::mem::replace(&mut self.switched, switched);
        // The monitor does not sleep at once: processors that sleep only for moments would have to kick it each time.
        let is_quiet = self.tick == LONGEST_TICK && !has_switched;
        let tick_at = self.now + self.tick;
        if is_quiet && everybody_sleeps() {
            quiet::tell();
            let parker = &cluster.monitor;
            if parker.sleep_beside(cluster, tick_at, everybody_sleeps) {
                self.be_quick();
            }
            return;
        }
        let until = self.next.min(tick_at).max(self.now + SHORTEST_TICK);
        let is_over = || {
            clock::now() >= until || cluster.stopping.load(SeqCst) || !cluster.deferred.is_empty()
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
    /// Whether the monitor signals the thread again. If not, the thread has declined for long enough, and its
    /// processor goes to others.
    fn insists(self, now: u64, cpu: u64) -> bool {
        // CPU time counts: a kernel thread that the system does not run declines nothing. A smaller time than before
        // is that of another kernel thread, which has taken the place of one that has ended.
        let declined_for = cpu.saturating_sub(self.cpu);
        declined_for < SOON && now - self.at < NOT_RUN_FOR
    }
}

/// A processor, its worker, and the thread that the worker runs.
type Running = (&'static Processor, &'static Worker, &'static Green);

impl Monitor {
    /// Looks at one processor: at the work that waits there, and then at the thread that runs.
    fn at(&mut self, processor: &'static Processor, seen: &mut Seen) {
        self.at_queue(processor, seen);
        // Acquire: pairs with the Release in `give_to`.
        let Some(worker) = processor.worker.load(Acquire) else {
            (seen.worker, seen.over) = (0, None);
            return;
        };
        let Some(green) = worker.running() else {
            // The worker is between two threads. After a signal the next slice begins now, and counts from the look that sees
            // it. Otherwise there is less hurry: to look so often costs an http server with 1,000 connections a tenth more
            // CPU time.
            if seen.over.is_some() {
                self.look_for_next_slice(processor);
            } else if self.waiting {
                self.look_by(self.now + self.slice(processor));
            }
            return;
        };
        #[cfg(hooks)]
        directed::remind(worker, green);
        let slice = worker.slice.load(Relaxed);
        let identity = ptr::from_ref(worker).addr();
        if (seen.worker, seen.slice) != (identity, slice) {
            *seen = Seen {
                worker: identity,
                dry: seen.dry,
                slice,
                since: self.now,
                cpu: worker.cpu_time(),
                moved_at: self.now,
                over: None,
            };
            self.at_slice_end(processor, seen);
            // The slice may have begun long before this look, and may be over soon.
            return self.look_for_next_slice(processor);
        }
        let is_surplus = processor.is_surplus();
        if is_surplus {
            processor.attention.store(true, Relaxed);
        }
        if self.is_blocked(worker, green, seen) {
            // No other processor looks for events, and none sleeps that could be sent to look.
            let is_unwatched =
                self.cluster.idle.sleeping() == 0 && events::unseen(self.now) >= LATE;
            let is_missed = self.waiting || is_surplus || is_unwatched;
            let is_due = is_missed || self.now - seen.since >= LONGEST_TICK;
            if is_due && (self.cluster.config.ideas.hand_off || is_surplus) {
                let call = kernel_thread::call_of(worker.thread());
                signals::note_own_call(green, call.as_ref());
                worker.rest.note(worker);
                let place =
                    call.and_then(|call| self.cluster.blocked_calls.find(call.number, green));
                if self.take((processor, worker, green), Lost::Blocked(place))
                    && let Some(place) = place
                {
                    place.count.add_shared(1);
                }
            }
        } else if (self.waiting && self.cluster.config.ideas.preemption || is_surplus)
            && self.now - seen.since >= self.slice(processor)
        {
            self.preempt((processor, worker, green), seen);
        } else {
            self.at_slice_end(processor, seen);
        }
    }

    /// Looks again soon, while work waits: a slice counts from the look that sees it first, and one that is seen late
    /// is longer.
    fn look_for_next_slice(&mut self, processor: &Processor) {
        if self.waiting {
            self.look_by(self.now + self.slice(processor) / SETTLING_PART);
        }
    }

    /// Looks at the threads that wait at `processor`, for it or for what is held back there.
    fn at_queue(&mut self, processor: &Processor, seen: &mut Seen) {
        if processor.holds.load(Relaxed) {
            // Threads wait here for what is held back, and that goes out only between two threads. The running thread has
            // run for long, so the processor is told to look around.
            processor.attention.store(true, Relaxed);
            self.waiting = true;
        }
        if self.cluster.policy.len(Some(processor.index)) != 0 {
            // A processor that has come to the end of its queue more than once since the last look, as with events, keeps up.
            // Otherwise the threads in the queue may have been there since then.
            if processor.counts.dry.get() - seen.dry <= 1 {
                self.stuck = true;
            } else {
                self.look_by(self.now + SOON);
            }
        }
        seen.dry = processor.counts.dry.get();
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
        let (end, soon) = (seen.since + slice, self.now + SOON.min(slice));
        self.look_by(if end > self.now { end } else { soon });
    }

    fn at_timers(&mut self, processor: &'static Processor) {
        let deadline = processor.next_deadline.load(Relaxed);
        if deadline <= self.now {
            // If the processor has an owner, that owner has a surplus processor, which it gives up soon, or runs a thread
            // that computes. So the processor whose time slice ends first fires the timers of all.
            if processor.is_surplus() || self.now - deadline >= LATE {
                for active in self.cluster.processors().take(self.cluster.active()) {
                    active.attention.store(true, Relaxed);
                }
            } else {
                processor.attention.store(true, Relaxed);
                self.look_by(deadline + LATE);
            }
            if self.cluster.idle.sleeping() != 0 {
                // A processor that searches fires the timers of all.
                self.cluster.notify();
            }
            self.waiting = true;
        } else if deadline != NEVER {
            self.look_by(deadline.max(self.now + LATE));
        }
    }

    fn is_blocked(&mut self, worker: &Worker, green: &Green, seen: &mut Seen) -> bool {
        if green.says(Green::ANNOUNCED) {
            return true;
        }
        let cpu = worker.cpu_time();
        if cpu != core::mem::replace(&mut seen.cpu, cpu) {
            seen.moved_at = self.now;
            return false;
        }
        let stands_for_long = self.now - seen.moved_at >= NOT_RUN_FOR;
        let is_blocked = kernel_thread::is_blocked(worker.thread());
        green.off.load(Relaxed) == 0 && is_blocked.unwrap_or(stands_for_long)
    }

    /// Goes through the three steps: the flag, the signal, and taking the processor.
    fn preempt(&mut self, running: Running, seen: &mut Seen) {
        let (_, worker, green) = running;
        worker.over.store(seen.slice, Relaxed);
        let cpu = worker.cpu_time();
        let over = *seen.over.get_or_insert(Over { at: self.now, cpu });
        if !green.calls_itself.load(Relaxed) && over.insists(self.now, cpu) {
            // If the signal is not sent, the thread is in the runtime, about to leave its stack, or blocked: the next look
            // finds out.
            let has_moved = seen.moved_at == self.now;
            let _is_sent = signals::send_preemption(worker, green, self.now, has_moved);
            self.look_by(self.now + RETRY);
        } else {
            let _is_taken = self.take(running, Lost::Computing);
        }
    }

    /// Takes the processor away from the worker, whose thread goes on without. False: it was too late.
    fn take(&mut self, (processor, worker, green): Running, how: Lost) -> bool {
        let tick = worker.tick.load(Relaxed);
        if !worker.is_running(green) {
            return false;
        }
        perturb::point("monitor: taking");
        let retake = || {
            let word = &worker.processor;
            let taken = word.retake(processor, kernel_thread::barrier, || {
                // Acquire: pairs with the Release on the way out of the runtime (`current`).
                green.off.load(Acquire) == 0
                    && worker.is_running(green)
                    && worker.tick.load(Relaxed) == tick
            });
            // SAFETY: the monitor has taken the processor for good, so the processor is in its hand.
            taken.then(|| unsafe { Owned::assume(processor) })
        };
        let Some(processor) = probe::blocked(worker, green, how, retake) else {
            return false;
        };
        self.be_quick();
        self.cluster.hand_offs.add_shared(1);
        self.cluster.put_taken_to_sleep(processor);
        true
    }
}

// ==== workers without a processor ====

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
    /// The worker's thread is at rest; or the worker has another kernel thread, whose clocks begin anew. (The next
    /// look may find that this one has moved, or has not: it errs once.)
    pub(super) fn note(&self, worker: &Worker) {
        self.cpu.store(worker.cpu_time(), Relaxed);
        self.user.store(worker.user_time(), Relaxed);
    }

    /// Whether the worker, which has used `cpu` by now, has computed for long since.
    fn is_over(&self, worker: &Worker, cpu: u64) -> bool {
        let since = |then: &AtomicU64, now: u64| now.saturating_sub(then.load(Relaxed));
        let computes = || since(&self.user, worker.user_time()) >= LONGEST_TICK;
        let is_on_a_cpu = || worker.cpu_time() != cpu;
        since(&self.cpu, cpu) >= CERTAIN || computes() && is_on_a_cpu()
    }
}

/// The thread on `worker`, which is the cluster's, if it goes on without a processor.
fn stray(cluster: &Cluster, worker: &Worker) -> Option<&'static Green> {
    let green = worker.running()?;
    (worker.is_of(cluster) && worker.processor.get().is_none()).then_some(green)
}

impl Monitor {
    /// Sends strays to the queue. Looks at some workers only, and at the next ones the next time.
    fn at_strays(&mut self) {
        let next = self.first_stray + STRAYS_AT_ONCE;
        for worker in (self.first_stray..next).map_while(Worker::get) {
            let Some(green) = stray(self.cluster, worker) else {
                continue;
            };
            #[cfg(hooks)]
            directed::remind(worker, green);
            let cpu = worker.cpu_time();
            let used = cpu.wrapping_sub(worker.rest.seen.swap(cpu, Relaxed));
            if used == 0 || kernel_thread::is_blocked(worker.thread()) == Some(true) {
                worker.rest.note(worker);
                continue;
            }
            // A thread that has only run the handler of the last signal has not moved.
            let has_moved = used >= signals::HANDLING;
            if worker.rest.is_over(worker, cpu)
                && signals::send_preemption(worker, green, self.now, has_moved)
            {
                green.calls_itself.store(false, Relaxed);
                self.be_quick();
            }
        }
        self.first_stray = if next < Worker::count() { next } else { 0 };
    }

    /// Has the processors look for events that were left unseen for too long, or looks for them here.
    fn see_to_events(&self) {
        let cluster = self.cluster;
        let unseen = events::unseen(self.now);
        if unseen < LATE {
            return;
        }
        for processor in cluster.processors() {
            processor.attention.store(true, Relaxed);
        }
        if cluster.idle.sleeping() != 0 {
            cluster.send_to_watch();
        }
        // Every processor is busy with one thread, or there is no worker to send: the monitor looks by itself.
        if unseen >= LONGEST_TICK
            && let Some(turn) = events::turn()
        {
            events::pass_on(turn.collect(Some(0)));
        }
    }

    /// Looks whether a worker is missing. If that has lasted and the spawner has made none meanwhile, the monitor evicts
    /// threads. A spawner that is refused is waited for less long than one that is at work.
    fn at_shortage(&mut self) {
        let workers = self.cluster.workers.load(Relaxed);
        let spawner_goes_on = core::mem::replace(&mut self.workers, workers) != workers;
        if !is_short(self.cluster) {
            self.evict_at = NEVER;
            return;
        }
        if spawner_goes_on {
            self.evict_at = NEVER;
        } else if self.now >= self.evict_at {
            self.evict_some();
            self.evict_at = NEVER;
        }
        let is_refused = self.cluster.spawner.is_refused.load(Relaxed);
        let patience = RETRY_SPAWN * if is_refused { 1 } else { 10 };
        self.evict_at = self.evict_at.min(self.now + patience);
        self.look_by(self.now + RETRY_SPAWN);
    }

    /// Asks the next threads to give up their workers.
    fn evict_some(&mut self) {
        let (cluster, last, count) = (self.cluster, self.evicted, Worker::count());
        let workers = (1..=count).filter_map(|i| Worker::get((last + i) % count));
        let strays = workers.filter_map(|worker| Some((worker, stray(cluster, worker)?)));
        let stays = ThreadFlags::LOCKED | ThreadFlags::HIDDEN;
        let movable = strays.filter(|(_, green)| !green.flags.has(stays));
        for (worker, green) in movable.take(PROBES) {
            signals::evict(worker, green, self.now);
            self.evicted = worker.index as usize;
        }
    }
}

/// Whether there is something to run, a processor for it, and no worker.
pub(super) fn is_short(cluster: &Cluster) -> bool {
    cluster.idle.sleeping() != 0
        && (cluster.has_work() || events::is_any_timer_due(cluster))
        && cluster.spare_count() == 0
}

// ==== blocked calls ====

/// How many entries there are for calls of threads whose place of spawn is known, and how many for calls without a place.
const PLACES: usize = 256;
const CALLS: usize = 64;

/// The table. Entries are used from the first one on.
pub(crate) struct BlockedCalls(Box<[BlockedSite]>);

/// How often threads were blocked in one call, which were spawned at one place, and for how long, if that was measured.
#[derive(Default)]
pub(crate) struct BlockedSite {
    /// The number of the call, and one more; 0: the entry is free.
    call: AtomicI64,
    spawned_at: AtomicStatic<Location<'static>>,
    /// How many threads have lost their processors here.
    pub(crate) count: Counter,
    /// For how long they held kernel threads here.
    pub(crate) nanos: Counter,
}

impl BlockedCalls {
    pub(crate) fn new() -> BlockedCalls {
        BlockedCalls((0..PLACES + CALLS).map(|_| Default::default()).collect())
    }

    /// The place of `green`, which is blocked in this system call: where the entries with places are used up, an entry
    /// without. The monitor's.
    fn find(&self, call: i64, green: &Green) -> Option<&BlockedSite> {
        let find = |at: Option<&'static Location<'static>>, most: usize| {
            self.0[..most].iter().find(|entry| {
                if entry.call.load(Relaxed) == 0 {
                    entry.spawned_at.store(at, Relaxed);
                    // Release: partner: Acquire in `used`.
                    entry.call.store(call + 1, Release);
                }
                let is_there = entry.spawned_at().map(ptr::from_ref) == at.map(ptr::from_ref);
                is_there && entry.call() == call
            })
        };
        let at = green.spawned_at.load(Relaxed);
        find(at, PLACES).or_else(|| find(None, PLACES + CALLS))
    }

    /// The places where threads were blocked.
    pub(crate) fn used(&self) -> impl Iterator<Item = &BlockedSite> {
        // Acquire: partner: Release in `find`.
        let places = self.0.iter();
        places.filter(|place| place.call.load(Acquire) != 0 && place.count.get() != 0)
    }
}

impl BlockedSite {
    pub(crate) fn call(&self) -> i64 {
        self.call.load(Relaxed) - 1
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at.load(Relaxed)
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
            // After two time slices the monitor does not wait for the system any more.
            (20 * MS, 0, false),
        ] {
            let over = Over { at: MS, cpu: MS };
            assert_eq!(over.insists(MS + clock, MS + cpu), insists);
            assert!(over.insists(MS, 0), "another's CPU time");
        }
    }
}
