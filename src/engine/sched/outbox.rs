//! Sends on their way: those of several threads are handed to the kernel together.
//!
//! A server's threads come in batches: events have made some ready, each receives, computes a
//! little, sends, and waits again. Their sends wait in the processor's outbox, and one system call
//! performs up to [`SIZE`] of them (`sys::batch`):
//!
//! ```text
//!   events ──► arrivals in the queue ──► send: push, park ──► outbox
//!                  ▲                                            │ full, or no arrival is left,
//!                  └────────── ready, with the result ◄─────────┘ or something else runs next
//! ```
//!
//! An *arrival* is a thread that was made ready by an event or by the end of its send, and has not
//! run since: it will run for a moment, as a rule. Sends wait for arrivals only.
//!
//! | a thread sends, and … | what happens |
//! |---|---|
//! | arrivals, and nothing else, are in the queue, or sends in the outbox | it joins those |
//! | it is alone; or others than arrivals wait, which it would have to queue behind | it calls `send(2)` |
//! | it is locked to its kernel thread, has much to send, or is a signal handler in the runtime | the same |
//! | there is no ring | the same |
//!
//! | the outbox is emptied when … | by |
//! |---|---|
//! | it is full; or no arrival is left; or another thread than an arrival would run next | the run loop, before the next thread |
//! | its processor passes to a locked thread, or to one named by the thread before, or is one too many | the run loop |
//! | an arrival has turned out to run long | the run loop, when the monitor has seen sends and asked for attention |
//! | its processor is laid to rest | whoever does that: unsent, each thread calls `send(2)` itself |
//!
//! # Invariants
//! 1. The outbox and its ring belong to the owner of the processor, as its queue does. The run
//!    loop cannot lose the processor while it is in the kernel for them: the monitor takes it from
//!    green threads only.
//! 2. A processor without an owner has an empty outbox.
//! 3. A request lies on the stack of its thread, which is parked until the request is out of the
//!    outbox and, if the kernel had it, completed: nothing is in flight outside `hand_in`. So the
//!    kernel touches the sender's bytes while he is parked here, and at no other time: there is no
//!    time-out (the kernel does not wait), nothing to cancel, and nobody unwinds a parked thread.
//!    Closing the socket meanwhile closes it after that: the thread's reference keeps it open.
//! 4. `arrivals` is a guess: too large after a theft, until the queue is empty or something else
//!    runs, and too small then. Nobody waits longer for a wrong one: what runs next is known.
//! 5. A forked child has no green thread, so it comes to no outbox.
//!
//! # Memory orderings
//! None of its own: what the owner wrote travels with the processor, and requests with their
//! tickets: a thread that has pushed its request and lost the processor while leaving its stack may
//! be notified before it has parked.

use core::cell::Cell;
use core::ptr;

use crate::engine::atomic::Ordering::Relaxed;
use crate::engine::green::waiter::Waiter;
use crate::engine::green::{Green, Oddities};
use crate::engine::policy::{Next, Readied, Ready};
use crate::engine::sched::{Owned, enter};
use crate::engine::sys::batch::{Batch, Entry, SIZE};

/// Sends of a processor's threads. The processor counts them (`sends`), for others to see.
pub(super) struct Outbox {
    first: *const Request,
    last: *const Request,
    /// How many arrivals are in the queue, while nothing else runs.
    arrivals: usize,
    way: Way,
}

/// How sends get to the kernel.
enum Way {
    /// Nobody has tried to make a ring.
    Untried,
    Together(Box<Batch>),
    /// Each by itself: there is no ring, or there shall be none.
    Alone,
}

/// A send: what the kernel is to do, and who waits for it.
struct Request {
    next: Cell<*const Request>,
    entry: Entry,
    /// `None`: it was not done.
    result: Cell<Option<i32>>,
    waiter: Waiter,
}

impl Request {
    fn new(entry: Entry) -> Request {
        Request {
            next: Cell::new(ptr::null()),
            entry,
            result: Cell::new(None),
            waiter: Waiter::new(),
        }
    }
}

/// Has the kernel do what `entry` says together with others of its kind, if there are any: the
/// kernel's answer, or `None`: the caller is to make the system call.
///
/// # Safety
/// What the entry points to stays valid until this returns. It makes one completion, and does not
/// wait.
pub(crate) unsafe fn perform(entry: impl FnOnce() -> Entry) -> Option<i32> {
    let mut entered = enter()?;
    let green = entered.green();
    let processor = entered.processor();
    // Who is off more than once has interrupted the runtime, perhaps here.
    if !is_worth_it(processor)
        || green.oddities.has(Oddities::LOCKED)
        || green.off.load(Relaxed) != 1
    {
        return None;
    }
    match &processor.own().outbox.way {
        Way::Untried => {
            drop(entered);
            make_ring();
            None
        }
        Way::Together(batch) if batch.is_usable() => {
            let request = Request::new(entry());
            push(processor, &request);
            request.waiter.wait_inside(entered, None);
            request.result.get()
        }
        Way::Together(_) | Way::Alone => None,
    }
}

/// Makes a ring for the processor that is the caller's afterwards, if that needs one.
#[cold]
fn make_ring() {
    let mut ring = match Batch::new() {
        Ok(batch) => Way::Together(Box::new(batch)),
        Err(_) => Way::Alone,
    };
    if let Some(mut entered) = enter() {
        let way = &mut entered.processor().own().outbox.way;
        if let Way::Untried = way {
            core::mem::swap(way, &mut ring);
        }
    }
    // What was not needed is freed here, outside.
    drop(ring);
}

impl Outbox {
    /// `together`: its ring is made when first needed. Otherwise all sends are alone.
    pub(super) fn new(together: bool) -> Outbox {
        Outbox {
            first: ptr::null(),
            last: ptr::null(),
            arrivals: 0,
            way: if together { Way::Untried } else { Way::Alone },
        }
    }

    /// `green` is an arrival, and is about to be put into the processor's queue.
    #[inline(always)]
    pub(super) fn expect(&mut self, green: &Green) {
        green.arrived.set(true);
        self.arrivals += 1;
    }
}

/// Whether a send should wait for others.
fn is_worth_it(processor: &mut Owned<'_>) -> bool {
    let arrivals = processor.own().outbox.arrivals;
    let waiting = || processor.cluster().policy.len(Some(processor.index));
    (arrivals != 0 || !processor.has_no_sends()) && waiting() <= arrivals
}

/// Whether what is in the outbox should wait no longer.
#[inline(always)]
fn is_due(processor: &mut Owned<'_>) -> bool {
    let len = processor.sends.load(Relaxed);
    len != 0 && (len >= SIZE || processor.own().outbox.arrivals == 0)
}

/// What is to run `next` has been taken from the queue. Whether it can run before what is in
/// the outbox is sent.
#[inline(always)]
fn can_wait_for(processor: &mut Owned<'_>, next: Option<&Next>) -> bool {
    let arrivals = &mut processor.own().outbox.arrivals;
    match next {
        Some(next) if next.thread.green().arrived.get() => {
            next.thread.green().arrived.set(false);
            *arrivals = arrivals.saturating_sub(1);
            true
        }
        _ => {
            *arrivals = 0;
            processor.has_no_sends()
        }
    }
}

fn push(processor: &mut Owned<'_>, request: &Request) {
    let outbox = &mut processor.own().outbox;
    // SAFETY: what is in the outbox is alive.
    match unsafe { outbox.last.as_ref() } {
        Some(last) => last.next.set(request),
        None => outbox.first = request,
    }
    outbox.last = request;
    let len = &processor.sends;
    len.store(len.load(Relaxed) + 1, Relaxed);
}

/// Empties the outbox: its senders, done or not, one after the other. Each is to be made ready.
#[must_use = "the threads wait for ever if they are not made ready"]
pub(super) fn take_senders(
    processor: &mut Owned<'_>,
) -> impl Iterator<Item = &'static Green> + use<> {
    processor.sends.store(0, Relaxed);
    let outbox = &mut processor.own().outbox;
    outbox.last = ptr::null();
    let mut rest = core::mem::replace(&mut outbox.first, ptr::null());
    core::iter::from_fn(move || {
        while !rest.is_null() {
            let request = rest;
            // SAFETY: its thread waits until it is notified, which is the last that is done with
            // it.
            let green = unsafe {
                rest = (*request).next.get();
                Waiter::notify_at(&raw const (*request).waiter)
            };
            if green.is_some() {
                return green;
            }
        }
        None
    })
}

/// Gives the ring of a processor back that nobody will ever own again.
pub(super) fn close(processor: &mut Owned<'_>) {
    processor.own().outbox.way = Way::Alone;
}

/// What the owner of `processor` runs next, `take`n from its queue: sends that should not wait for
/// that go out before.
#[inline(always)]
pub(super) fn before_next(
    processor: &mut Owned<'_>,
    take: impl Fn(&Owned<'_>) -> Option<Next>,
) -> Option<Next> {
    loop {
        if is_due(processor) {
            hand_in(processor);
        }
        let next = take(processor);
        if can_wait_for(processor, next.as_ref()) {
            return next;
        }
        // The senders are in the queue then.
        hand_in(processor);
        if next.is_some() {
            return next;
        }
    }
}

/// Sends what the owner of `processor` finds in its outbox.
#[inline(always)]
pub(super) fn send_all(processor: &mut Owned<'_>) {
    if !processor.has_no_sends() {
        hand_in(processor);
    }
}

/// Sends what is in the outbox of `processor`, which is the run loop's, and puts the senders into
/// its queue.
#[cold]
#[inline(never)]
fn hand_in(processor: &mut Owned<'_>) {
    let outbox = &mut processor.own().outbox;
    if let Way::Together(batch) = &mut outbox.way
        && batch.is_usable()
    {
        let mut request = outbox.first;
        // SAFETY: what is in the outbox is alive. The bytes are borrowed by `perform`, which does
        // not return before its request is out of the outbox.
        while let Some(this) = unsafe { request.as_ref() } {
            let name = request.expose_provenance() as u64;
            // SAFETY: the same.
            unsafe { batch.push(&this.entry, name) };
            request = this.next.get();
        }
        batch.perform(|name, result| {
            let request: *const Request = ptr::with_exposed_provenance(name as usize);
            // SAFETY: the name was made above.
            unsafe { (*request).result.set(Some(result)) };
        });
    }
    for green in take_senders(processor) {
        processor.own().outbox.expect(green);
        let policy = &processor.cluster().policy;
        policy.ready(Ready::new(green), Readied::Arrived, Some(processor.seat()));
    }
}
