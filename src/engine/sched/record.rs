//! The scheduler's part of a thread's record, with its types.
//!
//! The record has space for addresses and does not know what lies there ([`Hook`]). Only this file
//! writes the scheduler's four, so each address leads to the type that this file reads there. All
//! four targets are never freed.
//!
//! | hook | leads to | written by |
//! |---|---|---|
//! | `cluster` | the thread's cluster | its spawner, before the thread is in a queue |
//! | `machine` | the kernel thread that resumed it last | that kernel thread, before it does |
//! | `timer_home` | the processor in whose heap its timer is | the thread that arms the timer, and the thread itself |
//! | `locked_to` | the kernel thread that it is locked to | the thread |

use core::marker::PhantomData;
use core::ptr::from_ref;

use super::{Cluster, Machine, Processor};
use crate::engine::green::{Green, Hook};

/// A hook that leads to a `T`, or nowhere. Only this file makes one, for each hook with the one
/// type of its line in the table.
struct Typed<'a, T>(&'a Hook, PhantomData<T>);

impl<'a, T> Typed<'a, T> {
    #[inline(always)]
    fn new(hook: &'a Hook) -> Self {
        Typed(hook, PhantomData)
    }

    #[inline(always)]
    fn get(&self) -> Option<&'static T> {
        // SAFETY: only `set` writes it, and it writes addresses of things that are never freed.
        unsafe { self.0.get().cast::<T>().as_ref() }
    }

    #[inline(always)]
    fn set(&self, target: Option<&'static T>) {
        let address = target.map_or(core::ptr::null(), |target| from_ref(target).cast());
        self.0.set(address);
    }
}

impl Green {
    #[inline(always)]
    fn cluster_hook(&self) -> Typed<'_, Cluster> {
        Typed::new(&self.cluster)
    }

    #[inline(always)]
    fn machine_hook(&self) -> Typed<'_, Machine> {
        Typed::new(&self.machine)
    }

    fn timer_home_hook(&self) -> Typed<'_, Processor> {
        Typed::new(&self.timer_home)
    }

    fn locked_to_hook(&self) -> Typed<'_, Machine> {
        Typed::new(&self.locked_to)
    }

    #[inline(always)]
    pub(crate) fn cluster(&self) -> &'static Cluster {
        match self.cluster_hook().get() {
            Some(cluster) => cluster,
            None => crate::engine::sys::die("a running thread has no cluster"),
        }
    }

    pub(crate) fn set_cluster(&self, cluster: &'static Cluster) {
        self.cluster_hook().set(Some(cluster));
    }

    /// The kernel thread that runs this thread, which has been resumed at least once.
    #[inline(always)]
    pub(crate) fn machine(&self) -> &'static Machine {
        // SAFETY: `set_machine` has written it before the thread ran for the first time. (A check
        // here would be one in every call of the runtime.)
        unsafe { self.machine_hook().get().unwrap_unchecked() }
    }

    /// The kernel thread that ran this thread last, if any did; for reports.
    pub(crate) fn last_machine(&self) -> Option<&'static Machine> {
        // SAFETY: only `set_machine` writes it.
        unsafe { self.machine.look().cast::<Machine>().as_ref() }
    }

    #[inline(always)]
    pub(crate) fn set_machine(&self, machine: &'static Machine) {
        // A report that sees this machine sees that the thread has left the one before (`inspect::threads`).
        self.machine.publish(from_ref(machine).cast());
    }

    pub(crate) fn set_timer_home(&self, home: &'static Processor) {
        self.timer_home_hook().set(Some(home));
    }

    pub(crate) fn take_timer_home(&self) -> Option<&'static Processor> {
        let home = self.timer_home_hook().get();
        self.timer_home_hook().set(None);
        home
    }

    /// The kernel thread that this thread is locked to.
    pub(crate) fn locked_to(&self) -> Option<&'static Machine> {
        self.locked_to_hook().get()
    }

    pub(crate) fn set_locked_to(&self, machine: Option<&'static Machine>) {
        self.locked_to_hook().set(machine);
    }
}
