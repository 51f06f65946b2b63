//! The store of messages between their sender and their receiver.
//!
//! | store | for | memory |
//! |---|---|---|
//! | ring | capacities from 1 | all of it when the channel is made, untouched until used |
//! | blocks | no bound, and capacity 0 (see `state`) | blocks of [`SLOTS`] messages, as many as are in use and one spare |
//!
//! ```text
//!   ring    [ . . . x x x x . . ]   blocks   [ . . x x ] → [ x x x x ] → [ x . . . ]   [ spare ]
//!                   ▲ head                        ▲ first                   ▲ last
//! ```
//!
//! Both start anew at their first place when they run empty. So a ring in which few messages lie at
//! a time stays in few cache lines (and pages) however large it is, and a channel without backlog
//! never needs a second block.
//!
//! A message that is promised to a receiver has a ticket (`state`), which lies beside it in its
//! slot. Promised messages are the first ones, in the order of their tickets. Any of the first few
//! can be brought to the front or back by swapping it with its neighbours: there are as many of
//! them as selects between their choice and its completion.
//!
//! Invariants:
//! 1. All of it happens under the channel's lock, so nothing here allocates, frees, panics or runs
//!    code of the message type: messages are moved as bytes. The exception is dropping the buffer.
//! 2. Blocks come from outside ([`Buffer::make_room`]) and go there (`pop`). The holder of the lock
//!    takes at most one message out of blocks, so at most one block goes.
//! 3. In blocks, `last` is above 0 while messages are there: the tail block is never an empty one.

use core::mem::{self, MaybeUninit};
use core::ptr;

/// Messages in a block: with the link, a power of two words for messages of a word.
const SLOTS: usize = 31;

/// A queue of messages.
pub(super) struct Buffer<T> {
    len: usize,
    store: Store<T>,
}

enum Store<T> {
    Ring(Ring<T>),
    Blocks(Blocks<T>),
}

/// A message's place. The ticket is one only while the message is promised.
struct Slot<T> {
    message: MaybeUninit<T>,
    ticket: MaybeUninit<usize>,
}

struct Ring<T> {
    places: Box<[MaybeUninit<Slot<T>>]>,
    head: usize,
}

struct Blocks<T> {
    head: *mut Block<T>,
    tail: *mut Block<T>,
    /// The first message's slot in the head block.
    first: usize,
    /// The slot behind the last message, in the tail block.
    last: usize,
    spare: Option<Box<Block<T>>>,
}

/// A part of a queue.
pub(super) struct Block<T> {
    next: *mut Block<T>,
    slots: [Slot<T>; SLOTS],
}

/// # Safety
/// `slot` is one.
#[inline(always)]
unsafe fn message_in<T>(slot: *mut Slot<T>) -> *mut T {
    // SAFETY: the caller's promise.
    unsafe { (&raw mut (*slot).message).cast() }
}

impl<T> Block<T> {
    #[cold]
    pub(super) fn new() -> Box<Block<T>> {
        let mut block = Box::<Block<T>>::new_uninit();
        // SAFETY: the link is initialised here, and slots need not be.
        unsafe {
            (&raw mut (*block.as_mut_ptr()).next).write(ptr::null_mut());
            block.assume_init()
        }
    }
}

impl<T> Buffer<T> {
    /// For a number of messages that never exceeds `capacity`.
    pub(super) fn ring(capacity: usize) -> Buffer<T> {
        Buffer {
            len: 0,
            store: Store::Ring(Ring {
                places: Box::new_uninit_slice(capacity),
                head: 0,
            }),
        }
    }

    /// For any number of messages.
    pub(super) const fn blocks() -> Buffer<T> {
        Buffer {
            len: 0,
            store: Store::Blocks(Blocks {
                head: ptr::null_mut(),
                tail: ptr::null_mut(),
                first: 0,
                last: 0,
                spare: None,
            }),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Makes sure that there is a slot for one more message. False if that takes a block and
    /// `block` is none. In a ring that is not full there always is a slot.
    #[inline(always)]
    pub(super) fn make_room(&mut self, block: &mut Option<Box<Block<T>>>) -> bool {
        match &mut self.store {
            Store::Ring(_) => true,
            Store::Blocks(blocks) => {
                blocks.has_slot() || {
                    if blocks.spare.is_none() {
                        blocks.spare = block.take();
                    }
                    blocks.spare.is_some()
                }
            }
        }
    }

    /// Moves a message in.
    ///
    /// # Safety
    /// `message` is one, which is the buffer's from here on. There is room for it.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, message: *const T) {
        let slot = match &mut self.store {
            Store::Ring(ring) => ring.place(self.len),
            Store::Blocks(blocks) => blocks.push(),
        };
        self.len += 1;
        // SAFETY: the slot is one of ours, and free.
        unsafe { message_in(slot).copy_from_nonoverlapping(message, 1) };
    }

    /// Moves the first message out. The caller frees `block` after the lock.
    ///
    /// # Safety
    /// There is one, and `into` is a place for it.
    #[inline(always)]
    pub(super) unsafe fn pop(&mut self, into: *mut T, block: &mut Option<Box<Block<T>>>) {
        self.len -= 1;
        // SAFETY: the slot is the first message's; the caller's promise. A block is left after it
        // was read.
        unsafe {
            match &mut self.store {
                Store::Ring(ring) => {
                    into.copy_from_nonoverlapping(message_in(ring.place(0)), 1);
                    ring.advance(self.len);
                }
                Store::Blocks(blocks) => {
                    into.copy_from_nonoverlapping(message_in(blocks.slot(0)), 1);
                    blocks.advance(self.len, block);
                }
            }
        }
    }

    /// Returns the slot of the message that has `before` others in front of it.
    fn slot(&mut self, before: usize) -> *mut Slot<T> {
        match &mut self.store {
            Store::Ring(ring) => ring.place(before),
            Store::Blocks(blocks) => blocks.slot(before),
        }
    }

    /// Gives a ticket to the message that has `before` others in front of it.
    ///
    /// # Safety
    /// There are more than `before` messages.
    pub(super) unsafe fn set_ticket(&mut self, before: usize, ticket: usize) {
        // SAFETY: the slot is a message's.
        unsafe { (*self.slot(before)).ticket.write(ticket) };
    }

    /// Finds the message with this ticket among the first `promised`, all of which have tickets.
    ///
    /// # Safety
    /// At least `promised` messages are promised.
    pub(super) unsafe fn find(&mut self, ticket: usize, promised: usize) -> Option<usize> {
        // SAFETY: the slots are messages', and their tickets were written.
        (0..promised).find(|&i| unsafe { (*self.slot(i)).ticket.assume_init() } == ticket)
    }

    /// Makes a message the first. Those that were in front of it follow it, in their order.
    ///
    /// # Safety
    /// There are more than `before` messages.
    pub(super) unsafe fn bring_to_front(&mut self, before: usize) {
        for i in (0..before).rev() {
            // SAFETY: both are messages' slots.
            unsafe { ptr::swap(self.slot(i), self.slot(i + 1)) };
        }
    }

    /// Moves a message back until `later` others are in front of it. Those between move up.
    ///
    /// # Safety
    /// There are more than `before` and more than `later` messages.
    pub(super) unsafe fn send_back(&mut self, before: usize, later: usize) {
        for i in before..later {
            // SAFETY: both are messages' slots.
            unsafe { ptr::swap(self.slot(i), self.slot(i + 1)) };
        }
    }
}

impl<T> Drop for Buffer<T> {
    /// Drops all messages. As in crossbeam-channel, if the destructor of one panics, the rest
    /// leaks.
    fn drop(&mut self) {
        while mem::needs_drop::<T>() && self.len > 0 {
            let mut message = MaybeUninit::uninit();
            // SAFETY: there is one, and it is initialised by `pop`.
            unsafe {
                self.pop(message.as_mut_ptr(), &mut None);
                drop(message.assume_init());
            }
        }
    }
}

impl<T> Ring<T> {
    /// Returns the place of the message that has `before` others in front of it.
    #[inline(always)]
    fn place(&mut self, before: usize) -> *mut Slot<T> {
        let to_end = self.places.len() - self.head;
        let place = if before < to_end {
            self.head + before
        } else {
            before - to_end
        };
        // SAFETY: less than the ring's length, since `before` is.
        unsafe { self.places.as_mut_ptr().add(place).cast() }
    }

    #[inline(always)]
    fn advance(&mut self, left: usize) {
        self.head += 1;
        if left == 0 || self.head == self.places.len() {
            self.head = 0;
        }
    }
}

impl<T> Blocks<T> {
    #[inline(always)]
    fn has_slot(&self) -> bool {
        !self.tail.is_null() && self.last < SLOTS
    }

    #[inline(always)]
    fn push(&mut self) -> *mut Slot<T> {
        if !self.has_slot() {
            self.append();
        }
        let slot = self.last;
        self.last += 1;
        // SAFETY: the tail is a block of ours, and the slot is in it.
        unsafe { (&raw mut (*self.tail).slots).cast::<Slot<T>>().add(slot) }
    }

    fn append(&mut self) {
        let block = self.spare.take().map_or(ptr::null_mut(), Box::into_raw);
        debug_assert!(!block.is_null(), "room was made");
        if self.tail.is_null() {
            self.head = block;
        } else {
            // SAFETY: a block of ours.
            unsafe { (*self.tail).next = block };
        }
        self.tail = block;
        self.last = 0;
    }

    /// Returns the slot of the message that has `before` others in front of it.
    #[inline(always)]
    fn slot(&self, before: usize) -> *mut Slot<T> {
        let (mut block, mut slot) = (self.head, self.first + before);
        // SAFETY: blocks of ours, as many as there are messages for.
        unsafe {
            while slot >= SLOTS {
                block = (*block).next;
                slot -= SLOTS;
            }
            (&raw mut (*block).slots).cast::<Slot<T>>().add(slot)
        }
    }

    #[inline(always)]
    fn advance(&mut self, left: usize, block: &mut Option<Box<Block<T>>>) {
        self.first += 1;
        if left == 0 {
            // That was the tail block (invariant 3).
            self.first = 0;
            self.last = 0;
        } else if self.first == SLOTS {
            self.leave_head(block);
        }
    }

    fn leave_head(&mut self, block: &mut Option<Box<Block<T>>>) {
        // SAFETY: made by `Box::into_raw` in `append`; messages are left, so there is a next one,
        // and nothing points to this one any more.
        let mut head = unsafe { Box::from_raw(self.head) };
        self.head = mem::replace(&mut head.next, ptr::null_mut());
        self.first = 0;
        if self.spare.is_none() {
            self.spare = Some(head);
        } else {
            // Invariant 2: nothing is freed by this assignment.
            debug_assert!(block.is_none());
            *block = Some(head);
        }
    }
}

impl<T> Drop for Blocks<T> {
    fn drop(&mut self) {
        while !self.head.is_null() {
            // SAFETY: made by `Box::into_raw` in `append`; each is freed once.
            let block = unsafe { Box::from_raw(self.head) };
            self.head = block.next;
        }
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::{Block, Buffer, SLOTS};
    use core::mem::{ManuallyDrop, MaybeUninit};
    use std::sync::Arc;

    fn push<T>(buffer: &mut Buffer<T>, message: T) {
        let message = ManuallyDrop::new(message);
        let mut block = None;
        if !buffer.make_room(&mut block) {
            block = Some(Block::new());
            assert!(buffer.make_room(&mut block));
        }
        // SAFETY: it is not used any more.
        unsafe { buffer.push(&raw const *message) };
    }

    fn pop<T>(buffer: &mut Buffer<T>) -> Option<T> {
        let mut message = MaybeUninit::uninit();
        (buffer.len() > 0).then(|| {
            // SAFETY: there is one.
            unsafe {
                buffer.pop(message.as_mut_ptr(), &mut None);
                message.assume_init()
            }
        })
    }

    /// In order, each once, whatever the backlog.
    fn is_fifo(mut buffer: Buffer<Arc<usize>>, most: usize) {
        let (mut sent, mut received) = (0, 0);
        for backlog in (0..=most).chain((0..most).rev()) {
            for _ in 0..3 {
                while sent - received < backlog {
                    push(&mut buffer, Arc::new(sent));
                    sent += 1;
                }
                while sent - received > backlog / 2 {
                    assert_eq!(pop(&mut buffer).as_deref(), Some(&received));
                    received += 1;
                }
            }
        }
        let last = Arc::new(0);
        push(&mut buffer, last.clone());
        drop(buffer);
        assert_eq!(Arc::strong_count(&last), 1);
    }

    #[test]
    fn rings_and_blocks_are_queues() {
        is_fifo(Buffer::ring(1), 1);
        is_fifo(Buffer::ring(7), 7);
        is_fifo(Buffer::blocks(), 3 * SLOTS + 1);
    }

    #[test]
    fn messages_change_places() {
        for mut buffer in [Buffer::ring(100), Buffer::blocks()] {
            for message in 0..2 {
                push(&mut buffer, message);
                assert_eq!(pop(&mut buffer), Some(message));
            }
            let mut queue: Vec<_> = (0..SLOTS + 9).collect();
            for message in &queue {
                push(&mut buffer, *message);
            }
            for (before, later) in [(3, 7), (0, 5), (SLOTS - 2, SLOTS + 4), (2, 2)] {
                // SAFETY: there are more.
                unsafe {
                    buffer.send_back(before, later);
                    buffer.bring_to_front(later);
                }
                let message = queue.remove(before);
                queue.insert(0, message);
            }
            // SAFETY: as above.
            unsafe {
                (0..4).for_each(|i| buffer.set_ticket(i, 10 * i));
                assert_eq!(buffer.find(30, 4), Some(3));
                assert_eq!(buffer.find(30, 3), None);
                buffer.bring_to_front(3);
                assert_eq!(buffer.find(0, 4), Some(1));
            }
            let message = queue.remove(3);
            queue.insert(0, message);
            for message in queue {
                assert_eq!(pop(&mut buffer), Some(message));
            }
        }
    }
}
