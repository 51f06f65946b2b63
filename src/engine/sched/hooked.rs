//! Hooked calls of libc: whose calls park, and where.
//!
//! The front defines functions with the names of libc's. Such a function asks here whether the calling
//! thread is to be parked ([`is_hooked`]), and, when it is about to wait, whether it can be parked at this
//! place ([`parks_here`]). In a call that it has announced (`announce`) a thread means the kernel's.
//!
//! A signal handler calls them too. It must neither leave its kernel thread nor enter the scheduler,
//! which it may have interrupted ([`is_handler`]).

#[cfg(green)]
use super::enter::enter;
#[cfg(green)]
use super::interpose;
#[cfg(green)]
use crate::engine::atomic::Ordering;
#[cfg(green)]
use crate::engine::green::context::Bounds;
use crate::engine::green::{Green, current};
#[cfg(green)]
use crate::engine::sys::signal;

/// Runs `f`, whose calls of libc are libc's: they block the kernel thread.
pub(crate) fn unhooked<F: FnOnce() -> T, T>(f: F) -> T {
    struct Restored(Option<&'static Green>, bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            // In a forked child there is no green thread any more, but its record is still there.
            if let Some(green) = self.0 {
                green.unhooked.set(self.1);
            }
        }
    }
    let green = current::green();
    let _restored = Restored(
        green,
        green.is_some_and(|green| green.unhooked.replace(true)),
    );
    f()
}

/// Whether a call of libc that blocks is to park the calling thread instead: a green one, with
/// preemption on, that has not said otherwise.
#[cfg(green)]
#[inline]
pub(crate) fn is_hooked() -> bool {
    current::green().is_some_and(|green| {
        green.off.load(Ordering::Relaxed) == 0
            && !green.unhooked.get()
            && !green.in_call.load(Ordering::Relaxed)
            && !green.announced.load(Ordering::Relaxed)
    })
}

/// Whether the calling thread, which is hooked and about to wait, can leave its kernel thread at this
/// place; if so, counts the call.
#[cfg(green)]
pub(crate) fn parks_here() -> bool {
    let parks = can_leave();
    if parks {
        count_parked();
    }
    parks
}

/// Counts a call of libc that parks the calling thread.
#[cfg(green)]
pub(crate) fn count_parked() {
    if let Some(mut entered) = enter() {
        entered.processor().parked_calls.add(1);
    }
}

/// Whether the calling thread can leave its kernel thread at this place. A signal handler cannot leave its kernel
/// thread: it runs on the kernel thread's alternate stack, or the kernel restores, when it returns,
/// what belongs to the kernel thread that it began on.
#[cfg(green)]
pub(crate) fn can_leave() -> bool {
    current::green().is_some_and(|green| !interrupts(green))
}

/// Whether this is in a handler that has interrupted `green`, or may be. A handler's mask differs from the base
/// mask. A thread with a mask of its own cannot be told from one.
#[cfg(green)]
fn interrupts(green: &Green) -> bool {
    let here = 0_u8;
    let is_here = |stack: Bounds| (stack.bottom..stack.top).contains(&(&raw const here).addr());
    !green.stack().is_some_and(is_here)
        || interpose::program_has_handlers() && signal::mask() != green.machine().base_mask.get()
}

/// Whether this is in a signal handler, or may be, and so must not enter the scheduler: the handler may have
/// interrupted that.
#[cfg(green)]
#[inline]
pub(crate) fn is_handler() -> bool {
    interpose::program_has_handlers()
        && match current::green() {
            Some(green) => green.off.load(Ordering::Relaxed) != 0 || interrupts(green),
            None => current::is_preemption_off() || signal::mask() != 0,
        }
}
