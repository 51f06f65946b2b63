//! Who runs what is ready: each thread's stock of it, and the followers that take from there.
//!
//! What becomes ready goes to the stock of the thread that made it so. A thread that runs nodes goes
//! on with what the last one made ready (the *next slot* of the schedulers), then with the newest in
//! its stock, until that is empty. Spreading the rest is the scheduler's work, by threads:
//!
//! A stock that is not empty has a *follower*: a thread that is spawned and has not begun. It lies
//! in the run queue like any other, so it begins when another processor steals it, or on this one
//! when the thread before it blocks, ends or is preempted. It takes the older half, leaves a new
//! follower for the other half, and runs what it took as its own stock, followed in turn.
//!
//! So as long as all goes well one thread a processor runs nodes, without a switch between them; a
//! node that blocks costs one thread, no more; and there is no limit at which all wait for what
//! nobody runs.
//!
//! # Invariants
//! 1. Where a node's function or any other user code runs, all that is ready is in a stock.
//! 2. A stock that is not empty and not locked is `followed`, unless no thread could be spawned; it
//!    is then, as soon as somebody adds or takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;

use super::task::Ready;
use super::turn::Turn;
use crate::engine::door::is_forked_child;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::thread::Builder;

/// So many are added under one lock.
const FEW: usize = 64;

struct Stock {
    content: Mutex<Content>,
    /// Of a process that was forked. Its followers are there; its parent's are not.
    in_child: bool,
}

#[derive(Default)]
struct Content {
    /// The newest is the last.
    ready: VecDeque<Ready>,
    /// Somebody is on the way and will look.
    followed: bool,
}

thread_local! {
    static OWN: RefCell<Arc<Stock>> = RefCell::new(Stock::new());
}

/// This thread's. A thread that is about to end has a new one each time.
fn own() -> Arc<Stock> {
    let found = OWN.try_with(|own| {
        if own.borrow().in_child != is_forked_child() {
            // What the parent's has is run there.
            mem::forget(own.replace(Stock::new()));
        }
        own.borrow().clone()
    });
    found.unwrap_or_else(|_| Stock::new())
}

/// Adds to the stock of this thread what has become ready here.
///
/// # Panics
/// If a follower is needed and cannot be spawned.
pub(super) fn add(ready: Ready) {
    if let Err(error) = own().add([ready]) {
        panic!("failed to spawn thread: {error}");
    }
}

/// The life of a follower.
fn follow(leader: &Arc<Stock>) {
    let own = own();
    let turn = Turn::take();
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

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, ready: impl IntoIterator<Item = Ready>) -> io::Result<()> {
        let mut content = self.lock();
        content.ready.extend(ready);
        self.leave(content)
    }

    /// Unlocks it, and spawns a follower if it needs one.
    fn leave(self: &Arc<Self>, mut content: MutexGuard<'_, Content>) -> io::Result<()> {
        if content.followed || content.ready.is_empty() {
            return Ok(());
        }
        content.followed = true;
        drop(content);
        let leader = self.clone();
        match Builder::new().spawn(move || follow(&leader)) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.lock().followed = false;
                Err(error)
            }
        }
    }

    /// Moves the older half of `leader`'s stock here, but for the oldest, which is to be run.
    /// `begins`: the taker is its follower, which is on the way no more.
    fn take_half(self: &Arc<Self>, leader: &Arc<Stock>, begins: bool) -> Option<Ready> {
        let mut content = leader.lock();
        content.followed &= !begins;
        let half = content.ready.len().div_ceil(2);
        let rest = content.ready.split_off(half);
        let mut taken = mem::replace(&mut content.ready, rest);
        // No thread to be had: this one comes back for the rest.
        let _ = leader.leave(content);
        let oldest = taken.pop_front();
        let _ = self.add(taken);
        oldest
    }

    fn pop(&self) -> Option<Ready> {
        self.lock().ready.pop_back()
    }

    /// Runs `next`, what that makes ready, and all that is in this thread's stock.
    fn work(self: &Arc<Self>, next: Ready, turn: &Turn) {
        let mut next = Some(next);
        while let Some(ready) = next.take().or_else(|| self.pop()) {
            let mut readied = ready().filter_map(|dependent| dependent.arrive());
            next = readied.next();
            // A few at a time: others begin with the first while the last are told.
            loop {
                let few: Vec<Ready> = readied.by_ref().take(FEW).collect();
                if few.is_empty() {
                    break;
                }
                // No thread to be had: this one takes them itself, later.
                let _ = self.add(few);
            }
            turn.has_run_one();
        }
    }
}
