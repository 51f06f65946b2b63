//! A cluster: processors, a policy, workers, a monitor; and how many processors it has. A `Runtime` is a handle to one.
//!
//! Its control block (a few KiB) is never freed: a green thread, a late signal or a waker may hold
//! a reference without counting it. Starting a cluster allocates. Nothing after that does, except
//! making workers, and records of more processors.
//!
//! # How many processors there are
//!
//! The number changes while the cluster runs.
//!
//! The processors below the index [`Cluster::active`] are to run; those above are *surplus*.
//! Records are made when first needed and never freed, so a processor can come back.
//!
//! | state of a processor | retired | is in | leaves it |
//! |---|---|---|---|
//! | at work | no | its worker's word | by going to sleep: idle, or retired if it is surplus by then |
//! | idle | no | the list of idle ones | woken: at work; surplus: retired |
//! | retired | yes | nowhere | no surplus any more: idle |
//!
//! - *Growing*: records are made and the policy is told, the new processors appear in the
//!   list of idle ones, and one is woken if there is work.
//! - *Shrinking*: `active` says so. Idle surplus processors are taken out of the list. A surplus
//!   processor at work is told (`attention`): its owner, in the run loop, gives the threads in its
//!   queue to all, and goes to sleep as any processor does. If its thread does not come to the run
//!   loop, the monitor acts: it ends the time slice, or takes the processor, though nothing else
//!   waits. Nobody waits for that: after a slice and a few milliseconds at most no surplus
//!   processor runs.
//! - *Timers* stay in the heap of the processor where they were armed: a searcher looks into all
//!   heaps, and the monitor asks the active processors to look into those of the surplus ones.
//!
//! A change needs memory, and may block (making records, [`Policy::resize`](crate::engine::policy::Policy), reading the
//! quota), so an ordinary thread makes it, one at a time (`changing`): a thread that names a number; or the spawner, if
//! the quota has changed, which it reads again once a second while the monitor is awake, unless the user has named a
//! number. The spawner also clears up when processors have retired. It never waits for another thread's change, which a
//! preempted thread may be making.
//!
//! Invariants:
//! 6. `active` and `retired` change under the idlers' lock. Only the holder of `changing` changes
//!    `active` and the number of records (before there is a spawner, the thread that starts the cluster does).
//! 7. When a change is done, no surplus processor is in the list; a worker that puts one to sleep
//!    later sees, under the lock, that it is surplus. So an idle processor is an active one, except
//!    for moments.
//! 8. A retired processor's queue is empty, except for threads that others put there (a policy
//!    may). The policy moves those when it is told that the processor has gone.
//! 9. The policy has a seat for every processor that is not retired: it hears of more before they
//!    are there and of fewer after they have gone.
//! 10. A retired processor belongs to the holder of `changing`, its cells too. For that, `retired` is stored with
//!    Release and loaded with Acquire. When the spawner and the monitor of a stopping cluster
//!    have left, and all workers have ended, every processor belongs to the thread that closes the
//!    cluster.
//! 11. A policy that panics when it hears of more processors is not told of them again by the same
//!    change: the number stays as before, and the thread that asked for more gets an error. The
//!    policy hears of fewer when nobody waits any more, so a panic then aborts the process.
//!
//! `idle.md` shows that no wake-up is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{any::Any, io, sync::Mutex, time::Duration};

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use crate::engine::inspect::notes::{Reason, WaitKind, WaitReason};
use crate::engine::policy::{Ideas, Policy};
use crate::engine::sched::idle::{IdleWord, Idlers, Parker, Watched};
use crate::engine::sched::{
    Owned, Processor, Worker, current, events, monitor, monitor::BlockedCalls, park::Waiter,
    processor::Counter, signals::DeferredWakes, size, spawner, start::Count, start::LiveCount,
    user_policy::UserPolicy,
};
use crate::engine::sys::shared::{AtomicStatic, Lock, Table};
use crate::engine::sys::signal::{self, Mask};
#[cfg(sim)]
use crate::engine::sys::simulated;
use crate::engine::sys::{clock, die, kernel_thread, perturb, sanitizer};

// ==== the cluster ====

/// The configuration of a cluster; `runtime::Builder` checks it.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) processors: usize,
    /// The number of processors follows the CPUs that the process may use.
    pub(crate) follows_quota: bool,
    pub(crate) stack_size: usize,
    pub(crate) time_slice: Duration,
    pub(crate) signal: i32,
    pub(crate) max_kernel_threads: usize,
    pub(crate) driver: Kind,
    pub(crate) ideas: Ideas,
}

/// How the threads of a cluster wait for descriptors and files (`driver`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// epoll says which descriptors are ready.
    Epoll,
    /// The same, and io_uring does what it does better.
    Mixed,
    /// io_uring does the operation.
    Uring,
}

pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) policy: &'static dyn Policy,
    pub(crate) table: Table<Processor>,
    /// Whether all threads were cancelled.
    pub(crate) cancelled: Reason,
    active: AtomicUsize,
    /// The number of processors that the policy was told of.
    seats: AtomicUsize,
    /// Held by the thread that changes the number of processors, or clears up after a change.
    changing: Mutex<()>,
    /// Whether that number follows the CPUs that the process may use.
    follows_quota: AtomicBool,
    /// How many processors sleep, are awake, and search.
    pub(crate) idle: IdleWord,
    /// Which processors sleep, and which workers have none.
    pub(crate) idlers: Lock<Idlers>,
    /// The mask that workers run with: the mask of the thread that started the cluster, without
    /// our signal.
    pub(crate) base_mask: Mask,
    pub(crate) spawner: spawner::Spawner,
    pub(crate) monitor: Parker,
    /// The deadline that some sleeping worker watches (`idle`).
    pub(crate) watched: Watched,

    /// Threads that have no stack yet, and wait for one.
    pub(super) needs_stack: AtomicBool,
    /// How many green threads live, and whether a thread waits for the last one to end.
    pub(crate) live_count: LiveCount,
    /// That thread waits here, and then for the end of the spawner, the monitor and the last worker.
    pub(crate) closer: Waiter,
    /// The cluster is being taken down: its kernel threads end.
    ///
    /// SeqCst throughout, since a thread looks at it before each sleep, and `end` stores it before it wakes the
    /// sleepers: the workers, the monitor and the spawner meet `end` at their wake words, the last worker at the
    /// count of workers.
    pub(crate) stopping: AtomicBool,
    /// How many of the spawner and the monitor there are.
    staff: AtomicUsize,
    pub(crate) workers: AtomicUsize,
    /// How many workers wait for the threads that are locked to them, and run no others.
    pub(crate) bound: AtomicUsize,
    pub(crate) hand_offs: Counter,
    /// Threads that signal handlers have woken.
    pub(super) deferred: DeferredWakes,
    /// Calls in which threads have lost their processors.
    pub(crate) blocked_calls: BlockedCalls,
    pub(crate) wake_ups: Counter,
}

/// For reports: a runtime that is being shut down.
static DRAINED: WaitKind = WaitKind::inside("end of a runtime's threads");
static EMPTIED: WaitKind = WaitKind::inside("end of a runtime's kernel threads");

impl Cluster {
    /// Starts a cluster: its monitor, its spawner and its first worker run when this returns.
    /// `is_users`: the policy may not know what code in the scheduler must not do.
    pub(crate) fn start(
        config: Config,
        policy: Box<dyn Policy>,
        is_users: bool,
    ) -> io::Result<&'static Cluster> {
        let policy: &'static dyn Policy = Box::leak(policy);
        let cluster = AtomicStatic::none();
        let user_policy: Option<&'static UserPolicy> =
            is_users.then(|| &*Box::leak(Box::new(UserPolicy { policy, cluster })));
        let policy = user_policy.map_or(policy, |user_policy| user_policy);
        // Threads may read the coarse clock before the monitor notes the time at its first look.
        clock::note(clock::now());
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster {
            policy,
            table: Table::new(),
            cancelled: Reason::default(),
            active: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
            changing: Mutex::default(),
            follows_quota: AtomicBool::new(config.follows_quota),
            idle: IdleWord::new(0),
            idlers: Lock::new(Idlers::new()),
            base_mask: signal::mask() & !signal::bit(config.signal),
            spawner: spawner::Spawner::default(),
            monitor: Parker::awake(),
            watched: Watched::new(),
            needs_stack: AtomicBool::new(false),
            live_count: LiveCount::default(),
            closer: Waiter::new(),
            stopping: AtomicBool::new(false),
            staff: AtomicUsize::new(0),
            workers: AtomicUsize::new(0),
            bound: AtomicUsize::new(0),
            hand_offs: Counter::default(),
            deferred: DeferredWakes::default(),
            blocked_calls: BlockedCalls::new(),
            wake_ups: Counter::default(),
            config,
        }));
        if let Some(user_policy) = user_policy {
            user_policy.cluster.store(Some(cluster), Relaxed);
        }
        cluster.resize(cluster.config.processors)?;
        #[cfg(sim)]
        if simulated::is_on() {
            simulated::watch(&cluster.table.get(0).next_deadline);
            return Ok(cluster);
        }
        let staffed =
            spawner::start(cluster).and_then(|()| cluster.employ("gt-monitor", monitor::run));
        // If one of them cannot start, the kernel threads that have started must end.
        staffed.inspect_err(|_| cluster.end())?;
        Ok(cluster)
    }

    /// Starts a helper that does `work` until the cluster stops. `end` waits for it.
    pub(super) fn employ(&'static self, name: &str, work: fn(&'static Cluster)) -> io::Result<()> {
        self.staff.fetch_add(1, Relaxed);
        let life = move || {
            work(self);
            // Release: its changes to processors; pairs with the Acquire in `end`.
            self.staff.fetch_sub(1, Release);
            perturb::point("close: one has left");
            self.closer.wake();
        };
        let helper = spawner::spawn_helper(name, spawner::HELPER_STACK, Box::new(life));
        helper.map(drop).inspect_err(|_| {
            self.staff.fetch_sub(1, Relaxed);
        })
    }

    /// Every processor that the cluster has had, the active ones first.
    #[inline]
    pub(crate) fn processors(&self) -> impl Iterator<Item = &Processor> {
        self.table.iter()
    }

    /// Whether any thread is ready and not running.
    pub(crate) fn has_work(&self) -> bool {
        let waits_at = |p: &Processor| !p.is_retired() && self.policy.len(Some(p.index)) != 0;
        self.processors().any(waits_at) || self.policy.len(None) != 0
    }

    /// The sum of one count of every processor that the cluster has had.
    #[inline]
    pub(crate) fn sum(&self, count: Count) -> u64 {
        self.processors().map(|p| count(&p.counts)).sum()
    }

    /// How many green threads have been spawned and have not ended.
    pub(crate) fn live(&self) -> usize {
        self.live_count.live(|count| self.sum(count))
    }

    /// Waits until every green thread has ended, then ends the kernel threads.
    pub(crate) fn close(&'static self) {
        let wait = || {
            self.closer.wait(WaitReason::new(&DRAINED, self), None);
        };
        self.live_count.close(|count| self.sum(count), wait);
        sanitizer::observe(self);
        self.end();
    }

    /// Ends the kernel threads, and waits for that. The spawner owns the processors that have
    /// retired; the monitor may have one in hand, taken from a worker that has ended since. No
    /// green thread is left.
    fn end(&'static self) {
        let _unseen = sanitizer::unseen();
        self.stopping.store(true, SeqCst);
        perturb::point("close: stopping");
        self.monitor.rouse();
        self.spawner.call();
        {
            let _off = current::preemption_off();
            let workers = Worker::all().filter(|worker| worker.is_of(self));
            workers.for_each(|worker| worker.parker.poke());
            events::ring();
        }
        // Acquire: pairs with the Release in `employ`. It waits for the staff first: the spawner,
        // one of them, makes workers.
        while self.staff.load(Acquire) != 0 || self.workers.load(SeqCst) != 0 {
            self.closer.wait(WaitReason::new(&EMPTIED, self), None);
        }
        // SAFETY: no thread is left that could own one, or have it in hand; one at a time is used
        // here.
        let processors = || self.processors().map(|p| unsafe { Owned::assume(p) });
        processors().for_each(|mut processor| processor.own().held = None);
        let off = current::preemption_off();
        // This cluster may have watched for events: the monitor of another cluster must do that now.
        Worker::clusters().for_each(|cluster| cluster.monitor.kick());
        for mut processor in processors() {
            processor.own().stacks.drain();
            processor.own().records.drain();
        }
        drop(off);
        spawner::leave_stacks(self);
    }
}

// ==== how many processors there are ====

/// A policy's panic message, as an error.
#[cold]
fn refusal(payload: Box<dyn Any + Send>) -> io::Error {
    let said = payload.downcast_ref::<&str>().copied();
    let said = said.or_else(|| payload.downcast_ref().map(String::as_str));
    let said = said.unwrap_or("with something that is no text");
    let text = format!("the policy panicked when it was told of more processors: {said}");
    if catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err() {
        die("what a policy panicked with has panicked while it was dropped");
    }
    io::Error::other(text)
}

impl Processor {
    /// Whether it is surplus.
    #[inline]
    pub(super) fn is_surplus(&self) -> bool {
        self.index >= self.cluster().active()
    }

    pub(crate) fn is_retired(&self) -> bool {
        // Acquire: invariant 10.
        self.retired.load(Acquire)
    }
}

impl Cluster {
    /// How many processors there are to be.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// The number of seats in the policy: every processor that has not retired has one.
    #[inline]
    pub(crate) fn seats(&self) -> usize {
        // Acquire: pairs with the Release in `resize`.
        self.seats.load(Acquire)
    }

    /// The surplus processors, retired or not.
    pub(super) fn surplus(&'static self) -> impl Iterator<Item = &'static Processor> {
        self.processors().skip(self.active())
    }

    /// From now on there are `processors`, unless there cannot be so many, or the policy refuses the number.
    pub(crate) fn set_size(&'static self, processors: usize) -> io::Result<()> {
        size::check_size(processors, Some(self.config.max_kernel_threads))?;
        let changing = self.changing.lock().unwrap_or_else(|e| e.into_inner());
        self.follows_quota.store(false, Relaxed);
        let changed = self.resize(processors);
        perturb::point("resize: done");
        drop(changing);
        // A processor may have retired while this thread held `changing`, when the spawner could not clear up.
        self.spawner.ring();
        changed
    }

    /// The spawner's part, now and then: the quota may have changed.
    pub(super) fn see_to_quota(&'static self) {
        if let Ok(_changing) = self.changing.try_lock()
            && self.follows_quota.load(Relaxed)
        {
            // If the policy panics, the panic hook has reported that already, and the number of processors stays as it was.
            let _ = self.resize(size::default_size().min(self.config.max_kernel_threads - 1));
        }
    }

    /// Changes the number of processors. The caller holds `changing`, or starts the cluster. The error is the policy's
    /// panic.
    fn resize(&'static self, to: usize) -> io::Result<()> {
        let from = self.active();
        if to == from {
            return Ok(());
        }
        self.table.grow_to(to, |index| Processor::new(index, self));
        if to > self.seats() {
            catch_unwind(AssertUnwindSafe(|| self.policy.resize(to))).map_err(refusal)?;
            perturb::point("resize: seats");
            // Release: a thread that reads this number finds the records; pairs with the Acquire in
            // `seats`.
            self.seats.store(to, Release);
        }
        self.set_active(from, to);
        perturb::point("resize: active");
        while !self.withdraw_surplus() {
            kernel_thread::give_way();
        }
        for processor in self.surplus() {
            processor.attention.store(true, Relaxed);
        }
        self.notify_of_work();
        Ok(())
    }

    fn set_active(&'static self, from: usize, to: usize) {
        let _off = current::preemption_off();
        let mut idlers = self.idlers.lock();
        self.active.store(to, Relaxed);
        for index in (from..to).rev() {
            let processor = self.table.get(index);
            if processor.retired.swap(false, Relaxed) {
                idlers.processors.push(processor);
                self.idle.appear();
            }
        }
    }

    /// Surplus processors in the list retire, except those that are being woken. False: there are
    /// such processors, so look again.
    fn withdraw_surplus(&self) -> bool {
        let _off = current::preemption_off();
        let mut all = true;
        self.idlers.lock().processors.take_out(|processor| {
            if !processor.is_surplus() {
                return false;
            }
            let withdrawn = self.idle.withdraw();
            perturb::point("resize: withdrawn");
            // Release: invariant 10.
            processor.retired.store(withdrawn, Release);
            all &= withdrawn;
            withdrawn
        });
        all
    }

    /// The spawner's part: frees the stacks and records that retired processors have kept, and tells the policy when
    /// all of them have gone. While a thread changes the number, it waits for that thread's ring.
    pub(super) fn clear_up(&'static self) {
        let Ok(_changing) = self.changing.try_lock() else {
            return;
        };
        let active = self.active();
        if self.seats() == active {
            return;
        }
        let mut all = true;
        for processor in self.surplus() {
            if processor.is_retired() {
                // SAFETY: a retired processor belongs to the holder of `changing`.
                let mut processor = unsafe { Owned::assume(processor) };
                processor.own().stacks.drain();
                processor.own().records.drain();
            } else {
                all = false;
            }
        }
        if all {
            self.seats.store(active, Relaxed);
            perturb::point("clear_up: all");
            let tell = || self.policy.resize(active);
            if catch_unwind(AssertUnwindSafe(tell)).is_err() {
                die("a policy has panicked when processors had gone");
            }
            self.notify_of_work();
        }
    }

    /// Wakes a sleeper if there is work that sleeping processors could take.
    fn notify_of_work(&'static self) {
        let _off = current::preemption_off();
        if self.something_to_do() {
            self.notify();
        }
    }
}
