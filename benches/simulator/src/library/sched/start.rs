//! Stands in for the library's `start`, and for the stores behind it: a thread's record and its stack,
//! from its spawn to its end.
//!
//! A processor keeps free records in batches (`sched/thread.rs`) and free stacks in a list
//! (`stack/mod.rs`), and goes to the common stock, under its lock, when they overflow or run
//! dry. The stock is that of a program that has run for a while: it has no end. So nothing is made
//! here, and no memory is asked for. Given back is the memory below a stack's top, as the library does:
//! by system calls that all take the lock of the address space for reading. (Rooms that nobody needs are
//! returned later, and no simulation lasts so long.)

use core::cell::Cell;

use crate::cost::{LINES, RECORD_LINES};
use crate::engine::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::engine::sched::cluster::Apart;
use crate::engine::sched::thread::ChargedCell;
use crate::engine::sched::{Cluster, Green, Owned};
use crate::engine::sys::shared::Lock;
use crate::virtual_time::{self, NOWHERE};

/// What all processors share.
pub(crate) struct Stock {
    records: Apart<Lock<Batches>>,
    any_records: Apart<AtomicBool>,
    stacks: Apart<Lock<List>>,
    /// How many threads of the process read the map of its memory: the kernel's.
    memory: Apart<AtomicU32>,
    /// All that was ever made. Bookkeeping.
    made: Cell<Vec<*mut Green>>,
    furnished: Cell<Vec<*mut ThreadStack>>,
}

impl Stock {
    pub(crate) fn new() -> Stock {
        Stock {
            records: Apart(Lock::new(Batches::default())),
            any_records: Apart(AtomicBool::new(false)),
            stacks: Apart(Lock::new(List { head: None })),
            memory: Apart(AtomicU32::new(0)),
            made: Cell::default(),
            furnished: Cell::default(),
        }
    }

    fn keep<T>(all: &Cell<Vec<*mut T>>, new: T) -> &'static T {
        let new = Box::into_raw(Box::new(new));
        let mut made = all.take();
        made.push(new);
        all.set(made);
        // SAFETY: it is freed when the stock is, at the end of the simulation.
        unsafe { &*new }
    }

    /// A system call that gives memory back.
    fn trim(&self) {
        self.memory.fetch_add(1, Ordering::Relaxed);
        virtual_time::system_call();
        self.memory.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        // SAFETY: made by boxes, in `keep`; nobody uses them any more (`Cluster::end`).
        unsafe {
            self.made
                .take()
                .into_iter()
                .for_each(|it| drop(Box::from_raw(it)));
            self.furnished
                .take()
                .into_iter()
                .for_each(|it| drop(Box::from_raw(it)));
        }
    }
}

// ---- records ----

/// The number of records in a full batch.
const BATCH: usize = 32;

/// The greatest number of full batches that a processor keeps.
const KEPT: usize = 32;

/// Batches, linked by their first records.
#[derive(Default)]
struct Batches {
    top: Option<&'static Green>,
}

impl Batches {
    fn push(&mut self, batch: Batch) {
        if let Some(first) = batch.first {
            first.batch.set(self.top.replace(first));
        }
    }

    fn pop(&mut self) -> Option<Batch> {
        let first = self.top?;
        self.top = first.batch.take();
        Some(Batch { first: Some(first) })
    }
}

#[derive(Default)]
struct Batch {
    first: Option<&'static Green>,
}

impl Batch {
    fn push(&mut self, green: &'static Green) {
        green.next.set(self.first.replace(green));
    }

    fn pop(&mut self) -> Option<&'static Green> {
        let green = self.first?;
        self.first = green.next.take();
        Some(green)
    }

    /// As after a while, but in no cache.
    fn new(stock: &Stock) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..BATCH {
            let green = Stock::keep(&stock.made, Green::new());
            // Nobody is charged.
            green.next.0.set(batch.first.replace(green));
        }
        batch
    }
}

/// A processor's free records.
#[derive(Default)]
pub(crate) struct Records {
    batch: Batch,
    len: usize,
    full: Batches,
    kept: usize,
}

impl Records {
    pub(crate) fn new() -> Records {
        Records::default()
    }

    fn pop(&mut self, stock: &Stock) -> &'static Green {
        if self.batch.first.is_none() {
            let kept = self.full.pop();
            self.kept -= usize::from(kept.is_some());
            self.batch = kept
                .or_else(|| stock.take_records())
                .unwrap_or_else(|| Batch::new(stock));
            self.len = BATCH;
        }
        self.len -= 1;
        self.batch.pop().expect("a batch that is not empty")
    }

    fn push(&mut self, green: &'static Green, stock: &Stock) {
        if self.len == BATCH {
            if self.kept >= KEPT
                && stock.give_records(core::iter::from_fn(|| self.full.pop()).take(KEPT / 2))
            {
                self.kept -= KEPT / 2;
            }
            self.full.push(core::mem::take(&mut self.batch));
            self.kept += 1;
            self.len = 0;
        }
        self.batch.push(green);
        self.len += 1;
    }
}

impl Stock {
    fn take_records(&self) -> Option<Batch> {
        if !self.any_records.load(Ordering::Relaxed) {
            return None;
        }
        let mut free = self.records.lock();
        let batch = free.pop();
        let any = free.top.is_some();
        self.any_records.store(any, Ordering::Relaxed);
        batch
    }

    /// Whether nobody else uses the stack.
    fn give_records(&self, batches: impl Iterator<Item = Batch>) -> bool {
        let Some(mut free) = self.records.try_lock() else {
            return false;
        };
        batches.for_each(|batch| free.push(batch));
        self.any_records.store(true, Ordering::Relaxed);
        true
    }
}

// ---- stacks ----

/// A stack: its stack's top, its thread-local block, and the slot that links it among the free ones.
#[repr(C, align(64))]
pub(crate) struct ThreadStack {
    next: ChargedCell<Option<&'static ThreadStack>>,
    /// The CPU in whose cache it is.
    home: Cell<usize>,
}

/// Linked stacks, the last in first.
struct List {
    head: Option<&'static ThreadStack>,
}

impl List {
    fn push(&mut self, stack: &'static ThreadStack) {
        stack.next.set(self.head.replace(stack));
    }

    fn pop(&mut self) -> Option<&'static ThreadStack> {
        let stack = self.head?;
        self.head = stack.next.get();
        Some(stack)
    }
}

/// A processor's free stacks.
pub(crate) struct Cache {
    list: List,
    length: usize,
}

impl Cache {
    const MOST: usize = 1024;
    const BATCH: usize = 16;

    pub(crate) fn new() -> Cache {
        Cache {
            list: List { head: None },
            length: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn fetch(&mut self, cluster: &'static Cluster) {
        if self.length != 0 {
            return;
        }
        let stock = &cluster.stock;
        let mut free = stock.stacks.lock();
        while self.length < Self::BATCH {
            let stack = free.pop().unwrap_or_else(|| {
                let stack = ThreadStack {
                    next: ChargedCell(Cell::new(None)),
                    home: Cell::new(NOWHERE),
                };
                Stock::keep(&stock.furnished, stack)
            });
            self.list.push(stack);
            self.length += 1;
        }
    }

    fn pop(&mut self) -> &'static ThreadStack {
        let stack = self.list.pop().expect("it was fetched");
        self.length -= 1;
        stack
    }

    fn push(&mut self, stack: &'static ThreadStack, stock: &Stock) {
        if self.length == Self::MOST {
            self.halve(stock);
        }
        self.list.push(stack);
        self.length += 1;
    }

    /// Gives half of the stacks, trimmed, to the stock.
    fn halve(&mut self, stock: &Stock) {
        let mut given = List { head: None };
        for _ in 0..self.length / 2 {
            let stack = self.pop();
            stock.trim();
            given.push(stack);
        }
        let mut free = stock.stacks.lock();
        while let Some(stack) = given.pop() {
            free.push(stack);
        }
    }
}

// ---- a thread's first time, and its last ----

/// A record for a new thread; and a stack will be at hand.
pub(crate) fn new_green(processor: &mut Owned<'_>) -> &'static Green {
    let cluster = processor.cluster();
    let own = processor.own();
    let green = own.records.pop(&cluster.stock);
    if own.stacks.is_empty() {
        own.stacks.fetch(cluster);
    }
    virtual_time::fetch(RECORD_LINES, green.home.replace(virtual_time::cpu()));
    green
}

/// `green`, which is new, moves into a stack.
pub(super) fn move_in(processor: &mut Owned<'_>, green: &'static Green) {
    let cluster = processor.cluster();
    let stacks = &mut processor.own().stacks;
    stacks.fetch(cluster);
    green.stack.set(Some(stacks.pop()));
    if stacks.is_empty() {
        // What the thread does first.
        stacks.fetch(cluster);
    }
}

/// The lines of `green` that this CPU has not: it ran elsewhere.
pub(super) fn fetch(green: &'static Green) {
    let here = virtual_time::cpu();
    virtual_time::fetch(RECORD_LINES, green.home.replace(here));
    if let Some(stack) = green.stack.get() {
        virtual_time::fetch(LINES - RECORD_LINES, stack.home.replace(here));
    }
}

/// The thread has ended: others can use its stack and its record.
pub(super) fn end(processor: &mut Owned<'_>, green: &'static Green) {
    let cluster = processor.cluster();
    let own = processor.own();
    let stack = green.stack.take().expect("it has run");
    own.stacks.push(stack, &cluster.stock);
    own.records.push(green, &cluster.stock);
    processor.counts.ended.add(1);
    assert!(!cluster.was_last(), "nobody closes the cluster");
}
