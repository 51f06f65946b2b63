//! Waiting in queues: one wait and the claim that ends it ([`Wait`]); waits in a row, under their owner's lock ([`List`]);
//! and a list with its lock and a few flags of its owner in one word ([`WaitQueue`]).
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
//! # The wait queue
//!
//! A [`WaitQueue`] is one word:
//!
//! ```text
//!   | address of the first node | owner's flags: 5 bits | GUARDED |
//! ```
//!
//! Because it is one word, a primitive can look at its own flags and at "does a thread wait" with
//! one load, and change both with one compare-and-swap. A waiter therefore queues itself and
//! publishes its assumption ("it is held, and I wait") in one step; a thread that changes the flags
//! later sees that a thread waits. No wake-up can fall between.
//!
//! | thread | may change |
//! |---|---|
//! | any | the flags, keeping the rest ([`WaitQueue::change`]) |
//! | the holder of `GUARDED` | the address too |
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
//! 6. `GUARDED` is held with preemption off and for a few instructions, so its holder is running,
//!    or its kernel thread will be soon. A node that is claimed under the guard is woken after it.
//!
//! # Orderings
//!
//! Those of claims and lists are Relaxed: lists are under locks, and a wake-up publishes (`sched::park`). Taking `GUARDED`
//! is Acquire and releasing it Release, for the nodes' links. Flags have the orderings that their owner chooses.

use core::{iter, mem, ptr};

use super::{Outcome, WaitKind, WaitReason, Waiter};
use crate::engine::atomic::{AtomicPtr, AtomicUsize, Cell, Ordering, Ordering::Relaxed, const_fn};
use crate::engine::sched::Fifo;
use crate::engine::sched::current::{self, PreemptionOff};
#[cfg(sim)]
use crate::engine::sys::simulated;
use crate::engine::sys::{perturb, shared::Patience};

// ==== the claim ====

/// For reports: a thread waits for the one that has ended its wait. Frames do not end that.
static HANDOVER: WaitKind = WaitKind::inside("handover");

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
    pub(crate) fn wait(&self, deadline: Option<u64>) -> Ended {
        match self.waiter.wait(self.reason, deadline) {
            Outcome::Notified => Ended::Taken(self.claim.load(Relaxed).cast()),
            Outcome::Expired if self.give_up() => Ended::TimedOut,
            Outcome::Expired => Ended::Taken(self.receive()),
        }
    }

    /// Waits for the thread that has the claim, and is about to wake this one. Returns the node that it took.
    pub(crate) fn receive(&self) -> *const Node {
        while self.waiter.wait(WaitReason::only(&HANDOVER), None) == Outcome::Expired {}
        self.claim.load(Relaxed).cast()
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
                // Another thread has the claim, as in `wait`.
                _ => deadline = None,
            }
        }
    }
}

/// A place in a queue, aligned so that a pointer to it has bits for flags.
#[derive(Default)]
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
            wait: Cell::new(wait),
            ..Node::default()
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

#[derive(Default)]
pub(crate) struct List {
    head: *const Node,
}

// SAFETY: the nodes belong to the list as long as they are in it, and the list belongs to its lock.
unsafe impl Send for List {}

impl List {
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
                Some(first) => {
                    let last = first.prev.replace(node);
                    (*last).next.set(node);
                    (*node).prev.set(last);
                    (*node).next.set(first);
                }
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

    /// [`List::pop_where`] for waiters that are promised no order; in a simulated process chance chooses among them.
    #[inline]
    pub(crate) fn pop_any(&mut self, fits: impl Fn(&Node) -> bool) -> Option<Claimed> {
        #[cfg(sim)]
        if simulated::is_on() {
            let place = simulated::choose(self.iter().filter(|node| fits(node)).count());
            return self.pop_found(|list| {
                let last = list.iter().filter(|node| fits(node)).take(place + 1);
                last.last()
            });
        }
        self.pop_where(fits)
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
#[derive(Default)]
pub(crate) struct Crowd(Node);

impl Crowd {
    /// Wakes all waits. Each few are claimed under `lock`, the lock of the list where they were.
    pub(crate) fn wake<G>(&self, lock: impl Fn() -> G) {
        let mut any = true;
        while any {
            let mut chain = Chain::default();
            let guard = lock();
            while !chain.is_long() && any {
                let node = self.0.next.get();
                any = !ptr::eq(node, &self.0);
                // SAFETY: the node is in the circle, so it is alive; or it is the crowd's own, which
                // belongs to no wait: then it is taken out and not claimed.
                unsafe {
                    let claimed = any && (*node).claim();
                    List::default().remove(node);
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
#[derive(Default)]
pub(crate) struct Chain {
    first: *const Node,
    last: *const Node,
    length: usize,
}

/// The number of nodes that are claimed under one lock.
const FEW: usize = if cfg!(greenthread_model) { 1 } else { 64 };

impl Chain {
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

// ==== the wait queue ====

/// A thread is changing the list.
const GUARDED: usize = 1;
/// The owner's flags: bits 1 to 5.
const FLAGS: usize = 0b11_1110;
const FIRST: usize = !(FLAGS | GUARDED);

/// A queue of waiting threads with flags beside it.
pub(crate) struct WaitQueue {
    word: AtomicUsize,
}

/// The content of a queue's word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct State(usize);

impl State {
    /// Whether any of `flags` is set.
    #[inline(always)]
    pub(crate) fn has(self, flags: usize) -> bool {
        self.0 & flags != 0
    }

    #[inline(always)]
    pub(crate) fn with(self, flags: usize) -> State {
        debug_assert!(flags & !FLAGS == 0);
        State(self.0 | flags)
    }

    #[inline(always)]
    pub(crate) fn without(self, flags: usize) -> State {
        debug_assert!(flags & !FLAGS == 0);
        State(self.0 & !flags)
    }

    /// Whether a thread waits.
    #[inline(always)]
    pub(crate) fn has_waiters(self) -> bool {
        self.0 & FIRST != 0
    }
}

/// The end at which a thread queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Front,
    Back,
}

/// How [`WaitQueue::wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Waited {
    /// The thread needed no wait.
    Refused,
    /// A waker took the thread out and left this outcome.
    Woken(usize),
    /// The time is up; the thread is not in the queue any more.
    TimedOut,
}

impl WaitQueue {
    /// One of the owner's flags: `flag(0)` to `flag(4)`.
    pub(crate) const fn flag(number: u32) -> usize {
        assert!(number < 5);
        2 << number
    }

    const_fn! {
        /// An empty queue with these flags.
        pub(crate) const fn new(flags: usize) -> WaitQueue {
            WaitQueue {
                word: AtomicUsize::new(flags),
            }
        }
    }

    /// Whether nobody waits, nobody holds the lock, and just these flags are set.
    #[inline(always)]
    pub(crate) fn is_at_rest(&self, flags: usize) -> bool {
        self.word.load(Ordering::Relaxed) == flags
    }

    #[inline(always)]
    pub(crate) fn state(&self, order: Ordering) -> State {
        State(self.word.load(order))
    }

    /// Changes flags if the word is still `from`.
    #[inline(always)]
    pub(crate) fn change(&self, from: State, to: State, order: Ordering) -> Result<(), State> {
        perturb::point("queue: changing");
        self.word
            .compare_exchange_weak(from.0, to.0, order, Ordering::Relaxed)
            .map_or_else(|now| Err(State(now)), |_| Ok(()))
    }

    /// Clears a flag that the caller knows to be set; returns the state before.
    #[inline(always)]
    pub(crate) fn clear_known(&self, flag: usize, order: Ordering) -> State {
        State(self.word.fetch_sub(flag, order))
    }

    pub(crate) fn set(&self, flags: usize, order: Ordering) {
        self.word.fetch_or(flags, order);
    }

    pub(crate) fn clear(&self, flags: usize, order: Ordering) {
        self.word.fetch_and(!flags, order);
    }

    /// The address of the first node, if there is one. The node may be gone.
    pub(crate) fn first(&self) -> *const u8 {
        ptr::without_provenance(self.word.load(Ordering::Relaxed) & FIRST)
    }

    /// Locks the queue, and takes the list.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let preemption = current::preemption_off();
        let mut patience = Patience::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & GUARDED != 0 {
                patience.pause();
            // Acquire: pairs with the Release in `Locked::try_release`.
            } else if self
                .word
                .compare_exchange_weak(word, word | GUARDED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                perturb::point("queue: guarded");
                return Locked {
                    queue: self,
                    list: List {
                        head: ptr::with_exposed_provenance(word & FIRST),
                    },
                    held: true,
                    _preemption: preemption,
                };
            }
        }
    }

    /// Wakes the threads of `chain` without the lock if they have become many, and locks again.
    pub(crate) fn wake_long<'a>(&'a self, locked: Locked<'a>, chain: &mut Chain) -> Locked<'a> {
        if !chain.is_long() {
            return locked;
        }
        drop(locked);
        mem::take(chain).wake();
        self.lock()
    }

    /// Queues the calling thread and blocks it until it is taken and woken, or until `deadline`
    /// (monotonic nanoseconds).
    ///
    /// `decide` returns the flags for the time of the wait, or `None` if the thread need not wait.
    /// Its answer and the longer queue are published in one step, and only if the flags are still
    /// those that `decide` was given: otherwise it is asked again. It runs with preemption off.
    ///
    /// Reports say that the thread waits for what `about` names.
    pub(crate) fn wait(
        &self,
        reason: WaitReason,
        position: Position,
        tag: usize,
        deadline: Option<u64>,
        decide: impl FnMut(State) -> Option<State>,
    ) -> Waited {
        self.lock()
            .wait(reason, position, tag, deadline, decide, || ())
    }
}

/// The list of a locked queue. It goes back when this is dropped.
pub(crate) struct Locked<'a> {
    queue: &'a WaitQueue,
    pub(crate) list: List,
    held: bool,
    _preemption: PreemptionOff,
}

impl Locked<'_> {
    /// The owner's flags now; they may change at any time.
    pub(crate) fn state(&self, order: Ordering) -> State {
        self.queue.state(order)
    }

    /// The tag of the first node: the event that it waits for.
    pub(crate) fn first_tag(&self) -> Option<usize> {
        self.list.first().map(|node| node.tag.get())
    }

    /// Takes the first node; its wait ends with `outcome` when it is woken.
    pub(crate) fn pop(&mut self, outcome: usize) -> Option<Claimed> {
        self.pop_if(outcome, |_| true)
    }

    /// [`Locked::pop`], but only as long as the tags at the front fit. After `None` the first node,
    /// if there is one, may still fit: nodes whose threads leave by themselves are passed over.
    pub(crate) fn pop_if(
        &mut self,
        outcome: usize,
        fits: impl Fn(usize) -> bool,
    ) -> Option<Claimed> {
        self.list
            .pop_if(|node| fits(node.tag.get()))
            .inspect(|claimed| claimed.node().outcome.set(outcome))
    }

    /// Gives the list back with the flags that `decide` computes from the present ones, and then
    /// wakes all threads that waited. Their waits end with outcome 0.
    pub(crate) fn wake_all(mut self, decide: impl FnMut(State) -> State) {
        let queue = self.queue;
        let crowd = Crowd::default();
        // SAFETY: the crowd is woken below.
        let any = unsafe { self.list.move_all(&crowd) };
        self.release(decide);
        if any {
            crowd.wake(|| queue.lock());
        }
    }

    /// [`WaitQueue::wait`] for a caller that has the list already. `then` runs while the thread is queued, before it blocks, with preemption as
    /// it was before the list was taken; it must not panic.
    pub(crate) fn wait(
        mut self,
        reason: WaitReason,
        position: Position,
        tag: usize,
        deadline: Option<u64>,
        decide: impl FnMut(State) -> Option<State>,
        then: impl FnOnce(),
    ) -> Waited {
        let queue = self.queue;
        let wait = Wait::new(reason);
        let node = Node::new(&wait);
        node.tag.set(tag);
        // SAFETY: `wait` and `node` stay where they are until the node was taken or removed.
        unsafe {
            match position {
                Position::Front => self.list.push_front(&node),
                Position::Back => self.list.push_back(&node),
            }
        }
        if !self.try_release(decide) {
            // SAFETY: the node was queued above, in this list.
            unsafe { self.list.remove(&node) };
            return Waited::Refused;
        }
        self.held = false;
        drop(self);
        then();
        match wait.wait(deadline) {
            Ended::Taken(_) => Waited::Woken(node.outcome.get()),
            Ended::TimedOut => {
                let mut locked = queue.lock();
                // SAFETY: the node is in this list, or the thread that lost the claim took it out.
                unsafe { locked.list.remove(&node) };
                Waited::TimedOut
            }
        }
    }

    /// Gives the list back together with the flags that `change` computes from the present ones, in
    /// one step. [`State::has_waiters`] tells `change` whether a thread is left.
    pub(crate) fn release(mut self, mut change: impl FnMut(State) -> State) {
        self.held = !self.try_release(|state| Some(change(state)));
    }

    /// The same, unless `decide` returns `None`: then the caller keeps the list.
    fn try_release(&self, mut decide: impl FnMut(State) -> Option<State>) -> bool {
        let first = self.list.head().expose_provenance();
        let mut word = self.queue.word.load(Ordering::Relaxed);
        loop {
            let Some(State(flags)) = decide(State(word & FLAGS | first)) else {
                return false;
            };
            perturb::point("queue: releasing");
            // Release: pairs with the Acquire in `WaitQueue::lock`, and with that of a thread that
            // looks at the flags.
            match self.queue.word.compare_exchange_weak(
                word,
                flags & FLAGS | first,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.held {
            self.try_release(Some);
        }
    }
}
