//! The store of messages between their sender and their receiver.
//!
//! | store | for | memory |
//! |---|---|---|
//! | ring | capacities from 1 | all of it when the channel is made, untouched until used |
//! | blocks | no bound, and capacity 0 (see `shared`) | blocks of [`SLOTS`] messages, and one spare |
//!
//! ```text
//!   ring    [ . . . x x x x . . ]   blocks   [ . . x x ] → [ x x x x ] → [ x . . . ]   [ spare ]
//!                   ▲ head                        ▲ first                   ▲ last
//! ```
//!
//! Both start anew at their first place when they run empty. So a ring in which few messages lie at
//! a time stays in few cache lines (and pages) however large it is, and a channel without overflow
//! never needs a second block.
//!
//! A message that is promised to a receiver has a ticket (`shared`), which lies beside it in its
//! slot. Promised messages are the first ones, in the order of their tickets. Any of the first few
//! can be brought to the front or back by swapping it with its neighbours: there are as many of
//! them as selects between their choice and its completion.
//!
//! Invariants:
//! 1. All accesses happen under the channel's lock, so nothing here allocates, frees, panics or
//!    runs code of the message type: messages are moved as bytes. The exception is dropping the
//!    buffer.
//! 2. Blocks come from outside ([`Buffer::make_room`]) and go there (`pop`). The holder of the lock
//!    takes at most one message out of blocks, so at most one block goes.
//! 3. In blocks, `last` is above 0 while messages are there: the tail block is never an empty one.
//! 4. The first `len` slots, from the head on, hold messages, and tickets that were written.

use core::mem::{self, MaybeUninit};
use core::ptr;

use crate::sys::die;

/// Messages in a block: with the link, a power of two words for messages of a word.
const SLOTS: usize = 31;

/// A queue of messages.
pub(super) struct Buffer<T> {
    pub(super) len: usize,
    store: Store<T>,
}

enum Store<T> {
    Ring(Ring<T>),
    Blocks(Blocks<T>),
}

/// A message's place. The ticket means something only while the message is promised.
struct Slot<T> {
    message: MaybeUninit<T>,
    ticket: MaybeUninit<usize>,
}

impl<T> Slot<T> {
    const EMPTY: Slot<T> = Slot {
        message: MaybeUninit::uninit(),
        ticket: MaybeUninit::uninit(),
    };
}

struct Ring<T> {
    places: Box<[Slot<T>]>,
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

// SAFETY: the blocks are its own, and the messages in them may go to another thread.
unsafe impl<T: Send> Send for Blocks<T> {}

/// A part of a queue.
pub(super) struct Block<T> {
    next: *mut Block<T>,
    slots: [Slot<T>; SLOTS],
}

// SAFETY: a block that is in no queue leads to no other.
unsafe impl<T: Send> Send for Block<T> {}

impl<T> Block<T> {
    #[cold]
    pub(super) fn new() -> Box<Block<T>> {
        Box::new(Block {
            next: ptr::null_mut(),
            slots: [const { Slot::EMPTY }; SLOTS],
        })
    }
}

impl<T> Buffer<T> {
    /// Makes a queue for a number of messages that never exceeds `capacity`.
    pub(super) fn ring(capacity: usize) -> Buffer<T> {
        Buffer {
            len: 0,
            store: Store::Ring(Ring {
                // SAFETY: slots need not be initialised.
                places: unsafe { Box::new_uninit_slice(capacity).assume_init() },
                head: 0,
            }),
        }
    }

    /// Makes a queue for any number of messages.
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

    /// Makes sure that there is a slot for one more message. Returns false if that takes a block
    /// and `block` is `None`. A ring that is not full always has a slot.
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

    /// Moves a message in. There must be a slot for it.
    #[inline(always)]
    pub(super) fn push(&mut self, message: T) {
        let slot = match &mut self.store {
            Store::Ring(ring) => {
                if self.len == ring.places.len() {
                    no_room();
                }
                ring.place(self.len)
            }
            Store::Blocks(blocks) => blocks.push(),
        };
        slot.message.write(message);
        slot.ticket.write(0);
        self.len += 1;
    }

    /// Moves the first message out. There must be one. The caller frees `block` after the lock.
    #[inline(always)]
    pub(super) fn pop(&mut self, block: &mut Option<Box<Block<T>>>) -> T {
        if self.len == 0 {
            die("a message is missing in its channel");
        }
        self.len -= 1;
        // A block is left after the message was read. (One match: with two, a message of
        // 1 KiB takes a sixth more instructions through a ring.)
        match &mut self.store {
            Store::Ring(ring) => {
                // SAFETY: the slot is the first message's (invariant 4), and no message's from here on.
                let message = unsafe { ring.place(0).message.assume_init_read() };
                ring.advance(self.len);
                message
            }
            Store::Blocks(blocks) => {
                // SAFETY: as above.
                let message = unsafe { blocks.slot(0).message.assume_init_read() };
                blocks.advance(self.len, block);
                message
            }
        }
    }

    /// Returns the slot of the message that has `before` others in front of it.
    fn slot(&mut self, before: usize) -> &mut Slot<T> {
        match &mut self.store {
            Store::Ring(ring) => ring.place(before),
            Store::Blocks(blocks) => blocks.slot(before),
        }
    }

    /// Returns the ticket of the message that has `before` others in front of it, if there is such
    /// a message.
    pub(super) fn ticket(&mut self, before: usize) -> Option<&mut usize> {
        let is_there = before < self.len;
        // SAFETY: the slot belongs to a message (invariant 4).
        is_there.then(|| unsafe { self.slot(before).ticket.assume_init_mut() })
    }

    /// Finds the message with this ticket among the first `promised`, all of which have tickets.
    pub(super) fn find(&mut self, ticket: usize, promised: usize) -> Option<usize> {
        (0..promised).find(|&i| self.ticket(i).is_some_and(|found| *found == ticket))
    }

    /// Swaps two neighbours: the message that has `before` others in front of it, and the next.
    fn swap(&mut self, before: usize) {
        if before + 1 >= self.len {
            return;
        }
        let earlier = mem::replace(self.slot(before), Slot::EMPTY);
        let later = mem::replace(self.slot(before + 1), earlier);
        *self.slot(before) = later;
    }

    /// Makes a message the first. The messages that were in front of it are then behind it, in
    /// their order.
    pub(super) fn bring_to_front(&mut self, before: usize) {
        (0..before).rev().for_each(|i| self.swap(i));
    }

    /// Moves a message back until `later` others are in front of it. The messages between move up.
    pub(super) fn send_back(&mut self, before: usize, later: usize) {
        (before..later).for_each(|i| self.swap(i));
    }
}

impl<T> Drop for Buffer<T> {
    /// Drops all messages. As in crossbeam-channel, if the destructor of one panics, the rest
    /// leaks.
    fn drop(&mut self) {
        while mem::needs_drop::<T>() && self.len > 0 {
            drop(self.pop(&mut None));
        }
    }
}

#[cold]
fn no_room() -> ! {
    die("a message without a place in its channel")
}

impl<T> Ring<T> {
    /// Returns the place of the message that has `before` others in front of it.
    #[inline(always)]
    fn place(&mut self, before: usize) -> &mut Slot<T> {
        let to_end = self.places.len() - self.head;
        let place = if before < to_end {
            self.head + before
        } else {
            before - to_end
        };
        // SAFETY: the place is less than the ring's length, since `head` and `before` are.
        unsafe { self.places.get_unchecked_mut(place) }
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

    /// Returns the slot behind the last message.
    #[inline(always)]
    fn push(&mut self) -> &mut Slot<T> {
        if !self.has_slot() {
            self.append();
        }
        let slot = self.last;
        self.last += 1;
        // SAFETY: the tail is a block of ours, which no other code reaches.
        unsafe { &mut (*self.tail).slots[slot] }
    }

    fn append(&mut self) {
        let Some(block) = self.spare.take() else {
            no_room()
        };
        let block = Box::into_raw(block);
        if self.tail.is_null() {
            self.head = block;
        } else {
            // SAFETY: the tail is a block of ours.
            unsafe { (*self.tail).next = block };
        }
        self.tail = block;
        self.last = 0;
    }

    /// Returns the slot of the message that has `before` others in front of it.
    #[inline(always)]
    fn slot(&mut self, before: usize) -> &mut Slot<T> {
        let (mut block, mut slot) = (self.head, self.first + before);
        // SAFETY: the blocks are ours, and no other code reaches them; there are blocks for all
        // messages.
        unsafe {
            while slot >= SLOTS {
                block = (*block).next;
                slot -= SLOTS;
            }
            &mut (*block).slots[slot]
        }
    }

    #[inline(always)]
    fn advance(&mut self, left: usize, block: &mut Option<Box<Block<T>>>) {
        self.first += 1;
        if left == 0 {
            // No message is left, so the head block is the tail block, too (invariant 3), and is used from its start.
            self.first = 0;
            self.last = 0;
        } else if self.first == SLOTS {
            self.leave_head(block);
        }
    }

    fn leave_head(&mut self, block: &mut Option<Box<Block<T>>>) {
        // SAFETY: the block was made by `Box::into_raw` in `append`; messages are left, so there is
        // a next block, and nothing points to this one any more.
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
            // SAFETY: the block was made by `Box::into_raw` in `append`; each is freed once.
            let block = unsafe { Box::from_raw(self.head) };
            self.head = block.next;
        }
    }
}

#[cfg(all(test, not(greenthread_model)))]
mod tests {
    use super::{Block, Buffer, SLOTS};
    use std::sync::Arc;

    fn push<T>(buffer: &mut Buffer<T>, message: T) {
        let mut block = None;
        if !buffer.make_room(&mut block) {
            block = Some(Block::new());
            assert!(buffer.make_room(&mut block));
        }
        buffer.push(message);
    }

    fn pop<T>(buffer: &mut Buffer<T>) -> Option<T> {
        (buffer.len > 0).then(|| buffer.pop(&mut None))
    }

    /// Checks that the messages come out in order, each once, whatever the overflow.
    fn is_fifo(mut buffer: Buffer<Arc<usize>>, most: usize) {
        let (mut sent, mut received) = (0, 0);
        for overflow in (0..=most).chain((0..most).rev()) {
            for _ in 0..3 {
                while sent - received < overflow {
                    push(&mut buffer, Arc::new(sent));
                    sent += 1;
                }
                while sent - received > overflow / 2 {
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
                buffer.send_back(before, later);
                buffer.bring_to_front(later);
                let message = queue.remove(before);
                queue.insert(0, message);
            }
            (0..4).for_each(|i| *buffer.ticket(i).unwrap() = 10 * i);
            assert_eq!(buffer.find(30, 4), Some(3));
            assert_eq!(buffer.find(30, 3), None);
            buffer.bring_to_front(3);
            assert_eq!(buffer.find(0, 4), Some(1));
            let message = queue.remove(3);
            queue.insert(0, message);
            for message in queue {
                assert_eq!(pop(&mut buffer), Some(message));
            }
        }
    }
}
