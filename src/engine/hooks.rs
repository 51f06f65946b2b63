//! What functions with libc's names (`src/libc`) ask of the engine, beside the facade: to such a function kernel threads are
//! not alike, and it may run in a signal handler, in a forked child, or on a thread that is being torn down.
//!
//! | to … | |
//! |---|---|
//! | make a call of libc park the thread | [`is_hooked`], [`count_parked`] |
//! | wait for descriptors that other code owns; do an operation that may block | [`watch`]; [`operate`] |
//! | know whose a `pthread_t` is, and what libc's locks call a thread | [`Who`], [`thread_id`], [`GUARD_SIZE`] |
//! | know the thread whose block this is, even in a handler; the stack for handlers | [`owner`]; [`alternate_stack`] |
//! | make, join and detach green threads for C | [`pthread`] |
//! | signal one green thread | [`directed`] |
//! | follow what a call changes | [`for_good`], [`mask_changed`], [`reveal_all`], [`signals`], [`prctl_of_green`] |
//! | answer with a thread's CPU time | [`thread_clock`] |
//! | load, unload, and fork | [`unloaded_by`], [`before_vfork`], [`after_vfork`] |

pub(crate) use super::driver::{Operation, operate, watch};
#[cfg(hooks)]
pub(crate) use super::runtime::pthread;
pub(crate) use super::sched::cpu_time::answer as thread_clock;
pub(crate) use super::sched::current::{
    alternate_stack, count_parked, is_hooked, mask_changed, owner, reveal_all,
};
#[cfg(sim)]
pub(crate) use super::sched::current::{operation, without_points};
#[cfg(hooks)]
pub(crate) use super::sched::directed;
pub(crate) use super::sched::fork::{HAS_FORKED, after_vfork, before_vfork};
pub(crate) use super::sched::locked::for_good;
pub(crate) use super::sched::signals;
pub(crate) use super::sched::thread::{Who, prctl as prctl_of_green};
pub(crate) use super::sched::unload::unloaded_by;
pub(crate) use super::stack::GUARD as GUARD_SIZE;
pub(crate) use super::tls::thread_id;
