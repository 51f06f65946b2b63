//! A snapshot of one thread, taken from outside while the program runs on.
//!
//! An observer asks no thread to stop and takes no lock. It reads a suspended thread's record and stack, and then
//! asks whether the thread has run meanwhile ([`ThreadSnapshot::holds`]); if so, it looks again, or says that the thread
//! runs. Until then nothing that it has read is true:
//!
//! | the reader | the run loop |
//! |---|---|
//! | reads `turns`, sees that no kernel thread runs the thread | `worker` = this one, `current` = the thread (Release) |
//! | reads the record, the stack, the thing that is waited for | Release fence; the thread runs, and writes |
//! | Acquire fence; sees `current` and `turns` again | `turns` += 1, `current` = null (Release) |
//!
//! If the reader has seen a write of the thread's run, it sees `current` too, or what came after it: `turns` has
//! changed. The two fences see to that.
//!
//! The thread may come to another kernel thread between the reader's looks. If the reader sees the new `worker`
//! (Release, Acquire), it sees that `turns` has changed, even if it does not see yet that this one runs the thread.
//!
//! Stacks are never unmapped, nor are records; other memory is read by `sys::word`.
//!
//! Where two words are read one after the other without that, as of a processor and its worker, an answer may mix two
//! moments. It is good for a picture and for counting, and nothing is decided by it.

use crate::engine::arch;
use crate::engine::atomic::{Ordering::*, fence};
use crate::engine::inspect::kernel::{self, KernelThread};
use crate::engine::inspect::notes::Facts;
use crate::engine::sched::frames::Seen;
use crate::engine::sched::park::{ParkState, Parking, Waiter};
use crate::engine::sched::thread::{Records, SystemName};
use crate::engine::sched::{
    Cluster, Green, Identity, Processor, ThreadFlags, Worker, cpu_time, current, switch::Bounds,
};
use crate::engine::sys::{signal, word};

// ==== a snapshot ====

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// It waits for its first run.
    New,
    /// It could run, and waits for a processor.
    Ready,
    /// A kernel thread runs it: this one of the system's. It may be blocked in the kernel.
    Running(i32),
    /// It waits for something.
    Parked,
}

/// A thread, green or kernel, that observers can see.
#[derive(Clone, Copy)]
pub(crate) enum AnyThread {
    Green(&'static Green),
    Kernel(&'static KernelThread),
}

/// A thread as one look has found it.
pub(crate) struct ThreadSnapshot {
    pub(crate) thread: AnyThread,
    pub(crate) doing: Doing,
    /// In milliseconds.
    pub(crate) since: u32,
    /// Its park, or its wait on its own kernel thread.
    pub(crate) waiting: Option<Parking>,
    /// The word that the thread leaves in locks that it takes.
    pub(crate) mark: usize,
    /// How often the thread had left its stack.
    pub(crate) turns: u32,
}

impl AnyThread {
    pub(crate) fn green(self) -> Option<&'static Green> {
        match self {
            AnyThread::Green(green) => Some(green),
            AnyThread::Kernel(_) => None,
        }
    }

    /// The thread's name and number, or null. They stay while a read section is open (`inspect::notes`).
    pub(crate) fn identity(self) -> *const Identity {
        match self {
            // Acquire: what it points to was written before; partner: Release in `runtime::spawn`.
            AnyThread::Green(green) => green.identity.load(Acquire),
            AnyThread::Kernel(kernel) => kernel.identity(),
        }
    }

    /// The word that the thread leaves in locks, or 0.
    pub(crate) fn mark(self) -> usize {
        match self {
            AnyThread::Green(green) => green.stack().map_or(0, |stack| stack.thread_pointer.addr()),
            AnyThread::Kernel(kernel) => kernel.mark(),
        }
    }

    /// Where its record lies. Another thread may have it later.
    pub(crate) fn record(self) -> usize {
        match self {
            AnyThread::Green(green) => core::ptr::from_ref(green).addr(),
            AnyThread::Kernel(kernel) => core::ptr::from_ref(kernel).addr(),
        }
    }

    /// Fetches what a look will read, for a caller that looks at many threads one after the other. What the record
    /// leads to is fetched if the record is there already.
    pub(crate) fn prefetch(self) {
        if let Some(green) = self.green() {
            const LINE: usize = 64;
            let parking = green.parking().cast::<u8>();
            arch::prefetch(parking);
            arch::prefetch(parking.wrapping_add(LINE));
            if let Some(stack) = green.stack() {
                arch::prefetch(core::ptr::from_ref(stack).cast());
            }
        }
    }

    /// Looks at the thread; `None`: it has ended, or is not there yet.
    pub(crate) fn look(self) -> Option<ThreadSnapshot> {
        let mut tries = 0;
        loop {
            let turns = match self {
                AnyThread::Green(green) => green.since.turns(),
                AnyThread::Kernel(kernel) => kernel.turns(),
            };
            // Acquire: what is read below is read after the count.
            fence(Acquire);
            let (mut seen, parking) = self.look_once(turns)?;
            let parking = read_words(parking);
            tries += 1;
            if !seen.holds() {
                if tries == TRIES {
                    // The thread runs again and again, for a little each time, so no look is true
                    // when it ends.
                    return Some(seen);
                }
                continue;
            }
            // SAFETY: the thread has not run since the words were read: they are those of its park.
            seen.waiting = parking.map(|words| unsafe { Parking::from_words(words) });
            if let Some(parking) = &seen.waiting {
                let is_parked = match (self, seen.doing) {
                    // The thread blocks its kernel thread, so it is not parked.
                    (AnyThread::Green(_), Doing::Running(_)) => false,
                    (AnyThread::Green(_), _) => is_waiting(parking, ParkState::PARKED),
                    // A kernel thread that was notified is not parked any more: it goes on as soon
                    // as the system runs it.
                    (AnyThread::Kernel(_), _) => is_waiting(parking, ParkState::ASLEEP),
                };
                if is_parked {
                    seen.doing = Doing::Parked;
                }
            }
            return Some(seen);
        }
    }

    /// A look at the record, and where the park lies that the record leads to, or null.
    fn look_once(self, turns: u32) -> Option<(ThreadSnapshot, *const Parking)> {
        let (doing, since, parking) = match self {
            AnyThread::Green(green) => {
                if self.identity().is_null() {
                    return None;
                }
                let runner = runs_it(green);
                let doing = match runner {
                    Some(worker) => Doing::Running(worker.kernel_thread.load(Relaxed) as i32),
                    None if green.flags.has(ThreadFlags::NEW) => Doing::New,
                    None => Doing::Ready,
                };
                (
                    doing,
                    green.since.millis(),
                    green.seen_parking(runner.is_some()),
                )
            }
            AnyThread::Kernel(kernel) => {
                if self.mark() == 0 || kernel.is_gone(kernel.thread()) {
                    return None;
                }
                (
                    Doing::Running(kernel.thread()),
                    kernel.millis(),
                    kernel.parking(),
                )
            }
        };
        let seen = ThreadSnapshot {
            thread: self,
            doing,
            since,
            waiting: None,
            mark: self.mark(),
            turns,
        };
        Some((seen, parking))
    }
}

impl ThreadSnapshot {
    /// Whether the thread has not run since the look: all that was read in between was true at once.
    pub(crate) fn holds(&self) -> bool {
        // Acquire: all reads before this one come before the looks here; see the header.
        fence(Acquire);
        match self.thread {
            AnyThread::Green(green) => {
                let runs = runs_it(green).is_some();
                // Acquire, in `runs_it`: the count is as new as the answer.
                runs == matches!(self.doing, Doing::Running(_)) && green.since.turns() == self.turns
            }
            AnyThread::Kernel(kernel) => kernel.turns() == self.turns && kernel.mark() == self.mark,
        }
    }

    /// The kernel thread that the thread runs or waits on.
    pub(crate) fn kernel_thread(&self) -> Option<i32> {
        match (self.thread, self.doing) {
            (AnyThread::Kernel(kernel), _) => Some(kernel.thread()),
            (AnyThread::Green(_), Doing::Running(thread)) => Some(thread),
            (AnyThread::Green(_), _) => None,
        }
    }

    /// What can be told of the thing that the thread waits for; `None`: it waits no more, or for nothing.
    pub(crate) fn facts(&self) -> Option<Facts> {
        let reason = self.waiting?.reason;
        let facts = reason.kind.facts(reason.of.addr());
        self.holds().then_some(facts)
    }

    /// Where a suspended green thread has saved its registers, and its stack. That is to be read before
    /// [`holds`](ThreadSnapshot::holds) is asked.
    pub(crate) fn saved(&self) -> Option<(usize, Bounds)> {
        let green = self.thread.green()?;
        let (stack, saved) = (green.bounds()?, green.context.saved_stack_pointer());
        (self.doing != Doing::New && stack.holds(saved)).then_some((saved, stack))
    }
}

fn runs_it(green: &'static Green) -> Option<&'static Worker> {
    let worker = green.last_worker()?;
    worker.is_running(green).then_some(worker)
}

/// How often a look is begun anew because the thread has run meanwhile.
const TRIES: usize = if cfg!(greenthread_model) { 2 } else { 64 };

/// Copies a park out of a thread's stack, which may be gone.
fn read_words(parking: *const Parking) -> Option<[usize; Parking::WORDS]> {
    let mut words = [0; Parking::WORDS];
    // The park's address may be null, which `word::read` finds unreadable as well.
    for (i, place) in words.iter_mut().enumerate() {
        *place = word::read(parking.addr() + i * size_of::<usize>())?;
    }
    Some(words)
}

/// Whether the waiter's park state says that the thread waits still.
fn is_waiting(parking: &Parking, state: u32) -> bool {
    let says_so = || word::look(parking.waiter.addr() + Waiter::STATE) == Some(state);
    parking.waiter.is_null() || says_so()
}

// ==== all there is to look at ====

/// Every thread but the kernel threads that keep runtimes going: those are no concern of the program's.
pub(crate) fn all() -> impl Iterator<Item = AnyThread> {
    // In a forked child the records of green threads are left over from the parent.
    let green = Records::all().filter(|_| !current::is_forked_child());
    let others = kernel::all().filter(|kernel| !kernel.is_helper());
    let green = green.map(AnyThread::Green);
    green.chain(others.map(AnyThread::Kernel))
}

/// Whether something other than a thread that is seen may wake one: a processor is awake, or a signal's handler
/// may run.
pub(crate) fn may_be_woken() -> bool {
    let is_awake = |cluster: &Cluster| cluster.idle.awake() != 0;
    Worker::clusters().any(is_awake)
        || current::HANDLERS_EXIST.load(Relaxed)
        || signal::are_caught()
}

/// All green threads that run, or are blocked in the kernel, with the workers that run them.
pub(crate) fn runs() -> impl Iterator<Item = (&'static Green, &'static Worker)> {
    Worker::all().filter_map(|worker| Some((worker.running()?, worker)))
}

impl AnyThread {
    /// What can be seen of the thread's frames. A read section is open.
    pub(crate) fn frames(self) -> Option<Seen> {
        // SAFETY: it was seen in this read section, and so it stays.
        let identity = unsafe { self.identity().as_ref() };
        match self {
            AnyThread::Green(green) => Seen::of(green.interrupts(), identity),
            AnyThread::Kernel(kernel) => Seen::of(&kernel.interrupts, identity),
        }
    }

    /// The name that a green thread has given itself by a call of libc.
    pub(crate) fn own_name(self) -> Option<SystemName> {
        self.green()?.stack()?.own_name()
    }

    /// The CPU time of a green thread, in nanoseconds, if somebody has asked for it.
    pub(crate) fn cpu_time(self) -> Option<u64> {
        cpu_time::known(self.green()?)
    }
}

/// What a processor does.
pub(crate) enum Activity {
    /// It has no worker: it sleeps.
    Idle,
    /// Its worker is between two threads, or searches.
    Scheduling,
    /// It runs this thread, on this kernel thread of the system's.
    Running(&'static Green, i32),
}

impl Processor {
    pub(crate) fn activity(&self) -> Activity {
        // Acquire: the worker's record; partner: Release in `Owned::give_to`.
        let Some(worker) = self.worker.load(Acquire) else {
            return Activity::Idle;
        };
        match worker.running() {
            Some(green) => Activity::Running(green, worker.thread()),
            None => Activity::Scheduling,
        }
    }
}
