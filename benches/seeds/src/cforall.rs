//! Cforall's suite, as Thierry Delisle's thesis (The C∀ Scheduler) defines it: Cycle, Yield, Churn
//! and Locality. Transfer is in a file of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::time::Duration;

use crate::crew::{self, Crew};
use crate::random::Random;
use crate::report::Report;
use crate::runtime::{Parker, Runtime};

/// Threads in a ring.
pub const RING: usize = 5;

/// Rings of threads pass a token: each thread parks until its predecessor unparks it. An operation
/// is one thread's turn.
pub async fn cycle<R: Runtime>(rings: usize, time: Duration) -> Report {
    crew::run(rings * RING, time, cycle_member::<R>).await
}

async fn cycle_member<R: Runtime>(crew: Arc<Crew<R>>, me: usize) -> u64 {
    // No start line: everybody starts by waiting, and two wake-ups at once would be one.
    if crew.arrive(me) {
        let firsts = (0..crew.len()).step_by(RING);
        firsts.for_each(|first| crew.parker(first).unpark());
    }
    let mine = crew.parker(me);
    mine.park().await;
    let successor = crew.parker(me / RING * RING + (me + 1) % RING);
    let mut turns = 0;
    loop {
        successor.unpark();
        turns += 1;
        if crew.stopped() {
            return turns;
        }
        mine.park().await;
    }
}

/// So many threads yield. An operation is one yield.
pub async fn yields<R: Runtime>(threads: usize, time: Duration) -> Report {
    crew::run(threads, time, yields_member::<R>).await
}

async fn yields_member<R: Runtime>(crew: Arc<Crew<R>>, me: usize) -> u64 {
    crew.line_up(me).await;
    let mut yields = 0;
    while !crew.stopped() {
        R::yield_now().await;
        yields += 1;
    }
    yields
}

/// Where threads park: at most one in each slot, so with fewer slots than threads somebody runs.
struct Slots(Box<[AtomicUsize]>);

impl Slots {
    /// Nobody is in this slot.
    const NOBODY: usize = usize::MAX;

    /// Half as many slots as threads.
    fn new(threads: usize) -> Slots {
        let slots = (0..threads.div_ceil(2)).map(|_| AtomicUsize::new(Slots::NOBODY));
        Slots(slots.collect())
    }

    fn random(&self, random: &mut Random) -> &AtomicUsize {
        &self.0[random.below(self.0.len())]
    }
}

/// So many threads, each of which goes to a random slot, wakes who is parked there, and parks there
/// itself. An operation is all that.
pub async fn churn<R: Runtime>(threads: usize, time: Duration) -> Report {
    let slots = Arc::new(Slots::new(threads));
    crew::run(threads, time, |crew, me| {
        churn_member::<R>(crew, slots.clone(), me)
    })
    .await
}

async fn churn_member<R: Runtime>(crew: Arc<Crew<R>>, slots: Arc<Slots>, me: usize) -> u64 {
    crew.line_up(me).await;
    let mut random = Random::new(me);
    let mine = crew.parker(me);
    let mut ops = 0;
    while !crew.stopped() {
        let slot = slots.random(&mut random);
        match slot.swap(me, AcqRel) {
            Slots::NOBODY => {}
            other => crew.parker(other).unpark(),
        }
        mine.park().await;
        ops += 1;
    }
    ops
}

/// The data of [`locality`].
struct Data {
    slots: Slots,
    /// An array for each thread, larger together than a cache.
    arrays: Box<[[AtomicU64; Data::CELLS]]>,
    /// Whose array it is to work on; changed by its owner, or by who took its owner out of a slot.
    works_on: Box<[AtomicUsize]>,
}

impl Data {
    /// 16 KiB an array.
    const CELLS: usize = 2048;
    /// How many cells an operation changes.
    const CHANGES: usize = 64;

    fn new(threads: usize) -> Data {
        Data {
            slots: Slots::new(threads),
            arrays: (0..threads)
                .map(|_| [const { AtomicU64::new(0) }; Data::CELLS])
                .collect(),
            works_on: (0..threads).map(AtomicUsize::new).collect(),
        }
    }

    fn work_on(&self, array: usize, random: &mut Random) {
        for _ in 0..Data::CHANGES {
            let cell = &self.arrays[array][random.below(Data::CELLS)];
            // One thread has the array.
            cell.store(cell.load(Relaxed) + 1, Relaxed);
        }
    }
}

/// Churn with work on an array of 16 KiB. Every thread has its own; or, if they are `shared`, the
/// waker hands the one that it has just worked on to whom it wakes, and gets the other's.
pub async fn locality<R: Runtime>(threads: usize, shared: bool, time: Duration) -> Report {
    let data = Arc::new(Data::new(threads));
    crew::run(threads, time, |crew, me| {
        locality_member::<R>(crew, data.clone(), shared, me)
    })
    .await
}

async fn locality_member<R: Runtime>(
    crew: Arc<Crew<R>>,
    data: Arc<Data>,
    shared: bool,
    me: usize,
) -> u64 {
    crew.line_up(me).await;
    let mut random = Random::new(me);
    let mine = crew.parker(me);
    let mut ops = 0;
    while !crew.stopped() {
        let array = data.works_on[me].load(Relaxed);
        data.work_on(array, &mut random);
        let slot = data.slots.random(&mut random);
        // Taken out first: who is in a slot may be handed an array by others.
        match slot.swap(Slots::NOBODY, AcqRel) {
            Slots::NOBODY => {}
            other => {
                if shared {
                    let theirs = data.works_on[other].swap(array, Relaxed);
                    data.works_on[me].store(theirs, Relaxed);
                }
                crew.parker(other).unpark();
            }
        }
        match slot.swap(me, AcqRel) {
            Slots::NOBODY => {}
            // It came in between.
            other => crew.parker(other).unpark(),
        }
        mine.park().await;
        ops += 1;
    }
    ops
}
