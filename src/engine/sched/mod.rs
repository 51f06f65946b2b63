//! The scheduler. Read this file first: it is the loop that every kernel thread of the runtime
//! runs.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the run loop: find a thread, switch to it, do what it asks for |
//! | `switch`, `caches` | to a green thread and back; what becomes of malloc's caches |
//! | `machine`, `processor`, `cluster` | the kernel thread, the right to run, all of them together |
//! | `search` | finding the work of other processors |
//! | `park` | how a thread waits, and how another one wakes it |
//! | `wake` | how a machine that waits is told to go on |
//! | `ownership`, `resize` | which machine owns a processor, and how the monitor takes it; more of them, or fewer |
//! | `guest` | a policy that a user wrote |
//! | `idle`, `idlers` | sleeping and waking without a lost wake-up (`idle.md` has the proof); `lifo`: the last sleeper is woken first |
//! | `start`, `census` | a thread's first time and its last: where its stack comes from, and where it goes; how many live, and who learns of the last end |
//! | `locked` | threads that are locked to a kernel thread; a call that changes it locks its thread |
//! | `timers`, `watched` | deadlines; which sleeper watches the earliest |
//! | `enter`, `announce` | the way into the runtime; threads announce that they block, or may block |
//! | `owned`, `record` | owning a processor as a value; the scheduler's part of a thread's record |
//! | `events`, `io` | a driver as the scheduler sees it; which thread collects its events, and when |
//! | `preempt`, `monitor` | ending a time slice from outside; the monitor |
//! | `handlers`, `handed` | the program's signal handlers; what they leave to the monitor |
//! | `name`, `cpu_time` | a thread's name for the system; its CPU time, once somebody asks for it |
//! | `pthreads` | whose pthread one is |
//! | `helper` | the crate's own kernel threads: by std's means, or without the program's allocator |
//! | `recruiter`, `shortage` | the recruiter makes kernel threads ahead of need, and returns unused stacks; what the monitor does when there can be no thread |
//! | `fork`, `setxid`, `unload` | what a forked child keeps; user ids change in every kernel thread; `dlclose` waits for green threads, too |
//! | `tuning` | what can be tuned, and what loses without it |
//!
//! Invariants:
//! 1. While a machine owns a processor, the scheduler's code on it never allocates, frees, prints,
//!    panics, or takes a lock that a preemptible thread can hold. (A machine without a processor
//!    may block on anything: others go on.)
//! 2. A green thread has one owner at a time (`green`), so it is run by one machine and is in one
//!    queue.
//! 3. The fast path (next slot or local queue, switch, back to the queue) touches no thread-local:
//!    the thread pointer is the last green thread's. Code that may touch a thread-local comes after
//!    [`Machine::come_home`].
//!
//! These resources are bounded. The table says what happens when one is used up:
//!
//! | bound | then |
//! |---|---|
//! | slots of a local queue | half of it goes to the processor's backlog, which has no bound |
//! | rooms at hand | a machine without a processor makes one (`start`) |
//! | spare machines | the processor sleeps on; the recruiter makes a machine, which looks for work first of all |
//! | kernel threads | the recruiter asks again; a thread that comes back from the kernel takes an idle processor |
//! | the turn at events | a machine that does not get it sleeps on its futex (`io`) |
//! | places in what a driver holds back at a processor | it goes out before the next thread runs (`io`) |

pub(crate) mod announce;
mod blocked_calls;
mod caches;
mod census;
pub(crate) mod cluster;
pub(crate) mod cpu_time;
pub(crate) mod enter;
pub(crate) mod events;
pub(crate) mod fork;
mod guest;
pub(crate) mod handed;
pub(crate) mod handlers;
pub(crate) mod helper;
pub(crate) mod hooked;
mod idle;
mod idlers;
pub(crate) mod io;
mod lifo;
pub(crate) mod locked;
pub(crate) mod machine;
mod monitor;
pub(crate) mod name;
mod owned;
mod ownership;
pub(crate) mod park;
pub(crate) mod preempt;
mod processor;
pub(crate) mod pthreads;
mod record;
mod recruiter;
pub(crate) mod resize;
mod search;
pub(crate) mod setxid;
mod shortage;
pub(crate) mod start;
mod switch;
pub(crate) mod timers;
mod tuning;
pub(crate) mod unload;
mod wake;
mod watched;

pub(crate) use self::blocked_calls::{Blocked, BlockedAt, Place as BlockedPlace};
pub(crate) use self::cluster::{Cluster, Config, Ideas};
pub(crate) use self::enter::enter;
use self::idlers::Rested;
use self::locked::{hand_to_its_machine, handed, is_bound_here, stay};
pub(crate) use self::machine::Machine;
pub(crate) use self::owned::{Owned, RunLoop};
use self::search::{look_at_others, search, stop_searching};
use self::tuning::{LOOK_AT_EVENTS, LOOK_AT_TIMERS};
pub(crate) use self::{census::Counter, processor::Processor};
use crate::engine::atomic::Ordering;
use crate::engine::green::context::Action;
use crate::engine::green::current;
use crate::engine::green::waiter::Parking;
use crate::engine::green::{Green, Oddities};
use crate::engine::policy::{ForOthers, Next, Others, Readied, Ready};
use crate::engine::probe::{self, By, Pick, Readied as Why};
use crate::engine::sys::{clock, perturb, sanitizer};

/// The life of a machine: rest until there is a processor, then find work and run it.
fn run(mut run: RunLoop) {
    let cluster = run.machine().cluster();
    let mut rested = cluster.wait_for_processor(&mut run);
    while let Rested::Working { searching } = rested {
        rested = match find_work(&mut run, searching) {
            Ok(next) => run_one_after_another(&mut run, next),
            Err(NothingFound { searching }) => cluster.rest(&mut run, searching),
        };
    }
}

/// Runs `next`, then the threads in this processor's queue, until the queue is empty or the
/// processor is gone.
#[inline(never)]
fn run_one_after_another(run: &mut RunLoop, mut next: Next) -> Rested {
    let machine = run.machine();
    loop {
        let (green, inherits_slice) = (next.thread.into_green(), next.inherits_slice);
        if green.oddities.any() {
            if green.oddities.has(Oddities::LOCKED) && !is_bound_here(machine, green) {
                return hand_to_its_machine(run, green);
            }
            let is_homeless = green.oddities.has(Oddities::NEW);
            if is_homeless
                && !run
                    .owned()
                    .is_some_and(|mut p| start::move_in(&mut p, green))
            {
                return start::find_room(run, green);
            }
        }
        // SAFETY: the thread came out of a queue: it is ours.
        let action = unsafe { switch::to(run, green, inherits_slice) };
        // This is asked now: after `complete` the thread may be running elsewhere.
        if green.oddities.has(Oddities::LOCKED) {
            return stay(run, green, action);
        }
        let mut processor = run.owned();
        probe::stopped(processor.as_mut().map(Owned::lend), green, action);
        let successor = complete(machine, processor.as_mut(), green, action);
        let Some(mut processor) = processor else {
            machine.cluster().detached_switches.add_shared(1);
            return machine.cluster().wait_for_processor(run);
        };
        let processor = &mut processor;
        processor.switches.add(1);
        let is_time = processor.switches.get() >= processor.own().looks.next();
        if is_time || processor.attention.load(Ordering::Relaxed) {
            if processor.is_surplus() {
                if let Some(green) = successor {
                    ready_again(machine, Some(processor), green, Readied::Woken);
                }
                // The machine goes to `find_work`, where the processor steps down.
                return Rested::Working { searching: false };
            }
            look_around(machine, processor);
        }
        next = match successor {
            Some(green) => Next {
                thread: Ready::new(green),
                inherits_slice: true,
            },
            None => match own_queues(processor) {
                Some(following) => following,
                None => return Rested::Working { searching: false },
            },
        };
        let from = match next.inherits_slice {
            true => Pick::NextSlot,
            false => Pick::Queue,
        };
        probe::picked(processor, next.thread.green(), from);
    }
}

/// Does what a thread asked for when it left its stack. Without a processor, all threads go to the
/// global queue. Returns the thread that runs next, if the thread has named one.
#[inline(always)]
fn complete(
    machine: &'static Machine,
    mut processor: Option<&mut Owned<'_>>,
    green: &'static Green,
    action: Action,
) -> Option<&'static Green> {
    match action {
        Action::Yield => ready_again(machine, processor, green, Readied::Yielded),
        Action::Park => park(machine, processor, green),
        Action::HandOver => {
            let successor = green.next.take();
            return successor
                .filter(|successor| may_follow(machine, processor.is_some(), successor));
        }
        Action::Preempt => {
            match &mut processor {
                Some(p) => p.preemptions.add(1),
                None => green.cluster().detached_preemptions.add_shared(1),
            }
            ready_again(machine, processor, green, Readied::Preempted);
        }
        Action::Exit => start::bury(machine, processor, green),
    }
    None
}

/// Whether a thread that was handed over to can run here and now; if not, it goes to the global
/// queue of its cluster. It goes there too when the time slice is over: two threads that hand over
/// to each other inherit the slice for ever, and would keep all others out.
#[inline(always)]
fn may_follow(machine: &'static Machine, has_processor: bool, successor: &'static Green) -> bool {
    let may = has_processor
        && core::ptr::eq(successor.cluster(), machine.cluster())
        && !machine.is_slice_over();
    if !may {
        machine.come_home();
        ready_globally(successor, Readied::Woken);
    }
    may
}

/// Wakes a sleeper if the policy says that there is work for others.
#[inline(always)]
fn tell(cluster: &'static Cluster, for_others: ForOthers) {
    if for_others == ForOthers::Work {
        cluster.notify();
    }
}

/// Makes `green` ready, which has left its stack and can go on at once.
#[inline(always)]
fn ready_again(
    machine: &'static Machine,
    processor: Option<&mut Owned<'_>>,
    green: &'static Green,
    how: Readied,
) {
    match processor {
        Some(p) => {
            let cluster = p.cluster();
            let for_others = cluster
                .policy
                .ready(Ready::new(green), how, Some(&p.seat()));
            tell(cluster, for_others);
        }
        None => {
            machine.come_home();
            ready_globally(green, how);
        }
    }
}

/// Parks `green`, which has left its stack, unless its waiter has been notified meanwhile.
#[inline(always)]
fn park(machine: &'static Machine, processor: Option<&mut Owned<'_>>, green: &'static Green) {
    perturb::point("park: left");
    green.since.note_time();
    // SAFETY: the thread has left it on its stack, and nobody else can resume the thread yet.
    let Parking {
        waiter, deadline, ..
    } = unsafe { *green.parking() };
    if deadline != clock::NEVER {
        let home = processor
            .as_ref()
            .map_or(machine.cluster().table.get(0), |p| p.shared());
        timers::arm(green, home, deadline);
    }
    perturb::point("park: armed");
    // SAFETY: the waiter lives until its thread goes on, which is after this: nobody else can
    // resume it yet.
    if !unsafe { &*waiter }.commit() {
        ready_again(machine, processor, green, Readied::Yielded);
    }
}

/// There is nothing to run, or no processor any more to run it on.
struct NothingFound {
    searching: bool,
}

/// Finds the next thread. `searching`: this machine counts as a searcher already.
#[inline(never)]
fn find_work(run: &mut RunLoop, searching: bool) -> Result<Next, NothingFound> {
    let machine = run.machine();
    let processor = &mut run.owned().ok_or(NothingFound { searching })?;
    let next = look_for_work(machine, processor, searching)?;
    probe::picked(processor, next.thread.green(), Pick::Found);
    Ok(next)
}

#[inline(always)]
fn look_for_work(
    machine: &'static Machine,
    processor: &mut Owned<'_>,
    mut searching: bool,
) -> Result<Next, NothingFound> {
    processor.dry.add(1);
    processor.note_cpu();
    timers::fire_own(processor);
    io::flush(processor);
    let handed = handed(machine);
    if handed.is_none() && processor.is_surplus() {
        step_down(machine, processor);
        return Err(NothingFound { searching });
    }
    let found = handed
        .or_else(|| own_queues(processor))
        .or_else(|| arrivals(machine, processor));
    if let Some(next) = found {
        if searching {
            machine.come_home();
            stop_searching(processor.cluster());
        }
        return Ok(next);
    }
    perturb::point("find_work: nothing");
    if !searching && let Some(next) = look_at_others(processor, false) {
        return Ok(next);
    }
    let cluster = machine.cluster();
    searching = searching || cluster.idle.start_search(cluster.search_limit());
    match searching {
        true => search(machine, processor),
        false => Err(NothingFound { searching }),
    }
}

/// There are too many processors, and this one lies down next: the threads in its queue go to
/// others.
#[cold]
#[inline(never)]
fn step_down(machine: &'static Machine, processor: &mut Owned<'_>) {
    machine.come_home();
    perturb::point("step_down");
    processor.cluster().policy.leave(&processor.seat());
    let own = processor.own();
    own.stacks.drain();
    own.records.drain();
}

/// Takes the next thread out of the next slot, the local queue or the global queue.
#[inline(always)]
fn own_queues(processor: &mut Owned<'_>) -> Option<Next> {
    let cluster = processor.cluster();
    let others = match cluster.idle.is_everybody_busy() {
        true => Others::Busy,
        false => Others::Idle,
    };
    cluster.policy.next(&processor.seat(), others)
}

/// Takes in the threads whose descriptors are ready, and returns the first to run.
fn arrivals(machine: &'static Machine, processor: &mut Owned<'_>) -> Option<Next> {
    machine.come_home();
    io::look(processor).then(|| own_queues(processor)).flatten()
}

/// Serves a busy processor between two threads: what is held back there, its timers and, less often, events.
#[cold]
#[inline(never)]
fn look_around(machine: &'static Machine, processor: &mut Owned<'_>) {
    let switches = processor.switches.get();
    let attention = processor.attention.load(Ordering::Relaxed);
    if attention || processor.own().looks.is_flush_due(switches) {
        io::flush(processor);
    }
    if attention || switches.is_multiple_of(LOOK_AT_TIMERS) {
        processor.note_cpu();
    }
    if attention || switches.is_multiple_of(LOOK_AT_EVENTS) {
        machine.come_home();
        io::look_when_busy(processor);
    }
    timers::fire_when_busy(processor, switches, machine.is_slice_over());
}

/// Makes `green` ready, which was waiting and is now the caller's.
pub(crate) fn ready(green: &'static Green) {
    sanitizer::publish(green);
    // By reference: a move would read what was just written, in wider words, and wait for that.
    match &mut enter() {
        Some(entered) if core::ptr::eq(entered.machine().cluster(), green.cluster()) => {
            probe::readied(By::Thread(entered), green, Why::Woke);
            ready_from(&entered.processor(), green, Readied::Woken);
        }
        // The thread waits in the parent, and cannot run here.
        None if fork::is_child() => {}
        _ => {
            let _off = current::preemption_off();
            probe::readied(By::Outside, green, Why::Woke);
            ready_globally(green, Readied::Woken);
        }
    }
}

/// Makes `green` ready; the caller runs on `processor`.
#[inline]
pub(crate) fn ready_from(processor: &Owned<'_>, green: &'static Green, how: Readied) {
    let cluster = processor.cluster();
    let for_others = cluster
        .policy
        .ready(Ready::new(green), how, Some(&processor.seat()));
    tell(cluster, for_others);
}

/// Makes `green` ready, on any processor that takes it. The caller is at home, or a green thread
/// with preemption off.
#[cold]
#[inline(never)]
pub(crate) fn ready_globally(green: &'static Green, how: Readied) {
    let _unseen = sanitizer::unseen();
    let cluster = green.cluster();
    tell(cluster, cluster.policy.ready(Ready::new(green), how, None));
}
