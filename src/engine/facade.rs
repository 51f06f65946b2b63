//! The facade: all that the public modules may ask of the engine, beside the layers that any module may name (`sys`,
//! `atomic`, `arch`, and `wait`, on which locks and channels are built).
//!
//! | to … | |
//! |---|---|
//! | start what runs threads; know which runtimes there are | [`RuntimeOptions::start`], [`Backend`] |
//! | start a thread, and know it; have C's threads be green | [`public`](super::public): what users see of it; [`adopting`] |
//! | wait; give way; know the calling thread | [`Thread::park`], [`Thread::sleep_until`], [`Thread::yield_now`], [`Thread::is_green`], [`mark`] |
//! | block in the kernel | [`blocking`], [`may_block`]; [`unhooked`] |
//! | wait for a descriptor, until a [`Limit`] | [`Source`]; [`Nature`] for files |
//! | stay on one kernel thread, or on the processor | [`lock_kernel_thread`], [`unlock_kernel_thread`]; [`preemption_off`] |
//! | be in a forked child | [`is_forked_child`] |
//! | start a kernel thread of the crate's own | [`spawn_helper`] |
//! | read a variable; the text of a panic | [`read_variable`], [`text_of`] |
//!
//! Green threads and kernel threads stand behind the same functions: each of them works on both. Two modules have a door
//! more: `src/observe` sees the engine through `inspect` and `probe`, and `src/libc` through `hooks`.

use std::io;

#[cfg(green)]
pub(crate) use super::driver::{Direction, Limit, Source, file::Nature};
use super::public::Thread;
pub(crate) use super::runtime::options::{read as read_variable, word as one_of};
#[cfg(hooks)]
pub(crate) use super::runtime::pthread::{IS_OURS, adopting, prepare as prepare_pthreads};
pub(crate) use super::runtime::{Backend, Running, options::RuntimeOptions, panic_hook::text_of};
#[cfg(green)]
pub(crate) use super::sched::current::may_block;
pub(crate) use super::sched::current::{
    PreemptionOff, blocking, is_forked_child, mark, preemption_off, unhooked,
};
#[cfg(sim)]
pub(crate) use super::sched::current::{at_point, own_mark, with_points};
pub(crate) use super::sched::locked::{lock as lock_kernel_thread, unlock as unlock_kernel_thread};
#[cfg(green)]
pub(crate) use super::sched::signals::{are_ignored as program_ignores, is_reserved as preempts};
use super::sched::{current, enter, spawner, switch::Action};
use super::sys::clock;
use super::wait::{WaitKind, WaitReason, Waiter, is_in_frame, raise};

/// Calls `call`, which `announce` announces; but not in a frame, which is to end it: there libc's functions in it park the
/// thread, as far as they are hooked.
pub(crate) fn unless_in_frame<T, F: FnOnce() -> T>(announce: impl FnOnce(F) -> T, call: F) -> T {
    match cfg!(interposes) && is_in_frame() {
        true => call(),
        false => announce(call),
    }
}

/// The calling thread.
impl Thread {
    /// Lets others run: the thread goes to the back of the queue.
    #[inline]
    pub(crate) fn yield_now() {
        #[cfg(sim)]
        let _operation = current::operation(super::sys::simulated::Step::Call);
        #[cfg(sim)]
        super::sys::simulated::gives_way();
        match enter() {
            Some(entered) => entered.suspend(Action::Yield),
            None => std::thread::yield_now(),
        }
    }

    /// Blocks until `deadline` (monotonic nanoseconds); returns at once if it has passed.
    pub(crate) fn sleep_until(deadline: u64) {
        static SLEEP: WaitKind = WaitKind::unwinding("end of sleep");
        let alarm = Waiter::new();
        while clock::now() < deadline {
            alarm.wait(WaitReason::only(&SLEEP), Some(deadline));
            raise(Some(deadline));
        }
    }

    /// [`Thread::sleep_until`] for functions of C, which must not unwind: returns early if a frame ends.
    pub(crate) fn rest_until(deadline: u64) {
        static REST: WaitKind = WaitKind::inside("end of sleep").fails();
        Waiter::new().wait(WaitReason::only(&REST), Some(deadline));
    }

    /// Whether the calling thread is a green one.
    pub(crate) fn is_green() -> bool {
        current::green().is_some()
    }
}

/// Starts a kernel thread that works for the runtime, and runs no handler of the program's.
pub(crate) fn spawn_helper(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    spawner::spawn_helper(name, spawner::OBSERVER_STACK, Box::new(work))
}
