//! The recruiter: a kernel thread that makes machines ahead of need, changes the number of
//! processors (`resize`), and returns stacks that nobody uses (`stack::reclaim`).
//!
//! Making a processor allocates, and making a kernel thread takes libc's locks, which a green
//! thread without a processor may hold; so neither the scheduler nor the monitor ever does it. They
//! call the recruiter, which is an ordinary thread.
//!
//! A machine is made without the program's allocator, and comes to its first thread without it:
//! when many threads wait for the allocator, its holders are preempted threads in a queue, which
//! wait for a new machine. Its record is mapped (`machine`), and its kernel thread is libc's, not
//! std's. (libc has a vector from `calloc` for each thread. `shortage` covers a `calloc` of the
//! program's own, and a recruiter that is held up or refused.)
//!
//! One call brings one machine, which calls for the next one if it finds work for others.

use core::ffi::c_void;
use core::fmt;
use std::io;

use crate::engine::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::engine::green::{Room, current};
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::sched::shortage;
use crate::engine::sched::tuning::RETRY_SPAWN;
use crate::engine::sched::{Cluster, Machine, Owned, RunLoop, caches, helper, machine};
use crate::engine::stack::reclaim::{self, Looks, Stays};
use crate::engine::stack::{List, Slot};
use crate::engine::sys::{clock, futex, kernel_thread, perturb, sanitizer, signal};

/// Where calls arrive.
pub(crate) struct Office {
    bell: AtomicU32,
    /// Calls for a machine.
    calls: AtomicU32,
    /// Whether the last attempt to make one was refused.
    is_refused: AtomicBool,
    /// The error with which no preemption signal could be sent; 0: none.
    no_signals: AtomicU32,
}

/// Why there can be no machine.
#[derive(Clone, Copy)]
pub(crate) enum Refusal {
    /// There are as many as there may be.
    Limit(usize),
    /// The system says so, by this error number.
    System(i32),
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Limit(_) => io::Error::other(refusal.to_string()),
            Refusal::System(number) => io::Error::from_raw_os_error(number),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Limit(limit) => write!(f, "the limit of {limit} kernel threads is reached"),
            Refusal::System(number) => {
                write!(f, "the system refuses more kernel threads (error {number})")
            }
        }
    }
}

impl Office {
    pub(crate) const fn new() -> Office {
        Office {
            bell: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            is_refused: AtomicBool::new(false),
            no_signals: AtomicU32::new(0),
        }
    }

    /// A machine is needed.
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.ring();
    }

    /// Whether nobody knows when there will be another machine.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// No preemption signal can be sent now, by this error number: the recruiter says so.
    pub(crate) fn tell_of_signals(&self, number: i32) {
        if self.no_signals.swap(number as u32, Ordering::Relaxed) == 0 {
            self.ring();
        }
    }

    /// Asks the recruiter to look what there is to do.
    pub(crate) fn ring(&self) {
        // Release: pairs with the Acquire in `work`.
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake(&self.bell, 1);
    }
}

/// Starts the recruiter.
pub(crate) fn open(cluster: &'static Cluster) -> io::Result<()> {
    cluster.employ("gt-recruiter", work)
}

/// The recruiter's work. When it returns it makes no more machines, and the processors that have
/// retired are no longer its own.
fn work(cluster: &'static Cluster) {
    let (mut heard, mut seen) = (0, 0);
    // After a refusal another attempt is due.
    let mut asks_again = false;
    let mut looks = Looks::new();
    while !cluster.stopping.load(Ordering::SeqCst) {
        let office = &cluster.recruiter;
        let look_at = looks.see_to(|now| {
            let go_on = || office.bell.load(Ordering::Relaxed) == heard;
            let idle = || idle_stacks(cluster);
            reclaim::look(now, cluster.active(), idle, dismantle, go_on)
        });
        let again = asks_again.then(|| clock::now() + RETRY_SPAWN);
        let next = again.into_iter().chain(look_at).min();
        futex::wait(&office.bell, heard, next);
        // Acquire: pairs with the Release in `ring`.
        heard = office.bell.load(Ordering::Acquire);
        perturb::point("recruiter: heard");
        cluster.see_to_size();
        match office.no_signals.load(Ordering::Relaxed) {
            0 => {}
            number => shortage::report_signals(number as i32),
        }
        let calls = office.calls.load(Ordering::Relaxed);
        let needed = cluster.spare_count() == 0;
        if (calls == seen && !asks_again) || !needed {
            seen = calls;
            asks_again = false;
            continue;
        }
        seen = calls;
        let refusal = recruit(cluster).err();
        asks_again = refusal.is_some();
        let was_refused = office.is_refused.swap(asks_again, Ordering::Relaxed);
        if let (Some(refusal), true) = (refusal, was_refused) {
            shortage::report(cluster, refusal);
        }
    }
}

/// Asks the recruiter to look at the stacks that nobody uses. Preemption is off.
pub(super) fn ask_to_reclaim(cluster: &Cluster) {
    let is_asked = core::mem::replace(&mut cluster.idlers.lock().look_is_due, true);
    if !is_asked {
        cluster.recruiter.ring();
    }
}

/// Takes the stacks of an idle processor, if one has some.
fn idle_stacks(cluster: &Cluster) -> Option<List> {
    let mut idlers = cluster.idlers.lock();
    idlers.look_is_due = false;
    let mut stacks = None;
    idlers.processors.take_out(|processor| {
        // SAFETY: nobody owns a processor that lies in the list, and this has the list's lock.
        let mut processor = unsafe { Owned::assume(processor) };
        stacks = stacks.take().or_else(|| processor.own().stacks.take());
        false
    });
    stacks
}

fn dismantle(slot: &'static Slot) -> Result<(), Stays> {
    Room::dismantle(slot, caches::spare)
}

/// The cluster has ended, and its stacks are in the common lists: another cluster's recruiter looks
/// after them. If there is none, the caller is no green thread, and returns them now.
pub(super) fn leave_stacks(cluster: &Cluster) {
    let is_there = |cluster: &&Cluster| !cluster.stopping.load(Ordering::SeqCst);
    match machine::clusters().find(is_there) {
        Some(other) => {
            let _off = current::preemption_off();
            ask_to_reclaim(other);
        }
        None => reclaim::all(cluster.active(), dismantle),
    }
}

/// Makes one machine, without the program's allocator.
pub(crate) fn recruit(cluster: &'static Cluster) -> Result<(), Refusal> {
    let _unseen = sanitizer::unseen();
    // Bound machines come on top: if they were all that there may be, no machine would run other
    // threads.
    let bound = cluster.bound.load(Ordering::Relaxed);
    let limit = cluster.config.max_kernel_threads + bound;
    let counted = cluster
        .machines
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n < limit).then_some(n + 1)
        });
    if counted.is_err() {
        return Err(Refusal::Limit(limit));
    }
    let made = Machine::new(cluster).and_then(|machine| {
        let argument = core::ptr::from_ref(machine).cast_mut().cast();
        // SAFETY: `live` expects a machine's record, which is never freed, and aborts rather than
        // unwinds.
        unsafe { helper::bare(live, argument) }.inspect_err(|_| machine.end())
    });
    made.map_err(|number| {
        cluster.machines.fetch_sub(1, Ordering::Relaxed);
        Refusal::System(number)
    })
}

/// The whole life of a machine's kernel thread.
extern "C" fn live(machine: *mut c_void) -> *mut c_void {
    let _unseen = sanitizer::unseen();
    // SAFETY: the record that `recruit` gave, which is never freed.
    let machine: &'static Machine = unsafe { &*machine.cast::<Machine>() };
    perturb::point("machine: begins");
    let cluster = machine.cluster();
    kernel_thread::set_name(format_args!("gt-machine-{}", machine.index));
    KernelThread::begin_helper();
    if machine.begin().is_ok() {
        // SAFETY: this is its kernel thread, and it runs here only.
        super::run(unsafe { RunLoop::new(machine) });
        machine.come_home();
        caches::leave(machine);
        signal::drop_alternate_stack();
        KernelThread::end();
    } else {
        // There is no memory for its alternate stack. A thread that needs a machine asks again.
        std::thread::sleep(std::time::Duration::from_nanos(RETRY_SPAWN));
        cluster.recruiter.call();
    }
    machine.end();
    perturb::point("machine: ended");
    // SeqCst: pairs with `Cluster::end`, which stores `stopping` before it loads the count.
    if cluster.machines.fetch_sub(1, Ordering::SeqCst) == 1
        && cluster.stopping.load(Ordering::SeqCst)
    {
        cluster.emptied.wake();
    }
    core::ptr::null_mut()
}
