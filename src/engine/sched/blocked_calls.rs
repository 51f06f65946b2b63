//! The system calls in which threads were blocked when the monitor took their processors: a count for
//! each number, and for each place, which is a call and where its thread was spawned. A user who reads them sees
//! which calls still hold kernel threads, and whose they are.
//!
//! One thread writes, the cluster's monitor; times are added by the kernel threads that were blocked, while
//! times are measured (`observe::measure`). The table of places is never cleared: when it is full, further places
//! go without.
//!
//! *Whose call it is.* The monitor does not own the thread, which may go on and end at any moment. So it reads the
//! address of the thread's identity, then the word there, which may be freed memory (`sys::word`), and then
//! the first address again. A thread that ends clears that address before it frees; if it is the same, and
//! the worker has switched to no thread meanwhile (`tick`), the word was what it should be.
//!
//! Ordering: a place's key is stored with Release when its other half is there; readers load it with Acquire.

use core::panic::Location;

use super::Worker;
use crate::engine::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};
use crate::engine::sched::{Green, Identity};
use crate::engine::sys::observer::Doing;
use crate::engine::sys::statics::AtomicStatic;
use crate::engine::sys::word;

/// Numbers of system calls are below this, on all kernels so far.
const NUMBERS: usize = 512;
/// How many of them a user gets to see.
const SHOWN: usize = 10;

/// How many places there can be.
const PLACES: usize = 256;

/// How often threads were blocked in each call, and at each place.
pub(crate) struct BlockedCalls {
    counts: Box<[AtomicU64]>,
    places: Box<[Place]>,
}

/// One place.
pub(crate) struct Place {
    /// One more than the call's number; 0: the entry is free.
    key: AtomicU64,
    spawned_at: AtomicStatic<Location<'static>>,
    count: AtomicU64,
    nanos: AtomicU64,
}

/// A call that has blocked threads.
pub(crate) struct Blocked {
    /// Its number.
    pub(crate) call: i64,
    pub(crate) count: u64,
    /// The most frequent places, the most frequent first.
    pub(crate) places: Vec<BlockedAt>,
}

/// A place where threads were blocked.
pub(crate) struct BlockedAt {
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) count: u64,
    /// For how long, if that was measured.
    pub(crate) nanos: u64,
}

impl Blocked {
    /// Adds what is known of a place, perhaps to what is known of it already: a place in generic code has
    /// several addresses.
    fn add(&mut self, more: BlockedAt) {
        match self
            .places
            .iter_mut()
            .find(|known| known.spawned_at == more.spawned_at)
        {
            Some(known) => {
                known.count += more.count;
                known.nanos += more.nanos;
            }
            None => self.places.push(more),
        }
    }
}

impl BlockedCalls {
    pub(crate) fn new() -> BlockedCalls {
        BlockedCalls {
            // Not by way of the stack, which may be small.
            counts: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(),
            places: (0..PLACES).map(|_| Place::free()).collect(),
        }
    }

    /// The place of `green`, which is blocked on `worker` and `doing` this. The monitor's.
    pub(super) fn find(
        &self,
        doing: &Doing,
        worker: &'static Worker,
        green: &'static Green,
    ) -> Option<&Place> {
        let key = number_of(doing)? as u64 + 1;
        let spawned_at = spawned_at(worker, green);
        let address = spawned_at.map_or(0, |at| core::ptr::from_ref(at).addr());
        let first = (address >> 3).wrapping_add(key as usize * 31);
        (0..PLACES).find_map(|step| {
            let entry = &self.places[first.wrapping_add(step) % PLACES];
            if entry.key.load(Relaxed) == 0 {
                entry.spawned_at.store(spawned_at, Relaxed);
                // Release: partner: Acquire in `most_frequent`.
                entry.key.store(key, Release);
            }
            entry.is(key, address).then_some(entry)
        })
    }

    /// Counts a thread that was seen `doing` this, at `place`, when it lost its processor.
    pub(super) fn note(&self, doing: &Doing, place: Option<&Place>) {
        if let Some(number) = number_of(doing) {
            self.counts[number].fetch_add(1, Relaxed);
        }
        if let Some(place) = place {
            place.count.fetch_add(1, Relaxed);
        }
    }

    /// The calls in which threads were blocked most often, in that order.
    pub(crate) fn most_frequent(&self) -> Vec<Blocked> {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let counts = counts.enumerate().filter(|(_, count)| *count != 0);
        let mut calls: Vec<(usize, u64)> = counts.collect();
        calls.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        calls.truncate(SHOWN);
        let of = |(number, count)| {
            let mut blocked = Blocked {
                call: number as i64,
                count,
                places: Vec::new(),
            };
            self.places_of(number).for_each(|place| blocked.add(place));
            let places = &mut blocked.places;
            places.sort_by_key(|place| core::cmp::Reverse(place.count));
            places.truncate(SHOWN);
            blocked
        };
        calls.into_iter().map(of).collect()
    }

    fn places_of(&self, number: usize) -> impl Iterator<Item = BlockedAt> {
        let key = number as u64 + 1;
        // Acquire: partner: Release in `find`.
        let places = self
            .places
            .iter()
            .filter(move |entry| entry.key.load(Acquire) == key);
        let places = places.map(|entry| BlockedAt {
            spawned_at: entry.spawned_at.load(Relaxed),
            count: entry.count.load(Relaxed),
            nanos: entry.nanos.load(Relaxed),
        });
        places.filter(|place| place.count != 0)
    }
}

impl Place {
    const fn free() -> Place {
        Place {
            key: AtomicU64::new(0),
            spawned_at: AtomicStatic::none(),
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// The number of the call.
    pub(crate) fn call(&self) -> u64 {
        self.key.load(Relaxed) - 1
    }

    pub(crate) fn spawned_at(&self) -> Option<&'static Location<'static>> {
        self.spawned_at.load(Relaxed)
    }

    /// Adds the time for which a thread held a kernel thread here.
    pub(crate) fn add_time(&self, nanos: u64) {
        self.nanos.fetch_add(nanos, Relaxed);
    }

    fn is(&self, key: u64, spawned_at: usize) -> bool {
        let at = self.spawned_at.load(Relaxed);
        let at = at.map_or(0, |at| core::ptr::from_ref(at).addr());
        self.key.load(Relaxed) == key && at == spawned_at
    }
}

fn number_of(doing: &Doing) -> Option<usize> {
    match doing {
        Doing::Call(call) => usize::try_from(call.number).ok().filter(|&n| n < NUMBERS),
        _ => None,
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
    let location = core::ptr::with_exposed_provenance::<Location<'static>>(address);
    match same {
        // SAFETY: the thread has lived all the while, so the word is its identity's: null, or a location,
        // which is static.
        true => unsafe { location.as_ref() },
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place with two addresses, as one in generic code has: it is told of once.
    #[test]
    fn equal_places_are_one() {
        let calls = BlockedCalls::new();
        let here = Location::caller();
        let again: &'static Location<'static> = Box::leak(Box::new(*here));
        for (entry, (spawned_at, count)) in calls.places.iter().zip([(here, 3), (again, 4)]) {
            calls.counts[libc::SYS_flock as usize].fetch_add(count, Relaxed);
            entry.spawned_at.store(Some(spawned_at), Relaxed);
            entry.key.store(libc::SYS_flock as u64 + 1, Relaxed);
            entry.count.store(count, Relaxed);
        }
        let told = calls.most_frequent();
        let [lock] = &told[..] else {
            panic!("{} calls", told.len())
        };
        assert_eq!((lock.call, lock.count), (libc::SYS_flock, 7));
        let [place] = &lock.places[..] else {
            panic!("{} places", lock.places.len())
        };
        assert_eq!((place.spawned_at, place.count), (Some(here), 7));
    }
}
