//! A policy that a user wrote, in the scheduler.
//!
//! The scheduler's own policies keep its rules: they touch no thread-local, and do not panic. A
//! user's policy may break them, and still nothing may be undefined. So the scheduler calls a user's policy under
//! the kernel thread's own thread pointer, whichever is set, and if the user's policy unwinds, the process
//! is aborted.
//!
//! | called by | thread pointer then | what is done |
//! |---|---|---|
//! | the run loop, with a seat | perhaps that of the green thread before | `Worker::use_native_tls` |
//! | a green thread, with or without a seat | its own | the kernel thread's meanwhile |
//! | any other thread | its own | nothing |
//! | the builder of the runtime, later the spawner, for `resize` | its own | nothing |
//!
//! Invariant: a caller without a seat has its kernel thread's thread pointer, or is a green thread with preemption off. The
//! worker's current thread, if there is one, tells the first two callers apart.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::arch;
use crate::engine::atomic::{Ordering::*, compiler_fence};
use crate::engine::policy::{ForOthers, Next, Others, Policy, Readied, Ready, Seat, Victims};
use crate::engine::sched::{Cluster, Green, current};
use crate::engine::sys::{die, shared::AtomicStatic};

pub(crate) struct UserPolicy {
    pub(super) policy: &'static dyn Policy,
    /// The cluster whose policy it is; `None` while that is being made.
    pub(super) cluster: AtomicStatic<Cluster>,
}

impl UserPolicy {
    /// Runs `call` under the kernel thread's own thread pointer: the caller has `seat`.
    fn with_seat<R>(&self, seat: &Seat, call: impl FnOnce(&dyn Policy) -> R) -> R {
        let cluster = self.cluster.load(Relaxed);
        let owner = cluster.map(|cluster| &cluster.table.get(seat.index()).worker);
        let Some(worker) = owner.and_then(|owner| owner.load(Relaxed)) else {
            // Nobody owns the processor: the caller has it in hand, and runs under its own thread pointer.
            return self.call(call);
        };
        match worker.running() {
            Some(green) => self.call_from(green, call),
            None => {
                worker.use_native_tls();
                self.call(call)
            }
        }
    }

    /// The same without a seat. It is never inlined, so that the disassembly's reader finds it by
    /// name: it asks a thread-local for the current thread, and a caller with a seat must not do
    /// that.
    #[inline(never)]
    fn without_seat<R>(&self, call: impl FnOnce(&dyn Policy) -> R) -> R {
        let _off = current::preemption_off();
        match current::green() {
            None => self.call(call),
            Some(green) => self.call_from(green, call),
        }
    }

    /// The caller runs on `green`'s stack, with preemption off.
    #[inline(never)]
    fn call_from<R>(&self, green: &Green, call: impl FnOnce(&dyn Policy) -> R) -> R {
        // SAFETY: with preemption off the thread stays on this kernel thread; the code between the
        // two writes was written for any thread, and finds the kernel thread's thread-locals.
        unsafe { arch::set_thread_pointer(green.worker().own_thread_pointer.get()) };
        // Here and below, for the compiler: nothing of the call moves past a change of the pointer.
        compiler_fence(SeqCst);
        let result = self.call(call);
        compiler_fence(SeqCst);
        // SAFETY: as above; it is this thread's own.
        unsafe { arch::set_thread_pointer(green.thread_pointer.get()) };
        result
    }

    /// A thread can run in its own cluster only.
    fn check(&self, thread: &Ready) {
        if !self.cluster.is(thread.green().cluster(), Relaxed) {
            die("a policy has handed out a thread of another runtime");
        }
    }

    #[inline(never)]
    fn call<R>(&self, call: impl FnOnce(&dyn Policy) -> R) -> R {
        let called = catch_unwind(AssertUnwindSafe(|| call(self.policy)));
        called.unwrap_or_else(|_| die("a policy has panicked"))
    }
}

impl Policy for UserPolicy {
    fn ready(&self, thread: Ready, how: Readied, seat: Option<&Seat>) -> ForOthers {
        match seat {
            Some(seat) => self.with_seat(seat, |policy| policy.ready(thread, how, Some(seat))),
            None => self.without_seat(|policy| policy.ready(thread, how, None)),
        }
    }

    fn next(&self, seat: &Seat, others: Others) -> Option<Next> {
        let next = self.with_seat(seat, |policy| policy.next(seat, others));
        next.inspect(|next| self.check(&next.thread))
    }

    fn steal(&self, seat: &Seat, victims: Victims<'_>) -> Option<Ready> {
        let stolen = self.with_seat(seat, |policy| policy.steal(seat, victims));
        stolen.inspect(|thread| self.check(thread))
    }

    fn leave(&self, seat: &Seat) {
        self.with_seat(seat, |policy| policy.leave(seat));
    }

    fn resize(&self, processors: usize) {
        self.policy.resize(processors);
    }

    fn len(&self, processor: Option<usize>) -> usize {
        self.without_seat(|policy| policy.len(processor))
    }

    fn out_of_reach(&self, processor: usize) -> usize {
        self.without_seat(|policy| policy.out_of_reach(processor))
    }

    fn work_for_others(&self) -> ForOthers {
        self.without_seat(|policy| policy.work_for_others())
    }
}
