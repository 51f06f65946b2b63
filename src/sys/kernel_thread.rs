//! Facts about kernel threads: who they are, and what they have used. Whether they are blocked: [`observer`](super::observer).

use super::call;

/// The calling kernel thread's id.
pub(crate) fn id() -> i32 {
    // SAFETY: gettid has no preconditions and cannot fail.
    unsafe { call(libc::SYS_gettid, &[]) }.unwrap_or(0) as i32
}

/// The clock of CPU time used by kernel thread `id` (the kernel's encoding: per-thread, scheduler's
/// count).
pub(crate) fn cpu_clock(id: i32) -> libc::clockid_t {
    const PER_THREAD: i32 = 4;
    const SCHEDULER: i32 = 2;
    (!id << 3) | PER_THREAD | SCHEDULER
}

/// The fewest system interruptions: timers of this thread fire when due, not up to 50 µs later.
pub(crate) fn set_precise_timers() {
    // SAFETY: sets the calling thread's timer slack, nothing else.
    let _ = unsafe { call(libc::SYS_prctl, &[libc::PR_SET_TIMERSLACK as usize, 1]) };
}

/// Lets other kernel threads have the CPU.
pub(crate) fn give_way() {
    // SAFETY: has no effects on memory, and cannot fail.
    let _ = unsafe { call(libc::SYS_sched_yield, &[]) };
}

/// Asks that [`barrier`] be available. Once per process.
pub(crate) fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    // SAFETY: has no memory effects beyond the documented ones.
    unsafe { call(libc::SYS_membarrier, &[REGISTER_PRIVATE_EXPEDITED, 0, 0]) }.is_ok()
}

/// A full memory barrier on every running thread of the process: the heavy half of an asymmetric
/// fence.
pub(crate) fn barrier() {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    // SAFETY: has no memory effects beyond the documented ones.
    if unsafe { call(libc::SYS_membarrier, &[PRIVATE_EXPEDITED, 0, 0]) }.is_err() {
        super::die("membarrier failed after it was registered");
    }
}
