//! A cluster: processors, a policy, machines, a monitor. A `Runtime` is a handle to one.
//!
//! Its control block (a few KiB) is never freed: a green thread, a late signal or a waker may hold
//! a reference without counting it. Starting a cluster allocates. Nothing after that does, except
//! the recruiter, which makes machines, and records of more processors (`resize`).

use std::io;
use std::time::Duration;

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::green::waiter::Waiter;
use crate::engine::inspect::reason::{self, WaitKind, WaitReason};
use crate::engine::policy::Policy;
use crate::engine::sched::blocked_calls::BlockedCalls;
use crate::engine::sched::census::{Census, Counts};
use crate::engine::sched::handed::Handed;
use crate::engine::sched::idle::IdleWord;
use crate::engine::sched::resize::Size;
use crate::engine::sched::start::Homeless;
use crate::engine::sched::watched::Watched;
use crate::engine::sched::{
    Counter, Machine, Owned, Processor, guest::Guest, helper, idlers::Idlers, monitor, recruiter,
};
use crate::engine::sys::clock;
use crate::engine::sys::lock::Lock;
use crate::engine::sys::signal::{self, Mask};
use crate::engine::sys::table::Table;
use crate::engine::sys::{perturb, sanitizer};

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

/// The ideas of the scheduler besides its policy; each of them can be switched off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ideas {
    pub(crate) spinning: bool,
    pub(crate) hand_off: bool,
    pub(crate) preemption: bool,
}

impl Ideas {
    pub(crate) const ALL: Ideas = Ideas {
        spinning: true,
        hand_off: true,
        preemption: true,
    };
}

pub(crate) struct Cluster {
    pub(crate) config: Config,
    pub(crate) policy: &'static dyn Policy,
    pub(super) table: Table<Processor>,
    pub(super) size: Size,
    /// How many processors sleep, are awake, and search.
    pub(crate) idle: IdleWord,
    /// Which processors sleep, and which machines have none.
    pub(crate) idlers: Lock<Idlers>,
    /// The mask that machines run with: the mask of the thread that started the cluster, without
    /// our signal.
    pub(crate) base_mask: Mask,
    pub(crate) recruiter: recruiter::Office,
    pub(crate) monitor: monitor::Post,
    /// The deadline that some sleeping machine watches (`idlers`).
    pub(crate) watched: Watched,

    /// Threads that have no stack yet, and wait for one.
    pub(super) homeless: Homeless,
    /// How many green threads live, and whether a thread waits for the last one to end: here.
    pub(crate) census: Census,
    pub(crate) drained: Waiter,
    /// The recruiter, the monitor or the last machine has ended.
    pub(crate) emptied: Waiter,
    /// The cluster is being taken down: its kernel threads end.
    ///
    /// SeqCst throughout, since a thread that is about to sleep looks at it after it has said so,
    /// and `end` stores it before it looks for sleepers: a spare and `dismiss_spares` meet at the
    /// list of spares, the monitor and `stop` at the monitor's word, the recruiter and `call` at the
    /// recruiter's, the last machine and `end` at the count of machines.
    pub(crate) stopping: AtomicBool,
    /// How many of the recruiter and the monitor there are.
    staff: AtomicUsize,
    pub(crate) machines: AtomicUsize,
    /// How many machines wait for the threads that are locked to them, and run no others.
    pub(crate) bound: AtomicUsize,
    pub(crate) hand_offs: Counter,
    /// Threads that signal handlers have woken.
    pub(super) handed: Handed,
    /// Calls in which threads have lost their processors.
    pub(crate) blocked_calls: BlockedCalls,
    pub(crate) wake_ups: Counter,
    pub(crate) detached_preemptions: Counter,
    pub(crate) detached_switches: Counter,
}

/// For reports: a runtime that is being shut down.
static DRAINED: WaitKind = WaitKind::inside("end of a runtime's threads", reason::nothing);
static EMPTIED: WaitKind = WaitKind::inside("end of a runtime's kernel threads", reason::nothing);

impl Cluster {
    /// Starts a cluster: its monitor, its recruiter and its first machine run when this returns.
    /// `is_guest`: the policy may not know what code in the scheduler must not do.
    pub(crate) fn start(
        config: Config,
        policy: Box<dyn Policy>,
        is_guest: bool,
    ) -> io::Result<&'static Cluster> {
        crate::engine::sys::topology::discover();
        let policy: &'static dyn Policy = Box::leak(policy);
        let guest: Option<&'static Guest> =
            is_guest.then(|| &*Box::leak(Box::new(Guest::new(policy))));
        let policy = guest.map_or(policy, |guest| guest);
        // Threads may note the time before a monitor has looked.
        clock::note(clock::now());
        let cluster: &'static Cluster = Box::leak(Box::new(Cluster {
            policy,
            table: Table::new(),
            size: Size::new(config.follows_quota),
            idle: IdleWord::new(0),
            idlers: Lock::new(Idlers::new()),
            base_mask: signal::mask() & !signal::bit(config.signal),
            recruiter: recruiter::Office::new(),
            monitor: monitor::Post::new(),
            watched: Watched::new(),
            homeless: Homeless::new(),
            census: Census::new(),
            drained: Waiter::new(),
            emptied: Waiter::new(),
            stopping: AtomicBool::new(false),
            staff: AtomicUsize::new(0),
            machines: AtomicUsize::new(0),
            bound: AtomicUsize::new(0),
            hand_offs: Counter::new(),
            handed: Handed::new(),
            blocked_calls: BlockedCalls::new(),
            wake_ups: Counter::new(),
            detached_preemptions: Counter::new(),
            detached_switches: Counter::new(),
            config,
        }));
        if let Some(guest) = guest {
            guest.move_in(cluster);
        }
        cluster.resize(cluster.config.processors)?;
        let staffed = recruiter::recruit(cluster)
            .map_err(io::Error::from)
            .and_then(|()| recruiter::open(cluster))
            .and_then(|()| monitor::post(cluster));
        // Without this, the kernel threads that have started would never end.
        staffed.inspect_err(|_| cluster.end())?;
        Ok(cluster)
    }

    /// Starts a helper that does `work` until the cluster stops. `end` waits for it.
    pub(super) fn employ(&'static self, name: &str, work: fn(&'static Cluster)) -> io::Result<()> {
        self.staff.fetch_add(1, Ordering::Relaxed);
        let life = move || {
            work(self);
            // Release: its changes to processors; pairs with the Acquire in `end`.
            self.staff.fetch_sub(1, Ordering::Release);
            perturb::point("close: one has left");
            self.emptied.wake();
        };
        helper::spawn(name, helper::STACK, Box::new(life)).inspect_err(|_| {
            self.staff.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Every processor that the cluster has had, the active ones first.
    #[inline]
    pub(crate) fn processors(&self) -> impl Iterator<Item = &Processor> {
        self.table.iter()
    }

    /// The processor with this index.
    pub(crate) fn processor(&self, index: usize) -> &Processor {
        self.table.get(index)
    }

    /// Whether any thread is ready and not running.
    pub(crate) fn has_work(&self) -> bool {
        let waits_at = |p: &Processor| !p.is_retired() && self.policy.len(Some(p.index)) != 0;
        self.policy.len(None) != 0 || self.processors().any(waits_at)
    }

    /// How many processors may search at once: half of them.
    #[inline]
    pub(crate) fn search_limit(&self) -> u32 {
        self.active().div_ceil(2) as u32
    }

    /// The spawns and the ends on every processor that the cluster has had.
    #[inline]
    fn counts(&self) -> impl Iterator<Item = &Counts> {
        self.processors().map(|p| &p.counts)
    }

    /// How many green threads have been spawned and have not ended.
    pub(crate) fn live(&self) -> usize {
        self.census.live(|| self.counts())
    }

    /// A green thread has ended, and been counted. True: it was the last of a closing cluster, and
    /// a thread waits for that.
    #[inline]
    pub(crate) fn was_last(&self) -> bool {
        self.census.was_last(|| self.counts())
    }

    /// Waits until every green thread has ended, then ends the kernel threads.
    pub(crate) fn close(&'static self) {
        let wait = || {
            self.drained.wait(WaitReason::new(&DRAINED, self), None);
        };
        self.census.close(|| self.counts(), wait);
        sanitizer::observe(self);
        perturb::point("close: drained");
        self.end();
    }

    /// Ends the kernel threads, and waits for that. The recruiter owns the processors that have
    /// retired; the monitor may have one in hand, taken from a machine that has ended since. No
    /// green thread is left.
    fn end(&'static self) {
        let _unseen = sanitizer::unseen();
        self.stopping.store(true, Ordering::SeqCst);
        perturb::point("close: stopping");
        self.monitor.stop();
        self.recruiter.call();
        {
            let _off = crate::engine::green::current::preemption_off();
            self.dismiss_spares();
        }
        // Acquire: pairs with the Release in `employ`. It waits for the staff first: the recruiter,
        // one of them, makes machines.
        while self.staff.load(Ordering::Acquire) != 0 || self.machines.load(Ordering::SeqCst) != 0 {
            self.emptied.wait(WaitReason::new(&EMPTIED, self), None);
        }
        // SAFETY: no thread is left that could own one, or have it in hand; one at a time is used
        // here.
        let processors = || self.processors().map(|p| unsafe { Owned::assume(p) });
        processors().for_each(|mut processor| processor.own().held = None);
        perturb::point("close: emptied");
        let off = crate::engine::green::current::preemption_off();
        // If it watched for events, another monitor must.
        crate::engine::sched::machine::all().for_each(Machine::kick_monitor);
        for mut processor in processors() {
            processor.own().stacks.drain();
            perturb::point("close: stacks drained");
            processor.own().records.drain();
        }
        drop(off);
        recruiter::leave_stacks(self);
    }
}
