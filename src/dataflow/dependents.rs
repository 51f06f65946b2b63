//! The nodes that wait for a value: a stack in one word, which is closed when the value is there.
//!
//! Any thread adds; the thread that resolves the value closes, once, and takes all at once. One
//! word says both "resolved" and "these wait", so nothing comes between looking and being added: a
//! dependent is either refused, and sees the value, or is among those that the closer takes.
//!
//! | from \ verb | `add`             | `close`                 |
//! |---|---|---|
//! | empty       | stack             | `CLOSED`, takes none    |
//! | stack       | stack             | `CLOSED`, takes all     |
//! | `CLOSED`    | stays, **refused** | stays, takes none      |
//!
//! # Invariants
//! 1. `CLOSED` stays. So each dependent that was added is taken once, and none is added after.
//! 2. An edge belongs to the stack from the push on, and to the thread that closes the stack afterwards.
//!    Edges are only taken all at once, so the target of a link is still there when the link
//!    becomes right.
//!
//! # Memory orderings
//! - the dependent, from the thread that adds it to the closer: Release in `add`, Acquire in
//!   `close`. Every change is a read-modify-write, so one Acquire is enough for all edges.
//! - the value, from the closer to a thread that is refused: Release in `close`, Acquire wherever
//!   `add` sees `CLOSED`.

use core::marker::PhantomData;
use core::{iter, ptr};

use crate::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::atomic::{AtomicPtr, Cell};
use crate::sys::perturb;

pub(crate) struct Dependents<D> {
    newest: AtomicPtr<Edge<D>>,
    owns: PhantomData<D>,
}

struct Edge<D> {
    dependent: D,
    older: Cell<*mut Edge<D>>,
}

fn closed<D>() -> *mut Edge<D> {
    ptr::without_provenance_mut(1)
}

impl<D> Dependents<D> {
    /// No node waits yet.
    pub(crate) fn new() -> Dependents<D> {
        Dependents {
            newest: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// Adds the dependent that `make` makes. Returns false if the value is there already. The
    /// caller then sees everything that the closer did before it closed, and the dependent is
    /// dropped if it was made at all.
    pub(crate) fn add(&self, make: impl FnOnce() -> D) -> bool {
        // Acquire, here and below: the value; partner: Release in `close`.
        let mut newest = self.newest.load(Acquire);
        if newest == closed() {
            return false;
        }
        let edge = Box::new(Edge {
            dependent: make(),
            older: Cell::new(newest),
        });
        let edge = Box::into_raw(edge);
        loop {
            // Release: the edge; partner: Acquire in `close`.
            perturb::point("dependents: adding");
            match (self.newest).compare_exchange_weak(newest, edge, Release, Acquire) {
                Ok(_) => return true,
                Err(now) => newest = now,
            }
            // SAFETY: the edge was made above, and is not in the stack.
            unsafe {
                if newest == closed() {
                    drop(Box::from_raw(edge));
                    return false;
                }
                (*edge).older.set(newest);
            }
        }
    }

    /// Closes the stack, since the value is there. No dependent is added any more, and the caller
    /// owns those that were, the youngest first.
    pub(crate) fn close(&self) -> Vec<D> {
        // Acquire: the edges; partner: Release in `add`. Release: the value; partner: Acquire
        // there.
        let mut newest = self.newest.swap(closed(), AcqRel);
        let edges = iter::from_fn(|| {
            if newest.is_null() || newest == closed() {
                return None;
            }
            // SAFETY: the edge was in the stack, so it is ours now (invariant 2), and it came from a box.
            let edge = unsafe { Box::from_raw(newest) };
            newest = edge.older.get();
            Some(edge.dependent)
        });
        edges.collect()
    }
}

impl<D> Drop for Dependents<D> {
    fn drop(&mut self) {
        drop(self.close());
    }
}
