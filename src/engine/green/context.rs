//! The saved context of a green thread.
//!
//! A context is prepared with the function it is to run, resumed by a kernel thread's run loop, and
//! suspends itself with an [`Action`], which the run loop does once the stack has been left. Parking is
//! safe because that is done there, and not before the switch: no thread is resumed whose context is
//! not yet saved.
//!
//! | the thread … | `own` | `run_loop` |
//! |---|---|---|
//! | has never run | where its first code begins | nothing |
//! | runs | (old) | the stack of the run loop that has resumed it |
//! | has left its stack | where it goes on | (old) |

use core::cell::Cell;

use crate::engine::arch;
use crate::engine::atomic::{AtomicUsize, Ordering};
use crate::engine::sys::sanitizer;

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

impl Bounds {
    pub(crate) fn holds(&self, address: usize) -> bool {
        (self.bottom..self.top).contains(&address)
    }

    /// Reads a word of the stack, which another thread may be running on; for reports.
    pub(crate) fn word(&self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        let last = address.checked_add(WORD - 1)?;
        if !address.is_multiple_of(WORD) || !self.holds(address) || !self.holds(last) {
            return None;
        }
        // SAFETY: the word is in the slot, which is mapped for as long as the process lives. Others write it
        // by whole instructions; this one reads what is there.
        Some(unsafe { arch::stack_word(address) })
    }
}

/// A context. Only the owner of the green thread may touch it (see `green`), but for a look at `own`.
pub(crate) struct Context {
    /// The stack pointer of the thread. Relaxed: it belongs to the owner, and others take it for a hint.
    own: AtomicUsize,
    /// The stack pointer of the run loop.
    run_loop: Cell<usize>,
}

impl Context {
    /// For debuggers: where the thread's stack pointer is kept.
    pub(super) const OWN: usize = core::mem::offset_of!(Context, own);

    pub(crate) const fn new() -> Context {
        Context {
            own: AtomicUsize::new(0),
            run_loop: Cell::new(0),
        }
    }

    /// Has the first [`resume`](Context::resume) call `main(with)` on this stack.
    ///
    /// # Safety
    /// The stack is unused, mapped as long as the process lives, and the caller's alone; its top is aligned to 16
    /// bytes. `main` may be called with this address, and does not unwind.
    pub(crate) unsafe fn prepare(
        &self,
        stack: Bounds,
        main: unsafe extern "C" fn(*mut ()) -> !,
        with: *mut (),
    ) {
        // SAFETY: the caller's promise.
        let own = unsafe { arch::fresh_stack(stack.top, main, with) };
        self.own.store(own, Ordering::Relaxed);
    }

    /// Runs the thread until it suspends or ends. Touches no thread-local.
    ///
    /// # Safety
    /// The context is prepared, has not ended, and the caller alone may run it; the thread pointer
    /// is the green thread's.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self) -> Action {
        // SAFETY: the stack is prepared, or its thread has left it, and nobody else is on it: the caller's promise.
        // The word is an action: only `suspend` comes back here.
        unsafe {
            let word = arch::switch(self.run_loop.as_ptr(), self.own.load(Ordering::Relaxed), 0);
            core::mem::transmute::<usize, Action>(word)
        }
    }

    /// The stack pointer that was saved when the thread last left its stack; 0 if none was. For reports and
    /// prefetches, while the thread may be running: the value may be old, and says where to look, not what
    /// is there.
    pub(crate) fn saved_stack_pointer(&self) -> usize {
        self.own.load(Ordering::Relaxed)
    }

    /// Leaves the stack; returns when the thread is resumed, perhaps on another kernel thread.
    ///
    /// # Safety
    /// Called on the context's own stack.
    #[inline(always)]
    pub(crate) unsafe fn suspend(&self, action: Action) {
        let _unseen = sanitizer::unseen();
        // SAFETY: the run loop has left its stack in `resume`, and waits there for this thread.
        unsafe { arch::switch(self.own.as_ptr(), self.run_loop.get(), action as usize) };
    }

    /// Leaves the stack for good.
    ///
    /// # Safety
    /// Called on the context's own stack, by its first code.
    pub(super) unsafe fn end(&self) -> ! {
        // SAFETY: the caller's promise.
        unsafe { self.suspend(Action::Exit) };
        crate::engine::sys::die("a thread was resumed that has ended")
    }

    /// Forgets the stack, up to `top`, which belongs to another thread now.
    pub(super) fn forget(&self, top: usize) {
        let own = self.own.load(Ordering::Relaxed);
        // SAFETY: the thread has left its last frames for good, here.
        unsafe { sanitizer::forget_frames(own, top - own) };
        self.own.store(0, Ordering::Relaxed);
    }
}
