//! The witness: each event of the scheduler is announced here, in one place, for those who observe it.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the events: a function for each, called where it happens |
//! | `words` | how an event is written: words of 64 bits |
//! | `ring` | a processor's ring of words, with one writer, and its pen |
//! | `common` | a queue for threads that own no processor |
//! | `kernel` | the events of kernel threads, and how they are known |
//! | `queue` | a queue with many writers and one reader |
//! | `news` | what happens to threads, for programs that want to be told (feature `tracing`) |
//! | `measure` | histograms of waits, runs, and kernel threads that are held |
//! | `scale` | the buckets of a histogram |
//!
//! Every function here first loads [`ON`], one static word. Its bits say who observes; if it is 0 the
//! function is over. [`TRACE`] writes the event down, for `engine::trace` to read; [`METRICS`] adds
//! the time that it ends to a histogram (`measure`):
//!
//! | function | event | caller |
//! |---|---|---|
//! | [`left`] | a thread has left its stack, and why | the run loop, before it does what the thread asked for |
//! | [`found`] | a processor that had nothing to run has found a thread | the run loop |
//! | [`measure::begins`] | a thread whose run is measured begins to run | the run loop, for an oddity of the thread |
//! | [`stole`] | a thread was taken from another processor | a thief |
//! | [`woke`], [`woke_from_outside`] | a thread has ended another one's wait | the waker, before the thread is ready |
//! | [`arrived`], [`passed_on`] | a deadline or an event has ended a wait | whoever collects them, before the thread is ready |
//! | [`spawned`] | a thread was made | the spawner, before the thread is ready |
//! | [`given`], [`laid_down`] | a processor gets a machine; it sleeps | whoever has it in hand |
//! | [`handed_off`] | the monitor has taken a processor from a blocked thread | the monitor, which has it in hand |
//! | `kernel_*` | a kernel thread begins, ends, waits, goes on, spawns | that thread |
//!
//! *What it costs.* Off: the load and a branch. While a trace is written, a thread that yields, ends or hands over costs two
//! stores, without a clock: the processor's clock is read for one of [`ring::SPARSE`] such events while
//! they follow each other quickly, and for each of them once they do not. A reader interpolates the times
//! of those between. All other events have a time of their own.
//!
//! *Which thread.* A word has no room for a name, and a record serves many threads. So a thread that is
//! met for the first time in a trace is introduced: the number of its `ThreadId`, and its name, are
//! written before the event. Its record keeps the number with the trace's in its upper bits, so that the
//! next trace introduces the thread again.
//!
//! # Invariants
//! 1. Only the owner of a processor, or the thread that has it in hand, writes to its ring. So the
//!    functions take an [`Owned`] or an [`Entered`].
//! 2. Nothing here allocates, panics, touches a thread-local while the run loop calls, or takes a lock,
//!    except a processor's first event, which maps memory and enters the ring in a list.
//! 3. An event is written before any other thread can act on it: the wake-up of a thread before its next
//!    run.
//!
//! Orderings: `ring` and `common` have their own. [`ON`] is Relaxed: an event that is just about to happen
//! when a trace begins may be missing. A reader starts with a word that has a time.

pub(crate) mod common;
mod kernel;
pub(crate) mod measure;
#[cfg(feature = "tracing")]
pub(crate) mod news;
mod queue;
pub(crate) mod ring;
pub(crate) mod scale;
pub(crate) mod words;

pub(crate) use self::kernel::{
    kernel_began, kernel_ended, kernel_goes_on, kernel_spawned, kernel_waits,
};
use self::words::{Kind, NUMBER, SESSION_SHIFT, word};
use super::enter::Entered;
use super::{Machine, Owned};
use crate::engine::atomic::{AtomicU32, Ordering};
use crate::engine::green::context::Action;
use crate::engine::green::current;
use crate::engine::green::{Green, Identity};
use crate::engine::sys::clock;

/// Who observes: bits, and in the upper four the number of the trace.
pub(crate) static ON: AtomicU32 = AtomicU32::new(0);
/// A trace is being written.
pub(crate) const TRACE: u32 = 1;
/// Times are being measured.
pub(crate) const METRICS: u32 = 2;

/// What ended the wait of a thread that no other thread woke.
#[derive(Clone, Copy)]
pub(crate) enum Arrival {
    /// Its deadline.
    Deadline,
    /// The driver: a descriptor is ready, or an operation is over.
    Event,
}

#[inline(always)]
fn observed() -> u32 {
    ON.load(Ordering::Relaxed)
}

/// `green` has left its stack and asks for `action`. `processor`: the machine's, if it still has one. It
/// comes by value, so that the run loop can keep its own in a register.
#[inline(always)]
pub(super) fn left(processor: Option<Owned<'_>>, green: &'static Green, action: Action) {
    let on = observed();
    if on != 0 {
        left_observed(on, processor, green, action);
    }
}

/// The quick way is for a yield of a thread that is known, at a moment that needs no time.
#[inline(always)]
fn left_observed(on: u32, mut processor: Option<Owned<'_>>, green: &'static Green, action: Action) {
    if on & METRICS != 0 {
        measure::left(processor.as_mut(), green, action);
    }
    #[cfg(feature = "tracing")]
    if news::is_wanted(on)
        && let Action::Preempt = action
    {
        tell(news::Happened::Preempted, green);
    }
    if on & TRACE == 0 {
        return;
    }
    if let (Action::Yield, Some(processor)) = (action, &mut processor) {
        let number = green.traced().load(Ordering::Relaxed);
        let yielded = word(Kind::Yielded, number.into());
        if (number ^ on) >> SESSION_SHIFT == 0 && processor.own().pen.note(yielded) {
            return;
        }
    }
    left_otherwise(processor, green, action);
}

#[cold]
#[inline(never)]
fn left_otherwise(processor: Option<Owned<'_>>, green: &'static Green, action: Action) {
    if observed() & TRACE == 0 {
        return;
    }
    let kind = match action {
        Action::Yield => Kind::Yielded,
        Action::Preempt => Kind::Preempted,
        // SAFETY: the thread has left its park on its stack, and cannot go on yet.
        Action::Park if unsafe { (*green.parking()).deadline } != clock::NEVER => Kind::ParkedUntil,
        Action::Park => Kind::Parked,
        Action::HandOver => Kind::HandedOver,
        Action::Exit => Kind::Ended,
    };
    let Some(mut processor) = processor else {
        let cluster = core::ptr::from_ref(green.cluster()).addr() as u64;
        return common::put(kind, known_commonly(green), cluster, 0);
    };
    let number = known(&mut processor, green);
    let to = green.next.get();
    let successor = to.filter(|_| kind == Kind::HandedOver);
    let successor = successor.map(|green| known(&mut processor, green));
    let pen = &mut processor.own().pen;
    match kind {
        Kind::Yielded | Kind::HandedOver | Kind::Ended => pen.time_if_due(),
        _ => pen.time(),
    }
    if let Some(successor) = successor {
        pen.put(word(Kind::To, successor.into()));
    }
    if action as usize == Action::Park as usize {
        // SAFETY: as above.
        let about = unsafe { (*green.parking()).about };
        pen.put(words::text(about.subject.name));
    }
    pen.put(word(kind, number.into()));
    pen.publish();
}

/// The owner of `processor`, which had nothing to run, has found a thread.
#[inline(always)]
pub(super) fn found(processor: &mut Owned<'_>) {
    let on = observed();
    if on & TRACE != 0 {
        at_processor(processor, Kind::Found, 0);
    }
    if on & METRICS != 0 {
        measure::rested(processor);
    }
}

/// Notes when `green`, which is about to be ready, became so; true: the event is to be written down.
#[inline(always)]
fn is_traced(green: &'static Green) -> bool {
    let on = observed();
    if on & METRICS != 0 {
        measure::readied(green);
    }
    on & TRACE != 0
}

/// The owner of `processor` has stolen `green`.
#[inline]
pub(super) fn stole(processor: &mut Owned<'_>, green: &'static Green) {
    let on = observed();
    if on & METRICS != 0 {
        measure::stole(processor);
    }
    if on & TRACE != 0 {
        let number = known(processor, green);
        at_processor(processor, Kind::Stole, number);
    }
}

/// The calling green thread ends the wait of `green`.
#[inline(always)]
pub(super) fn woke(entered: &mut Entered, green: &'static Green) {
    if is_traced(green) {
        by(entered.green(), entered.processor(), Kind::Woke, green);
    }
}

/// The calling thread, which owns no processor of the thread's cluster, ends the wait of `green`.
#[inline]
pub(super) fn woke_from_outside(green: &'static Green) {
    if is_traced(green) {
        by_outsider(Kind::Woke, green);
    }
}

/// The calling thread makes `green`; `entered` if it is a thread of the same cluster.
#[inline]
pub(crate) fn spawned(entered: Option<&mut Entered>, green: &'static Green) {
    // Another thread had this record.
    green.traced().store(0, Ordering::Relaxed);
    #[cfg(feature = "tracing")]
    if news::is_wanted(observed()) {
        tell(news::Happened::Spawned, green);
    }
    if is_traced(green) {
        match entered {
            Some(entered) => by(entered.green(), entered.processor(), Kind::Spawned, green),
            None => by_outsider(Kind::Spawned, green),
        }
    }
}

/// `green`, the caller, is about to end.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn ends(green: &'static Green) {
    if news::is_wanted(observed()) {
        tell(news::Happened::Ended, green);
    }
}

/// `green`, which is the caller's or the caller, has an identity still.
#[cfg(feature = "tracing")]
#[cold]
#[inline(never)]
fn tell(what: news::Happened, green: &'static Green) {
    // SAFETY: a thread has its identity from its spawn until its last instructions, when the pointer is null.
    if let Some(identity) = unsafe { green.identity.load(Ordering::Relaxed).as_ref() } {
        news::of(what, identity);
    }
}

/// The owner of `processor` makes `green` ready, whose wait is over.
#[inline]
pub(super) fn arrived(processor: &mut Owned<'_>, green: &'static Green, what: Arrival) {
    if is_traced(green) {
        let kind = match what {
            Arrival::Deadline => Kind::Fired,
            Arrival::Event => Kind::Arrived,
        };
        let number = known(processor, green);
        at_processor(processor, kind, number);
    }
}

/// The same by a caller without a processor.
#[inline]
pub(super) fn passed_on(green: &'static Green) {
    if is_traced(green) {
        common::put(Kind::Arrived, known_commonly(green), 0, 0);
    }
}

/// `processor`, in hand, is about to be `machine`'s, which may run a thread already, without a processor.
#[inline]
pub(super) fn given(processor: &mut Owned<'_>, machine: &'static Machine) {
    let on = observed();
    if on & METRICS != 0 && machine.running().is_some() {
        measure::resumes(machine, processor.cluster());
    }
    if on & TRACE != 0 {
        let (kind, number) = match machine.running() {
            Some(green) => (Kind::Resumed, known(processor, green)),
            None => (Kind::Given, 0),
        };
        at_processor(processor, kind, number);
    }
}

/// `processor`, in hand, is about to sleep.
#[inline]
pub(super) fn laid_down(processor: &mut Owned<'_>) {
    if observed() & TRACE != 0 {
        at_processor(processor, Kind::Idle, 0);
    }
}

/// `processor`, in hand, was taken from `green`, which is blocked in the kernel or cannot be interrupted.
/// The thread may go on at any moment: it is introduced only if it is known.
#[inline]
pub(super) fn handed_off(processor: &mut Owned<'_>, green: &'static Green) {
    if observed() & TRACE != 0 {
        let number = green.traced().load(Ordering::Relaxed);
        at_processor(processor, Kind::HandedOff, number);
    }
}

#[cold]
#[inline(never)]
fn at_processor(processor: &mut Owned<'_>, kind: Kind, number: u32) {
    let shared = processor.shared();
    let pen = &mut processor.own().pen;
    if pen.has_ring_for(shared) {
        pen.time();
        pen.put(word(kind, number.into()));
        pen.publish();
    }
}

/// `caller`, on `processor`, does something to `green`. Both come by value, so that the caller can keep them in
/// registers.
#[cold]
#[inline(never)]
fn by(caller: &'static Green, mut processor: Owned<'_>, kind: Kind, green: &'static Green) {
    let caller = known(&mut processor, caller);
    let number = known(&mut processor, green);
    let pen = &mut processor.own().pen;
    pen.time();
    pen.put(word(Kind::By, caller.into()));
    pen.put(word(kind, number.into()));
    pen.publish();
}

#[cold]
#[inline(never)]
fn by_outsider(kind: Kind, green: &'static Green) {
    let caller = match current::green() {
        Some(green) => known_commonly(green),
        None => kernel::known(),
    };
    common::put(kind, known_commonly(green), caller.into(), 0);
}

/// The number of `green`, which is introduced if the trace does not know it yet. Afterwards the
/// processor has a ring, if there is memory for it.
fn known(processor: &mut Owned<'_>, green: &'static Green) -> u32 {
    let shared = processor.shared();
    let pen = &mut processor.own().pen;
    pen.has_ring_for(shared);
    introduce(green, |number, name| {
        pen.put(word(Kind::Named, number.into()));
        words::name(name).for_each(|part| pen.put(part));
    })
}

fn known_commonly(green: &'static Green) -> u32 {
    introduce(green, common::introduce)
}

#[inline]
fn introduce(green: &'static Green, tell: impl FnOnce(u32, &str)) -> u32 {
    let session = observed() >> SESSION_SHIFT << SESSION_SHIFT;
    let number = green.traced().load(Ordering::Relaxed);
    if (number ^ session) >> SESSION_SHIFT == 0 {
        return number;
    }
    // SAFETY: the caller owns the thread, or is that thread; it has its identity from its spawn until
    // its last instructions, where it has none.
    let identity: Option<&Identity> = unsafe { green.identity.load(Ordering::Relaxed).as_ref() };
    let Some(identity) = identity else { return 0 };
    let number = session | (identity.id().get() as u32 & (NUMBER >> 1));
    green.traced().store(number, Ordering::Relaxed);
    tell(number, identity.name().unwrap_or(""));
    number
}
