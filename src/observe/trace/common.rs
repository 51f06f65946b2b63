//! The events of threads that own no processor: kernel threads that are not the runtime's, the monitor, workers that have
//! lost their processors. They share one queue.
//!
//! A kernel thread is known by a number of its own, which it takes at its first event in a trace, or by that of the thread
//! that it is in kernel-thread mode.

use core::cell::Cell;

use super::session;
use super::words::{self, KERNEL, Kind, NUMBER, word};
use crate::arch::ticks;
use crate::atomic::{AtomicU32, Ordering};
use crate::engine::inspect::Identity;
use crate::engine::probe::Kernel;
use crate::observe::observer::{TRACE, listens};
use crate::observe::queue::Queue;
use crate::sys::kernel_thread;

/// An event: its kind with the thread's number, its time in ticks, and two more values.
pub(super) type Event = [u64; 4];

static QUEUE: Queue<{ 1 << 15 }, 4> = Queue::new();

/// Writes an event that happens now.
pub(super) fn put(kind: Kind, number: u32, a: u64, b: u64) {
    if listens(TRACE) {
        QUEUE.put([word(kind, number.into()), ticks(), a, b]);
    }
}

/// Introduces a thread.
pub(super) fn introduce(number: u32, name: &str) {
    put(Kind::Named, number, 0, 0);
    words::name(name).for_each(|part| put(Kind::Name, number, part, 0));
}

/// Takes the oldest event. One thread at a time takes.
pub(super) fn take() -> Option<Event> {
    QUEUE.take()
}

/// How many events were lost since this was last asked.
pub(super) fn take_lost() -> u64 {
    QUEUE.take_lost()
}

thread_local! {
    /// The number of this kernel thread, and above it the trace's. It has no destructor: the destructors of other
    /// thread-locals may wait.
    static NUMBER_HERE: Cell<u64> = const { Cell::new(0) };
}

/// The number of the calling kernel thread, which is introduced if the trace does not know it yet.
pub(super) fn known() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let here = NUMBER_HERE.get();
    if session::of(here) == session::current() {
        return here as u32;
    }
    let number = match here as u32 & NUMBER {
        0 => KERNEL | (NEXT.fetch_add(1, Ordering::Relaxed) & (KERNEL - 1)),
        number => number,
    };
    let mut name = [0; kernel_thread::NAME];
    be(number, kernel_thread::own_name(&mut name))
}

/// The calling kernel thread is known by this number from now on.
fn be(number: u32, name: &str) -> u32 {
    let numbered = session::numbered(number);
    NUMBER_HERE.set(numbered);
    introduce(numbered as u32, name);
    numbered as u32
}

/// The calling kernel thread does `what`.
pub(in crate::observe) fn kernel(identity: Option<&Identity>, what: Kernel) {
    let number = identity.map_or(0, |identity| words::number(identity.id()));
    let name = identity.and_then(Identity::name).unwrap_or("");
    match what {
        Kernel::Spawned => {
            let number = session::numbered(number) as u32;
            introduce(number, name);
            put(Kind::Spawned, number, known().into(), 0);
        }
        Kernel::Began => put(Kind::KernelBegan, be(number, name), 0, 0),
        Kernel::Ended => put(Kind::KernelEnded, known(), 0, 0),
        Kernel::Waits => put(Kind::KernelWaits, known(), 0, 0),
        Kernel::GoesOn => put(Kind::KernelGoesOn, known(), 0, 0),
    }
}
