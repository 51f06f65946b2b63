//! One operation in flight: a record on the stack of the thread that waits for it.
//!
//! | state | the thread that may touch the record |
//! |---|---|
//! | made | its own thread |
//! | pushed (`Keeper::submit`) | the keeper; its own thread waits on `waiter` and looks at nothing else |
//! | completed (`Operation::complete`) | its own thread |
//!
//! # Why the kernel never writes into freed memory
//! [`perform`] borrows the memory that an entry points to (buffers, messages, paths) and the record
//! itself. It does not return before the keeper has seen the operation's completion, after which
//! the kernel touches neither. Nothing else takes the thread out of `perform`:
//! - a time-out does not: the thread asks the kernel to end the operation, and goes on waiting. The
//!   answer may be that the operation was done in time after all: then it *is* done, no byte is
//!   lost.
//! - a panic does not: between push and completion nothing is called that could panic.
//! - no code unwinds or drops a waiting green thread: its stack is freed when it has ended. A
//!   kernel thread could only be cancelled, which the documentation forbids.
//! - a hand-off, a blocked or retired worker, or a migration does not concern the operation: the
//!   ring belongs to the keeper, which lives as long as the process.
//! - a forked child has a copy of the memory and no ring; operations complete in the parent. When
//!   the process ends or becomes another program, the kernel ends its operations first.
//!
//! # Invariants
//! 1. An operation has one completion: no multishot, no zero-copy sends, no skipped completions.
//! 2. The keeper writes `result`, then wakes the thread, and touches nothing of the record
//!    afterwards. The wake-up publishes (`sched::park`).
//! 3. A cancellation is an operation itself, pushed after the operation that it names, so the
//!    kernel sees it later. The name is the record's address, which no other record has while its
//!    thread is in `perform`.

use std::cell::Cell;
use std::io;

use io_uring::{opcode, squeue};

use super::inbox::Linked;
use super::keeper::Keeper;
use crate::engine::driver::Limit;
use crate::engine::sched::list::Fifo;
use crate::engine::sys::{clock, perturb};
use crate::engine::wait::{Outcome, WaitKind, WaitReason, Waiter, reason};

pub(super) struct Operation {
    link: Cell<*const Operation>,
    entry: squeue::Entry,
    result: Cell<i32>,
    waiter: Waiter,
}

// SAFETY: `link` returns one cell, which only the inbox uses.
unsafe impl Linked for Operation {
    fn link(&self) -> &Cell<*const Operation> {
        &self.link
    }
}

impl Operation {
    fn new(entry: squeue::Entry) -> Operation {
        Operation {
            link: Cell::new(std::ptr::null()),
            entry,
            result: Cell::new(0),
            waiter: Waiter::new(),
        }
    }

    /// The operation's name in the ring.
    fn name(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The entry for the ring.
    pub(super) fn entry(&self) -> squeue::Entry {
        self.entry.clone().user_data(self.name())
    }

    /// Completes the operation `name`, with which the kernel is done. A green thread that waits for
    /// it goes into `ready`.
    ///
    /// # Safety
    /// The name is that of an entry in the ring, and this is its completion.
    pub(super) unsafe fn complete(name: u64, result: i32, ready: &mut Fifo) {
        let operation: *const Operation = std::ptr::with_exposed_provenance(name as usize);
        // SAFETY: the operation's thread waits until it is woken, and the wake-up is the last
        // access here.
        let green = unsafe {
            (*operation).result.set(result);
            Waiter::notify_at(&raw const (*operation).waiter)
        };
        if let Some(green) = green {
            ready.push(green);
        }
    }
}

/// For reports.
static OPERATION: WaitKind = WaitKind::outside("operation of io_uring", reason::nothing);

/// The time after which the thread asks the kernel again to end an operation whose time is up. The
/// kernel may miss an operation on the way between two of its queues, and cannot end one that a
/// disk is working on.
const ASK_AGAIN: u64 = 100_000_000;

/// Has the kernel do the operation `entry`, and waits for it.
///
/// # Safety
/// The memory that the entry points to stays valid, and the memory that the kernel writes to is
/// lent to nobody else, until this returns. The entry makes one completion.
pub(super) unsafe fn perform(
    keeper: &'static Keeper,
    entry: squeue::Entry,
    limit: Limit,
) -> io::Result<usize> {
    let mut deadline = match limit {
        Limit::Forever => None,
        Limit::Until(deadline) => Some(deadline),
        Limit::DontWait => Some(0),
    };
    let mut expired = false;
    loop {
        let operation = Operation::new(entry.clone());
        // SAFETY: the record stays here until it is completed; the memory it points to, by the
        // caller's promise.
        unsafe { keeper.submit(&operation) };
        while operation
            .waiter
            .wait(WaitReason::new(&OPERATION, &operation), deadline)
            == Outcome::Expired
        {
            expired = true;
            perturb::point("operation: cancelling");
            let cancel = opcode::AsyncCancel::new(operation.name()).build();
            // The answer does not matter: the operation has its own completion.
            // SAFETY: the entry has no pointers.
            let _ = unsafe { perform(keeper, cancel, Limit::Forever) };
            deadline = Some(clock::now() + ASK_AGAIN);
        }
        return match -operation.result.get() {
            libc::ECANCELED | libc::EINTR if expired => {
                Err(io::Error::from_raw_os_error(libc::EAGAIN))
            }
            libc::EINTR => continue,
            error if error > 0 => Err(io::Error::from_raw_os_error(error)),
            done => Ok(done.unsigned_abs() as usize),
        };
    }
}
