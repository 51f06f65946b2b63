//! The events of kernel threads, in kernel-thread mode and where they wait for green threads; and how
//! they are known: by a number of their own, which they take at their first event in a trace.

use core::cell::Cell;

#[cfg(feature = "tracing")]
use super::news;
use super::words::{KERNEL, Kind, NUMBER, SESSION_SHIFT};
use super::{TRACE, common, observed};
use crate::engine::atomic::{AtomicU32, Ordering};
use crate::engine::green::Identity;
use crate::engine::sys::kernel_thread;

thread_local! {
    /// The number of this kernel thread, with that of the trace. It has no destructor: the destructors
    /// of other thread-locals may wait.
    static NUMBER_HERE: Cell<u32> = const { Cell::new(0) };
}

/// The number of the calling kernel thread, which is introduced if the trace does not know it yet.
pub(super) fn known() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let session = observed() >> SESSION_SHIFT << SESSION_SHIFT;
    let here = NUMBER_HERE.get();
    if here != 0 && (here ^ session) >> SESSION_SHIFT == 0 {
        return here;
    }
    let number = match here & NUMBER {
        0 => KERNEL | (NEXT.fetch_add(1, Ordering::Relaxed) & (KERNEL - 1)),
        number => number,
    };
    let number = session | number;
    NUMBER_HERE.set(number);
    let mut name = [0; kernel_thread::NAME];
    common::introduce(number, kernel_thread::own_name(&mut name));
    number
}

/// The calling kernel thread starts another one, of kernel-thread mode.
#[inline]
pub(crate) fn kernel_spawned(identity: &Identity) {
    #[cfg(feature = "tracing")]
    if news::is_wanted(observed()) {
        news::of(news::Happened::Spawned, identity);
    }
    if observed() & TRACE != 0 {
        let number = introduce(identity);
        common::put(Kind::Spawned, number, known().into(), 0);
    }
}

/// The calling kernel thread begins its life as a thread of kernel-thread mode.
#[inline]
pub(crate) fn kernel_began(identity: &Identity) {
    if observed() & TRACE != 0 {
        let number = introduce(identity);
        NUMBER_HERE.set(number);
        common::put(Kind::KernelBegan, number, 0, 0);
    }
}

fn introduce(identity: &Identity) -> u32 {
    let session = observed() >> SESSION_SHIFT << SESSION_SHIFT;
    let number = session | (identity.id().get() as u32 & (NUMBER >> 1));
    common::introduce(number, identity.name().unwrap_or(""));
    number
}

/// It ends.
#[inline]
pub(crate) fn kernel_ended(_identity: &Identity) {
    #[cfg(feature = "tracing")]
    if news::is_wanted(observed()) {
        news::of(news::Happened::Ended, _identity);
    }
    tell(Kind::KernelEnded);
}

/// The calling kernel thread is about to block at a waiter.
#[inline]
pub(crate) fn kernel_waits() {
    tell(Kind::KernelWaits);
}

/// Its wait is over.
#[inline]
pub(crate) fn kernel_goes_on() {
    tell(Kind::KernelGoesOn);
}

#[inline]
fn tell(kind: Kind) {
    if observed() & TRACE != 0 {
        common::put(kind, known(), 0, 0);
    }
}
