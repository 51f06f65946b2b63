//! How a cancel finds threads: those in the frames of a token ([`Token`]), those of a scope ([`Threads`]), and from each of
//! them those of the scopes that it has opened, and so on.
//!
//! ```text
//!   token ─► node ─► node          in frames, on threads' stacks
//!              │
//!              ▼
//!            thread ─► frame ─► frame ─► null
//!                        │ (a scope's)
//!                        ▼
//!                      scope ─► node ─► node          in the data of its threads
//!                                 │
//!                                 ▼
//!                               thread …
//! ```
//!
//! First the reason is written down, then the lists are walked. A thread that comes into a list later looks for the reason
//! itself. A list is walked in batches ([`Pinned`]): a *mark*, a node of no thread, says how far the canceller is.
//!
//! # Invariants
//!
//! 1. A list is under its lock, with preemption off.
//! 2. A node is in one list at most, and lies still while it is in one.
//! 3. A node leads to a record, which is never freed. If the record is another thread's by now, that one looks at its frames
//!    once, in vain.
//! 4. While a thread is pinned it leaves no frame, so its frames and the scopes that they lead to are alive. A scope that a
//!    canceller *holds* does not end. It holds those that it has found and not walked yet, in a stack ([`Todo`]); a scope that
//!    another canceller is still to walk it leaves to that one, whose walk serves both.
//! 5. A scope's owner goes on when the list is empty and nobody holds it; whoever makes that true notifies the owner under the
//!    lock, and touches nothing of the scope after it has released the lock.
//!
//! # Orderings
//!
//! The reason → threads: it is stored with Release before `PENDING` is set (`sched::park`), or before the lock is taken, after
//! which a thread enters the list and looks.

use core::panic::Location;
use core::ptr;

use crate::engine::atomic::{AtomicPtr, AtomicUsize, Ordering::*, fence};
use crate::engine::inspect::notes::{Reason, WaitKind, WaitReason, WhenEnded};
use crate::engine::sched::current::{is_forked_child, preemption_off};
use crate::engine::sched::park::{Interrupts, Node, Outcome, Parking, Waiter};
use crate::engine::sched::{Fifo, Green, frames::Frame, ready};
use crate::engine::sys::{kernel_thread, perturb, shared::Lock};

// ==== lists of threads ====

/// Threads that are cancelled together.
#[derive(Default)]
pub(crate) struct Threads {
    list: Lock<List>,
    /// How many nodes there are, for reports. It changes under the lock.
    pub(crate) count: AtomicUsize,
    emptied: Waiter,
}

#[derive(Default)]
struct List {
    /// Before the first one.
    head: Node,
    /// How many cancellers are to walk it, or do.
    holds: usize,
    /// One of them has it in its stack, before this one.
    stacked: Option<*const Threads>,
}

// SAFETY: a canceller uses what is in its stack, and holds it.
unsafe impl Send for List {}

impl Threads {
    pub(crate) const COUNT: usize = core::mem::offset_of!(Threads, count);

    /// Runs `change` with the list in hand. If it leaves the list empty, the owner goes on.
    fn change(&self, change: impl FnOnce(&mut List)) {
        let mut list = self.list.lock_with(preemption_off());
        change(&mut list);
        // SAFETY: the owner does not go on before the lock is free.
        let owner = list
            .is_over()
            .then(|| unsafe { Waiter::notify_at(&self.emptied) });
        drop(list);
        if let Some(green) = owner.flatten() {
            ready(green);
        }
    }

    /// # Safety
    /// The node is in no list, and lies still until it is removed.
    pub(crate) unsafe fn add(&self, node: &Node) {
        self.change(|list| {
            // SAFETY: the caller's promise.
            unsafe { node.insert_behind(&list.head) };
            self.count.store(self.count.load(Relaxed) + 1, Relaxed);
        });
    }

    /// # Safety
    /// The node is in this list.
    pub(crate) unsafe fn remove(&self, node: &Node) {
        self.change(|_| {
            // SAFETY: the caller's promise.
            unsafe { node.remove() };
            self.count.store(self.count.load(Relaxed) - 1, Relaxed);
        });
    }

    /// Waits until the list is empty and no canceller is to walk it. One thread at a time may do so. False: the wait has ended
    /// before, as it does if it is of such a kind.
    pub(crate) fn wait(&self, kind: &'static WaitKind) -> bool {
        loop {
            let list = self.list.lock_with(preemption_off());
            if list.is_over() {
                return true;
            }
            drop(list);
            perturb::point("threads: waiting");
            if self.emptied.wait(WaitReason::new(kind, self), None) == Outcome::Expired {
                return false;
            }
        }
    }
}

impl List {
    fn is_over(&self) -> bool {
        self.head.next.get().is_null() && self.holds == 0
    }
}

impl Node {
    /// # Safety
    /// The node lies still until it is removed, and is in no list. The other one is in a list, whose lock the caller has.
    unsafe fn insert_behind(&self, previous: &Node) {
        let next = previous.next.replace(self);
        self.next.set(next);
        self.previous.set(previous);
        // SAFETY: nodes in a list are alive.
        if let Some(next) = unsafe { next.as_ref() } {
            next.previous.set(self);
        }
    }

    /// # Safety
    /// The node is in a list, and the caller has its lock.
    unsafe fn remove(&self) {
        let (next, previous) = (self.next.get(), self.previous.get());
        // SAFETY: its neighbours are in the list, too, and there is one before it.
        unsafe {
            (*previous).next.set(next);
            if let Some(next) = next.as_ref() {
                next.previous.set(previous);
            }
        }
    }
}

// ==== threads that are pinned ====

/// How many threads a canceller pins for one barrier, which takes a microsecond: with a barrier for each thread 100,000 would
/// take longer to cancel than to wake (`benches/cancel`).
const BATCH: usize = if cfg!(greenthread_model) { 1 } else { 64 };

/// Threads that a canceller has pinned. It pins them, makes a barrier, and lets them go again, with preemption off.
pub(crate) struct Pinned {
    /// The first `count` are there.
    threads: [Option<&'static Interrupts>; BATCH],
    count: usize,
}

impl Pinned {
    pub(crate) fn none() -> Pinned {
        Pinned {
            threads: [None; BATCH],
            count: 0,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == BATCH
    }

    pub(crate) fn pin(&mut self, thread: &'static Interrupts) {
        thread.pin();
        self.threads[self.count] = Some(thread);
        self.count += 1;
    }

    pub(crate) fn threads(&self) -> impl Iterator<Item = &'static Interrupts> {
        self.threads[..self.count].iter().flatten().copied()
    }

    /// After this the words of the threads say what they wait for, and which frames they are in.
    pub(crate) fn barrier(&self) {
        if self.count != 0 {
            // SeqCst: partner: the fences of kernel threads. The barrier makes those of green threads full ones.
            fence(SeqCst);
            if kernel_thread::register_barrier() {
                kernel_thread::barrier();
            }
        }
    }

    /// Ends the waits that can be ended, and lets the threads go. The caller makes those ready that are green, and waited: they
    /// are in `ready`.
    pub(crate) fn interrupt(&self, ready: &mut Fifo) {
        for thread in self.threads() {
            perturb::point("interrupt: pinned");
            if let Some(green) = thread.expire() {
                ready.push(green);
            }
            thread.unpin();
        }
    }
}

impl Interrupts {
    /// The park under way of a thread that is pinned.
    fn parking(&self) -> Option<&Parking> {
        // SAFETY: the thread is pinned, so it does not leave a park that it has begun; one that blocks its kernel thread
        // has a mark.
        unsafe { self.park().map_addr(|at| at & !1).as_ref() }
    }

    /// The thread that runs in the place of this one, which is pinned.
    pub(crate) fn led_to(&self) -> Option<&'static Interrupts> {
        let reason = self.parking()?.reason;
        if reason.kind.when_ended != WhenEnded::Leads || reason.of.is_null() {
            return None;
        }
        // SAFETY: so the kind says; it lives as long as the wait. Records are never freed. SeqCst: partner: the fence in
        // `Adopted::run`.
        unsafe {
            let thread = &*reason.of.cast::<AtomicPtr<Interrupts>>();
            thread.load(SeqCst).as_ref()
        }
    }

    /// Ends the wait under way, if it can be ended. A green thread that waits is to be made ready.
    fn expire(&self) -> Option<&'static Green> {
        let parking = self.parking()?;
        match parking.reason.kind.when_ended.ends() {
            // SAFETY: as in `parking`. A wait that has no waiter is of another kind.
            true => unsafe { Waiter::expire_at(parking.waiter) },
            false => None,
        }
    }
}

// ==== the walk ====

/// The stack of scopes that a canceller has found and not walked yet: the last one.
struct Todo(*const Threads);

/// Ends the waits of all threads of `threads`, and of the scopes that they have opened, as far as waits can be ended. The reason
/// was given before.
pub(crate) fn interrupt_all(threads: &Threads) {
    // There are no frames in a forked child, and the lock may be held for ever there.
    if is_forked_child() {
        return;
    }
    let mut todo = Todo(ptr::null());
    todo.walk(threads);
    todo.finish();
}

/// The same for these threads. (Nobody needs to know whose the records are by now.)
pub(crate) fn interrupt_each(mut threads: impl Iterator<Item = &'static Interrupts>) {
    let mut todo = Todo(ptr::null());
    let mut is_at_end = false;
    while !is_at_end {
        todo.interrupt(|pinned| {
            while !pinned.is_full() && !is_at_end {
                is_at_end = threads.next().map(|thread| pinned.pin(thread)).is_none();
            }
        });
    }
    todo.finish();
}

impl Todo {
    fn finish(&mut self) {
        // SAFETY: it is held.
        while let Some(scope) = unsafe { self.0.as_ref() } {
            scope.change(|list| self.0 = list.stacked.take().unwrap_or(ptr::null()));
            self.walk(scope);
            scope.change(|list| list.holds -= 1);
        }
    }

    fn walk(&mut self, threads: &Threads) {
        let mark = Node::default();
        // SAFETY: it is taken out below.
        threads.change(|list| unsafe { mark.insert_behind(&list.head) });
        let mut is_at_end = false;
        while !is_at_end {
            self.interrupt(|pinned| {
                let _list = threads.list.lock();
                let mut last = &mark;
                // SAFETY: nodes in a list are alive.
                while let Some(next) = unsafe { last.next.get().as_ref() }
                    && !pinned.is_full()
                {
                    // SAFETY: records are never freed. Acquire: the record; partner: Release where a thread begins.
                    if let Some(thread) = unsafe { next.thread.load(Acquire).as_ref() } {
                        pinned.pin(thread);
                    }
                    last = next;
                }
                is_at_end = last.next.get().is_null();
                if !is_at_end {
                    // SAFETY: both are in the list. Since a node comes behind the last one, that is not the mark.
                    unsafe {
                        mark.remove();
                        mark.insert_behind(last);
                    }
                }
            });
        }
        // SAFETY: it was put in above.
        threads.change(|_| unsafe { mark.remove() });
    }

    /// Interrupts the threads that `choose` pins, and those that run in their places, and holds their scopes.
    fn interrupt(&mut self, choose: impl FnOnce(&mut Pinned)) {
        let mut interrupted = Fifo::new();
        {
            let _off = preemption_off();
            let mut pinned = Pinned::none();
            choose(&mut pinned);
            while pinned.count != 0 {
                pinned.barrier();
                let mut led = Pinned::none();
                for thread in pinned.threads() {
                    // SAFETY: invariant 4.
                    unsafe { Frame::scopes(thread) }.for_each(|scope| self.hold(scope));
                    thread.led_to().inspect(|thread| led.pin(thread));
                }
                pinned.interrupt(&mut interrupted);
                pinned = led;
            }
        }
        while let Some(green) = interrupted.pop() {
            ready(green);
        }
    }

    fn hold(&mut self, scope: &Threads) {
        let mut list = scope.list.lock();
        if list.stacked.is_none() {
            list.stacked = Some(self.0);
            list.holds += 1;
            self.0 = scope;
        }
    }
}

// ==== tokens ====

/// What the clones of a token share.
#[derive(Default)]
pub(crate) struct Token {
    pub(crate) reason: Reason,
    pub(crate) threads: Threads,
}

impl Token {
    pub(crate) fn cancel(&self, at: &'static Location<'static>) {
        self.reason.give(at);
        interrupt_all(&self.threads);
    }
}
