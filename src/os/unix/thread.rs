//! The `pthread_t` of threads, like [`std::os::unix::thread`].
//!
//! std's trait [`JoinHandleExt`] applies to [`JoinHandle`](crate::JoinHandle). A green thread gets its `pthread_t`
//! when it first runs; a caller that asks earlier waits until then.
//!
//! A green thread's `pthread_t` equals the result of `pthread_self()` in that thread, and can be
//! compared (`pthread_equal`) until the thread has ended. It must not be used for anything else:
//! neither libc nor the kernel made the thread, so calls that join, detach, cancel or signal it, or
//! ask for its attributes, affinity or CPU clock, fail or do harm. In kernel-thread mode, the
//! `pthread_t` of a kernel thread has no such limits.
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
