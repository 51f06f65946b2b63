//! Hooked calls of libc: whose calls park, and where.
//!
//! The front defines functions with the names of libc's. Each asks here first whether the calling thread is to be
//! parked ([`is_hooked`]). In a call that it has announced (`announce`) a thread means the kernel's; in a
//! signal handler, or in a child that shares or has copied its memory, it is nobody's
//! (`sched::current`, `fork`).

#[cfg(green)]
use super::fork;
#[cfg(green)]
use crate::engine::atomic::Ordering;
#[cfg(green)]
use crate::engine::sched::current::enter;
use crate::engine::sched::{Green, current};

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
/// preemption on, on its own stack, that has not said otherwise.
///
/// On another stack it may be in a handler that came past our functions (`handlers`), and runs on the kernel
/// thread's alternate stack.
#[cfg(green)]
#[inline]
pub(crate) fn is_hooked() -> bool {
    !fork::is_child()
        && current::green().is_some_and(|green| {
            green.off.load(Ordering::Relaxed) == 0
                && !green.unhooked.get()
                && !green.in_call.load(Ordering::Relaxed)
                && !green.announced.load(Ordering::Relaxed)
                && is_on_own_stack(green)
        })
}

#[cfg(green)]
#[inline]
fn is_on_own_stack(green: &Green) -> bool {
    let here = 0_u8;
    let here = (&raw const here).addr();
    let stack = green.bounds();
    stack.is_some_and(|stack| (stack.bottom..stack.top).contains(&here))
}

/// Counts a call of libc that parks the calling thread.
#[cfg(green)]
pub(crate) fn count_parked() {
    if let Some(mut entered) = enter() {
        entered.processor().parked_calls.add(1);
    }
}
