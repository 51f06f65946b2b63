//! Who waits for a value: a stack in one word, which is closed when the value is there.
//!
//! Anybody adds; whoever resolves the value closes, once, and takes all at once. One word says both
//! "resolved" and "these wait", so nothing comes between looking and being added: a dependent is
//! either refused, and sees the value, or in what the closer takes.
//!
//! | from \ verb | `add`             | `close`                 |
//! |---|---|---|
//! | empty       | stack             | `CLOSED`, nobody        |
//! | stack       | stack             | `CLOSED`, all of them   |
//! | `CLOSED`    | stays, **refused** | stays, nobody          |
//!
//! # Invariants
//! 1. `CLOSED` stays. So each dependent that was added is taken once, and nobody is added after.
//! 2. An edge belongs to the stack from when it is pushed, and to who took it afterwards. Edges are
//!    only taken all at once, so what a link points to is still there when the link becomes right.
//!
//! # Memory orderings
//! - the dependent, from who added it to the closer: Release in `add`, Acquire in `close`. Every
//!   change is a read-modify-write, so one Acquire is enough for all edges.
//! - the value, from the closer to who is refused: Release in `close`, Acquire wherever `add` sees
//!   `CLOSED`.

use core::marker::PhantomData;
use core::ptr;

use crate::engine::atomic::{
    AtomicPtr, Cell,
    Ordering::{AcqRel, Acquire, Release},
};
use crate::engine::sys::perturb;

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
    /// Nobody waits yet.
    pub(crate) fn new() -> Dependents<D> {
        Dependents {
            newest: AtomicPtr::new(ptr::null_mut()),
            owns: PhantomData,
        }
    }

    /// Adds the dependent that `make` makes. False: the value is there, and what the closer did
    /// before it closed is seen here; the dependent is dropped, if it was made at all.
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
            // SAFETY: made above, and not in the stack.
            unsafe {
                if newest == closed() {
                    drop(Box::from_raw(edge));
                    return false;
                }
                (*edge).older.set(newest);
            }
        }
    }

    /// The value is there: nobody is added any more. Who was is the caller's.
    pub(crate) fn close(&self) -> Taken<D> {
        // Acquire: the edges; partner: Release in `add`. Release: the value; partner: Acquire there.
        let newest = self.newest.swap(closed(), AcqRel);
        Taken(if newest == closed() {
            ptr::null_mut()
        } else {
            newest
        })
    }
}

impl<D> Drop for Dependents<D> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// The dependents that a closer has taken, the youngest first.
#[must_use = "they wait for ever if they are not told"]
pub struct Taken<D>(*mut Edge<D>);

// SAFETY: it owns its edges, which are dependents and links.
unsafe impl<D: Send> Send for Taken<D> {}

impl<D> Taken<D> {
    /// Nobody.
    pub(crate) fn nobody() -> Taken<D> {
        Taken(ptr::null_mut())
    }
}

impl<D> Iterator for Taken<D> {
    type Item = D;

    fn next(&mut self) -> Option<D> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: taken and not handed out yet, so it is ours (invariant 2), and came from a box.
        let edge = unsafe { Box::from_raw(self.0) };
        self.0 = edge.older.get();
        Some(edge.dependent)
    }
}

impl<D> Drop for Taken<D> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
