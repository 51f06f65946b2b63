//! The `pthread_t` of threads, like [`std::os::unix::thread`].
//!
//! std's trait [`JoinHandleExt`] applies to [`JoinHandle`]. A green thread has its `pthread_t` from
//! the moment when it first runs; a caller that asks earlier waits.
//!
//! A green thread's `pthread_t` equals the result of `pthread_self()` in that thread, and can be
//! compared (`pthread_equal`) until the thread has ended. It is good for nothing else: neither libc
//! nor the kernel made the thread, so nobody can use it to join, detach, cancel or signal the
//! thread, nor to ask for its attributes, affinity or CPU clock. Such calls fail, or do harm. The
//! `pthread_t` of a kernel thread, in kernel-thread mode, is good for everything.
//!
//! # Examples
//!
//! ```
//! use greenthread::os::unix::thread::JoinHandleExt;
//!
//! let thread = greenthread::spawn(|| unsafe { libc::pthread_self() });
//! let known = thread.as_pthread_t();
//! assert_eq!(thread.join().unwrap(), known);
//! ```

#[doc(no_inline)]
pub use std::os::unix::thread::{JoinHandleExt, RawPthread};

use crate::thread::JoinHandle;

impl<T> JoinHandleExt for JoinHandle<T> {
    fn as_pthread_t(&self) -> RawPthread {
        self.pthread()
    }

    fn into_pthread_t(self) -> RawPthread {
        self.into_pthread()
    }
}
