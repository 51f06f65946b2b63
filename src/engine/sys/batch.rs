//! A ring for operations that do not wait: one system call performs some at a time, and all of them
//! are done when it returns.
//!
//! The keeper's ring belongs to a kernel thread that does nothing else, for the sake of the
//! operations in flight (`driver::uring::keeper`). Here no operation is in flight outside
//! [`Batch::perform`]: no thread's end cancels an operation, and no completion comes while its
//! submitter is elsewhere. So a batch belongs to its holder, on whatever kernel thread, and after
//! `perform` the kernel touches no memory that an entry points to.
//!
//! An operation that declares that it does not wait (`MSG_DONTWAIT`) is done, or has failed with
//! EAGAIN, by the time the kernel has taken it. Should one be late all the same, `perform` waits.
//!
//! # Invariants
//! 1. Between two calls of `perform` both queues hold the operations pushed since, and nothing
//!    else; or the kernel has refused something, and the ring is never entered again.
//! 2. At most [`SIZE`] operations are pushed for one `perform`; the completion queue has space for
//!    twice as many.
//! 3. `push` and `perform` run under any thread pointer, and allocate nothing.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

pub(crate) use io_uring::squeue::Entry;
use io_uring::{EnterFlags, IoUring};

use crate::engine::sys;

/// The number of operations that one system call performs at most. With 8 it was as good; with 24
/// and 32 the replies to a hundred connections came so late that their next requests did too.
pub(crate) const SIZE: usize = 16;

pub(crate) struct Batch {
    ring: IoUring,
    refused: bool,
}

impl Batch {
    /// Makes a ring. An error: there is no io_uring here, or an old one (before Linux 5.18).
    /// Allocates.
    pub(crate) fn new() -> io::Result<Batch> {
        let mut builder = IoUring::builder();
        let ring = builder.dontfork().setup_submit_all().build(SIZE as u32)?;
        Ok(Batch {
            ring,
            refused: false,
        })
    }

    /// Whether the kernel has taken all operations that it was given.
    pub(crate) fn is_usable(&self) -> bool {
        !self.refused
    }

    /// Puts an operation into the batch, under a name.
    ///
    /// # Safety
    /// The memory that the entry points to stays valid until [`Batch::perform`] returns. The entry
    /// makes one completion, and does not wait.
    pub(crate) unsafe fn push(&mut self, entry: &Entry, name: u64) {
        let entry = entry.clone().user_data(name);
        // SAFETY: the caller's promise.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            sys::die("a batch of operations is too long");
        }
    }

    /// Performs the pushed operations, and tells `done` the name and the result of each. If the
    /// kernel refuses some, for want of memory or because somebody forbids io_uring now, `done`
    /// does not hear of them, and the batch is not usable any more.
    pub(crate) fn perform(&mut self, mut done: impl FnMut(u64, i32)) {
        let mut open = self.ring.submission().len();
        let mut refused = 0;
        while open != refused {
            let queued = self.ring.submission().len();
            let is_late = queued == refused;
            let entered = match is_late {
                true => self.enter(0, 1, EnterFlags::GETEVENTS),
                false => self.enter(queued, 0, EnterFlags::empty()),
            };
            for completion in self.ring.completion() {
                done(completion.user_data(), completion.result());
                open -= 1;
            }
            match entered {
                Err(libc::EINTR) => {}
                Ok(taken) if is_late || taken != 0 => {}
                Err(libc::EBADF | libc::EOPNOTSUPP) if is_late => {
                    sys::die("a ring is gone: who closed its descriptor?")
                }
                // Somebody forbids io_uring now. The operations that were taken complete by
                // themselves.
                _ if is_late => sys::kernel_thread::give_way(),
                _ => refused = queued,
            }
        }
        self.refused = refused != 0;
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    fn enter(&self, submit: usize, want: usize, flags: EnterFlags) -> Result<usize, i32> {
        let flags = flags.bits() as usize;
        let arguments = [self.descriptor() as usize, submit, want, flags, 0, 0];
        // SAFETY: the memory that the entries point to is valid, as `push` demands; after a refusal
        // nothing is submitted.
        unsafe { sys::call(libc::SYS_io_uring_enter, &arguments) }
    }
}
