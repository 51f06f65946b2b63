//! The saved context of a green thread: the only user of corosensei.
//!
//! A context is prepared with the function it is to run, resumed by a kernel thread's run loop, and
//! suspends itself with an [`Action`], which the run loop does once the stack has been left. Parking is
//! safe because that is done there, and not before the switch: no thread is resumed whose context is
//! not yet saved.

use core::cell::{Cell, UnsafeCell};
use core::mem::{ManuallyDrop, MaybeUninit};
use std::sync::OnceLock;

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::engine::arch;
use crate::engine::atomic::{AtomicUsize, Ordering};

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
        // by whole instructions; an atomic load reads what is there.
        let word = unsafe { AtomicUsize::from_ptr(address as *mut usize) };
        Some(word.load(Ordering::Relaxed))
    }
}

type Body = Coroutine<(), Action, (), Bounds>;

/// A context. Only the owner of the green thread may touch it (see `green`).
pub(crate) struct Context {
    body: UnsafeCell<MaybeUninit<Body>>,
    yielder: Cell<*const Yielder<(), Action>>,
}

impl Context {
    /// For debuggers.
    pub(super) const BODY: usize = core::mem::offset_of!(Context, body);

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

    /// The stack pointer that was saved when the thread last left its stack; 0 if none was. For reports,
    /// while the thread may be running: the value may be old, and says where to look, not what is
    /// there.
    pub(crate) fn saved_stack_pointer(&self) -> usize {
        let Some(offset) = saved_at() else {
            return 0;
        };
        // SAFETY: a word of the body, which is aligned as words are. The thread that resumes the body may
        // write it meanwhile, by a plain store of one word.
        unsafe {
            let word = self.body.get().cast::<u8>().add(offset);
            AtomicUsize::from_ptr(word.cast()).load(Ordering::Relaxed)
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

/// Where in a body corosensei keeps the stack pointer of a stack that was left. `None`: it is not where we
/// look, and reports have no backtraces.
///
/// The field is private, so it is found by trying: it is the word that leads onto the stack, is equal to
/// another one (the first value) before the body has run, and has changed when the body has suspended.
pub(crate) fn saved_at() -> Option<usize> {
    static OFFSET: OnceLock<Option<usize>> = OnceLock::new();
    *OFFSET.get_or_init(find_saved)
}

fn find_saved() -> Option<usize> {
    const WORDS: usize = size_of::<Body>() / size_of::<usize>();
    const SIZE: usize = 16 << 10;
    let mut stack = vec![0_u128; SIZE / size_of::<u128>()];
    let bottom = stack.as_mut_ptr().expose_provenance();
    let bounds = Bounds {
        bottom,
        top: bottom + SIZE,
    };
    // SAFETY: the stack is ours until the body has ended, below, and large enough for one that does nothing.
    let mut body = unsafe {
        Body::with_stack_unchecked(bounds, |yielder: &Yielder<(), Action>, ()| {
            yielder.suspend(Action::Yield);
        })
    };
    let words = |body: &Body| -> [usize; WORDS] {
        let first = core::ptr::from_ref(body).cast::<usize>();
        // SAFETY: the body's own words: it consists of addresses, without gaps.
        core::array::from_fn(|i| unsafe { first.add(i).read() })
    };
    let before = words(&body);
    let _ = body.resume(());
    let after = words(&body);
    let _ = body.resume(());
    let mut found = (0..WORDS).filter(|&i| {
        let is_first = before.iter().filter(|&&word| word == before[i]).count() == 2;
        is_first && after[i] != before[i] && bounds.holds(before[i]) && bounds.holds(after[i])
    });
    let word = found.next()?;
    found.next().is_none().then_some(word * size_of::<usize>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_saved_stack_pointer_is_found() {
        assert!(super::saved_at().is_some());
    }
}
