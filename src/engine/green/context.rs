//! The saved context of a green thread: the only user of corosensei.
//!
//! A context is prepared with the function it is to run, resumed by a kernel thread's run loop, and
//! suspends itself with an [`Action`], which the run loop does once the stack has been left. Parking is
//! safe because that is done there, and not before the switch: no thread is resumed whose context is
//! not yet saved.

use core::cell::{Cell, UnsafeCell};
use core::mem::{ManuallyDrop, MaybeUninit};

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::engine::arch;

/// The run loop's next step with a thread that has just left its stack.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Action {
    /// The thread is ready, and goes to the back of the queue.
    Yield,
    /// The thread was interrupted, and goes to the global queue; its registers lie on its stack.
    Preempt,
    /// The thread waits: its record says for which waiter and until when.
    Park,
    /// The thread waits, and only the thread in its `next` knows of it, which goes on in its place.
    HandOver,
    /// The thread has ended: its stack can be used again.
    Exit,
}

/// The part of a slot that serves as the stack: `bottom..top`, growing down.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bottom: usize,
    pub(crate) top: usize,
}

// SAFETY: the slot is mapped and guarded below `bottom` for as long as the process lives, and `top`
// is aligned.
unsafe impl Stack for Bounds {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.top).expect("a stack is not at address 0")
    }
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.bottom).expect("a stack is not at address 0")
    }
}

type Body = Coroutine<(), Action, (), Bounds>;

/// A context. Only the owner of the green thread may touch it (see `green`).
pub(crate) struct Context {
    body: UnsafeCell<MaybeUninit<Body>>,
    yielder: Cell<*const Yielder<(), Action>>,
}

impl Context {
    pub(crate) const fn new() -> Context {
        Context {
            body: UnsafeCell::new(MaybeUninit::uninit()),
            yielder: Cell::new(core::ptr::null()),
        }
    }

    /// Lays `main` on the stack, to be run by the first [`resume`](Context::resume). `main` must
    /// not unwind.
    ///
    /// # Safety
    /// The stack is unused and the caller's alone; the context stays where it is; all that `main`
    /// borrows outlives its run.
    pub(crate) unsafe fn prepare<F: FnOnce()>(&self, bounds: Bounds, main: F) {
        unsafe extern "C" fn enter<F: FnOnce()>(main: *mut ()) {
            // SAFETY: `main` is the closure below, taken once. This frame is `extern "C"`: a panic
            // that leaves `main` aborts.
            unsafe { ManuallyDrop::take(&mut *main.cast::<ManuallyDrop<F>>())() }
        }
        let context = self as *const Context as usize;
        // SAFETY: lifetimes are the caller's promise. The yielder stays valid as long as the body
        // runs.
        unsafe {
            let body =
                Body::with_stack_unchecked(bounds, move |yielder: &Yielder<(), Action>, ()| {
                    (*(context as *const Context)).yielder.set(yielder);
                    let mut main = ManuallyDrop::new(main);
                    arch::call_at_bottom(enter::<F>, (&raw mut main).cast());
                });
            (*self.body.get()).write(body);
        }
    }

    /// Runs the thread until it suspends or ends. Touches no thread-local.
    ///
    /// # Safety
    /// The context is prepared, has not ended, and the caller alone may run it; the thread pointer
    /// is the green thread's.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> Action {
        // SAFETY: the caller's promise.
        match unsafe { (*self.body.get()).assume_init_mut() }.resume(()) {
            CoroutineResult::Yield(action) => action,
            CoroutineResult::Return(()) => Action::Exit,
        }
    }

    /// Leaves the stack; returns when the thread is resumed, perhaps on another kernel thread.
    ///
    /// # Safety
    /// Called on the context's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, action: Action) {
        // SAFETY: the caller runs on the context's own stack, so the yielder has been set and is
        // alive.
        unsafe { (*self.yielder.get()).suspend(action) }
    }
}
