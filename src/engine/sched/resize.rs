//! How many processors a cluster has, and how that changes while it runs.
//!
//! The processors below the index [`Cluster::active`] are to run; those above are *surplus*.
//! Records are made when first needed and never freed, so a processor can come back.
//!
//! | state of a processor | retired | is in | leaves it |
//! |---|---|---|---|
//! | at work | no | its worker's word | by lying down: idle, or retired if it is surplus by then |
//! | idle | no | the list of idle ones | woken: at work; surplus: retired |
//! | retired | yes | nowhere | no surplus any more: idle |
//!
//! - *Growing*: the spawner makes records and tells the policy, the new processors appear in the
//!   list of idle ones, and one is woken if there is work.
//! - *Shrinking*: `active` says so. Idle surplus processors are taken out of the list. A surplus
//!   processor at work is told (`attention`): its owner, in the run loop, gives the threads in its
//!   queue to all, and lies down as any processor does. If its thread does not come to the run
//!   loop, the monitor acts: it ends the time slice, or takes the processor, though nothing else
//!   waits. Nobody waits for that: after a slice and a few milliseconds at most no surplus
//!   processor runs.
//! - *Timers* stay in the heap of the processor where they were armed: a searcher looks into all
//!   heaps, and the monitor asks the active processors to look into those of the surplus ones.
//!
//! The spawner does all that needs memory or blocks (making records,
//! [`Policy::resize`](crate::engine::policy::Policy), reading the quota), one change at a time. It
//! has three causes: a thread wishes for a number and waits; the quota has changed, which the spawner reads again
//! once a second while the monitor is awake, unless the user has named a number; and a processor has retired.
//!
//! # Invariants
//!
//! 1. `active` and `retired` change under the idlers' lock. Only the spawner changes `active` and
//!    the number of records (before it runs, the thread that starts the cluster does).
//! 2. When a change is done, no surplus processor is in the list; a worker that lays one down
//!    later sees, under the lock, that it is surplus. So an idle processor is an active one, except
//!    for moments.
//! 3. A retired processor's queue is empty, except for threads that others put there (a policy
//!    may). The policy moves those when it is told that the processor has gone.
//! 4. The policy has a seat for every processor that is not retired: it hears of more before they
//!    are there and of fewer after they have gone.
//! 5. A retired processor is the spawner's, its cells too. For that, `retired` is stored with
//!    Release and loaded with Acquire. When the spawner and the monitor of a stopping cluster
//!    have left, and all workers have ended, every processor belongs to the thread that closes the
//!    cluster.
//! 6. A policy that panics when it hears of more processors is not told of them again by the same
//!    wish: the number stays as before, and the thread that wished for more gets an error. The
//!    policy hears of fewer when nobody waits any more, so a panic then aborts the process.
//!
//! `idle.md` shows that no wake-up is lost.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::inspect::reason::{self, WaitKind, WaitReason};
use crate::engine::sched::{Cluster, Owned, Processor, current, park::Waiter};
use crate::engine::sys::{die, kernel_thread, perturb};

/// More processors than any computer has.
pub(crate) const MAX: usize = 4096;

/// A cluster's number of processors, and the wish for another number.
pub(crate) struct Size {
    active: AtomicUsize,
    /// The number of processors that the policy was told of.
    seats: AtomicUsize,
    /// The number that is wished for; 0: none.
    wish: AtomicUsize,
    granted: Waiter,
    /// Why the last wish was not granted. Nobody waits for the lock: the spawner writes it before
    /// the wish is over, and only then does the wishing thread look.
    refusal: Mutex<Option<io::Error>>,
    /// Whether the number follows the CPUs that the process may use.
    follows: AtomicBool,
}

/// For reports: the runtime's number of processors is being changed.
static GRANTED: WaitKind = WaitKind::inside("change of the number of processors", reason::nothing);

impl Size {
    pub(crate) const fn new(follows: bool) -> Size {
        Size {
            active: AtomicUsize::new(0),
            seats: AtomicUsize::new(0),
            wish: AtomicUsize::new(0),
            granted: Waiter::new(),
            refusal: Mutex::new(None),
            follows: AtomicBool::new(follows),
        }
    }
}

/// The number of processors of a cluster whose builder names none: the CPUs that the process may
/// use, by affinity and cgroup quota. It allocates and reads files: only ordinary threads ask.
pub(crate) fn default_size() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX))
}

/// Refuses an impossible number of processors; `max_kernel_threads` bounds the kernel threads.
pub(crate) fn check(processors: usize, max_kernel_threads: Option<usize>) -> io::Result<()> {
    let most = max_kernel_threads.map_or(MAX, |max| MAX.min(max - 1));
    if (1..=most).contains(&processors) {
        return Ok(());
    }
    let limit = match most {
        MAX => String::new(),
        _ => format!(" (there may be {} kernel threads)", most + 1),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{processors} processors: accepted are 1 to {most}{limit}"),
    ))
}

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
        // Acquire: invariant 5.
        self.retired.load(Ordering::Acquire)
    }
}

impl Cluster {
    /// How many processors there are to be.
    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.size.active.load(Ordering::Relaxed)
    }

    /// The number of seats in the policy: every processor that has not retired has one.
    #[inline]
    pub(crate) fn seats(&self) -> usize {
        // Acquire: pairs with the Release in `resize`.
        self.size.seats.load(Ordering::Acquire)
    }

    /// The surplus processors, retired or not.
    pub(super) fn surplus(&'static self) -> impl Iterator<Item = &'static Processor> {
        self.processors().skip(self.active())
    }

    /// From now on there are `processors`, a number that was checked. Blocks until the change is
    /// under way, or the policy has refused it. One thread at a time may wish: the caller sees to
    /// it.
    pub(crate) fn wish(&'static self, processors: usize) -> io::Result<()> {
        let size = &self.size;
        size.follows.store(false, Ordering::Relaxed);
        // Release, Acquire: all that this thread did before comes before all that the new
        // processors do.
        size.wish.store(processors, Ordering::Release);
        perturb::point("resize: wished");
        self.spawner.ring();
        while size.wish.load(Ordering::Acquire) != 0 {
            size.granted.wait(WaitReason::only(&GRANTED), None);
        }
        let mut refusal = size.refusal.lock().unwrap_or_else(|e| e.into_inner());
        refusal.take().map_or(Ok(()), Err)
    }

    /// The spawner's part, now and then: the quota may have changed.
    pub(super) fn see_to_quota(&'static self) {
        if self.size.follows.load(Ordering::Relaxed) {
            // If the policy panics, the panic is reported already, and the number stays.
            let _ = self.resize(default_size().min(self.config.max_kernel_threads - 1));
        }
    }

    /// The spawner's part: wishes, and the leftovers of processors that have retired.
    pub(super) fn see_to_size(&'static self) {
        let size = &self.size;
        let processors = size.wish.load(Ordering::Acquire);
        if processors != 0 {
            let refusal = self.resize(processors).err();
            *size.refusal.lock().unwrap_or_else(|e| e.into_inner()) = refusal;
            perturb::point("resize: done");
            size.wish.store(0, Ordering::Release);
            size.granted.wake();
        }
        self.clear_up();
    }

    /// Changes the number of processors. The caller is the spawner, or the thread that starts the
    /// cluster. The error is the policy's panic.
    pub(super) fn resize(&'static self, to: usize) -> io::Result<()> {
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
            self.size.seats.store(to, Ordering::Release);
        }
        self.set_active(from, to);
        perturb::point("resize: active");
        while !self.withdraw_surplus() {
            kernel_thread::give_way();
        }
        for processor in self.surplus() {
            processor.attention.store(true, Ordering::Relaxed);
        }
        self.notify_of_work();
        Ok(())
    }

    fn set_active(&'static self, from: usize, to: usize) {
        let _off = current::preemption_off();
        let mut idlers = self.idlers.lock();
        self.size.active.store(to, Ordering::Relaxed);
        for index in (from..to).rev() {
            let processor = self.table.get(index);
            if processor.retired.swap(false, Ordering::Relaxed) {
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
            // Release: invariant 5.
            processor.retired.store(withdrawn, Ordering::Release);
            all &= withdrawn;
            withdrawn
        });
        all
    }

    /// Frees the stacks and records that retired processors have kept, and tells the policy when
    /// all of them have gone.
    fn clear_up(&'static self) {
        let active = self.active();
        if self.seats() == active {
            return;
        }
        let mut all = true;
        for processor in self.surplus() {
            if processor.is_retired() {
                perturb::point("clear_up: draining");
                // SAFETY: a retired processor is the spawner's, and this is the spawner.
                let mut processor = unsafe { Owned::assume(processor) };
                processor.own().stacks.drain();
                perturb::point("clear_up: stacks drained");
                processor.own().records.drain();
            } else {
                all = false;
            }
        }
        if all {
            self.size.seats.store(active, Ordering::Relaxed);
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
