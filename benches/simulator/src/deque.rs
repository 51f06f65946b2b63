//! crossbeam's deque, as far as local queues use it: first in, first out, in one buffer that never
//! grows. What it does with shared memory is what crossbeam's does, operation by operation, without
//! the pinning of its epoch.

use core::cell::Cell;
use std::sync::Arc;

use crate::atomic::{AtomicIsize, Ordering::Relaxed, fence};
use crate::virtual_time::{self, Access};

const SLOTS: usize = 64;

#[repr(align(128))]
struct Slots<T>([Cell<Option<T>>; SLOTS]);

#[repr(align(128))]
struct Inner<T> {
    front: AtomicIsize,
    back: AtomicIsize,
    slots: Slots<T>,
}

pub struct Worker<T>(Arc<Inner<T>>);
pub struct Stealer<T>(Arc<Inner<T>>);

pub enum Steal<T> {
    Empty,
    Success(T),
    Retry,
}

impl<T: Copy> Inner<T> {
    fn slot(&self, index: isize, access: Access) -> &Cell<Option<T>> {
        let slot = &self.slots.0[index as usize % SLOTS];
        virtual_time::access(core::ptr::from_ref(slot).addr(), access);
        slot
    }

    fn len(&self) -> usize {
        let back = self.back.load(Relaxed);
        (back - self.front.load(Relaxed)).max(0) as usize
    }
}

impl<T: Copy> Worker<T> {
    pub fn new_fifo() -> Worker<T> {
        Worker(Arc::new(Inner {
            front: AtomicIsize::new(0),
            back: AtomicIsize::new(0),
            slots: Slots([const { Cell::new(None) }; SLOTS]),
        }))
    }

    pub fn new_lifo() -> Worker<T> {
        panic!("no contender's queues are last in, first out")
    }

    pub fn stealer(&self) -> Stealer<T> {
        Stealer(self.0.clone())
    }

    pub fn push(&self, value: T) {
        let back = self.0.back.load(Relaxed);
        let front = self.0.front.load(Relaxed);
        assert!(back - front < SLOTS as isize, "the deque would grow");
        self.0.slot(back, Access::Store).set(Some(value));
        self.0.back.store(back + 1, Relaxed);
    }

    pub fn pop(&self) -> Option<T> {
        let back = self.0.back.load(Relaxed);
        if back - self.0.front.load(Relaxed) <= 0 {
            return None;
        }
        let front = self.0.front.fetch_add(1, Relaxed);
        if back - (front + 1) < 0 {
            self.0.front.store(front, Relaxed);
            return None;
        }
        self.0.slot(front, Access::Load).get()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T: Copy> Stealer<T> {
    pub fn steal_batch_with_limit_and_pop(&self, thief: &Worker<T>, limit: usize) -> Steal<T> {
        let front = self.0.front.load(Relaxed);
        fence(Relaxed);
        let len = self.0.back.load(Relaxed) - front;
        if len <= 0 {
            return Steal::Empty;
        }
        let batch = ((len as usize - 1) / 2).min(limit - 1) as isize;
        let back = thief.0.back.load(Relaxed);
        let first = self.0.slot(front, Access::Load).get();
        for i in 0..batch {
            let value = self.0.slot(front + 1 + i, Access::Load).get();
            thief.0.slot(back + i, Access::Store).set(value);
        }
        let taken = self
            .0
            .front
            .compare_exchange(front, front + batch + 1, Relaxed, Relaxed);
        if taken.is_err() {
            return Steal::Retry;
        }
        thief.0.back.store(back + batch, Relaxed);
        first.map_or(Steal::Retry, Steal::Success)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
