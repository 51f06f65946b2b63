//! The system calls in which threads were blocked when the monitor took their processors: a count for
//! each place, which is a call and where its thread was spawned. A user who reads the counts sees
//! which calls still hold kernel threads, and whose they are.
//!
//! One thread writes the table, the cluster's monitor; times are added by the kernel threads that were blocked, while
//! times are measured (`observe::measure`). The table is never cleared. It has an entry for each call, for threads
//! spawned at places that are not known, or that the rest of the table, where places are hashed, has no entry left for.
//!
//! *Whose call it is.* The monitor does not own the thread, which may go on and end at any moment. So it reads the
//! address of the thread's identity, then the word there, which may be freed memory (`sys::word`), and then
//! the first address again. A thread that ends clears that address before it frees; if it is the same, and
//! the worker has switched to no thread meanwhile (`tick`), the word was what it should be.
//!
//! Ordering: a place's number is stored with Release when its other half is there; readers load it with Acquire.

use core::panic::Location;

use super::Worker;
use crate::engine::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::engine::sched::{Counter, Green, Identity};
use crate::engine::sys::observer::Doing;
use crate::engine::sys::statics::AtomicStatic;
use crate::engine::sys::word;

/// Numbers of system calls are below this, on all kernels so far.
const NUMBERS: i64 = 512;
/// How many other places there can be.
const PLACES: usize = 256;
/// In the place of a call's number: the entry is free.
const FREE: i64 = -1;

/// The table: an entry for each call, and then the places.
pub(crate) struct BlockedCalls(Box<[Place]>);

/// How often threads were blocked in one call, which were spawned at one place, and for how long, if that was measured.
pub(crate) struct Place {
    /// The number of the call.
    call: AtomicI64,
    spawned_at: AtomicStatic<Location<'static>>,
    /// How many threads have lost their processors here.
    pub(crate) count: Counter,
    /// For how long they held kernel threads here.
    pub(crate) nanos: Counter,
}

impl BlockedCalls {
    pub(crate) fn new() -> BlockedCalls {
        let place = |call| Place {
            call: AtomicI64::new(call),
            spawned_at: AtomicStatic::none(),
            count: Counter::new(),
            nanos: Counter::new(),
        };
        let calls = (0..NUMBERS).chain([FREE; PLACES]);
        BlockedCalls(calls.map(place).collect())
    }

    /// The place of `green`, which is blocked on `worker` and `doing` this. The monitor's.
    pub(super) fn find(
        &self,
        doing: &Doing,
        worker: &'static Worker,
        green: &'static Green,
    ) -> Option<&Place> {
        let Doing::Call(call) = doing else {
            return None;
        };
        let (calls, places) = self.0.split_at(NUMBERS as usize);
        let of_call = calls.get(usize::try_from(call.number).ok()?)?;
        let Some(at) = spawned_at(worker, green) else {
            return Some(of_call);
        };
        let address = core::ptr::from_ref(at).addr();
        let first = (address >> 3).wrapping_add(call.number as usize * 31);
        let mut entries = (0..PLACES).map(|step| &places[first.wrapping_add(step) % PLACES]);
        let found = entries.find(|entry| {
            if entry.call.load(Relaxed) == FREE {
                entry.spawned_at.store(Some(at), Relaxed);
                // Release: partner: Acquire in `used`.
                entry.call.store(call.number, Release);
            }
            entry.call.load(Relaxed) == call.number && entry.spawned_at.is(at, Relaxed)
        });
        Some(found.unwrap_or(of_call))
    }

    /// The places where threads were blocked.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Place> {
        // Acquire: partner: Release in `find`.
        self.0
            .iter()
            .filter(|place| place.call.load(Acquire) != FREE && place.count.get() != 0)
    }
}

impl Place {
    pub(crate) fn call(&self) -> i64 {
        self.call.load(Relaxed)
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at.load(Relaxed)
    }
}

/// Where `green` was spawned, which `worker` was seen to run; see the header.
fn spawned_at(
    worker: &'static Worker,
    green: &'static Green,
) -> Option<&'static Location<'static>> {
    let tick = worker.tick.load(Acquire);
    let identity = green.identity.load(Acquire).addr();
    if identity == 0 {
        return None;
    }
    let address = word::read(identity.checked_add(Identity::PLACE)?)?;
    // Acquire: the looks below come after the read.
    fence(Acquire);
    let same = worker.is_running(green)
        && worker.tick.load(Relaxed) == tick
        && green.identity.load(Relaxed).addr() == identity;
    if !same {
        return None;
    }
    let location = core::ptr::with_exposed_provenance::<Location<'static>>(address);
    // SAFETY: the thread has lived all the while, so the word is its identity's: null, or a location, which is static.
    unsafe { location.as_ref() }
}
