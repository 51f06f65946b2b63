//! The channel itself, which its senders and receivers share: two reference counts, and the state
//! under its lock; and how a thread waits for it.
//!
//! A plain operation (a select's are in `rights`) tries once, under the lock. If it must wait it
//! queues in the same critical section, with a node on its stack whose `place` is where its message
//! is or goes to; the peer moves the message, so there is nothing to do after it was woken. Only
//! `TRY_AGAIN` sends it round again.
//!
//! Invariants:
//! 1. Under the lock preemption is off. What must be woken, allocated or freed waits until after
//!    it.
//! 2. The last of a side disconnects. Of the two last ones the later frees the channel: whoever
//!    finds
//!    `one_side_gone` set.
//! 3. A node leaves its queue before the function that made it returns.
//!
//! Orderings: giving a reference up is AcqRel, so that what was done through any handle comes
//! before the disconnection and the freeing. Cloning is Relaxed: who clones has a reference.

use core::mem::{ManuallyDrop, MaybeUninit};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use std::time::{Duration, Instant};

use super::buffer::Block;
use super::state::{DONE, Offer, PAIRED, Spare, State, Take};
use crate::engine::door::atomic::Ordering::{AcqRel, Relaxed};
use crate::engine::door::atomic::{AtomicBool, AtomicUsize};
use crate::engine::door::claim::{Ended, Node, Wait};
use crate::engine::door::clock;
use crate::engine::door::list::{Chain, Crowd};
use crate::engine::door::lock::{Guard, Lock};
use crate::engine::door::perturb;
use crate::engine::door::{self, PreemptionOff};

pub(super) struct Shared<T> {
    state: Lock<State<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    one_side_gone: AtomicBool,
}

/// How long an operation may wait.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Now,
    Never,
    After(Duration),
    At(Instant),
}

impl Until {
    /// `None`: never.
    pub(super) fn instant(self) -> Option<Instant> {
        match self {
            Until::Now => Some(Instant::now()),
            Until::Never => None,
            Until::After(duration) => Instant::now().checked_add(duration),
            Until::At(when) => Some(when),
        }
    }

    /// In monotonic nanoseconds.
    fn deadline(self) -> u64 {
        match self {
            Until::Now => 0,
            Until::Never => clock::NEVER,
            Until::After(duration) => clock::after(duration),
            Until::At(when) => clock::at(when),
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    TimedOut,
    Disconnected,
}

/// The state, locked, and preemption off; both until it is dropped, in this order.
pub(super) struct Locked<'a, T> {
    state: Guard<'a, State<T>>,
    _preemption: PreemptionOff,
}

impl<T> Deref for Locked<'_, T> {
    type Target = State<T>;
    #[inline(always)]
    fn deref(&self) -> &State<T> {
        &self.state
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State<T> {
        &mut self.state
    }
}

impl<T> Shared<T> {
    /// With one sender and one receiver. `usize::MAX`: without a bound.
    pub(super) fn new(capacity: usize) -> NonNull<Shared<T>> {
        let shared = Box::new(Shared {
            state: Lock::new(State::new(capacity)),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            one_side_gone: AtomicBool::new(false),
        });
        NonNull::from(Box::leak(shared))
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Locked<'_, T> {
        let preemption = door::preemption_off();
        Locked {
            state: self.state.lock(),
            _preemption: preemption,
        }
    }

    /// Looks at the state. `look` runs under the lock.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<T>) -> R) -> R {
        look(&self.lock())
    }

    /// Sends, waiting until then if the channel is full.
    #[inline]
    pub(super) fn send(&self, message: T, until: Until) -> Result<(), (T, Failed)> {
        let message = ManuallyDrop::new(message);
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        // SAFETY: the message is not used any more if it was sent.
        let offer = unsafe { state.offer(&raw const *message, &mut spare, &mut woken) };
        if let Offer::Sent = offer {
            drop(state);
            woken.wake();
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.send_slowly(state, woken, offer, &raw const *message, until) }
            .map_err(|failed| (ManuallyDrop::into_inner(message), failed))
    }

    /// # Safety
    /// `message` is one; if the answer is Ok, it is the caller's no more.
    #[cold]
    #[inline(never)]
    unsafe fn send_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut offer: Offer,
        message: *const T,
        until: Until,
    ) -> Result<(), Failed> {
        let mut spare: Spare<T> = None;
        let mut deadline = None;
        loop {
            let wait = Wait::new();
            let node = Node::new(&wait);
            node.place.set(message.cast_mut().cast());
            let queued = matches!(offer, Offer::Full) && !matches!(until, Until::Now);
            if queued {
                // SAFETY: it stays until it was taken, or is removed below.
                unsafe { state.queue_sender(&node, &mut woken) };
            }
            drop(state);
            woken.wake();
            match offer {
                Offer::Sent => return Ok(()),
                Offer::Disconnected => return Err(Failed::Disconnected),
                Offer::NeedsBlock => spare = Some(Block::new()),
                Offer::Full if !queued => return Err(Failed::TimedOut),
                Offer::Full => {
                    let deadline = *deadline.get_or_insert_with(|| until.deadline());
                    match wait.wait(Some(deadline)) {
                        Ended::Taken(_) if node.outcome.get() == DONE => return Ok(()),
                        Ended::Taken(_) => {}
                        Ended::TimedOut => {
                            self.lock().remove_sender(&node);
                            return Err(Failed::TimedOut);
                        }
                    }
                }
            }
            woken = Chain::new();
            state = self.lock();
            // SAFETY: the caller's promise.
            offer = unsafe { state.offer(message, &mut spare, &mut woken) };
        }
    }

    /// Receives, waiting until then if the channel is empty.
    #[inline]
    pub(super) fn receive(&self, until: Until) -> Result<T, Failed> {
        let mut message = MaybeUninit::uninit();
        let (mut spare, mut woken) = (None, Chain::new());
        let mut state = self.lock();
        // SAFETY: a place for a message, which is there if it was received.
        let take = unsafe { state.take(message.as_mut_ptr(), &mut spare, &mut woken) };
        if let Take::Received = take {
            drop(state);
            woken.wake();
        } else {
            // SAFETY: a place for a message.
            unsafe { self.receive_slowly(state, woken, take, message.as_mut_ptr(), until)? };
        }
        // SAFETY: it was received.
        Ok(unsafe { message.assume_init() })
    }

    /// # Safety
    /// `into` is a place for a message, which is there if the answer is Ok.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn receive_slowly<'a>(
        &'a self,
        mut state: Locked<'a, T>,
        mut woken: Chain,
        mut take: Take,
        into: *mut T,
        until: Until,
    ) -> Result<(), Failed> {
        let mut spare: Spare<T> = None;
        let mut deadline = None;
        loop {
            let wait = Wait::new();
            let node = Node::new(&wait);
            node.place.set(into.cast());
            let mut paired = false;
            match take {
                Take::Empty if !matches!(until, Until::Now) => {
                    // SAFETY: it stays until it was taken, or is removed below.
                    unsafe { state.queue_receiver(&node, &mut woken) };
                }
                Take::Paired(sender) => {
                    // It is to send here. The node is in no list, so nobody else does.
                    sender.node().place.set((&raw const node).cast_mut().cast());
                    sender.node().outcome.set(PAIRED);
                    woken.push(sender);
                    paired = true;
                }
                Take::Empty | Take::Received | Take::Disconnected => {
                    drop(state);
                    woken.wake();
                    return match take {
                        Take::Empty => Err(Failed::TimedOut),
                        Take::Disconnected => Err(Failed::Disconnected),
                        _ => Ok(()),
                    };
                }
            }
            drop(state);
            woken.wake();
            let deadline = if paired {
                clock::NEVER
            } else {
                *deadline.get_or_insert_with(|| until.deadline())
            };
            match wait.wait(Some(deadline)) {
                Ended::Taken(_) if node.outcome.get() == DONE => return Ok(()),
                Ended::Taken(_) => {}
                Ended::TimedOut => {
                    self.lock().remove_receiver(&node);
                    return Err(Failed::TimedOut);
                }
            }
            woken = Chain::new();
            state = self.lock();
            // SAFETY: the caller's promise.
            take = unsafe { state.take(into, &mut spare, &mut woken) };
        }
    }

    pub(super) fn add_sender(&self) {
        add_reference(&self.senders);
    }

    pub(super) fn add_receiver(&self) {
        add_reference(&self.receivers);
    }

    /// Gives a sender's reference up.
    ///
    /// # Safety
    /// The caller has it, and does not use the channel any more.
    pub(super) unsafe fn remove_sender(shared: NonNull<Shared<T>>) {
        // SAFETY: the reference keeps it.
        let this = unsafe { shared.as_ref() };
        // AcqRel: see the header.
        if this.senders.fetch_sub(1, AcqRel) == 1 {
            perturb::point("channel: last sender");
            let crowd = Crowd::new();
            // SAFETY: it is woken below.
            let first = unsafe { this.lock().disconnect_senders(&crowd) };
            first.wake();
            crowd.wake(|| this.lock());
            // SAFETY: that was the last of this side.
            unsafe { Shared::side_is_gone(shared) };
        }
    }

    /// Gives a receiver's reference up.
    ///
    /// # Safety
    /// The caller has it, and does not use the channel any more.
    pub(super) unsafe fn remove_receiver(shared: NonNull<Shared<T>>) {
        // SAFETY: the reference keeps it.
        let this = unsafe { shared.as_ref() };
        // AcqRel: see the header.
        if this.receivers.fetch_sub(1, AcqRel) == 1 {
            perturb::point("channel: last receiver");
            let crowd = Crowd::new();
            // SAFETY: it is woken below.
            let (first, messages) = unsafe { this.lock().disconnect_receivers(&crowd) };
            first.wake();
            crowd.wake(|| this.lock());
            // SAFETY: that was the last of this side.
            unsafe { Shared::side_is_gone(shared) };
            // Last, because it may panic.
            drop(messages);
        }
    }

    /// # Safety
    /// Called once for each side, by its last reference.
    unsafe fn side_is_gone(shared: NonNull<Shared<T>>) {
        perturb::point("channel: side gone");
        // SAFETY: it is freed by the second to come here. AcqRel: see the header.
        if unsafe { shared.as_ref() }.one_side_gone.swap(true, AcqRel) {
            // SAFETY: made by `Box::leak`, and nobody has a reference any more.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
    }
}

/// As with `Arc`, so many clones that were forgotten that the count is about to overflow cannot be
/// dealt with.
fn add_reference(count: &AtomicUsize) {
    if count.fetch_add(1, Relaxed) > isize::MAX as usize {
        std::process::abort();
    }
}
