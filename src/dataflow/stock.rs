//! The threads that run ready nodes: each has a stock of them, and followers take from it.
//!
//! A node that becomes ready goes to the stock of the thread that made it ready. A thread that runs
//! nodes goes on with a node that the last one made ready (the *next slot* of the schedulers), then
//! with the newest in its stock, until that is empty. The scheduler spreads the rest, by threads:
//!
//! A stock that is not empty has a *follower*: a thread that is spawned and has not begun. It lies
//! in the run queue like any other, so it begins when another processor steals it, or on this one
//! when the thread before it blocks, ends or is preempted. It takes the older half, leaves a new
//! follower for the other half, and runs the nodes that it took as its own stock, followed in turn.
//!
//! So usually one thread per processor runs nodes, without a switch between them. A node that
//! blocks costs one thread, no more. And the number of threads has no limit at which all of them
//! would wait for nodes that no thread runs.
//!
//! # Tasks
//!
//! A node that waits is a *task*: work to do, and the handles of the inputs. The number of references to a task counts
//! the inputs that are missing: each unresolved input holds one, and so does the thread that makes the task until that
//! thread has registered the task everywhere. Each gives its reference up by `Arc::into_inner`, which returns the task to
//! the last of them only. There the task is ready, and in no other place, so it runs once, and sees all its inputs.
//!
//! A task is in its inputs and holds its inputs; the circle is broken when they are resolved. So a task is not dropped
//! before it has run, even if no handle is left, and a long chain of nodes is never dropped from one end.
//!
//! # Kernel-thread mode
//!
//! No more kernel threads run nodes than there are processors, unless those are blocked. A follower that is a green thread
//! begins when a processor is free. A follower that is a kernel thread begins at once, and leaves another, and so on: in
//! the end there would be a thread for each node. So a follower of that kind waits for one of a fixed number of *turns*.
//! If no node has ended anywhere for a while, the follower goes on without a turn: then the threads that have a turn are
//! blocked, perhaps waiting for a node that the follower is about to run.
//!
//! # Invariants
//! 1. While a node's function or any other user code runs, all ready nodes are in a stock.
//! 2. A stock that is not empty and not locked is `followed`, unless no thread could be spawned; it
//!    is then, as soon as a thread adds or takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use super::value::Held;
use crate::atomic::{AtomicU64, Ordering::Relaxed};
use crate::engine::facade::is_forked_child;
use crate::sync::{LazyLock, Mutex, MutexGuard, PoisonError, Semaphore, SemaphorePermit};
use crate::thread::{Builder, Thread, available_parallelism};
use crate::wait::shielded;

// ---- tasks ----

/// A task, told when one of its inputs is resolved.
pub trait Dependent: Send + Sync {
    /// Gives one reference up. If it was the last, returns the work that is ready now.
    fn arrive(self: Arc<Self>) -> Option<Ready>;
}

/// Work whose inputs are all resolved. It returns the dependents of the value that it resolves.
pub(crate) type Ready = Box<dyn FnOnce() -> Told + Send>;

/// Dependents that must be told that their input is resolved.
pub(crate) type Told = Vec<Arc<dyn Dependent>>;

struct Task<H, W> {
    inputs: H,
    /// The mutex is never locked: the owner of the task has the work, and a shared task is `Sync`
    /// all the same.
    work: std::sync::Mutex<W>,
}

impl<H: Held, W: FnOnce(H) -> Told + Send + 'static> Dependent for Task<H, W> {
    fn arrive(self: Arc<Self>) -> Option<Ready> {
        let Task { inputs, work } = Arc::into_inner(self)?;
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(Box::new(move || work(inputs)))
    }
}

/// Makes a task that does `work` when `inputs` are resolved, on another thread.
pub(super) fn when<H: Held, W: FnOnce(H) -> Told + Send + 'static>(inputs: H, work: W) {
    let work = std::sync::Mutex::new(work);
    let task = Arc::new(Task { inputs, work });
    task.inputs
        .register(&|| -> Arc<dyn Dependent> { task.clone() });
    if let Some(ready) = task.arrive()
        && let Err(error) = own().add([ready])
    {
        panic!("failed to spawn thread: {error}");
    }
}

// ---- the threads that run ready nodes ----

/// The number of nodes that are added under one lock.
const FEW: usize = 64;

struct Stock {
    content: Mutex<Content>,
    /// Whether the stock was made in a forked process, which has followers of its own but not the
    /// parent's.
    in_child: bool,
}

#[derive(Default)]
struct Content {
    /// The nodes that are ready; the newest is the last.
    ready: VecDeque<Ready>,
    /// Whether a follower is on the way and will look.
    followed: bool,
}

thread_local! {
    static OWN: RefCell<Arc<Stock>> = RefCell::new(Stock::new());
}

/// Returns the stock of this thread. A thread that is about to end gets a new one each time.
fn own() -> Arc<Stock> {
    let found = OWN.try_with(|own| {
        if own.borrow().in_child != is_forked_child() {
            // In a forked child the old stock is the parent's, and its nodes run in the parent.
            mem::forget(own.replace(Stock::new()));
        }
        own.borrow().clone()
    });
    found.unwrap_or_else(|_| Stock::new())
}

/// Runs a follower from its beginning to its end.
fn follow(leader: &Arc<Stock>) {
    let own = own();
    // A follower that does not follow would leave the leader's nodes to nobody.
    let turn = shielded(Turn::take);
    let mut begins = true;
    while let Some(next) = own.take_half(leader, mem::take(&mut begins)) {
        own.work(next, &turn);
    }
}

impl Stock {
    fn new() -> Arc<Stock> {
        Arc::new(Stock {
            content: Mutex::default(),
            in_child: is_forked_child(),
        })
    }

    fn add(self: &Arc<Self>, ready: impl IntoIterator<Item = Ready>) -> io::Result<()> {
        let mut content = self.content.lock_anyway();
        content.ready.extend(ready);
        self.leave(content)
    }

    /// Unlocks the stock, and spawns a follower if it needs one.
    fn leave(self: &Arc<Self>, mut content: MutexGuard<'_, Content>) -> io::Result<()> {
        if content.followed || content.ready.is_empty() {
            return Ok(());
        }
        content.followed = true;
        drop(content);
        let leader = self.clone();
        let follower = Builder::new().spawn(move || follow(&leader));
        let is_alone = |_: &io::Error| self.content.lock_anyway().followed = false;
        follower.map(drop).inspect_err(is_alone)
    }

    /// Moves the older half of `leader`'s stock here and returns the oldest node, which is to run.
    /// `begins` says that the taker is the follower of `leader`, which is then no longer on the
    /// way.
    fn take_half(self: &Arc<Self>, leader: &Arc<Stock>, begins: bool) -> Option<Ready> {
        let mut content = leader.content.lock_anyway();
        content.followed &= !begins;
        let half = content.ready.len().div_ceil(2);
        let rest = content.ready.split_off(half);
        let mut taken = mem::replace(&mut content.ready, rest);
        // If no thread can be spawned, this thread takes the rest itself when it has run what it took.
        let _ = leader.leave(content);
        let oldest = taken.pop_front();
        let _ = self.add(taken);
        oldest
    }

    /// Runs `next`, the nodes that it makes ready, and all nodes in this thread's stock.
    fn work(self: &Arc<Self>, next: Ready, turn: &Turn) {
        let mut next = Some(next);
        let newest = || self.content.lock_anyway().ready.pop_back();
        while let Some(ready) = next.take().or_else(newest) {
            let told = ready().into_iter();
            let mut readied = told.filter_map(|dependent| dependent.arrive());
            next = readied.next();
            // Nodes are added a few at a time, so that other threads begin with the first while the last are told.
            loop {
                let few: Vec<Ready> = readied.by_ref().take(FEW).collect();
                if few.is_empty() {
                    break;
                }
                // If no thread can be spawned, this thread runs them itself, later.
                let _ = self.add(few);
            }
            if let Turn::Kernel(_) = turn {
                RUN.fetch_add(1, Relaxed);
            }
        }
    }
}

// ---- turns ----

/// The time without an ended node after which a follower goes on without a turn: a time slice.
const PATIENCE: Duration = Duration::from_millis(10);

static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));
/// The number of nodes that kernel threads have run.
static RUN: AtomicU64 = AtomicU64::new(0);

pub(super) enum Turn {
    /// A green thread's turn is its processor.
    Green,
    /// A kernel thread's turn; `None` if it goes on without one.
    Kernel(#[allow(dead_code, reason = "held")] Option<SemaphorePermit<'static>>),
}

impl Turn {
    pub(super) fn take() -> Turn {
        if Thread::is_green() {
            return Turn::Green;
        }
        loop {
            let before = RUN.load(Relaxed);
            let permit = TURNS.acquire_timeout(PATIENCE);
            if permit.is_some() || RUN.load(Relaxed) == before {
                return Turn::Kernel(permit);
            }
        }
    }
}
