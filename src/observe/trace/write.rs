//! What a trace writes down of the scheduler's events: words (`words`), into the ring of the processor (`ring`) or, where none
//! takes part, into the common queue (`common`).
//!
//! *What it costs.* A thread that yields, ends or hands over costs two stores, without a clock: the processor's clock is
//! read for one of [`SPARSE`](super::ring::SPARSE) such events while they follow each other quickly, and for each of them
//! once they do not. A reader interpolates the times of those between. All other events have a time of their own.
//!
//! *Which thread.* A word has no room for a name, and a record serves many threads. So a thread that is met for the first
//! time in a trace is introduced: the number of its `ThreadId`, and its name, are written before the event. The first of
//! the observer's words in its record keeps the number with the trace's (`session`).
//!
//! Invariant: nothing here allocates, or takes a lock, except a processor's first event, which maps memory and enters the
//! ring in a list.

use super::ring::Pen;
use super::words::{self, Kind, word};
use super::{common, session};
use crate::atomic::Ordering::Relaxed;
use crate::engine::probe::{Actor, Pick, Processor, Readied, Stop, Stopped, Thread, Words};

pub(in crate::observe) fn spawned(by: Actor<'_>, thread: Thread<'_>) {
    // Another thread had this record.
    thread.words()[0].store(0, Relaxed);
    caused(by, Kind::Spawned, thread);
}

pub(in crate::observe) fn readied(by: Actor<'_>, thread: Thread<'_>, why: Readied) {
    let kind = match why {
        Readied::Woke => return caused(by, Kind::Woke, thread),
        Readied::Fired => Kind::Fired,
        Readied::Arrived => Kind::Arrived,
    };
    match by.processor {
        Some(mut processor) => of_thread(&mut processor, kind, thread),
        None => common::put(kind, known_commonly(thread), 0, 0),
    }
}

/// A thread has woken `thread`, or made it.
fn caused(by: Actor<'_>, kind: Kind, thread: Thread<'_>) {
    match by {
        Actor {
            thread: Some(caller),
            processor: Some(mut processor),
        } => {
            let Some(pen) = Pen::of(&mut processor) else {
                return;
            };
            let caller = known(pen, caller);
            let number = known(pen, thread);
            pen.time();
            pen.put(word(Kind::By, caller.into()));
            pen.put(word(kind, number.into()));
            pen.publish();
        }
        Actor { thread: caller, .. } => {
            let caller = caller.map_or_else(common::known, known_commonly);
            common::put(kind, known_commonly(thread), caller.into(), 0);
        }
    }
}

pub(in crate::observe) fn picked(processor: &mut Processor<'_>, thread: Thread<'_>, from: Pick) {
    match from {
        Pick::Found => at_processor(processor, Kind::Found, 0),
        Pick::Stolen => of_thread(processor, Kind::Stole, thread),
        Pick::NextSlot | Pick::Queue => {}
    }
}

/// The quick way is for a yield of a thread that is known, at a moment that needs no time.
pub(in crate::observe) fn stopped(processor: Option<Processor<'_>>, stopped: Stopped<'_>) {
    let thread = stopped.thread();
    let Some(mut processor) = processor else {
        let kind = kind_of(stopped.why());
        return common::put(kind, known_commonly(thread), thread.runtime() as u64, 0);
    };
    let Some(pen) = Pen::of(&mut processor) else {
        return;
    };
    if stopped.has_yielded() {
        let numbered = thread.words()[0].load(Relaxed);
        let yielded = word(Kind::Yielded, u64::from(numbered as u32));
        if session::of(numbered) == session::current() && pen.note(yielded) {
            return;
        }
    }
    stopped_otherwise(pen, thread, stopped.why());
}

#[inline(never)]
fn stopped_otherwise(pen: &mut Pen, thread: Thread<'_>, why: Stop<'_>) {
    let number = known(pen, thread);
    let successor = match why {
        Stop::HandedOver(Some(successor)) => Some(known(pen, successor)),
        _ => None,
    };
    match why {
        Stop::Yielded | Stop::HandedOver(_) | Stop::Ended => pen.time_if_due(),
        Stop::Preempted | Stop::Parked(..) => pen.time(),
    }
    if let Some(successor) = successor {
        pen.put(word(Kind::To, successor.into()));
    }
    if let Stop::Parked(on, _) = why {
        pen.put(words::text(on));
    }
    pen.put(word(kind_of(why), number.into()));
    pen.publish();
}

fn kind_of(why: Stop<'_>) -> Kind {
    match why {
        Stop::Yielded => Kind::Yielded,
        Stop::Preempted => Kind::Preempted,
        Stop::Parked(_, true) => Kind::ParkedUntil,
        Stop::Parked(_, false) => Kind::Parked,
        Stop::HandedOver(_) => Kind::HandedOver,
        Stop::Ended => Kind::Ended,
    }
}

/// The thread that has lost `processor` may go on at any moment: it is named only if it is known.
pub(in crate::observe) fn blocked(processor: &mut Processor<'_>, [number, _]: Words) {
    at_processor(processor, Kind::HandedOff, number.load(Relaxed) as u32);
}

pub(in crate::observe) fn worker_has(processor: &mut Processor<'_>, running: Option<Thread<'_>>) {
    match running {
        Some(thread) => of_thread(processor, Kind::Resumed, thread),
        None => at_processor(processor, Kind::Given, 0),
    }
}

pub(in crate::observe) fn worker_idle(processor: &mut Processor<'_>) {
    at_processor(processor, Kind::Idle, 0);
}

fn at_processor(processor: &mut Processor<'_>, kind: Kind, number: u32) {
    if let Some(pen) = Pen::of(processor) {
        pen.time();
        pen.put(word(kind, number.into()));
        pen.publish();
    }
}

fn of_thread(processor: &mut Processor<'_>, kind: Kind, thread: Thread<'_>) {
    if let Some(pen) = Pen::of(processor) {
        let number = known(pen, thread);
        at_processor(processor, kind, number);
    }
}

/// The number of `thread`, which is introduced if the trace does not know it yet.
fn known(pen: &mut Pen, thread: Thread<'_>) -> u32 {
    introduce(thread, |number, name| {
        pen.put(word(Kind::Named, number.into()));
        words::name(name).for_each(|part| pen.put(part));
    })
}

fn known_commonly(thread: Thread<'_>) -> u32 {
    introduce(thread, common::introduce)
}

#[inline]
fn introduce(thread: Thread<'_>, tell: impl FnOnce(u32, &str)) -> u32 {
    let [word, _] = thread.words();
    let numbered = word.load(Relaxed);
    if session::of(numbered) == session::current() {
        return numbered as u32;
    }
    let Some(identity) = thread.identity() else {
        return 0;
    };
    let numbered = session::numbered(words::number(identity.id()));
    word.store(numbered, Relaxed);
    tell(numbered as u32, identity.name().unwrap_or(""));
    numbered as u32
}
