//! A processor's overflow: a queue without bound behind its local queue, which others share.
//!
//! What a full local queue cannot hold goes there in chains of half a queue, and comes back, or goes
//! to a thief, a chain at a time. So a thread pays for the lock of its overflow only its part of a
//! chain's visit, and a chain costs the holder of the lock the same, however long it is.
//! A thread that another processor hands over is a chain of one.
//!
//! The chains are linked by their ends, in the records' links for heaps, which no heap uses while
//! work stealing holds the thread. The first thread's rank has the chain's length:
//!
//! ```text
//!     first ── next ──▶ … ── next ──▶ last
//!       └────────── link ───────────────┘└── link ──▶ the next chain's first
//! ```
//!
//! A chain of one thread has only the second link.
//!
//! Invariants: `len` is the number of threads whenever the lock is free. No thread is handed to a closed
//! overflow: it is closed when its processor leaves, and once more when the policy is told that the
//! processor is out of use, for one that was idle does not leave. The processor opens it when it comes
//! back.
//!
//! Orderings: all Relaxed, as the lock orders everything else. `len` and `is_closed` are hints to callers
//! without the lock, unless they have ordered themselves after the pushes (as the fences of the idle
//! handshake do).

use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use crate::engine::sched::Green;
use crate::engine::sched::list::Fifo;
use crate::engine::sys::lock::{Guard, Lock};

pub(super) struct Overflow {
    chains: Lock<Chains>,
    len: AtomicUsize,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Chains {
    /// The first thread of the first chain, and the last one of the last chain.
    ends: Option<(&'static Green, &'static Green)>,
}

impl Chains {
    fn push(&mut self, chain: Fifo) {
        let len = chain.len();
        let Some((first, last)) = chain.into_ends() else {
            return;
        };
        first.heap.rank.set((len as u64, 0));
        if len > 1 {
            first.heap.set_link(Some(last));
        }
        last.heap.set_link(None);
        self.ends = match self.ends {
            None => Some((first, last)),
            Some((front, back)) => {
                back.heap.set_link(Some(first));
                Some((front, last))
            }
        };
    }

    fn pop(&mut self) -> Option<Fifo> {
        let (first, back) = self.ends?;
        let len = first.heap.rank.get().0 as usize;
        let last = match len {
            1 => first,
            _ => first.heap.take_link()?,
        };
        self.ends = last.heap.take_link().map(|front| (front, back));
        Some(Fifo::from_ends(first, last, len))
    }

    /// Takes the first thread out of the first chain, as a chain of its own.
    fn pop_one(&mut self) -> Option<Fifo> {
        let (first, back) = self.ends?;
        let len = first.heap.rank.get().0;
        if len == 1 {
            return self.pop();
        }
        let (second, last) = (first.next.take()?, first.heap.take_link()?);
        second.heap.rank.set((len - 1, 0));
        if len > 2 {
            second.heap.set_link(Some(last));
        }
        self.ends = Some((second, back));
        Some(Fifo::of(first))
    }
}

impl Overflow {
    pub(super) fn new() -> Overflow {
        Overflow {
            chains: Lock::new(Chains::default()),
            len: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns the number of threads; any thread may ask.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Adds a chain behind the others. For the holder of the seat.
    pub(super) fn push(&self, chain: Fifo) {
        let mut chains = self.chains.lock();
        self.grow(&chains, chain.len());
        chains.push(chain);
    }

    /// Hands over a thread of another processor, unless this one is out of use or the overflow is in
    /// use; then it comes back.
    pub(super) fn give(&self, thread: &'static Green) -> Result<(), &'static Green> {
        match self.chains.try_lock() {
            Some(mut chains) if !self.is_closed() => {
                self.grow(&chains, 1);
                chains.push(Fifo::of(thread));
                Ok(())
            }
            _ => Err(thread),
        }
    }

    /// Takes the first chain. For the holder of the seat.
    #[inline]
    pub(super) fn take(&self) -> Option<Fifo> {
        if self.len() == 0 {
            return None;
        }
        self.shrink(self.chains.lock(), Chains::pop)
    }

    /// Takes the first thread. For the holder of the seat.
    #[inline]
    pub(super) fn take_one(&self) -> Option<&'static Green> {
        if self.len() == 0 {
            return None;
        }
        self.shrink(self.chains.lock(), Chains::pop_one)?.pop()
    }

    /// Takes the first chain for another processor; `None` also if the overflow is in use.
    #[inline]
    pub(super) fn steal(&self) -> Option<Fifo> {
        if self.len() == 0 {
            return None;
        }
        self.shrink(self.chains.try_lock()?, Chains::pop)
    }

    /// Takes all threads, and closes the overflow. The caller is not preempted.
    pub(super) fn close(&self) -> Fifo {
        let mut all = Fifo::new();
        let mut chains = self.chains.lock();
        while let Some(chain) = chains.pop() {
            all.append(chain);
        }
        self.len.store(0, Relaxed);
        self.is_closed.store(true, Relaxed);
        all
    }

    /// Opens the overflow again. For the holder of the seat.
    pub(super) fn open(&self) {
        let _chains = self.chains.lock();
        self.is_closed.store(false, Relaxed);
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Relaxed)
    }

    fn grow(&self, _: &Guard<'_, Chains>, by: usize) {
        self.len.store(self.len() + by, Relaxed);
    }

    fn shrink(
        &self,
        mut chains: Guard<'_, Chains>,
        take: impl FnOnce(&mut Chains) -> Option<Fifo>,
    ) -> Option<Fifo> {
        let taken = take(&mut chains)?;
        self.len.store(self.len() - taken.len(), Relaxed);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::atomic::Ordering;
    use crate::engine::policy::stand_ins::stand_ins;

    fn indices(chain: Option<Fifo>) -> Vec<u64> {
        let mut chain = chain.unwrap_or_default();
        let threads = core::iter::from_fn(|| chain.pop());
        threads
            .map(|green| green.priority.load(Ordering::Relaxed))
            .collect()
    }

    #[test]
    fn chains_come_out_as_they_went_in_and_single_threads_from_the_front() {
        let mut threads = stand_ins(9).into_iter().map(|thread| thread.into_green());
        if threads.len() == 0 {
            return;
        }
        let overflow = Overflow::new();
        for len in [1, 2, 3, 1, 2] {
            let mut chain = Fifo::new();
            threads
                .by_ref()
                .take(len)
                .for_each(|green| chain.push(green));
            overflow.push(chain);
        }
        assert_eq!(overflow.len(), 9);
        assert_eq!(indices(overflow.take()), [0]);
        let single = overflow.take_one().map(Fifo::of);
        assert_eq!(indices(single), [1]);
        assert_eq!(indices(overflow.take()), [2]);
        let single = overflow.take_one().map(Fifo::of);
        assert_eq!(indices(single), [3]);
        assert_eq!(indices(overflow.steal()), [4, 5]);
        let all = overflow.close();
        assert_eq!((all.len(), overflow.len()), (3, 0));
        let mut all = all;
        let last = all.split_off(2);
        assert_eq!(indices(Some(last)), [8]);
        let green = all.pop().unwrap();
        assert_eq!(indices(Some(all)), [7]);
        assert!(overflow.give(green).is_err(), "it is closed");
        overflow.open();
        assert!(overflow.give(green).is_ok() && overflow.len() == 1);
        assert_eq!(indices(overflow.take()), [6]);
        assert!(
            overflow.take().is_none()
                && overflow.steal().is_none()
                && overflow.take_one().is_none()
        );
    }
}
