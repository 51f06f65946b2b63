//! The door: all that the modules in front may ask of the engine.
//!
//! | to … | |
//! |---|---|
//! | start what runs threads, and threads on it | [`Knobs::start`], [`spawn`], [`spawn_scoped`] |
//! | wait, and wake a thread that waits | [`Waiter::wait`], [`Waiter::wake`]; several at once: [`claim`], [`list`], [`queue`] |
//! | give way; sleep until a point in time | [`yield_now`], [`sleep_until`] |
//! | take turns with another thread | [`Side`] |
//! | block in the kernel | [`blocking`], [`may_block`] |
//! | make a call of libc park the thread | [`is_hooked`], [`count_parked`], [`unhooked`]; [`unwinding`], [`word`] |
//! | be a function of libc's, for which kernel threads are not alike | [`owner`], [`Who`], [`for_good`], [`mask_changed`], [`handlers`], [`unloaded_by`], [`before_vfork`] … |
//! | wait for a descriptor | [`Source`] |
//! | know a thread as libc's locks do | [`thread_id`] |
//! | stay on one kernel thread | [`lock_kernel_thread`], [`unlock_kernel_thread`]; because of a call that changes it, [`for_good`] |
//! | look at every runtime's figures | [`runtimes`] |
//! | observe, beside [`probe`](super::probe) | [`Identity`], [`ticks`], `mm` |
//! | start a kernel thread of the crate's own | [`spawn_helper`] |
//! | know the calling thread | [`handle::current`], [`is_green`], [`is_forked_child`] |
//!
//! Green threads and kernel threads stand behind the same verbs: each of them works on both.

pub(crate) use super::arch::ticks;
pub(crate) use super::atomic;
#[cfg(green)]
pub(crate) use super::driver::{
    Direction, Limit, Operation, Source, closed, file, operate,
    source::{says_would_block, uninterrupted},
    watch,
};
pub(crate) use super::policy::{Policy, Priority};
#[cfg(feature = "observe")]
pub(crate) use super::runtime::options::{read as read_variable, word as one_of};
pub(crate) use super::runtime::packet::{Joiner, spawn, spawn_scoped, spawn_unchecked};
pub use super::runtime::scope::Scope;
pub(crate) use super::runtime::scope::in_scope;
#[cfg(green)]
pub(crate) use super::runtime::{BUCKETS, bucket};
pub(crate) use super::runtime::{
    Backend, Choice, FIGURES, Figure, Knobs, Value, Wishes, check_stack_size, handle, runtimes,
};
pub use super::runtime::{
    BlockedCall, BlockedPlace, Bucket, Driver, Histogram, Metrics, Mode, OnDeadlock,
    ProcessorMetrics, QueueWait,
};
#[cfg(interposes)]
pub(crate) use super::sched::cpu_time::answer as thread_clock;
pub(crate) use super::sched::fork::is_child as is_forked_child;
#[cfg(interposes)]
pub(crate) use super::sched::fork::{after_vfork, before_vfork};
pub(crate) use super::sched::hooked::unhooked;
#[cfg(green)]
pub(crate) use super::sched::hooked::{count_parked, is_hooked};
#[cfg(interposes)]
pub(crate) use super::sched::locked::for_good;
pub(crate) use super::sched::locked::{lock as lock_kernel_thread, unlock as unlock_kernel_thread};
#[cfg(interposes)]
pub(crate) use super::sched::pthreads::Who;
#[cfg(green)]
pub(crate) use super::sched::spawner::HELPER_STACK;
#[cfg(any(green, feature = "observe"))]
pub(crate) use super::sched::spawner::{OBSERVER_STACK, spawn_helper};
#[cfg(interposes)]
pub(crate) use super::sched::unload::unloaded_by;
#[cfg(green)]
pub(crate) use super::sched::{handlers, name};
#[cfg(interposes)]
pub(crate) use super::stack::GUARD as GUARD_SIZE;
pub(crate) use super::sys::{
    backoff, clock, die, kernel_thread, lock, perturb, statics::AtomicStatic, variable, word,
};
#[cfg(interposes)]
pub(crate) use super::sys::{
    call as kernel_call, kernel_thread::id as kernel_thread_id, unwinding,
};
#[cfg(green)]
pub(crate) use super::sys::{
    calls, handler, libraries, mm, mm::page as page_size, sanitizer, signal,
};
#[cfg(green)]
pub(crate) use super::tls::thread_id;
pub(crate) use super::wait::{
    Facts, Locator, WaitKind, WaitReason, Waiter, claim, list, queue, reason, side::Side,
};
pub(crate) use crate::engine::sched::Identity;
#[cfg(green)]
pub(crate) use crate::engine::sched::current::may_block;
pub(crate) use crate::engine::sched::current::{
    PreemptionOff, blocking, is_preemption_off, mark, preemption_off,
};
#[cfg(interposes)]
pub(crate) use crate::engine::sched::current::{mask_changed, owner, reveal_all};

#[cfg(interposes)]
pub(crate) use super::arch::vfork;

use super::sched::enter;
use crate::engine::sched::current;
use crate::engine::sched::switch::Action;

/// Lets others run: the thread goes to the back of the queue.
#[inline]
pub(crate) fn yield_now() {
    match enter() {
        Some(entered) => entered.suspend(Action::Yield),
        None => std::thread::yield_now(),
    }
}

static SLEEP: WaitKind = WaitKind::inside("end of sleep", reason::nothing);

/// Blocks until `deadline` (monotonic nanoseconds); returns at once if it has passed.
pub(crate) fn sleep_until(deadline: u64) {
    let alarm = Waiter::new();
    while clock::now() < deadline {
        alarm.wait(WaitReason::only(&SLEEP), Some(deadline));
    }
}

/// Whether the calling thread is a green one.
pub(crate) fn is_green() -> bool {
    current::green().is_some()
}
