//! One wait and the claim that ends it; and waits in a row, under their owner's lock.
//!
//! # The claim
//!
//! A [`Wait`] lies on the stack of the thread that waits, with a [`Node`] for each queue the wait
//! stands in: one for a lock or a channel, several for a select. A thread that would end the wait
//! (a waker, or the waiting thread itself when its time is up) first *claims* it: one word, changed
//! once.
//!
//! | claim | the wait was ended by |
//! |---|---|
//! | null | no thread yet |
//! | a node | the thread that took that node: it hands over, and then wakes the waiter |
//! | the `Wait` itself | its own thread: at a time-out, or because it no longer needs to wait |
//!
//! # The list
//!
//! A [`List`] is one word, the first of a circle of nodes:
//!
//! ```text
//!   head ─► first ⇄ second ⇄ … ⇄ last ─┐
//!             ▲─────────────────────────┘
//! ```
//!
//! # Invariants
//!
//! 1. The claim changes once. So a wait is ended once, and the waker hands over to one thread,
//!    which takes what it gets: a time-out that loses the claim waits for the winner.
//! 2. A node is in a list, or its claimer or its own thread has taken it out, always under the lock of the list's owner,
//!    with preemption off. A thread does not leave its wait before all its nodes are out: a node in a list is alive.
//! 3. The waiter sees the claimer's writes to the node (`outcome`, and the memory at `place`): they
//!    happen before `wake`, and the waiter reads after it.
//! 4. After `wake` nothing of the wait or its nodes may be touched.
//! 5. The thread that claims a node takes it out. A thread that meets a node whose claim it lost
//!    drops the node from the list: the node's own thread is leaving already.
//!
//! Ordering: all accesses are Relaxed. Lists are under locks, and a wake-up publishes
//! (`sched::park`).

use core::{iter, ptr};

use super::{Outcome, WaitReason, Waiter};
use crate::engine::atomic::{AtomicPtr, Cell, Ordering::Relaxed};
use crate::engine::sched::Fifo;
use crate::engine::sys::perturb;

// ==== the claim ====

/// A thread that waits, and how its wait ended.
pub(crate) struct Wait {
    waiter: Waiter,
    reason: WaitReason,
    claim: AtomicPtr<()>,
}

/// Why [`Wait::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// A waker took this node.
    Taken(*const Node),
    /// The time is up and the claim is ours: no waker will hand anything over.
    TimedOut,
}

impl Wait {
    pub(crate) fn new(reason: WaitReason) -> Wait {
        Wait {
            waiter: Waiter::new(),
            reason,
            claim: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn claim_as(&self, name: *mut ()) -> bool {
        perturb::point("claim");
        self.claim
            .compare_exchange(ptr::null_mut(), name, Relaxed, Relaxed)
            .is_ok()
    }

    /// Ends the wait on the waiting thread itself. False: a waker has claimed it, and the caller
    /// must call [`Wait::wait`] to receive what the waker hands over.
    pub(crate) fn give_up(&self) -> bool {
        self.claim_as(ptr::from_ref(self).cast_mut().cast())
    }

    /// Blocks the thread, whose nodes are queued, until a waker takes one of them and wakes the
    /// thread, or until `deadline` (monotonic nanoseconds).
    pub(crate) fn wait(&self, mut deadline: Option<u64>) -> Ended {
        loop {
            match self.waiter.wait(self.reason, deadline) {
                Outcome::Notified => return Ended::Taken(self.claim.load(Relaxed).cast()),
                Outcome::Expired if self.give_up() => return Ended::TimedOut,
                // Claimed: the wake-up is on its way.
                Outcome::Expired => deadline = None,
            }
        }
    }

    /// [`Wait::wait`], but the kernel thread is blocked. `None`: a signal's handler has run on it, and
    /// the claim is ours.
    pub(crate) fn block(&self, mut deadline: Option<u64>) -> Option<Ended> {
        loop {
            match self.waiter.block(self.reason, deadline) {
                Some(Outcome::Notified) => {
                    return Some(Ended::Taken(self.claim.load(Relaxed).cast()));
                }
                ended if self.give_up() => return ended.map(|_| Ended::TimedOut),
                // Claimed, as above.
                _ => deadline = None,
            }
        }
    }
}

/// A place in a queue, aligned so that a pointer to it has bits for flags.
#[repr(align(64))]
pub(crate) struct Node {
    /// Neighbours in a circular list; null while it is in none.
    pub(crate) next: Cell<*const Node>,
    pub(crate) prev: Cell<*const Node>,
    pub(crate) wait: Cell<*const Wait>,
    /// The event that the node waits for; the primitive gives it a meaning.
    pub(crate) tag: Cell<usize>,
    /// How the node's wait ended; the primitive gives it a meaning.
    pub(crate) outcome: Cell<usize>,
    /// The address of a message, or the place for one; the primitive gives it a meaning.
    pub(crate) place: Cell<*mut ()>,
}

impl Node {
    /// Makes a node for `wait`, which the caller keeps alive as long as the node is used.
    pub(crate) fn new(wait: *const Wait) -> Node {
        Node {
            next: Cell::new(ptr::null()),
            prev: Cell::new(ptr::null()),
            wait: Cell::new(wait),
            tag: Cell::new(0),
            outcome: Cell::new(0),
            place: Cell::new(ptr::null_mut()),
        }
    }

    /// Whether it is in a list. The caller holds the lock of any list that it may be in.
    pub(crate) fn is_queued(&self) -> bool {
        !self.next.get().is_null()
    }

    /// Ends the wait in the name of this node. True: the caller must hand over, then wake.
    ///
    /// # Safety
    /// The node's wait is alive: the caller holds the lock of the list that the node is in.
    pub(crate) unsafe fn claim(&self) -> bool {
        // SAFETY: the caller's promise.
        unsafe { &*self.wait.get() }.claim_as(ptr::from_ref(self).cast_mut().cast())
    }
}

/// A node that was claimed and taken out of its list: its thread waits for [`Claimed::wake`].
#[must_use = "its thread waits for ever if it is not woken"]
pub(crate) struct Claimed(*const Node);

impl Claimed {
    pub(crate) fn node(&self) -> &Node {
        // SAFETY: the node's thread waits for us (invariant 1).
        unsafe { &*self.0 }
    }

    /// Lets the thread go on. Call it without a lock that others may want.
    #[inline]
    pub(crate) fn wake(self) {
        // SAFETY: the waiter is alive, and not touched any more after this.
        unsafe { Waiter::wake_at(self.waiter()) };
    }

    /// Lets the thread go on; a green thread goes into `ready`, and the caller makes it ready.
    pub(crate) fn notify(self, ready: &mut Fifo) {
        // SAFETY: as in `wake`.
        if let Some(green) = unsafe { Waiter::notify_at(self.waiter()) } {
            ready.push(green);
        }
    }

    /// The place where the thread waits, which is alive until the thread is notified.
    fn waiter(&self) -> *const Waiter {
        // SAFETY: the node's thread waits for us (invariant 1), so its wait is alive.
        unsafe { &raw const (*(*self.0).wait.get()).waiter }
    }

    /// # Safety
    /// The caller has claimed `node`, which is in no list, or has taken it out of a `Claimed`. It is used once.
    pub(crate) unsafe fn from_raw(node: *const Node) -> Claimed {
        Claimed(node)
    }
}

// ==== the list ====

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
