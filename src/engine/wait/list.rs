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

use core::{iter, ptr};

use super::claim::{Claimed, Node};
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
        // SAFETY: the new node lives, as the caller promises, and the first one by invariant 2. In a circle the last node
        // is before the first.
        unsafe {
            match self.head.as_ref() {
                Some(first) => self.insert_after(first.prev.get(), node),
                None => {
                    (*node).next.set(node);
                    (*node).prev.set(node);
                    self.head = node;
                }
            }
        }
    }

    /// Queues a node before all others.
    ///
    /// # Safety
    /// As [`List::push_back`].
    pub(crate) unsafe fn push_front(&mut self, node: *const Node) {
        // SAFETY: the node lives, as the caller promises here too. In a circle, the place before the first is behind the
        // last.
        unsafe { self.push_back(node) };
        self.head = node;
    }

    /// Queues a node behind `place`, which is in this list.
    ///
    /// # Safety
    /// As [`List::push_back`].
    pub(crate) unsafe fn insert_after(&mut self, place: *const Node, node: *const Node) {
        // SAFETY: the new node lives, as the caller promises, and the others by invariant 2.
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
        // SAFETY: the node lives, as the caller promises here too, and `place` by invariant 2.
        unsafe { self.insert_after((*place).prev.get(), node) };
        if self.head == place {
            self.head = node;
        }
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
        self.pop_found(|list| list.first().filter(|node| fits(node)))
    }

    /// Claims the first node that fits and can be claimed, and takes it out.
    #[inline]
    pub(crate) fn pop_where(&mut self, fits: impl Fn(&Node) -> bool) -> Option<Claimed> {
        self.pop_found(|list| list.iter().find(|node| fits(node)))
    }

    /// Claims the node that `find` returns, and takes it out; asks again as long as another thread has the claim.
    #[inline(always)]
    fn pop_found(&mut self, find: impl Fn(&List) -> Option<&Node>) -> Option<Claimed> {
        loop {
            let node: *const Node = find(self)?;
            // SAFETY: the node is in this list.
            if let Some(claimed) = unsafe { self.take(node) } {
                return Some(claimed);
            }
        }
    }

    /// The nodes, in their order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        let mut next = self.first();
        iter::from_fn(move || {
            let node = next?;
            // SAFETY: invariant 2.
            next = unsafe { node.next.get().as_ref() };
            next = next.filter(|next| !ptr::eq(*next, self.head));
            Some(node)
        })
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
            claimed.then(|| Claimed::from_raw(node))
        }
    }

    /// Moves all nodes to `crowd`. False: there were none.
    ///
    /// # Safety
    /// `crowd` is new, and stays where it is. After true, it is told to wake its members after the list's lock is released.
    pub(crate) unsafe fn move_all(&mut self, crowd: &Crowd) -> bool {
        if self.is_empty() {
            return false;
        }
        // SAFETY: the crowd stays where it is until it has woken its members, as the caller promises; then its node is out.
        // The place before the first is behind the last.
        unsafe { self.push_back(&crowd.0) };
        self.head = ptr::null();
        true
    }
}

/// Waits that stood in a list at one moment and are woken a few at a time: so neither the lock of
/// the list is held nor preemption off for as long as it takes to wake many.
///
/// The nodes form a circle without a head, closed by a node that belongs to no wait. If a wait is over before it is
/// claimed, its thread takes its node out as usual: that concerns the neighbours only.
pub(crate) struct Crowd(Node);

impl Crowd {
    pub(crate) fn new() -> Crowd {
        Crowd(Node::new(ptr::null()))
    }

    /// Wakes all waits. Each few are claimed under `lock`, the lock of the list where they were.
    pub(crate) fn wake<G>(&self, lock: impl Fn() -> G) {
        let mut any = true;
        while any {
            let mut chain = Chain::new();
            let guard = lock();
            while !chain.is_long() && any {
                let node = self.0.next.get();
                any = !ptr::eq(node, &self.0);
                // SAFETY: the node is in the circle, so it is alive; or it is the crowd's own, which
                // belongs to no wait: then it is taken out and not claimed.
                unsafe {
                    let claimed = any && (*node).claim();
                    List::new().remove(node);
                    if claimed {
                        chain.push(Claimed::from_raw(node));
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
        let node = claimed.0;
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
    pub(crate) fn wake(mut self) {
        perturb::point("chain: waking");
        while !self.first.is_null() {
            let node = self.first;
            // SAFETY: as in `push`. The link is read before the node is given away.
            unsafe {
                self.first = (*node).next.replace(ptr::null());
                Claimed::from_raw(node).wake();
            }
        }
    }
}
