//! Kernel threads made without std, for a forked child.
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

use core::ffi::CStr;
use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;

use super::config::default_stack_size;
use crate::engine::sys::mm::page;

/// The space that libc takes on a thread's stack: for guard, control block and thread-locals.
const EXTRA: usize = 64 << 10;

/// The right to wait for a thread. Dropping it detaches the thread.
pub(crate) struct Handle(libc::pthread_t);

impl Handle {
    pub(crate) fn pthread(&self) -> libc::pthread_t {
        self.0
    }

    /// Gives the caller the right to join or to detach the thread.
    pub(crate) fn into_pthread(self) -> libc::pthread_t {
        core::mem::ManuallyDrop::new(self).0
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        let thread = self.0;
        core::mem::forget(self);
        // SAFETY: the handle was there, so the thread is neither joined nor detached yet.
        unsafe { libc::pthread_join(thread, core::ptr::null_mut()) };
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Starts a thread that runs `main`, which does not unwind.
///
/// # Safety
/// All that `main` borrows outlives the thread.
pub(super) unsafe fn spawn<F: FnOnce() + Send>(
    stack_size: Option<usize>,
    main: F,
) -> io::Result<Handle> {
    extern "C" fn start<F: FnOnce()>(main: *mut c_void) -> *mut c_void {
        // SAFETY: the box comes from below, and belongs to this thread alone.
        unsafe { Box::from_raw(main.cast::<F>())() };
        core::ptr::null_mut()
    }
    let size = stack_size
        .unwrap_or_else(default_stack_size)
        .saturating_add(EXTRA);
    let main = Box::into_raw(Box::new(main));
    let (mut attributes, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the attributes are initialised first and destroyed last; `start` gets what it
    // expects; if there is no thread to own the box, it is ours again.
    unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        // An absurd size is refused, and the default remains.
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size.next_multiple_of(page()));
        let (place, attributes) = (thread.as_mut_ptr(), attributes.as_mut_ptr());
        let error = libc::pthread_create(place, attributes, start::<F>, main.cast());
        libc::pthread_attr_destroy(attributes);
        if error != 0 {
            drop(Box::from_raw(main));
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Handle(thread.assume_init()))
    }
}

/// Names the calling kernel thread; the system keeps the first 15 bytes of `name`.
pub(super) fn set_name(name: &str) {
    const KEPT: usize = 15;
    let mut text = [0; KEPT + 1];
    let length = name.len().min(KEPT);
    text[..length].copy_from_slice(&name.as_bytes()[..length]);
    if let Ok(text) = CStr::from_bytes_until_nul(&text) {
        // SAFETY: the call gets the calling thread, and a string of the length allowed.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), text.as_ptr()) };
    }
}
