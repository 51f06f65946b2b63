//! What libc calls a thread, as in [`std::os::unix::thread`].
//!
//! std's trait applies to [`JoinHandle`]. A green thread's `pthread_t` is what
//! `pthread_self()` says in that thread, and it can be compared (`pthread_equal`) until the thread has
//! ended. That is all: neither libc nor the kernel made the thread, so with it nobody can join,
//! detach, cancel or signal, nor ask for attributes, affinity or a CPU clock; such calls fail, or do
//! harm. It is there when the thread first runs: who asks earlier waits. A kernel thread's, in
//! kernel-thread mode, is good for all that std's is.
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
