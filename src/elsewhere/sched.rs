//! The stand-in for `sched`: a cluster and a record that no code can make.

/// No thread is green, and the runtime preempts no thread.
pub(crate) mod current {
    use core::marker::PhantomData;

    use super::Green;
    use super::switch::Action;

    /// Stays with its thread, as the real guard does.
    pub(crate) struct PreemptionOff(PhantomData<*mut ()>);

    pub(crate) fn preemption_off() -> PreemptionOff {
        PreemptionOff(PhantomData)
    }

    /// For the holder of a policy's `Lock`; no policy is asked here.
    pub(crate) use preemption_off as preemption_off_by_user;

    /// The runtime preempts no thread.
    pub fn is_preemption_off() -> bool {
        false
    }

    /// A word that tells the calling thread from all others that live.
    pub(crate) fn mark() -> usize {
        thread_local!(static MARK: u8 = const { 0 });
        MARK.with(|mark| core::ptr::from_ref(mark).addr())
    }

    pub(crate) fn green() -> Option<&'static Green> {
        None
    }

    /// Whether this is a forked child. Here std's threads do not work in a forked child.
    pub(crate) fn is_forked_child() -> bool {
        false
    }

    /// A green thread inside the runtime.
    pub(crate) struct Entered {
        pub(crate) green: &'static Green,
    }

    pub(crate) fn enter() -> Option<Entered> {
        None
    }

    impl Entered {
        pub(crate) fn suspend(self, _: Action) {
            match self.green.never {}
        }

        pub(crate) fn leave(self) {
            match self.green.never {}
        }

        pub(crate) fn count_refused_wait(&mut self) {
            match self.green.never {}
        }
    }

    /// As the real one, which leaves the runtime: callers drop it by name.
    impl Drop for Entered {
        fn drop(&mut self) {
            match self.green.never {}
        }
    }

    /// Runs `f`, which blocks the thread: the system runs others.
    pub(crate) fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
        f()
    }

    /// Runs `f`, whose calls of libc are libc's, as all are here.
    pub(crate) use blocking as unhooked;
}
#[path = "../engine/sched/cancel.rs"]
pub(crate) mod cancel;
#[path = "../engine/sched/frames.rs"]
pub(crate) mod frames;
#[path = "../engine/sched/park.rs"]
pub(crate) mod park;
#[path = "../engine/sched/size.rs"]
pub(crate) mod size;
use core::cell::Cell;
use core::convert::Infallible;
use core::panic::Location;
use std::io;

pub(crate) use self::current::enter;
use self::park::{Interrupts, Parking};
use crate::engine::atomic::{AtomicPtr, AtomicU32, AtomicU64};
pub(crate) use crate::engine::inspect::notes::Identity;
use crate::engine::inspect::notes::Reason;
pub(crate) use crate::engine::policy::Fifo;
use crate::engine::public::{Driver, Metrics};

/// Declares methods of things that cannot exist.
macro_rules! never {
    ($(fn $name:ident(&$this:ident $(, $Type:ty)*) -> $Result:ty;)*) => {
        $(pub(crate) fn $name(&$this $(, _: $Type)*) -> $Result {
            match $this.never {}
        })*
    };
}

/// A record that no code can make.
pub(crate) struct Green {
    pub(crate) next: Cell<Option<&'static Green>>,
    pub(crate) identity: AtomicPtr<Identity>,
    pub(crate) priority: AtomicU64,
    pub(crate) off: AtomicU32,
    pub(crate) heap: crate::engine::policy::Links,
    /// The value that cannot exist, so that no record can.
    never: Infallible,
}

// SAFETY: there is no record.
unsafe impl Sync for Green {}

impl Green {
    never! {
        fn cluster(&self) -> &'static Cluster;
        fn expect(&self, *const Parking) -> ();
        fn expect_on_stack(&self, *const Parking) -> ();
        fn park_is_over(&self) -> bool;
        fn interrupts(&self) -> &Interrupts;
        fn kept(&self) -> u64;
        fn prefetch_record(&self) -> ();
        fn prefetch_two(&self, &Green) -> ();
    }
}

pub(crate) mod switch {
    /// The action that a green thread would ask of the run loop.
    #[derive(Clone, Copy)]
    pub(crate) enum Action {
        Yield,
        Park,
        HandOver,
    }
}

pub(crate) struct Cluster {
    pub(crate) cancelled: Reason,
    never: Infallible,
}

impl Cluster {
    never! {
        fn never(&self) -> !;
        fn active(&self) -> usize;
        fn driver(&self) -> Driver;
        fn idle_counts(&self) -> (usize, usize);
        fn is_closed(&self) -> bool;
        fn metrics(&self) -> Metrics;
        fn set_size(&self, usize) -> io::Result<()>;
        fn close(&self) -> ();
        fn cancel_all(&self, &'static Location<'static>) -> ();
    }
}

pub(crate) fn ready(green: &'static Green) {
    match green.never {}
}

pub(crate) mod events {
    use super::{Green, current::Entered};

    pub(crate) fn disarm_timer(green: &'static Green) {
        match green.never {}
    }

    pub(crate) use disarm_timer as take_timer_back;

    pub(crate) fn keep_timer(entered: &mut Entered, _: u64) {
        match entered.green.never {}
    }
}

/// Threads that are locked to a kernel thread: here every thread is a kernel thread.
pub(crate) mod locked {
    pub(crate) fn lock() {}
    pub(crate) fn unlock() {}
}

pub(crate) mod spawner {
    pub(crate) const OBSERVER_STACK: usize = 2 << 20;
    pub(crate) use crate::engine::inspect::kernel::spawn_helper;
}
