//! What the scheduler keeps in a thread's record, and of which type it is.
//!
//! The record has room for addresses and does not know what lies there ([`Hook`]). This file alone writes
//! the four that are the scheduler's, so each leads to what it reads there. All of that is never freed.
//!
//! | hook | leads to | written by |
//! |---|---|---|
//! | `cluster` | the thread's cluster | its spawner, before the thread is in a queue |
//! | `machine` | the kernel thread that resumed it last | that kernel thread, before it does |
//! | `timer_home` | the processor in whose heap its timer is | who arms the timer, and the thread |
//! | `locked_to` | the kernel thread that it is locked to | the thread |

use core::ptr::from_ref;

use super::{Cluster, Machine, Processor};
use crate::engine::green::{Green, Hook};

/// What lies behind `hook`.
///
/// # Safety
/// The hook is null, or leads to a `T`.
#[inline(always)]
unsafe fn behind<T>(hook: &Hook) -> Option<&'static T> {
    // SAFETY: the caller's promise; what hooks lead to is never freed.
    unsafe { hook.get().cast::<T>().as_ref() }
}

impl Green {
    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        // SAFETY: `set_cluster` alone writes it.
        match unsafe { behind(&self.cluster) } {
            Some(cluster) => cluster,
            None => crate::engine::sys::die("a running thread has no cluster"),
        }
    }

    pub(crate) fn set_cluster(&self, cluster: &'static Cluster) {
        self.cluster.set(from_ref(cluster).cast());
    }

    /// The kernel thread that runs this thread, which has been resumed at least once.
    #[inline(always)]
    pub(crate) fn machine(&self) -> &'static Machine {
        // SAFETY: `set_machine` alone writes it, before the thread runs for the first time.
        unsafe { &*self.machine.get().cast() }
    }

    #[inline(always)]
    pub(crate) fn set_machine(&self, machine: &'static Machine) {
        self.machine.set(from_ref(machine).cast());
    }

    pub(crate) fn set_timer_home(&self, home: &'static Processor) {
        self.timer_home.set(from_ref(home).cast());
    }

    pub(crate) fn take_timer_home(&self) -> Option<&'static Processor> {
        // SAFETY: `set_timer_home` alone writes it.
        let home = unsafe { behind(&self.timer_home) };
        self.timer_home.take();
        home
    }

    /// The kernel thread that this thread is locked to.
    pub(crate) fn locked_to(&self) -> Option<&'static Machine> {
        // SAFETY: `set_locked_to` alone writes it.
        unsafe { behind(&self.locked_to) }
    }

    pub(crate) fn set_locked_to(&self, machine: Option<&'static Machine>) {
        let address = machine.map_or(core::ptr::null(), |machine| from_ref(machine).cast());
        self.locked_to.set(address);
    }
}
