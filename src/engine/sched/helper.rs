//! Helpers: kernel threads that work for the runtime and run no green threads of their own accord.
//!
//! | function | the thread | for |
//! |---|---|---|
//! | [`spawn`] | std's, with all signals blocked | monitor, spawner, keeper of a ring, reporters |
//! | [`bare`] | libc's, which never touches the program's allocator | workers, and the proxy of `dlclose` |
//!
//! A search for deadlocks counts no helper among the threads that could wake another.

use core::ffi::c_void;
use std::io;

use crate::engine::inspect::kernel::{KernelThread, quiet};
use crate::engine::sys::{kernel_thread, signal};
use crate::engine::tls;

/// The stack of a helper.
pub(crate) const STACK: usize = 256 << 10;
/// The stack of a helper that looks at threads: it unwinds stacks, and reads debug information.
pub(crate) const OBSERVER_STACK: usize = 2 << 20;

/// Starts a helper that does `work`. It runs no handler of the program's.
// Not generic: std's code for a thread is in the binary once.
pub(crate) fn spawn(
    name: &str,
    stack_size: usize,
    work: Box<dyn FnOnce() + Send>,
) -> io::Result<()> {
    // A new thread begins with its creator's mask.
    let mask = signal::set_mask(signal::ALL);
    let started = std::thread::Builder::new()
        .name(name.into())
        .stack_size(tls::with_thread_locals(stack_size))
        .spawn(move || {
            KernelThread::begin(true);
            // A search for a deadlock may have found a kernel thread that was not known.
            quiet::tell();
            work();
            KernelThread::end();
        });
    signal::set_mask(mask);
    started.map(drop)
}

/// Starts a kernel thread that calls `main(argument)`, with libc's means alone. A thread of std's allocates and takes
/// locks of std's at its start, before any code of ours runs: one that is made so that a preempted holder of the
/// allocator's lock can go on would wait for that holder.
///
/// # Safety
/// `main` may be called so, on a thread of its own, and does not unwind.
pub(super) unsafe fn bare(
    main: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<(), i32> {
    let size = tls::with_thread_locals(STACK);
    // SAFETY: the caller's promise.
    unsafe { kernel_thread::start(size, libc::PTHREAD_CREATE_DETACHED, main, argument) }.map(drop)
}
