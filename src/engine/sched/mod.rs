//! The scheduler. Read this file first: it is the loop that every kernel thread of the runtime
//! runs.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the run loop: find work, switch to it, do what it asked for |
//! | `switch` | to a green thread and back |
//! | `machine`, `processor`, `cluster` | the kernel thread, the right to run, all of them together |
//! | `wake` | how a machine that waits is told to go on |
//! | `resize` | more processors, or fewer, while they run |
//! | `ownership` | who owns a processor, and how the monitor takes it |
//! | `guest` | a policy that a user wrote |
//! | `idle`, `idlers` | sleeping and waking without a lost wake-up (`idle.md` has the proof); `lifo`: who slept last, first |
//! | `start` | a thread's first time and its last: where its stack comes from, and goes |
//! | `locked` | threads that are locked to a kernel thread |
//! | `timers` | deadlines |
//! | `io` | who collects the driver's events, and when |
//! | `outbox` | sends of several threads are handed to the kernel together |
//! | `preempt`, `sysmon`, `interpose` | ending a time slice from outside; the monitor; signal masks and handlers |
//! | `interrupted` | system calls that a preemption signal cuts short |
//! | `recruiter`, `shortage` | makes kernel threads ahead of need; what is done when there can be none |
//! | `fork`, `setxid` | what is left in a forked child; user ids change in every kernel thread |
//! | `unload` | `dlclose` waits for green threads, too |
//!
//! Invariants:
//! 1. What runs here owns a processor or none; it never allocates, frees, prints, panics, or takes
//!    a lock that a preemptible thread can hold. (A machine without a processor may block on
//!    anything: others go on.)
//! 2. A green thread has one owner at a time (`green`), so it is run by one machine and is in one
//!    queue.
//! 3. The fast path (next slot or local queue, switch, back to the queue) touches no thread-local:
//!    the thread pointer is the last green thread's. Whatever may touch one comes after
//!    [`Machine::come_home`].
//!
//! What is bounded, and what happens when it is used up:
//!
//! | bound | then |
//! |---|---|
//! | steals between two rests | the searcher rests, and begins anew (`machine`, `idle.md`) |
//! | slots of a local queue | half of it goes to the global queue, which has no bound |
//! | rooms at hand | a machine without a processor makes one (`start`) |
//! | spare machines | the processor sleeps on; the recruiter makes one, which looks for work first of all |
//! | kernel threads | the recruiter asks again; who comes back from the kernel takes an idle processor |
//! | the turn at events | who does not get it sleeps on its futex (`io`) |
//! | places in an outbox | it is sent before the next thread runs (`outbox`) |

pub(crate) mod announce;
pub(crate) mod cluster;
pub(crate) mod enter;
pub(crate) mod events;
pub(crate) mod fork;
mod guest;
mod idle;
mod idlers;
pub(crate) mod interpose;
pub(crate) mod interrupted;
pub(crate) mod io;
mod lifo;
pub(crate) mod locked;
pub(crate) mod machine;
pub(crate) mod outbox;
mod ownership;
pub(crate) mod park;
pub(crate) mod preempt;
mod processor;
mod record;
mod recruiter;
pub(crate) mod resize;
pub(crate) mod setxid;
mod shortage;
pub(crate) mod start;
mod switch;
mod sysmon;
pub(crate) mod timers;
mod unload;
mod wake;

pub(crate) use self::cluster::{Cluster, Config, Ideas};
pub(crate) use self::enter::{Entered, enter};
use self::idlers::Rested;
use self::locked::{hand_to_its_machine, handed, is_bound_here, stay};
pub(crate) use self::machine::Machine;
pub(crate) use self::processor::{Counter, Processor};
use crate::engine::atomic::{Ordering, fence};
use crate::engine::context::Action;
use crate::engine::green::current;
use crate::engine::green::{Green, Oddities};
use crate::engine::policy::{Next, Readied, Ready, Victims};
use crate::engine::sys::perturb;
use crate::engine::sys::{clock, topology};

/// A busy processor looks at its own timers every so many switches (and when the monitor says so).
const TIMER_INTERVAL: u64 = 64;

/// The life of a machine: rest until there is a processor, then find work and run it.
fn run(machine: &'static Machine) {
    let cluster = machine.cluster();
    let mut rested = cluster.wait_for_processor(machine);
    while let Rested::Working { searching } = rested {
        rested = match find_work(machine, searching) {
            Ok(next) => run_one_after_another(machine, next),
            Err(NothingFound { searching }) => cluster.rest(machine, searching),
        };
    }
}

/// Runs `next`, and what follows it in this processor's queue, until that is empty or the processor
/// is gone.
#[inline(never)]
fn run_one_after_another(machine: &'static Machine, mut next: Next) -> Rested {
    loop {
        let (green, inherits_slice) = (next.thread.into_green(), next.inherits_slice);
        if green.oddities.any() {
            if green.oddities.has(Oddities::LOCKED) && !is_bound_here(machine, green) {
                return hand_to_its_machine(machine, green);
            }
            let is_homeless = green.oddities.has(Oddities::NEW);
            if is_homeless && !owned(machine).is_some_and(|p| start::move_in(p, green)) {
                return start::find_room(machine, green);
            }
        }
        // SAFETY: this is the run loop, and the thread came out of a queue: it is ours.
        let action = unsafe { switch::to(machine, green, inherits_slice) };
        let processor = owned(machine);
        // Asked now: after `complete` the thread may be running elsewhere.
        if green.oddities.has(Oddities::LOCKED) {
            return stay(machine, green, action);
        }
        let successor = complete(machine, processor, green, action);
        let Some(processor) = processor else {
            machine.cluster().detached_switches.add_shared(1);
            return machine.cluster().wait_for_processor(machine);
        };
        processor.switches.add(1);
        let switches = processor.switches.get();
        if switches.is_multiple_of(TIMER_INTERVAL) || processor.attention.load(Ordering::Relaxed) {
            if processor.is_surplus() {
                if let Some(green) = successor {
                    ready_again(machine, Some(processor), green, Readied::Woken);
                }
                // To where it steps down.
                return Rested::Working { searching: false };
            }
            look_around(machine, processor, switches.is_multiple_of(io::INTERVAL));
        }
        next = match successor {
            Some(green) => {
                outbox::send_all(processor);
                Next {
                    thread: Ready::new(green),
                    inherits_slice: true,
                }
            }
            None => match own_queues(processor) {
                Some(following) => following,
                None => return Rested::Working { searching: false },
            },
        };
    }
}

/// What a thread asked for when it left its stack. Without a processor, all goes to the global
/// queue. Returns who runs next, if the thread has decided that.
#[inline(always)]
fn complete(
    machine: &'static Machine,
    processor: Option<&'static Processor>,
    green: &'static Green,
    action: Action,
) -> Option<&'static Green> {
    match action {
        Action::Yield => ready_again(machine, processor, green, Readied::Yielded),
        Action::Park => park(machine, green),
        Action::HandOver => {
            let successor = green.next.take();
            return successor.filter(|successor| may_follow(machine, processor, successor));
        }
        Action::Preempt => {
            match processor {
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
/// queue of its cluster. That is so too when the time slice is over: two that hand over to each
/// other inherit it for ever, and would keep all others out.
#[inline(always)]
fn may_follow(
    machine: &'static Machine,
    processor: Option<&'static Processor>,
    successor: &'static Green,
) -> bool {
    let may = processor.is_some()
        && core::ptr::eq(successor.cluster(), machine.cluster())
        && !machine.is_slice_over();
    if !may {
        machine.come_home();
        ready_globally(successor, Readied::Woken);
    }
    may
}

/// `green` has left its stack and can go on at once.
#[inline(always)]
fn ready_again(
    machine: &'static Machine,
    processor: Option<&'static Processor>,
    green: &'static Green,
    how: Readied,
) {
    match processor {
        Some(p) => {
            // SAFETY: this machine owns the processor.
            let seat = unsafe { p.seat() };
            let cluster = p.cluster();
            if cluster.policy.ready(Ready::new(green), how, Some(&seat)) {
                cluster.notify();
            }
        }
        None => {
            machine.come_home();
            ready_globally(green, how);
        }
    }
}

/// The thread waits, unless what it waits for has come meanwhile.
#[inline]
fn park(machine: &'static Machine, green: &'static Green) {
    perturb::point("park: left");
    let waiter = green.waiter.get();
    let deadline = green.deadline.get();
    if deadline != clock::NEVER {
        let home = machine
            .processor
            .get()
            .map_or(machine.cluster().table.get(0), |p| {
                // SAFETY: processors are never freed.
                unsafe { p.as_ref() }
            });
        timers::arm(green, home, deadline);
    }
    perturb::point("park: armed");
    // SAFETY: the waiter lives until its thread goes on, which is after this: nobody else can
    // resume it yet.
    if !unsafe { &*waiter }.commit() {
        ready_again(machine, owned(machine), green, Readied::Yielded);
    }
}

/// Nothing to run, or no processor any more to run it on.
struct NothingFound {
    searching: bool,
}

/// Where the next thread comes from. `searching`: this machine counts as a searcher already.
#[inline(never)]
fn find_work(machine: &'static Machine, mut searching: bool) -> Result<Next, NothingFound> {
    let processor = owned(machine).ok_or(NothingFound { searching })?;
    processor.dry.add(1);
    processor.note_cpu();
    fire_own_timers(processor);
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
    let cluster = machine.cluster();
    searching = searching || cluster.idle.start_search(cluster.search_limit());
    if searching {
        search(machine, processor)
    } else {
        Err(NothingFound { searching })
    }
}

/// There are too many processors, and this one lies down next: what is in its queue goes to others.
#[cold]
#[inline(never)]
fn step_down(machine: &'static Machine, processor: &'static Processor) {
    machine.come_home();
    outbox::send_all(processor);
    // SAFETY: this machine owns the processor.
    unsafe {
        perturb::point("step_down");
        processor.cluster().policy.leave(&processor.seat());
        processor.stacks().drain();
        processor.records().drain();
    }
}

/// Next slot, local queue, global queue.
#[inline(always)]
fn own_queues(processor: &'static Processor) -> Option<Next> {
    let cluster = processor.cluster();
    outbox::before_next(processor, || {
        // SAFETY: the caller owns the processor.
        let seat = unsafe { processor.seat() };
        cluster
            .policy
            .next(&seat, !cluster.idle.is_everybody_busy())
    })
}

/// Threads whose descriptors are ready.
fn arrivals(machine: &'static Machine, processor: &'static Processor) -> Option<Next> {
    machine.come_home();
    io::look(processor).then(|| own_queues(processor)).flatten()
}

/// A searcher has found something. The ramp: if it was the last, it wakes the next one for what
/// there is besides. The caller is at home.
fn stop_searching(cluster: &'static Cluster) {
    if cluster.idle.found() {
        perturb::point("found: last searcher");
        // SeqCst: partner: the fence in `claim_wake`. Who pushed and relied on us comes before it.
        fence(Ordering::SeqCst);
        if cluster.policy.has_work_for_others() {
            cluster.notify();
        }
    }
}

/// What others have, or what comes while one looks. Whoever finds something searches no more, even
/// if others get it: events may be of another cluster's threads, or be stolen at once. Who could not
/// look everywhere the next time rests, and then begins anew: those who make work ready rely on it.
fn search(machine: &'static Machine, processor: &'static Processor) -> Result<Next, NothingFound> {
    let cluster = processor.cluster();
    loop {
        if let Some(next) = steal(machine, processor) {
            stop_searching(cluster);
            return Ok(next);
        }
        if !machine.may_steal() {
            return Err(NothingFound { searching: true });
        }
        perturb::point("search: in vain");
        match io::spin(processor) {
            io::Spun::InVain => return Err(NothingFound { searching: true }),
            io::Spun::OtherWork => {}
            io::Spun::Events(ready) => {
                // Before they are in the queue: they wake nobody.
                stop_searching(cluster);
                io::take_in(processor, ready);
                return own_queues(processor).ok_or(NothingFound { searching: false });
            }
        }
    }
}

/// Looks into all timers, and into other processors' queues if it may, a few times before it gives
/// up.
#[inline(never)]
fn steal(machine: &'static Machine, processor: &'static Processor) -> Option<Next> {
    const PASSES: u32 = 4;
    const PAUSES: u32 = 200;
    let may_steal = machine.begin_stealing();
    let cluster = machine.cluster();
    // Nobody to wait for: all others sleep. Or it is not to wait.
    let alone = cluster.idle.awake() <= 1 || !cluster.config.ideas.spinning;
    for pass in if alone { PASSES } else { 1 }..=PASSES {
        for other in cluster.processors() {
            fire_timers(processor, other);
        }
        if let Some(next) = own_queues(processor) {
            return Some(next);
        }
        may_steal.as_ref()?;
        // SAFETY: this machine owns the processor.
        let seat = unsafe { processor.seat() };
        let distance = |other: usize| processor.distance(cluster.processor(other));
        let victims = victims(processor, pass == PASSES, &distance);
        if let Some(thread) = cluster.policy.steal(&seat, victims) {
            processor.steals.add(1);
            // Its victim counts it; here nobody does.
            thread.green().arrived.set(false);
            return Some(thread.into());
        }
        if !alone {
            (0..PAUSES).for_each(|_| core::hint::spin_loop());
        }
    }
    None
}

fn victims<'a>(
    thief: &Processor,
    last_pass: bool,
    distance: &'a dyn Fn(usize) -> usize,
) -> Victims<'a> {
    let count = thief.cluster().seats();
    let victims = Victims::new(thief.index, count, thief.random(), last_pass);
    match topology::machine() {
        None => victims,
        Some(_) => victims.nearest_first(distance),
    }
}

/// What a busy processor does between two threads now and then: its outbox, its timers, and, if
/// `io` or the monitor says so, the driver's events.
#[cold]
#[inline(never)]
fn look_around(machine: &'static Machine, processor: &'static Processor, io: bool) {
    outbox::send_all(processor);
    processor.note_cpu();
    if io || processor.attention.load(Ordering::Relaxed) {
        machine.come_home();
        io::look_when_busy(processor);
    }
    fire_own_timers(processor);
}

/// Fires what is due at this processor; and, if the monitor says so, at all: their owners are late,
/// or there are none any more.
#[inline(never)]
fn fire_own_timers(processor: &'static Processor) {
    if processor.attention.load(Ordering::Relaxed) {
        processor.attention.store(false, Ordering::Relaxed);
        for home in processor.cluster().processors() {
            fire_timers(processor, home);
        }
    } else {
        fire_timers(processor, processor);
    }
}

fn fire_timers(processor: &'static Processor, home: &Processor) {
    if home.next_deadline.load(Ordering::Relaxed) == clock::NEVER {
        return;
    }
    let mut ready = timers::fire(home, clock::now());
    perturb::point("timers: fired");
    let mut any = false;
    // SAFETY: the caller owns `processor`.
    let seat = unsafe { processor.seat() };
    let policy = &processor.cluster().policy;
    while let Some(green) = ready.pop() {
        policy.ready(Ready::new(green), Readied::Arrived, Some(&seat));
        any = true;
    }
    if any {
        processor.cluster().notify();
    }
}

/// The processor of this machine, which is in the run loop. `None`: the monitor, with an old look
/// in mind, came between and was seen, so the processor is gone (`ownership`). A reference found
/// here stays good until the word is looked at again.
#[inline(always)]
fn owned(machine: &'static Machine) -> Option<&'static Processor> {
    let processor = machine
        .processor
        .get()
        .or_else(|| machine.processor.settle());
    // SAFETY: processors are never freed.
    processor.map(|processor| unsafe { processor.as_ref() })
}

/// `green`, which was waiting and is now the caller's, can run.
pub(crate) fn ready(green: &'static Green) {
    match enter() {
        Some(entered) if core::ptr::eq(entered.machine().cluster(), green.cluster()) => {
            ready_from(&entered, green, Readied::Woken);
        }
        // It waits in the parent, and cannot run here.
        None if fork::is_child() => {}
        _ => {
            let _off = current::preemption_off();
            ready_globally(green, Readied::Woken);
        }
    }
}

/// `green` can run; the caller runs on `entered`'s processor.
#[inline]
pub(crate) fn ready_from(entered: &Entered, green: &'static Green, how: Readied) {
    let processor = entered.processor();
    let cluster = processor.cluster();
    // SAFETY: `entered` owns the processor.
    let seat = unsafe { processor.seat() };
    if cluster.policy.ready(Ready::new(green), how, Some(&seat)) {
        cluster.notify();
    }
}

/// `green` can run, on whatever processor comes by. The caller is at home, or a green thread with
/// preemption off.
#[cold]
#[inline(never)]
pub(crate) fn ready_globally(green: &'static Green, how: Readied) {
    let cluster = green.cluster();
    if cluster.policy.ready(Ready::new(green), how, None) {
        cluster.notify();
    }
}
