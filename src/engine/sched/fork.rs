//! A forked child has one kernel thread, the one that forked. If that ran a green thread, this
//! thread goes on. All others exist in the parent only, and must not run in the child: their code
//! would run twice.
//!
//! So an atfork handler makes the child forget the runtime: the current thread is a kernel thread's
//! from now on (it parks on futexes), nothing preempts it, new threads are kernel threads, and the
//! queues are dropped as they are, without their locks. When the thread that forked returns, the
//! process ends, as it would with a pthread.
//!
//! Invariant: the child takes no lock that a thread of the parent may have held at the fork, unless
//! libc releases it in the child (malloc's, stdio's, the loader's, the list of pthreads). That
//! rules out the scheduler's locks, everything that is made at its first use, and std's threads
//! (`backend::bare`).

use std::sync::{Once, OnceLock};

use crate::engine::atomic::{AtomicBool, Ordering};
use crate::engine::green::Identity;
use crate::engine::green::current;
use crate::engine::sched::enter;
use crate::engine::sys;

/// See [`let_go_on_as`].
static GO_ON_AS: OnceLock<fn(*const Identity)> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);
/// The distance from the thread pointer to the area where the kernel notes a thread's CPU, where
/// glibc has registered one.
static RSEQ: OnceLock<Option<isize>> = OnceLock::new();

/// Registers the handler, once per process, and makes the things that the child will use.
pub(crate) fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(register_first);
}

/// If the child's thread was a green one, it calls `go_on_as` with its identity: from then on that
/// is a kernel thread's identity. `go_on_as` is async-signal-safe.
pub(crate) fn let_go_on_as(go_on_as: fn(*const Identity)) {
    GO_ON_AS.get_or_init(|| go_on_as);
}

fn register_first() {
    RSEQ.get_or_init(|| {
        // SAFETY: the names are those of glibc's two constants, and the constants have these types.
        unsafe {
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
            let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
            (!size.is_null() && !offset.is_null() && *size != 0).then(|| *offset)
        }
    });
    // SAFETY: the handler is async-signal-safe: it writes an atomic and a thread-local, and makes a
    // system call.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

unsafe extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    let Some(green) = current::green() else {
        return;
    };
    if let Some(Some(offset)) = RSEQ.get() {
        // The kernel's note about this kernel thread lies in the control block of a pthread that
        // glibc takes for dead now. Its stack will be another thread's, or be unmapped, and then
        // the kernel kills us at a context switch.
        const UNREGISTER: usize = 1;
        const SIGNATURE: usize = 0x5305_3053;
        const SIZE: usize = 32;
        let area = enter::home(green).wrapping_offset(*offset) as usize;
        // SAFETY: the kernel only forgets the area; if it has another one it refuses.
        let _ = unsafe { sys::call(libc::SYS_rseq, &[area, SIZE, UNREGISTER, SIGNATURE]) };
    }
    if let Some(go_on_as) = GO_ON_AS.get() {
        go_on_as(green.identity.load(Ordering::Relaxed));
    }
    current::set_green(None);
}

/// Whether this process was forked from one with a runtime.
pub(crate) fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
