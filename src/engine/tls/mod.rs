//! The thread-local block of a green thread, which makes `spawn` safe.
//!
//! # The idea
//!
//! glibc gives a kernel thread one piece of memory that everything per-thread hangs off: its
//! thread-locals, and beside them the control block (`struct pthread`); the thread pointer leads to the
//! place between the two. A green thread gets such a piece of its own, at the top of its stack, and the thread
//! pointer is switched with the stack. So whatever a thread reached through a thread-local (a
//! reference, `errno`, std's panic count, malloc's cache) is still its own after it moved to
//! another kernel thread.
//!
//! ```text
//!   top  ->  +---------------------------+  high addresses
//!            | control block             |  struct pthread (on aarch64 the thread-locals; see `layout`)
//!   tp   ->  +---------------------------+  the thread pointer, aligned as the loader asks
//!            | thread-locals             |  (the control block) of the program, of libc, of every library loaded at
//!            |                           |  start, and some surplus for libraries loaded later
//!            |                           |  (static TLS)
//!            +---------------------------+
//!            | our own record            |  64 bytes: which snapshot of the libraries the block
//!            |                           |  was reset to
//!   stack -> +---------------------------+
//!            | stack, growing down       |
//! ```
//!
//! # The life of a block
//!
//! ```text
//!            create            enter             exit             recycle
//!   memory ---------> fresh ---------> running ---------> ended ---------> fresh
//!                                                           |
//!                                                           +----destroy---> memory
//! ```
//!
//! `enter` and `exit` run on the green thread, preemptible; `create` and `destroy` on any thread,
//! preemptible; `recycle` in the scheduler with preemption off: it only copies and clears memory.
//!
//! # Reading order
//!
//! `layout` refuses versions of glibc that are too old, asks glibc where things lie, refuses what it does not recognise
//! (`probe` looks where glibc does not say), and has the tools of all: glibc's memory, and its functions; `block` is the
//! life above, with the destructors of pthread keys and the robust mutexes at its end; `modules` knows the initial
//! contents of every library's thread-locals (`sys::libraries` lists the libraries); `selftest` tries all of it once,
//! before the first spawn, and over an unknown glibc in a child process before that.
//!
//! # Limits
//!
//! - A library with initialised *initial-exec* thread-locals that is loaded while green threads
//!   run: the loader does not know their blocks, so in threads already running its thread-locals
//!   start as zero. Reported on stderr (`modules`); threads started later are right.
//! - Libraries in a `dlmopen` namespace of their own are not seen, so their thread-locals survive a
//!   recycling.
//! - The kernel's knowledge of a thread (rseq, its id) is about the kernel thread. It does not see a green thread's robust
//!   mutexes when the whole process ends: other processes that share one are then not told.

mod block;
mod layout;
mod modules;
mod probe;
mod selftest;
#[cfg(test)]
mod tests;

pub(crate) use block::{
    control_block, create, destroy, enter, exit, forget_cancellation, forget_errno, place, recycle,
    stack_top,
};
pub(crate) use layout::{
    NO_CACHE, distance_in_block, is_known, look_up_flag, tcache_offset, thread_id,
    with_thread_locals,
};

use std::sync::{Mutex, PoisonError};

/// Asks glibc for its layout and tries a block out, until that has succeeded once. An error says why green threads cannot
/// have their own thread-locals here; then none of the other functions may be called.
pub(crate) fn init() -> Result<(), String> {
    static DONE: Mutex<bool> = Mutex::new(false);
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !*done {
        crate::engine::arch::supported()?;
        layout::version()?;
        if !is_known() {
            selftest::rehearse(|| drop(try_out()))?;
        }
        try_out()?;
        *done = true;
    }
    Ok(())
}

fn try_out() -> Result<(), String> {
    layout::init()?;
    modules::init()?;
    selftest::run().map_err(|why| format!("the self-test of thread-local blocks failed: {why}"))
}
