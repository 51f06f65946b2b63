//! A queue of waits: a circular list of [`Node`]s in one word, under its owner's lock.
//!
//! ```text
//!   head ─► first ⇄ second ⇄ … ⇄ last ─┐
//!             ▲─────────────────────────┘
//! ```
//!
//! Invariants:
//! 1. All accesses happen under the lock of the list's owner, with preemption off.
//! 2. A node in a list is alive: its thread takes it out, under the lock, before the thread leaves.
//! 3. The thread that claims a node takes it out. A thread that meets a node whose claim it lost
//!    drops the node from the list: the node's own thread is leaving already.

use core::ptr;

use super::claim::{Claimed, Node};
use crate::engine::atomic::Cell;
use crate::engine::sys::perturb;

pub(crate) struct List {
    head: *const Node,
}

// SAFETY: the nodes belong to the list as long as they are in it, and the list belongs to its lock.
unsafe impl Send for List {}

impl List {
    pub(crate) const fn new() -> List {
        List { head: ptr::null() }
    }

    /// Makes the list whose first node is `head`, from [`List::head`].
    pub(super) fn from_head(head: *const Node) -> List {
        List { head }
    }

    pub(crate) fn head(&self) -> *const Node {
        self.head
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// The first node.
    pub(crate) fn first(&self) -> Option<&Node> {
        // SAFETY: invariant 2.
        unsafe { self.head.as_ref() }
    }

    /// Queues a node at the end.
    ///
    /// # Safety
    /// The node is in no list, and lives until it is out of this one.
    pub(crate) unsafe fn push_back(&mut self, node: *const Node) {
        // SAFETY: the new node by the caller's promise, the others by invariant 2.
        unsafe {
            if self.head.is_null() {
                (*node).next.set(node);
                (*node).prev.set(node);
                self.head = node;
            } else {
                let last = (*self.head).prev.get();
                (*node).next.set(self.head);
                (*node).prev.set(last);
                (*last).next.set(node);
                (*self.head).prev.set(node);
            }
        }
    }

    /// Queues a node before all others.
    ///
    /// # Safety
    /// As [`List::push_back`].
    pub(crate) unsafe fn push_front(&mut self, node: *const Node) {
        // SAFETY: the caller's promise. In a circle, the place before the first is behind the last.
        unsafe { self.push_back(node) };
        self.head = node;
    }

    /// Queues a node behind `place`, which is in this list.
    ///
    /// # Safety
    /// As [`List::push_back`].
    pub(crate) unsafe fn insert_after(&mut self, place: *const Node, node: *const Node) {
        // SAFETY: the new node by the caller's promise, the others by invariant 2.
        unsafe {
            let next = (*place).next.get();
            (*node).next.set(next);
            (*node).prev.set(place);
            (*next).prev.set(node);
            (*place).next.set(node);
        }
    }

    /// Queues a node before `place`, which is in this list.
    ///
    /// # Safety
    /// As [`List::push_back`].
    pub(crate) unsafe fn insert_before(&mut self, place: *const Node, node: *const Node) {
        // SAFETY: the caller's promise.
        unsafe { self.insert_after((*place).prev.get(), node) };
        if self.head == place {
            self.head = node;
        }
    }

    /// The node behind `node`; behind the last one is the first.
    ///
    /// # Safety
    /// The node is in a list, whose lock the caller holds.
    pub(crate) unsafe fn after(node: *const Node) -> *const Node {
        // SAFETY: the caller's promise.
        unsafe { (*node).next.get() }
    }

    /// The node before `node`; before the first one is the last.
    ///
    /// # Safety
    /// As [`List::after`].
    pub(crate) unsafe fn before(node: *const Node) -> *const Node {
        // SAFETY: the caller's promise.
        unsafe { (*node).prev.get() }
    }

    /// Takes a node out, if it is in the list.
    ///
    /// # Safety
    /// The node is in this list or in none.
    pub(crate) unsafe fn remove(&mut self, node: *const Node) {
        // SAFETY: the neighbours are in the list (invariant 2).
        unsafe {
            let (next, prev) = ((*node).next.get(), (*node).prev.get());
            if next.is_null() {
                return;
            }
            (*prev).next.set(next);
            (*next).prev.set(prev);
            if self.head == node {
                self.head = if next == node { ptr::null() } else { next };
            }
            (*node).next.set(ptr::null());
            (*node).prev.set(ptr::null());
        }
    }

    /// Claims the first node that can be claimed, and takes it out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Claimed> {
        self.pop_if(|_| true)
    }

    /// [`List::pop`], but only as long as the nodes at the front fit.
    #[inline]
    pub(crate) fn pop_if(&mut self, fits: impl Fn(&Node) -> bool) -> Option<Claimed> {
        loop {
            let node: *const Node = self.first().filter(|node| fits(node))?;
            // SAFETY: the node is in this list.
            if let Some(claimed) = unsafe { self.take(node) } {
                return Some(claimed);
            }
        }
    }

    /// The first node that fits.
    #[inline]
    pub(crate) fn first_where(&self, like: impl Fn(&Node) -> bool) -> Option<&Node> {
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: invariant 2.
            let this = unsafe { &*node };
            if like(this) {
                return Some(this);
            }
            node = this.next.get();
            if node == self.head {
                break;
            }
        }
        None
    }

    /// Claims a node and takes it out. `None`: another thread has the claim.
    ///
    /// # Safety
    /// The node is in this list.
    pub(crate) unsafe fn take(&mut self, node: *const Node) -> Option<Claimed> {
        // SAFETY: invariant 2; once it is claimed, its thread waits for us.
        unsafe {
            let claimed = (*node).claim();
            self.remove(node);
            claimed.then(|| Claimed::new(node))
        }
    }

    /// Claims the first node that fits and can be claimed, and takes it out.
    #[inline]
    pub(crate) fn pop_where(&mut self, like: impl Fn(&Node) -> bool) -> Option<Claimed> {
        loop {
            let node: *const Node = self.first_where(&like)?;
            // SAFETY: the node is in this list.
            if let Some(claimed) = unsafe { self.take(node) } {
                return Some(claimed);
            }
        }
    }

    /// Claims the first few nodes that can be claimed and takes them out, in order; the other
    /// nodes, if there are any, go to `crowd`.
    ///
    /// # Safety
    /// `crowd` is new, stays where it is, and is told to wake its members after the list's lock is
    /// released.
    pub(crate) unsafe fn pop_all(&mut self, crowd: &Crowd) -> Chain {
        let mut chain = Chain::new();
        while !chain.is_long() {
            match self.pop() {
                Some(claimed) => chain.push(claimed),
                None => return chain,
            }
        }
        if !self.is_empty() {
            // SAFETY: the caller makes the promise that the crowd needs. The place before the first is
            // behind the last.
            unsafe { self.push_back(&crowd.sentinel) };
            self.head = ptr::null();
            crowd.is_used.set(true);
        }
        chain
    }
}

/// Waits that stood in a list at one moment and are woken a few at a time: so neither the lock of
/// the list is held nor preemption off for as long as it takes to wake many.
///
/// The nodes form a circle without a head, closed by a sentinel that belongs to no wait. If a wait
/// is over before it is claimed, its thread takes its node out as usual: that concerns the
/// neighbours only.
pub(crate) struct Crowd {
    sentinel: Node,
    /// Whether a node ever was in it: readable without the lock.
    is_used: Cell<bool>,
}

impl Crowd {
    pub(crate) fn new() -> Crowd {
        Crowd {
            sentinel: Node::new(ptr::null()),
            is_used: Cell::new(false),
        }
    }

    /// Wakes all waits. Each few are claimed under `lock`, the lock of the list where they were.
    #[inline]
    pub(crate) fn wake<G>(&self, lock: impl Fn() -> G) {
        if self.is_used.get() {
            self.wake_few_at_a_time(lock);
        }
    }

    #[cold]
    fn wake_few_at_a_time<G>(&self, lock: impl Fn() -> G) {
        let mut any = true;
        while any {
            let mut chain = Chain::new();
            let guard = lock();
            while !chain.is_long() && any {
                let node = self.sentinel.next.get();
                any = !ptr::eq(node, &self.sentinel);
                // SAFETY: the node is in the circle, so it is alive; or it is the sentinel, which
                // belongs to no wait: then it is taken out and not claimed.
                unsafe {
                    let claimed = any && (*node).claim();
                    List::new().remove(node);
                    if claimed {
                        chain.push(Claimed::new(node));
                    }
                }
            }
            drop(guard);
            chain.wake();
        }
    }
}

/// Claimed nodes on their way to being woken, first in, first out.
#[must_use = "their threads wait for ever if they are not woken"]
pub(crate) struct Chain {
    first: *const Node,
    last: *const Node,
    length: usize,
}

/// The number of nodes that are claimed under one lock.
const FEW: usize = if cfg!(greenthread_model) { 1 } else { 64 };

impl Chain {
    pub(crate) const fn new() -> Chain {
        Chain {
            first: ptr::null(),
            last: ptr::null(),
            length: 0,
        }
    }

    /// Whether the caller should release the lock and wake these.
    pub(crate) fn is_long(&self) -> bool {
        self.length >= FEW
    }

    pub(crate) fn push(&mut self, claimed: Claimed) {
        let node = claimed.into_raw();
        // SAFETY: all nodes here are claimed: their threads wait for us, and no list uses the links
        // any more, so they are ours.
        unsafe {
            match self.last.as_ref() {
                Some(last) => last.next.set(node),
                None => self.first = node,
            }
        }
        self.last = node;
        self.length += 1;
    }

    /// Lets all these threads go on. Call it without a lock that others may want.
    pub(crate) fn wake(self) {
        perturb::point("chain: waking");
        self.for_each(Claimed::wake);
    }

    fn for_each(mut self, wake: impl Fn(Claimed)) {
        while !self.first.is_null() {
            let node = self.first;
            // SAFETY: as in `push`. The link is read before the node is given away.
            unsafe {
                self.first = (*node).next.replace(ptr::null());
                wake(Claimed::from_raw(node));
            }
        }
    }
}
