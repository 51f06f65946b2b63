//! Models of a scope that ends, and of cancellers that find it by its owner.
//!
//! The owner is in the frames of a token, by its place in the token's list, and opens a scope with one thread. That one waits until
//! it is told that the token is cancelled, or ends by itself. A thread that is not told is a deadlock. A scope that has ended is
//! dropped: a canceller that touches it then is a race. (What the thread's own words need is the model `interrupts`' matter: here
//! stores come in order.)

use std::{mem::ManuallyDrop, ptr, sync::Arc};

use loom::{cell::UnsafeCell, thread};

use crate::atomic::Ordering::{Relaxed, Release, SeqCst};
use crate::atomic::{AtomicU32, fence, stores_come_in_order};
use crate::engine::inspect::notes::{WaitKind, WaitReason};
use crate::sched::cancel::{Pinned, Threads, interrupt_all};
use crate::sched::Fifo;
use crate::sched::park::{Interrupts, Node, Parking};
use crate::sys::clock;
use crate::wait::{Outcome, Waiter};

static SCOPE: WaitKind = WaitKind::inside("end of a scope");
static TOLD: WaitKind = WaitKind::inside("cancellation").fails();

/// A thread's words are never freed.
struct World {
    tokens: [Threads; 2],
    /// Whether the tokens are cancelled.
    reasons: [AtomicU32; 2],
    owner: Interrupts,
    scope: UnsafeCell<ManuallyDrop<Threads>>,
    threads: [(Interrupts, Node); 2],
}

// SAFETY: the checker runs all threads on one.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

/// How many tokens the owner is in, how many threads its scope has, and whether they wait until they are told of the last token.
type Case = (usize, usize, bool);

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            tokens: [Threads::default(), Threads::default()],
            reasons: [AtomicU32::new(0), AtomicU32::new(0)],
            owner: Interrupts::default(),
            scope: UnsafeCell::new(ManuallyDrop::new(Threads::default())),
            threads: [(); 2].map(|()| (Interrupts::default(), Node::default())),
        })
    }

    fn scope(&self) -> &Threads {
        // SAFETY: what the model checks; its memory is the world's.
        self.scope.with(|scope| unsafe { &**scope })
    }

    fn cancel(&self, token: usize) {
        // As `Reason::give`.
        let _ = self.reasons[token].compare_exchange(0, 1, Release, Relaxed);
        interrupt_all(&self.tokens[token]);
    }

    /// Waits, as that thread, until that token is cancelled.
    fn wait_for(&self, token: usize, thread: &Interrupts) {
        let has_ended = || self.reasons[token].load(Relaxed) == 1;
        let waiter = Waiter::new();
        let parking = Parking {
            waiter: ptr::from_ref(&waiter).cast(),
            deadline: clock::NEVER,
            reason: WaitReason::only(&TOLD),
        };
        while !has_ended() {
            thread.clear();
            if has_ended() {
                return;
            }
            thread.note_park(&parking);
            if !thread.is_pending() {
                assert_eq!(waiter.go_on(None), Outcome::Expired);
            }
            thread.note_park(ptr::null());
            thread.settle();
        }
    }

    fn own(self: &Arc<World>, (tokens, threads, waits): Case) {
        let nodes = [(); 2].map(|()| Node::default());
        for (token, node) in self.tokens.iter().zip(&nodes).take(tokens) {
            node.thread.store(ptr::from_ref(&self.owner).cast_mut(), Relaxed);
            // SAFETY: it is removed below.
            unsafe { token.add(node) };
        }
        self.owner.open(self.scope());
        // SeqCst: partner: the fence in `Pinned::barrier`.
        fence(SeqCst);
        let spawn = |number: usize| {
            let (words, node) = &self.threads[number];
            node.thread.store(ptr::from_ref(words).cast_mut(), Release);
            // SAFETY: the thread removes it.
            unsafe { self.scope().add(node) };
            let world = self.clone();
            thread::spawn(move || {
                let (words, node) = &world.threads[number];
                if waits {
                    world.wait_for(tokens - 1, words);
                }
                // SAFETY: it is in the list.
                unsafe { world.scope().remove(node) };
            })
        };
        let threads = [0, 1].map(|number| (number < threads).then(|| spawn(number)));
        assert!(self.scope().wait(&SCOPE));
        self.owner.open(ptr::null());
        // SeqCst: as above.
        fence(SeqCst);
        self.owner.settle();
        assert!(self.scope().wait(&SCOPE));
        // SAFETY: what the model checks.
        self.scope.with_mut(|scope| unsafe { ManuallyDrop::drop(&mut *scope) });
        for (token, node) in self.tokens.iter().zip(&nodes).take(tokens) {
            // SAFETY: it is in the list.
            unsafe { token.remove(node) };
        }
        for thread in threads.into_iter().flatten() {
            thread.join().unwrap();
        }
    }

}

/// The tokens are cancelled, beside the owner. The checker's own thread only waits for the others.
fn cancel_beside(case: Case, bound: usize) {
    crate::check_newest(Some(bound), move || {
        stores_come_in_order(true);
        let world = World::new();
        let owner = thread::spawn({
            let world = world.clone();
            move || world.own(case)
        });
        let cancellers = [0, 1].map(|token| {
            let world = world.clone();
            (token < case.0).then(|| thread::spawn(move || world.cancel(token)))
        });
        owner.join().unwrap();
        for canceller in cancellers.into_iter().flatten() {
            canceller.join().unwrap();
        }
    });
}

/// The thread ends by itself. At most 2 preemptions.
pub(crate) fn a_thread_ends() {
    cancel_beside((1, 1, false), 2);
}

/// The thread waits until it is told, whether it begins before or after the cancellation. At most 2 preemptions.
pub(crate) fn a_thread_is_told() {
    cancel_beside((1, 1, true), 2);
}

/// There are two batches. At most 1 preemption.
pub(crate) fn two_threads_are_told() {
    cancel_beside((1, 2, true), 1);
}

/// Two tokens are cancelled, and the thread waits for one of them. At most 2 preemptions.
pub(crate) fn two_cancel() {
    cancel_beside((2, 1, true), 2);
}

/// A canceller finds the scope, or what comes after its beginning finds the reason; and a canceller that finds the scope finds it
/// alive. At most 3 preemptions.
pub(crate) fn it_opens_and_ends() {
    crate::check(Some(3), || {
        let world = World::new();
        let owner = thread::spawn({
            let world = world.clone();
            move || {
                world.owner.open(world.scope());
                // SeqCst: partner: the fence in `Pinned::barrier`.
                fence(SeqCst);
                let is_told = world.reasons[0].load(Relaxed) == 1;
                world.owner.open(ptr::null());
                // SeqCst: as above.
                fence(SeqCst);
                world.owner.settle();
                world.scope.with_mut(|_| ());
                is_told
            }
        });
        world.reasons[0].store(1, Release);
        let mut pinned = Pinned::none();
        // SAFETY: it outlives what is pinned.
        pinned.pin(unsafe { &*ptr::from_ref(&world.owner) });
        pinned.barrier();
        let is_found = world.owner.is_open();
        if is_found {
            world.scope();
        }
        pinned.interrupt(&mut Fifo::new());
        // It may have ended before that.
        let has_ended = !is_found && !world.owner.is_open();
        let is_told = owner.join().unwrap();
        assert!(is_told || is_found || has_ended, "lost or doubled");
    });
}
