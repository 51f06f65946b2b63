//! A forked child has one kernel thread, the one that forked. If that ran a green thread, the
//! thread goes on; all others exist in the parent only, and must not be run here: their code would
//! run twice.
//!
//! So an atfork handler makes the child forget the runtime: the current thread is a kernel thread's
//! from now on (it parks on futexes), nothing preempts it, new threads are kernel threads, and the
//! queues are dropped as they are, without their locks. When the thread that forked returns, the
//! process ends, as it would with a pthread.

use crate::atomic::{AtomicBool, Ordering};
use crate::current;

static FORKED: AtomicBool = AtomicBool::new(false);

/// Registers the handler. Once per process.
pub(crate) fn register() {
    // SAFETY: the handler is async-signal-safe: it writes an atomic and a thread-local.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    current::set_green(None);
}

/// Whether this process was forked from one with a runtime.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
