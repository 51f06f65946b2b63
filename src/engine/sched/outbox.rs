//! Sends on their way: the sends of several threads are handed to the kernel together.
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
//! run since: as a rule it will run for a moment. Sends wait for arrivals only.
//!
//! | a thread sends, and … | what happens |
//! |---|---|
//! | arrivals, and nothing else, are in the queue, or sends in the outbox | its send joins those |
//! | it is alone; or threads other than arrivals wait, which it would have to queue behind | it calls `send(2)` |
//! | it is locked to its kernel thread, has much to send, or is a signal handler in the runtime | it calls `send(2)` |
//! | there is no ring | it calls `send(2)` |
//!
//! | the outbox is emptied when … | by |
//! |---|---|
//! | it is full; or no arrival is left; or a thread other than an arrival would run next | the run loop, before the next thread |
//! | its processor passes to a locked thread, or to a thread named by the last one, or is surplus | the run loop |
//! | an arrival has turned out to run long | the run loop, when the monitor has seen sends and asked for attention |
//! | its processor is laid to rest | the thread that lays it to rest: unsent, each sender calls `send(2)` itself |
//!
//! # Invariants
//! 1. The outbox and its ring belong to the owner of the processor, as its queue does. The run
//!    loop cannot lose the processor while it is in the kernel for them: the monitor takes it from
//!    green threads only.
//! 2. A processor without an owner has an empty outbox.
//! 3. A request lies on the stack of its thread, which is parked until the request is out of the
//!    outbox and, if the kernel had it, completed: nothing is in flight outside `hand_in`. So the
//!    kernel touches the sender's bytes while the sender is parked here, and at no other time:
//!    there is no time-out (the kernel does not wait), nothing to cancel, and nobody unwinds a
//!    parked thread. If another thread closes the socket meanwhile, it is closed after the send:
//!    the sender's reference keeps it open.
//! 4. `arrivals` is a guess. It is too large after a theft, until the queue is empty or a thread
//!    that is no arrival runs, and too small then. No send waits longer for a wrong guess: the run
//!    loop knows which thread runs next.
//! 5. A forked child has no green thread, so no thread of it comes to an outbox.
//!
//! # Memory orderings
//! It has none of its own: an owner's changes travel with the processor, and requests with their
//! tickets: a thread that has pushed its request and lost the processor while leaving its stack may
//! be notified before it has parked.

use core::cell::Cell;
use core::ptr;

use crate::engine::atomic::Ordering::Relaxed;
use crate::engine::green::subject::{self, About, Subject};
use crate::engine::green::waiter::Waiter;
use crate::engine::green::{Green, Oddities};
use crate::engine::policy::{Next, Readied, Ready};
use crate::engine::probe::{self, By, Readied as Why};
use crate::engine::sched::{Owned, enter};
use crate::engine::sys::batch::{Batch, Entry, SIZE};

/// Sends of a processor's threads. The processor counts them (`sends`), for others to see.
pub(super) struct Outbox {
    first: *const Request,
    last: *const Request,
    /// How many arrivals are in the queue, as long as no other thread runs.
    arrivals: usize,
    way: Way,
}

/// How sends get to the kernel.
enum Way {
    /// No thread has tried to make a ring.
    Untried,
    Together(Box<Batch>),
    /// Each send goes by itself: there is no ring, or there shall be none.
    Alone,
}

/// A send: the kernel's task, and the thread that waits for it.
struct Request {
    next: Cell<*const Request>,
    entry: Entry,
    /// `None`: the kernel did not do it.
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

/// Has the kernel perform `entry` together with others of its kind, if there are any. Returns the
/// kernel's answer, or `None`: the caller is to make the system call.
///
/// # Safety
/// The memory that the entry points to stays valid until this returns. The entry makes one
/// completion, and does not wait.
pub(crate) unsafe fn perform(entry: impl FnOnce() -> Entry) -> Option<i32> {
    let mut entered = enter()?;
    let green = entered.green();
    // If `off` is more than 1, a signal handler has interrupted the runtime, perhaps here.
    if green.off.load(Relaxed) != 1 {
        return None;
    }
    let mut processor = entered.processor();
    if !is_worth_it(&mut processor) || green.oddities.has(Oddities::LOCKED) {
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
            push(&mut processor, &request);
            request
                .waiter
                .wait_inside(entered, About::only(&SENT), None);
            request.result.get()
        }
        Way::Together(_) | Way::Alone => None,
    }
}

/// For reports. The kernel ends such a wait soon.
static SENT: Subject = Subject::outside("sending", subject::nothing);

/// Makes a ring for the processor that is the caller's afterwards, if that needs one.
#[cold]
fn make_ring() {
    let mut ring = match Batch::new() {
        Ok(batch) => Way::Together(Box::new(batch)),
        Err(_) => Way::Alone,
    };
    if let Some(mut entered) = enter() {
        let mut processor = entered.processor();
        let way = &mut processor.own().outbox.way;
        if let Way::Untried = way {
            core::mem::swap(way, &mut ring);
        }
    }
    // A ring that was not needed is freed here, outside the runtime.
    drop(ring);
}

impl Outbox {
    /// `together`: its ring is made when first needed. Otherwise each send goes by itself.
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

/// Whether the sends in the outbox should wait no longer.
#[inline(always)]
fn is_due(processor: &mut Owned<'_>) -> bool {
    let len = processor.sends.load(Relaxed);
    len != 0 && (len >= SIZE || processor.own().outbox.arrivals == 0)
}

/// The thread to run `next` has been taken from the queue. Whether it can run before the outbox is
/// sent.
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
    // SAFETY: the requests in the outbox are alive.
    match unsafe { outbox.last.as_ref() } {
        Some(last) => last.next.set(request),
        None => outbox.first = request,
    }
    outbox.last = request;
    let len = &processor.sends;
    len.store(len.load(Relaxed) + 1, Relaxed);
}

/// Empties the outbox. Returns its senders, one after the other, whether their sends are done or
/// not. Each sender is to be made ready.
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
            // SAFETY: its thread waits until it is notified, and the request is not touched after
            // that.
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

/// Gives back the ring of a processor that nobody will ever own again.
pub(super) fn close(processor: &mut Owned<'_>) {
    processor.own().outbox.way = Way::Alone;
}

/// The next thread for the owner of `processor`, `take`n from its queue. Sends that should not wait
/// for that thread go out before.
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
        // The senders are in the queue after this.
        hand_in(processor);
        if next.is_some() {
            return next;
        }
    }
}

/// Sends all that is in the outbox of `processor`, for its owner.
#[inline(always)]
pub(super) fn send_all(processor: &mut Owned<'_>) {
    if !processor.has_no_sends() {
        hand_in(processor);
    }
}

/// Sends all that is in the outbox of `processor`, which is the run loop's, and puts the senders
/// into its queue.
#[cold]
#[inline(never)]
fn hand_in(processor: &mut Owned<'_>) {
    let outbox = &mut processor.own().outbox;
    if let Way::Together(batch) = &mut outbox.way
        && batch.is_usable()
    {
        let mut request = outbox.first;
        // SAFETY: the requests in the outbox are alive. `perform` borrows the bytes: it does not
        // return before its request is out of the outbox.
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
        probe::readied(By::Processor(processor.lend()), green, Why::Arrived);
        let policy = &processor.cluster().policy;
        policy.ready(Ready::new(green), Readied::Arrived, Some(&processor.seat()));
    }
}
