//! Kernel threads that run a closure: std's, but in a forked child libc's.
//!
//! Every thread of std takes, at its start and at its end, a lock of the whole process: under it
//! std notes where the thread's guard page lies. (`std::process::exit` takes it too.) If a kernel
//! thread of the parent holds the lock at the fork, it stays locked in the child for ever. The lock
//! is short, but this is not rare: memory is allocated under it, and while a `fork` is under way
//! malloc makes all threads wait. A plain std program has the same problem; this is why POSIX
//! allows a child so little.
//!
//! libc puts its own locks right in the child, so a pthread is possible there. Such a thread lacks
//! the part that std does under the lock: the message when its stack overflows.

use core::mem::ManuallyDrop;
use std::ffi::c_void;
use std::io;
use std::os::unix::thread::JoinHandleExt;

use super::options::default_stack_size;
use crate::engine::sched::fork;
use crate::engine::sys::kernel_thread;

/// The space that libc takes on a thread's stack: for guard, control block and thread-locals.
const EXTRA: usize = 64 << 10;

/// The right to wait for a kernel thread. Dropping it detaches the thread.
pub(crate) struct Pthread(libc::pthread_t);

impl Pthread {
    pub(crate) fn pthread(&self) -> libc::pthread_t {
        self.0
    }

    /// Gives the caller the right to join or to detach the thread.
    pub(crate) fn into_pthread(self) -> libc::pthread_t {
        ManuallyDrop::new(self).0
    }

    /// Waits until the thread has ended, including C's work at its end.
    pub(crate) fn join(self) {
        // SAFETY: the right was there, so the thread is neither joined nor detached yet.
        unsafe { libc::pthread_join(self.into_pthread(), core::ptr::null_mut()) };
    }
}

impl Drop for Pthread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Starts a kernel thread that runs `main`, which does not unwind.
pub(super) fn spawn(
    name: Option<&str>,
    stack_size: Option<usize>,
    main: impl FnOnce() + Send + 'static,
) -> io::Result<Pthread> {
    if fork::is_child() {
        return spawn_in_child(name.map(Into::into), stack_size, main);
    }
    let mut builder = std::thread::Builder::new();
    if let Some(name) = name {
        builder = builder.name(name.into());
    }
    if let Some(size) = stack_size {
        builder = builder.stack_size(size);
    }
    builder
        .spawn(main)
        .map(|thread| Pthread(thread.into_pthread_t()))
}

fn spawn_in_child<F: FnOnce() + Send + 'static>(
    name: Option<Box<str>>,
    stack_size: Option<usize>,
    main: F,
) -> io::Result<Pthread> {
    extern "C" fn start<F: FnOnce()>(main: *mut c_void) -> *mut c_void {
        // SAFETY: the box comes from below, and belongs to this thread alone.
        let (name, main) = *unsafe { Box::from_raw(main.cast::<(Option<Box<str>>, F)>()) };
        if let Some(name) = name {
            kernel_thread::set_name(format_args!("{name}"));
        }
        main();
        core::ptr::null_mut()
    }
    let size = stack_size
        .unwrap_or_else(default_stack_size)
        .saturating_add(EXTRA);
    let main = Box::into_raw(Box::new((name, main)));
    // SAFETY: `start` gets what it expects.
    match unsafe {
        kernel_thread::start(size, libc::PTHREAD_CREATE_JOINABLE, start::<F>, main.cast())
    } {
        Ok(thread) => Ok(Pthread(thread)),
        Err(number) => {
            // SAFETY: there is no thread to own the box, and it is ours again.
            drop(unsafe { Box::from_raw(main) });
            Err(io::Error::from_raw_os_error(number))
        }
    }
}
