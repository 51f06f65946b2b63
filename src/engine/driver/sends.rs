//! Sends on their way: the sends of several threads are handed to the kernel together.
//!
//! A server's threads come in batches: events have made some ready, each receives, computes a little, sends, and
//! waits again. Their sends are held back at the processor, and one system call performs up to [`SIZE`] of them:
//!
//! ```text
//!   events ──► arrivals in the queue ──► send: push, park ──► held back
//!                  ▲                                            │ full, or as many threads have run as
//!                  └────────── ready, with the result ◄─────────┘ have arrived, or the queue is empty
//! ```
//!
//! An *arrival* is a thread that was made ready by an event or by the end of its send: as a rule it will run for a
//! moment, before all that become ready later. Sends wait for arrivals only (`sched::events` counts them, and says when
//! the sends go out).
//!
//! | a thread sends, and … | what happens |
//! |---|---|
//! | arrivals, and nothing else, are in the queue, or sends are held back | its send joins those |
//! | it is alone; or threads other than arrivals wait, which it would have to queue behind | it calls `send(2)` |
//! | it is locked to its kernel thread, has much to send, or is a signal handler in the runtime | it calls `send(2)` |
//! | there is no ring | it calls `send(2)` |
//!
//! The ring is the processor's. The keeper's belongs to a kernel thread that does nothing else, for the sake of the
//! operations in flight (`uring`). Here no operation is in flight outside [`Batch::perform`]: no thread's end
//! cancels an operation, and no completion comes while its submitter is elsewhere. So whoever owns the processor
//! uses the ring, on whatever kernel thread. A send that declares that it does not wait (`MSG_DONTWAIT`) is done, or
//! has failed with EAGAIN, by the time the kernel has taken it. Should one be late all the same, `perform` waits.
//!
//! # Invariants
//! 1. A request lies on the stack of its thread, which is parked until the request was flushed. So the kernel touches
//!    the sender's bytes while the sender is parked here, and at no other time: there is no time-out (the kernel does
//!    not wait), nothing to cancel, and nobody unwinds a parked thread. If another thread closes the socket meanwhile,
//!    it is closed after the send: the sender's reference keeps it open.
//! 2. Between two calls of `perform` both queues of the ring hold the operations pushed since, and nothing else; or the
//!    kernel has refused something, nothing is pushed any more, and the ring is never entered again.
//! 3. At most [`SIZE`] operations are pushed for one `perform`; the completion queue has space for twice as many.
//! 4. A forked child has no green thread, so no thread of it comes here.
//!
//! # Memory orderings
//! It has none of its own: an owner's changes travel with the processor, and requests with their park states: a thread
//! that has pushed its request and lost the processor while leaving its stack may be notified before it has parked.
//! `IS_REFUSED` guards nothing: a refusal is seen by all later owners of its processor, and by others at some time.

use core::{any::Any, cell::Cell, mem, ptr};
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring};

use super::source::{Source, Transfer};
use crate::engine::atomic::{AtomicBool, Ordering::Relaxed};
use crate::engine::sched::events::{HeldBack, has_company, hold};
use crate::engine::sched::{Fifo, Owned, ThreadFlags, enter};
use crate::engine::sys;
use crate::engine::wait::{WaitKind, WaitReason, Waiter};

/// The number of operations that one system call performs at most. With 8 it was as good; with 24
/// and 32 the replies to a hundred connections came so late that their next requests did too.
pub(super) const SIZE: usize = 16;
/// The size up to which sends go together. A larger send gains nothing by that, and would delay
/// others.
const LITTLE: usize = 4096;

/// The kernel has refused a ring, or an operation.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The sends that a processor holds back.
struct Sends {
    batch: Batch,
    /// With room for [`SIZE`].
    requests: Vec<*const Request>,
}

/// A send, for the thread that waits for it.
#[derive(Default)]
struct Request {
    /// `None`: the kernel did not do it.
    result: Cell<Option<i32>>,
    waiter: Waiter,
}

/// For reports. The kernel ends such a wait soon.
static SENT: WaitKind = WaitKind::outside("sending");

/// Has the kernel perform a send together with others, if there are any. Returns the kernel's answer, or
/// `None`: the caller is to make the system call.
pub(super) fn try_together(source: &Source, bytes: &[u8], flags: i32) -> Option<io::Result<usize>> {
    if bytes.len() > LITTLE || IS_REFUSED.load(Relaxed) {
        return None;
    }
    let mut entered = enter()?;
    let green = entered.green;
    // If `off` is more than 1, a signal handler has interrupted the runtime, perhaps here.
    if green.off.load(Relaxed) != 1 || green.flags.has(ThreadFlags::LOCKED) {
        return None;
    }
    let mut processor = entered.processor();
    if !has_company(&mut processor) {
        return None;
    }
    let Some(sends) = sends_of(&mut processor) else {
        drop(entered);
        make_ring();
        return None;
    };
    let request = Request::default();
    let entry = Transfer::Send(bytes).entry(source.as_raw_fd(), flags | libc::MSG_DONTWAIT);
    let name = ptr::from_ref(&request).expose_provenance() as u64;
    // SAFETY: the bytes are borrowed, and the request stays here, until this returns; that is after the flush.
    // The flag keeps the send from waiting.
    unsafe { sends.batch.push(&entry, name) };
    sends.requests.push(&request);
    let is_full = sends.requests.len() == SIZE;
    hold(&mut processor, is_full);
    let reason = WaitReason::only(&SENT);
    request.waiter.wait_inside(entered, reason, None);
    let result = request.result.get()?;
    Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
}

fn sends_of<'a>(processor: &'a mut Owned<'_>) -> Option<&'a mut Sends> {
    let held: &mut dyn Any = &mut **processor.own().held.as_mut()?;
    held.downcast_mut()
}

/// Makes a ring for the processor that is the caller's afterwards, if that needs one.
#[cold]
fn make_ring() {
    let Ok(batch) = Batch::new() else {
        return IS_REFUSED.store(true, Relaxed);
    };
    let sends = Sends {
        batch,
        requests: Vec::with_capacity(SIZE),
    };
    let mut sends: Option<Box<dyn HeldBack>> = Some(Box::new(sends));
    if let Some(mut entered) = enter() {
        let mut processor = entered.processor();
        let held = &mut processor.own().held;
        if held.is_none() {
            mem::swap(held, &mut sends);
        }
    }
    // A ring that was not needed is freed here, outside the runtime.
    drop(sends);
}

impl HeldBack for Sends {
    fn flush(&mut self) -> Fifo {
        let is_done = self.batch.perform(|name, result| {
            let request: *const Request = ptr::with_exposed_provenance(name as usize);
            // SAFETY: the name was made by `try_together`, whose thread waits.
            unsafe { (*request).result.set(Some(result)) };
        });
        if !is_done {
            IS_REFUSED.store(true, Relaxed);
        }
        let mut ready = Fifo::new();
        for request in self.requests.drain(..) {
            // SAFETY: its thread waits until it is notified, and the request is not touched after that.
            if let Some(green) = unsafe { Waiter::notify_at(&raw const (*request).waiter) } {
                ready.push(green);
            }
        }
        ready
    }
}

/// A ring for operations that do not wait: one system call performs some at a time, and all of them are done when
/// it returns.
pub(super) struct Batch {
    ring: IoUring,
}

impl Batch {
    /// Makes a ring. An error: there is no io_uring here, or an old one (before Linux 5.18).
    /// Allocates.
    pub(super) fn new() -> io::Result<Batch> {
        let mut builder = IoUring::builder();
        let ring = builder.dontfork().setup_submit_all().build(SIZE as u32)?;
        Ok(Batch { ring })
    }

    /// Puts an operation into the batch, under a name.
    ///
    /// # Safety
    /// The memory that the entry points to stays valid until [`Batch::perform`] returns. The entry
    /// makes one completion, and does not wait.
    pub(super) unsafe fn push(&mut self, entry: &Entry, name: u64) {
        let entry = entry.clone().user_data(name);
        // SAFETY: the caller's promise.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            sys::die("a batch of operations is too long");
        }
    }

    /// Performs the pushed operations, and tells `done` the name and the result of each. False: the kernel has
    /// refused some, for want of memory or because somebody forbids io_uring now. `done` does not hear of them, and
    /// the batch is not to be used any more.
    #[must_use = "a batch is of no use after a refusal"]
    pub(super) fn perform(&mut self, mut done: impl FnMut(u64, i32)) -> bool {
        let mut open = self.ring.submission().len();
        let mut refused = 0;
        while open != refused {
            let queued = self.ring.submission().len();
            let is_late = queued == refused;
            let entered = match is_late {
                true => self.enter(0, 1, EnterFlags::GETEVENTS),
                false => self.enter(queued, 0, EnterFlags::empty()),
            };
            for completion in self.ring.completion() {
                done(completion.user_data(), completion.result());
                open -= 1;
            }
            match entered {
                Err(libc::EINTR) => {}
                Ok(taken) if is_late || taken != 0 => {}
                Err(libc::EBADF | libc::EOPNOTSUPP) if is_late => {
                    sys::die("a ring is gone: who closed its descriptor?")
                }
                // A filter forbids io_uring since. The operations that the kernel has taken complete by themselves.
                _ if is_late => sys::kernel_thread::give_way(),
                _ => refused = queued,
            }
        }
        refused == 0
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    fn enter(&self, submit: usize, want: usize, flags: EnterFlags) -> Result<usize, i32> {
        let (number, ring, flags) = (libc::SYS_io_uring_enter, self.descriptor(), flags.bits());
        // SAFETY: the memory that the entries point to is valid, as `push` demands; after a refusal
        // nothing is submitted.
        unsafe { sys::syscall!(number, ring, submit, want, flags, 0, 0) }
    }
}
