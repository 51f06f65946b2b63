//! `setuid` and its like change one kernel thread. libc makes them change the process: it sends its
//! own signal to every kernel thread, and the signal's handler makes the same call and reports to
//! the thread's control block. On a kernel thread that runs a green thread, the thread pointer
//! names another block.
//!
//! So libc's handler is wrapped: the kernel thread's own thread pointer is put back while it runs.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::engine::arch;
use crate::engine::sched::worker;
use crate::engine::sys::{self, kernel_thread};

/// The signal after the first real-time one, which libc keeps to itself.
const SIGSETXID: usize = 33;

type Handler = unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// libc's handler; 0 until it is wrapped.
static WRAPPED: AtomicUsize = AtomicUsize::new(0);

/// The kernel's sigaction.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Wraps libc's handler, which it has installed when the first kernel thread was made. Once per
/// process.
pub(crate) fn wrap() {
    let mut action = Action {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    // SAFETY: the kernel's layout; only the handler is changed, to one of the same type.
    unsafe {
        let place = &raw mut action as usize;
        let asked = sys::call(libc::SYS_rt_sigaction, &[SIGSETXID, 0, place, 8]);
        if asked.is_err() || action.handler <= libc::SIG_IGN {
            return;
        }
        WRAPPED.store(action.handler, Ordering::Relaxed);
        let ours = Action {
            handler: on_signal as *const () as usize,
            ..action
        };
        let place = &raw const ours as usize;
        let _ = sys::call(libc::SYS_rt_sigaction, &[SIGSETXID, place, 0, 8]);
    }
}

unsafe extern "C" fn on_signal(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let id = kernel_thread::id() as u32;
    // If this interrupts the scheduler, the green thread that this thread pointer belongs to may be
    // running elsewhere by now. So the worker is found by its kernel thread; the signal is rare.
    let here = worker::all().find(|m| m.kernel_thread.load(Ordering::Relaxed) == id);
    // SAFETY: libc's handler, with its arguments, under the block that it expects.
    unsafe {
        let libc_handler = core::mem::transmute::<usize, Handler>(WRAPPED.load(Ordering::Relaxed));
        match here {
            Some(worker) => under(worker.own_thread_pointer(), || {
                libc_handler(signal, info, context)
            }),
            None => libc_handler(signal, info, context),
        }
    }
}

/// # Safety
/// `own` is this kernel thread's own control block.
#[inline(never)]
unsafe fn under(own: *mut u8, f: impl FnOnce()) {
    let interrupted = arch::thread_pointer();
    // SAFETY: the caller's promise; this function touches no thread-local itself, and puts back the
    // thread pointer that it found.
    unsafe {
        arch::set_thread_pointer(own);
        f();
        arch::set_thread_pointer(interrupted);
    }
}
