//! Stands in for the library's `context`: what a green thread can ask for in the models, and the stack of one
//! that is switched to.

use std::cell::RefCell;

use crate::engine::wait::Waiter;

pub(crate) enum Action {
    /// It waits here.
    Park(*const Waiter),
    /// It waits, and nobody knows of it but the thread in its `next`, which goes on in its place.
    HandOver,
    /// It was preempted.
    Preempt,
}

/// A function plays the stack: what the thread does from one switch to the next.
pub(crate) struct Context(RefCell<Option<Box<dyn FnMut()>>>);

impl Context {
    pub(crate) fn new() -> Context {
        Context(RefCell::new(None))
    }

    pub(crate) fn prepare(&self, main: impl FnMut() + 'static) {
        self.0.replace(Some(Box::new(main)));
    }

    /// # Safety
    /// None is needed.
    pub(crate) unsafe fn resume(&self) -> Action {
        self.0.borrow_mut().as_mut().expect("it is prepared")();
        Action::HandOver
    }

    pub(crate) fn saved_stack_pointer(&self) -> usize {
        0
    }
}

/// A stack without an address.
#[derive(Clone, Copy)]
pub(crate) struct Bounds(());

impl Bounds {
    pub(crate) fn holds(&self, _: usize) -> bool {
        false
    }
}
