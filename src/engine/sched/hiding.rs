//! Which green thread is this, at a place where it may enter the scheduler? None, where a thread must neither enter nor leave
//! its kernel thread: in a signal handler, which may have interrupted the scheduler and has a frame that only its kernel thread can return
//! to; and in a child of `vfork`, which runs on its parent's memory. There the thread is *hidden*:
//!
//! | | `green` | `frame` | `hidden` |
//! |---|---|---|---|
//! | green thread | it | 0 | – |
//! | … in a handler | none | the address of the outermost handler's frame | it |
//! | … while a child of `vfork` runs | none | [`VFORK`] | it |
//! | kernel thread | none | 0 | none |
//! | … in a handler | none | as above | none |
//!
//! A handler may be left by `siglongjmp`, or by unwinding. Then the stack pointer lies above its frame, or on
//! another stack, at the next question, which finds that out and brings the thread back ([`Hiding::come_out`]).
//!
//! Invariants:
//! 1. Only the thread and the handlers that interrupt it touch these words, and each handler is done
//!    before the thread goes on. One that interrupts another one's first or last instructions here
//!    leaves the words as they were.
//! 2. A hidden thread is not preempted: the program's handlers run with the preemption signal blocked, and
//!    [`ThreadFlags::HIDDEN`] is for those that unblock it. It is there before `green` is gone, and goes after `green` has come back.
//! 3. Who hides a thread undoes what it has changed itself, and no more.

use super::{Green, ThreadFlags};
use crate::engine::atomic::{Cell, Ordering, compiler_fence, const_fn};

/// The frame of no handler: a child of `vfork` runs on this thread's memory.
pub(crate) const VFORK: usize = usize::MAX;

/// A thread's words.
pub(crate) struct Hiding {
    /// The green thread that runs here; none where it is hidden.
    green: Cell<Option<&'static Green>>,
    /// See the table above.
    frame: Cell<usize>,
    hidden: Cell<Option<&'static Green>>,
}

/// What [`Hiding::hide`] has changed.
#[derive(Clone, Copy)]
pub(crate) struct Changed {
    green: Option<&'static Green>,
    frame: bool,
    /// [`ThreadFlags::HIDDEN`] was not there.
    oddity: bool,
}

impl Changed {
    /// Nothing was hidden, since there are no green threads.
    pub(crate) const NOTHING: Changed = Changed {
        green: None,
        frame: true,
        oddity: false,
    };

    /// Whether the thread was not hidden before.
    pub(crate) fn is_outermost(self) -> bool {
        self.frame
    }
}

impl Hiding {
    const_fn! {
        /// Those of a kernel thread.
        pub(crate) const fn new() -> Hiding {
            Hiding {
                green: Cell::new(None),
                frame: Cell::new(0),
                hidden: Cell::new(None),
            }
        }
    }

    /// These are the words of `green`, whose life begins.
    pub(crate) fn begin(&self, green: &'static Green) {
        self.green.set(Some(green));
    }

    /// They are a kernel thread's from now on.
    pub(crate) fn forget(&self) {
        self.green.set(None);
        self.hidden.set(None);
    }

    /// The answer.
    #[inline(always)]
    pub(crate) fn green(&self) -> Option<&'static Green> {
        self.green.get().or_else(|| self.come_out())
    }

    /// The green thread, hidden or not.
    pub(crate) fn owner(&self) -> Option<&'static Green> {
        self.green.get().or(self.hidden.get())
    }

    #[inline(always)]
    pub(crate) fn is_hidden(&self) -> bool {
        self.come_out();
        self.frame.get() != 0
    }

    pub(crate) fn is_child_of_vfork(&self) -> bool {
        self.frame.get() == VFORK
    }

    /// A handler begins that has its frame at `frame`, or the thread is about to make a child by `vfork`.
    pub(crate) fn hide(&self, frame: usize) -> Changed {
        let green = self.green();
        let is_outermost = !self.is_hidden();
        let is_preempted = green.is_some_and(|green| !green.flags.has(ThreadFlags::HIDDEN));
        if let Some(thread) = green {
            thread.flags.add(ThreadFlags::HIDDEN);
            compiler_fence(Ordering::SeqCst);
            self.hidden.set(green);
            compiler_fence(Ordering::SeqCst);
            self.green.set(None);
        }
        compiler_fence(Ordering::SeqCst);
        if is_outermost {
            self.frame.set(frame);
        }
        Changed {
            green,
            frame: is_outermost,
            oddity: is_preempted,
        }
    }

    /// Takes a [`hide`](Hiding::hide) back.
    pub(crate) fn reveal(&self, changed: Changed) {
        if changed.frame {
            self.frame.set(0);
        }
        compiler_fence(Ordering::SeqCst);
        self.bring_back(changed.green, changed.oddity);
    }

    /// The thread is hidden no longer, whatever has hidden it.
    pub(crate) fn reveal_all(&self) {
        self.frame.set(0);
        compiler_fence(Ordering::SeqCst);
        self.bring_back(self.hidden.get(), true);
    }

    /// Brings a thread back whose handler has been left without returning; returns the thread.
    #[inline]
    fn come_out(&self) -> Option<&'static Green> {
        match self.frame.get() {
            0 => None,
            frame => self.come_out_of(frame),
        }
    }

    #[cold]
    fn come_out_of(&self, frame: usize) -> Option<&'static Green> {
        if frame == VFORK || self.is_alive(frame) {
            return None;
        }
        self.reveal_all();
        // It may be the handler's mask that is left.
        self.hidden
            .get()
            .inspect(|thread| thread.flags.add(ThreadFlags::MASK))
    }

    /// Whether the handler with this frame has not been left: what it calls lies below it. A handler on the
    /// alternate stack has been left if this is the thread's own stack.
    fn is_alive(&self, frame: usize) -> bool {
        let here = core::ptr::from_ref(&frame).addr();
        let on_stack = |address| {
            let stack = self.hidden.get().and_then(Green::bounds);
            stack.is_some_and(|stack| stack.holds(address))
        };
        match (on_stack(frame), on_stack(here)) {
            (false, true) => false,
            (true, false) => true,
            _ => here < frame,
        }
    }

    fn bring_back(&self, green: Option<&'static Green>, may_be_preempted: bool) {
        if let Some(thread) = green {
            self.green.set(green);
            compiler_fence(Ordering::SeqCst);
            if may_be_preempted {
                thread.flags.remove(ThreadFlags::HIDDEN);
            }
        }
    }
}
