//! What a processor looks for beside its threads: deadlines that have passed, and events.
//!
//! The first half is the timers. The second half says which thread collects events, and when.
//!
//! # Timers
//!
//! A green thread that waits until a deadline is in the heap of the processor that it left.
//!
//! A heap is under its own lock, so that any thread can fire its due timers: its owner between
//! threads, a thief before it steals, a sleeper whose deadline has come. All of a firing happens
//! under that lock. So does disarming, which every thread does itself when it goes on after a wait
//! with a deadline. Hence nobody touches a timer after its thread has moved on.
//!
//! A processor that has always something to run looks at its timers every 2 µs or so, between two
//! threads ([`Looks`]), and a thread whose deadline has passed runs next.
//!
//! Ordering: `next_deadline` is a hint, Relaxed. A worker that goes to sleep looks at it after the
//! fence of its announcement (`idle`), and timers are armed on processors that are awake.
//!
//! ## The heap
//!
//! Entries lie in the threads' records, so nothing is ever allocated. The heap is a binomial queue
//! (J. Vuillemin 1978): trees in which no entry is due before its parent, at most one of each rank.
//! Two trees of one rank are linked, the later under the earlier, to one of the next rank, as digits
//! carry when one is added to a binary number:
//!
//! ```text
//!   rank 0   rank 1   rank 2      adding 3 gives      rank 3
//!     7        2        4                               2---.---.
//!              |        |--.                            |   |   |
//!              9        5  8                            9   3   4
//!                       |                                   |   |--.
//!                       6                                   7   5  8
//!                                                               |
//!                                                               6
//! ```
//!
//! So an insertion links one pair on average, and a removal turns the entry's children into trees.
//! Both link at most some 60 pairs, whatever the number of entries. A pairing heap (Fredman et al.
//! 1986) is as quick on average, and simpler. But when many threads have gone to sleep, its first
//! removal walks through them all, under a lock and with preemption off: 69 ms for 300,000 entries,
//! each on a stack of its own, against 14 us here. A leftist heap keeps the bound, but touches
//! log n entries to insert one.
//!
//! A removal from the middle leaves a hole: its ancestors keep their ranks. So a rank bounds the
//! number of children, but no longer promises a number of descendants. Holes go away with the
//! ancestors. Should trees ever reach the highest rank, they are linked without another rank:
//! slower, never wrong.
//!
//! Entries with equal deadlines come out in the order of insertion.
//!
//! An entry is idle --`insert`--> queued --`remove` or `pop_due`--> idle.
//!
//! # Events
//!
//! A driver makes threads ready from outside. The scheduler knows the driver by two functions ([`Collect`]). One kernel
//! thread at a time collects events: the thread that has the [`Turn`]. Two at once would not find more, and each
//! would take half of the events to a processor of its own: the design's prototype lost a tenth to a quarter of its
//! throughput by that. The turn is taken
//!
//! | by | when | for how long |
//! |---|---|---|
//! | a worker that goes to sleep | nobody has it, and a processor sleeps | until something comes: instead of the futex |
//! | a processor that has run dry | nobody has it | a look; while events come quickly, [`SPIN`] |
//! | a busy processor | every [`LOOK_AT_EVENTS`](super::tuning::LOOK_AT_EVENTS) switches, or when the monitor says so | a look |
//! | the monitor | nobody has looked for [`LONGEST_TICK`]: all processors are busy, or lack workers | a look |
//!
//! A worker that has the turn and gets up gives it back and does not wake another for it: it first
//! runs the threads that the events made ready, and then the next look finds all later events at
//! once. Only if that takes long does the monitor send a sleeper to watch
//! ([`monitor`]); if nobody sleeps and a processor is blocked in the kernel, it
//! takes that one (`monitor`). A processor that has found events does not wake
//! others to help, either, before it is plain that it cannot keep up.
//!
//! *Looking for a while takes no CPU from anybody.* The thread that sends the next event, or receives
//! the answer to the last one, may wait for this very CPU: the system puts it there when it finds no
//! other one idle at that moment, leaves it there, and need not interrupt us for it before our slice
//! is over, milliseconds later. Events that another CPU sends meanwhile would keep us looking, so
//! no bound for one search helps that thread. Therefore a processor gives way after each look
//! that has found nothing. That is a short system call if nobody waits. If somebody does, it runs at
//! once, and mostly for a few microseconds; to sleep for its sake would cost more, and the system's count
//! of threads that can run does not say on which CPU. One that computes keeps the CPU for a time slice; beside
//! such threads a processor sleeps instead, for the system interrupts them for a thread that it wakes.
//!
//! *What arrivals hand to the kernel can go together.* Threads that events have made ready run one after the other,
//! as a rule for a moment each. So a driver may hold back at the processor what one of them hands over, until the
//! others have run, too ([`has_company`], [`hold`], [`HeldBack`]). It goes out ([`flush`])
//!
//! | when | by |
//! |---|---|
//! | as many switches have passed as threads have arrived, or the driver can hold no more | the run loop, before the next thread |
//! | the processor has run dry, or passes to another worker | the run loop |
//! | a thread has turned out to run long | the run loop, when the monitor has seen it and asked for attention |
//! | the monitor has taken the processor | the monitor |
//!
//! The threads that waited for that are arrivals again. The number of switches is a guess: if others run between the
//! arrivals, or some of them are stolen, it goes out sooner or later than it might, but never later than that. A
//! processor without an owner holds nothing back.
//!
//! # Invariants
//!
//! 1. A queued entry neither moves nor dies, and belongs to one heap.
//! 2. A thread that reads or writes an entry holds the lock of the heap that the entry is in or
//!    goes into. So the heap has no memory orderings.
//! 3. No entry is due before its parent. A root has no `previous`, and `roots[its rank]` is the
//!    root and its key. The `previous` of a first child is its parent, that of another child its
//!    sibling.
//! 4. `first` is the least key of all, and the rank of the tree that has it as root.
//! 5. There is no recursion: stacks are small.
//! 6. Between [`turn`] and the end of the [`Turn`] no other thread collects.
//! 7. `SOURCES` counts the sources of events: while the count is 0 no event can come.
//! 8. While descriptors are registered and nobody has the turn, a processor or the monitor is awake and will see to
//!    the events. For a worker takes the turn before it sleeps, if the turn is free; a thread that gives the turn back
//!    is awake, and has kicked the monitor if it slept; and the monitor does not sleep while the turn is free. A
//!    cluster that ends kicks the monitors of all others.

use core::{any::Any, cell::Cell, mem, ptr};
use std::sync::OnceLock;

use crate::engine::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use crate::engine::policy::{Readied, Ready};
use crate::engine::probe::{self, By, ReadyReason};
use crate::engine::sched::current::{self, Entered};
pub(crate) use crate::engine::sched::tuning::BATCH;
use crate::engine::sched::tuning::{APART, HELP_AFTER, LENT, LOOK_AT_TIMERS, PACE, SPIN};
use crate::engine::sched::{Cluster, Fifo, Green, Owned, Processor, RunLoop, ready_globally};
use crate::engine::sched::{cancel::Pinned, park::Found};
use crate::engine::sys::clock::{self, NEVER};
use crate::engine::sys::{kernel_thread, perturb, sanitizer};

// ==== timers ====

/// When a busy processor looks at its timers, in switches. It doubles or halves their number to
/// keep to [`PACE`], whatever its threads do.
pub(super) struct Looks {
    /// The number of the switch after which it looks.
    pub(super) next: u64,
    /// A power of two, up to [`LOOK_AT_TIMERS`].
    switches: u64,
    /// When it looked.
    last: u64,
    /// After this switch it flushes what a driver holds back.
    pub(super) flush: u64,
}

impl Looks {
    pub(super) const fn new() -> Looks {
        Looks {
            next: 0,
            switches: LOOK_AT_TIMERS,
            last: 0,
            flush: NEVER,
        }
    }

    /// Every [`LOOK_AT_TIMERS`]th switch is among those after which it looks.
    fn plan(&mut self, switches: u64) {
        let all = (switches / LOOK_AT_TIMERS + 1) * LOOK_AT_TIMERS;
        self.next = all.min(switches + self.switches).min(self.flush);
    }

    fn keep_pace(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        if elapsed > PACE {
            self.switches = (self.switches / 2).max(1);
        } else if elapsed < PACE / 2 {
            self.switches = (self.switches * 2).min(LOOK_AT_TIMERS);
        }
    }
}

/// `green`, which has left its stack, is to be woken at `deadline`; or else the timer is kept: see [`keep_timer`].
pub(crate) fn arm_timer(
    green: &'static Green,
    home: &'static Processor,
    deadline: u64,
    kept: bool,
) {
    green.timer.home.set(home.index as u32 + 1);
    perturb::point("timers: arming");
    let mut heap = home.timers.lock();
    // The entry is in no heap: after each wait with a deadline the thread disarms its timer.
    green.timer.kept.set(kept);
    heap.insert(green, deadline);
    publish_deadline(home, &heap);
}

/// The calling thread is to look at its frames at `limit`, in whatever wait it is then, if in any.
pub(crate) fn keep_timer(entered: &mut Entered, limit: u64) {
    arm_timer(entered.green, entered.processor().shared(), limit, true);
}

/// Takes back a timer that is kept.
pub(crate) fn take_timer_back(green: &'static Green) {
    if green.timer.kept.get() {
        disarm_timer(green);
    }
}

/// `green`, which runs again, takes its timer back, whether it has fired or not.
pub(crate) fn disarm_timer(green: &'static Green) {
    let (_off, _unseen) = (current::preemption_off(), sanitizer::unseen());
    if let Some(home) = green.timer.home.take().checked_sub(1) {
        perturb::point("timers: disarming");
        let home = green.cluster().table.get(home as usize);
        let mut heap = home.timers.lock();
        green.timer.kept.set(false);
        // The timer was armed in this heap, and if it was fired, then under the heap's lock.
        if heap.remove(green) {
            publish_deadline(home, &heap);
        }
    }
}

/// Fires the timers that are due at this processor. If the monitor says so, it fires those of all
/// processors: the owners are late, or have gone.
#[inline(never)]
pub(super) fn fire_own_timers(processor: &mut Owned<'_>) {
    if processor.attention.load(Relaxed) {
        processor.attention.store(false, Relaxed);
        for home in processor.cluster().processors() {
            fire_timers_at(processor, home);
        }
    } else {
        fire_timers_at(processor, processor.shared());
    }
}

/// [`fire_own_timers`] by a processor that has other threads to run, after its switch number `switches`.
/// The first thread whose deadline has passed runs next, as long as the time slice that it would go
/// on in is not over.
pub(super) fn fire_timers_when_busy(processor: &mut Owned<'_>, switches: u64, is_slice_over: bool) {
    match processor.next_deadline.load(Relaxed) {
        NEVER => processor.own().looks.switches = LOOK_AT_TIMERS,
        _ => {
            let now = clock::now();
            processor.own().looks.keep_pace(now);
            let first = match is_slice_over {
                true => Readied::Arrived,
                false => Readied::Woken,
            };
            fire(processor, processor.shared(), now, first);
        }
    }
    if processor.attention.load(Relaxed) {
        fire_own_timers(processor);
    }
    processor.own().looks.plan(switches);
}

/// Fires the timers that are due at `home`, and hands their threads to the policy in the name of
/// `processor`.
#[inline(never)]
pub(super) fn fire_timers_at(processor: &mut Owned<'_>, home: &Processor) {
    if home.next_deadline.load(Relaxed) != NEVER {
        fire(processor, home, clock::now(), Readied::Arrived);
    }
}

/// Fires the timers that are due at `home` by `now`, and hands their threads to the policy in the name of `processor`:
/// `how` the first has become ready, and the others by arriving.
fn fire(processor: &mut Owned<'_>, home: &Processor, now: u64, mut how: Readied) {
    if home.next_deadline.load(Relaxed) > now {
        return;
    }
    let mut ready = Fifo::new();
    let mut is_done = false;
    while !is_done {
        let mut pinned = Pinned::none();
        let mut heap = home.timers.lock();
        while !pinned.is_full()
            && let Some(green) = heap.pop_due(now)
        {
            perturb::point("timers: expiring");
            if green.timer.kept.get() {
                // A thread that takes its timer back sees the pin, by the lock.
                pinned.pin(green.interrupts());
            // SAFETY: the thread left its parking before the run loop armed the timer, and cannot go on before the
            // lock is free.
            } else if unsafe { &*(*green.parking()).waiter }.state.expire() == Found::Green {
                ready.push(green);
            }
        }
        publish_deadline(home, &heap);
        drop(heap);
        is_done = !pinned.is_full();
        pinned.barrier();
        pinned.interrupt(&mut ready);
    }
    perturb::point("timers: fired");
    let (cluster, any) = (processor.cluster(), ready.len() != 0);
    while let Some(green) = ready.pop() {
        probe::readied(By::Processor(processor.lend()), green, ReadyReason::Fired);
        let (thread, seat) = (Ready::new(green), Some(processor.seat()));
        cluster.policy.ready(thread, how, seat);
        how = Readied::Arrived;
    }
    if any {
        cluster.notify();
    }
}

/// Whether any timer of the cluster is due.
pub(crate) fn is_any_timer_due(cluster: &Cluster) -> bool {
    let earliest = earliest_deadline(cluster);
    earliest != NEVER && earliest <= clock::now()
}

/// The cluster's earliest deadline; [`NEVER`] if no timer is armed.
pub(crate) fn earliest_deadline(cluster: &Cluster) -> u64 {
    let deadlines = cluster.processors().map(|p| p.next_deadline.load(Relaxed));
    deadlines.min().unwrap_or(NEVER)
}

fn publish_deadline(home: &Processor, heap: &TimerHeap) {
    perturb::point("timers: publishing");
    home.next_deadline.store(heap.next_deadline(), Relaxed);
}

// ==== the heap of timers ====

type Link = Option<&'static Green>;

/// The order of entries: the deadline, and below it the number of the insertion. The key is one
/// number: a pair is written by halves and read at once as a vector, which stalls, and a timeout
/// takes 30 ns, not 8.
type Key = u128;

/// The number of ranks: enough for 2^32 entries without holes.
const RANKS: usize = 32;

/// A thread's deadline, in its record. Only the holder of the heap's lock touches it (invariant 2). An entry begins idle.
#[derive(Default)]
pub(crate) struct TimerEntry {
    key: Cell<Key>,
    child: Cell<Link>,
    next: Cell<Link>,
    previous: Cell<Link>,
    rank: Cell<u8>,
    queued: Cell<bool>,
    /// The timer is kept over waits, so the thread may be doing anything when it fires.
    kept: Cell<bool>,
    /// The number of the processor whose heap has, or had, the timer, and 1; 0: none has. The thread's own.
    home: Cell<u32>,
}

impl TimerEntry {
    /// The limit for which the thread, the caller, keeps its timer; [`NEVER`]: for none. (The thread alone changes the key.)
    pub(crate) fn kept(&self) -> u64 {
        match self.kept.get() {
            true => (self.key.get() >> 64) as u64,
            false => NEVER,
        }
    }
}

/// Makes a root the first child of `parent`.
fn adopt(parent: &'static Green, root: &'static Green) {
    let rest = parent.timer.child.replace(Some(root));
    root.timer.previous.set(Some(parent));
    root.timer.next.set(rest);
    if let Some(rest) = rest {
        rest.timer.previous.set(Some(root));
    }
}

/// Cuts `green`, behind `previous`, off its parent or sibling.
fn cut(green: &'static Green, previous: &'static Green) {
    let next = green.timer.next.take();
    let child = &previous.timer.child;
    let is_first = child.get().is_some_and(|first| ptr::eq(first, green));
    match is_first {
        true => child.set(next),
        false => previous.timer.next.set(next),
    }
    if let Some(next) = next {
        next.timer.previous.set(Some(previous));
    }
    green.timer.previous.set(None);
}

/// The heap.
pub(crate) struct TimerHeap {
    /// The roots by rank. Their keys lie here so that finding the least touches no entry.
    roots: [Option<(Key, &'static Green)>; RANKS],
    /// A bit for each rank that has a root.
    occupied: u32,
    /// The least key, and its rank.
    first: (Key, usize),
    inserted: u64,
}

/// The `first` of an empty heap: after every key, with the deadline [`NEVER`].
const NONE: (Key, usize) = (u128::MAX, 0);

impl TimerHeap {
    /// An empty heap.
    pub(crate) const fn new() -> Self {
        TimerHeap {
            roots: [None; RANKS],
            occupied: 0,
            first: NONE,
            inserted: 0,
        }
    }

    /// Inserts a thread whose entry is idle.
    fn insert(&mut self, green: &'static Green, deadline: u64) {
        debug_assert!(!green.timer.queued.get());
        let key = (deadline as u128) << 64 | self.inserted as u128;
        green.timer.key.set(key);
        green.timer.rank.set(0);
        green.timer.queued.set(true);
        self.inserted += 1;
        self.add(green);
    }

    /// Takes a thread out, whose entry is in this heap, or idle; false if it is idle, because it was popped before.
    fn remove(&mut self, green: &'static Green) -> bool {
        let entry = &green.timer;
        if !entry.queued.replace(false) {
            return false;
        }
        match entry.previous.get() {
            Some(previous) => cut(green, previous),
            None => {
                let rank = entry.rank.get();
                self.roots[rank as usize] = None;
                self.occupied &= !(1 << rank);
                if entry.key.get() == self.first.0 {
                    self.find_first();
                }
            }
        }
        let mut child = entry.child.take();
        while let Some(green) = child {
            child = green.timer.next.take();
            green.timer.previous.set(None);
            self.add(green);
        }
        true
    }

    /// Takes out the thread that is due first, if it is due at `now`.
    fn pop_due(&mut self, now: u64) -> Link {
        let is_due = self.next_deadline() <= now;
        let (_, first) = self.roots[self.first.1].filter(|_| is_due)?;
        self.remove(first);
        Some(first)
    }

    /// The earliest deadline; [`NEVER`] if the heap is empty.
    fn next_deadline(&self) -> u64 {
        (self.first.0 >> 64) as u64
    }

    /// Adds a tree: links it with the tree of its rank, as long as there is one.
    fn add(&mut self, root: &'static Green) {
        let mut tree = (root.timer.key.get(), root);
        let mut rank = root.timer.rank.get();
        while let Some(mut other) = self.roots[rank as usize].take() {
            self.occupied &= !(1 << rank);
            if other.0 < tree.0 {
                mem::swap(&mut tree, &mut other);
            }
            adopt(tree.1, other.1);
            rank = (rank + 1).min(RANKS as u8 - 1);
            tree.1.timer.rank.set(rank);
        }
        self.occupied |= 1 << rank;
        self.roots[rank as usize] = Some(tree);
        // If the keys are equal, this is the tree with the least key, and its rank has grown.
        if tree.0 <= self.first.0 {
            self.first = (tree.0, rank as usize);
        }
    }

    fn find_first(&mut self) {
        let is_there = |rank: &usize| self.occupied >> rank & 1 != 0;
        let roots = (0..RANKS).filter(is_there);
        let keys = roots.filter_map(|rank| Some((self.roots[rank]?.0, rank)));
        self.first = keys.min().unwrap_or(NONE);
    }
}

// ==== the turn ====

/// A driver, as the scheduler knows it: it makes threads ready from outside.
pub(crate) trait Collect: Sync {
    /// Collects events, [`BATCH`] at most, for at most `nanos`. Returns the threads that they make
    /// ready.
    fn collect(&self, nanos: Option<u64>) -> Fifo;

    /// Ends the collecting that goes on, or the next one.
    fn ring(&self);
}

/// The process's driver. It lives as long as the process.
static DRIVER: OnceLock<&'static dyn Collect> = OnceLock::new();
/// Whether a thread has the turn. SeqCst where the turn is taken, given back, and looked at by a thread that is about
/// to sleep: each such thread sees that another one has the turn, or is seen to sleep.
static TAKEN: AtomicBool = AtomicBool::new(false);
pub(super) static SOURCES: AtomicUsize = AtomicUsize::new(0);
/// When events were last asked for (monotonic nanoseconds).
static ASKED: AtomicU64 = AtomicU64::new(0);

/// There is one more source of events, and `driver` collects them.
pub(crate) fn add_source(driver: &'static dyn Collect) {
    DRIVER.get_or_init(|| driver);
    SOURCES.fetch_add(1, Relaxed);
}

/// There is one source less.
pub(crate) fn remove_source() {
    SOURCES.fetch_sub(1, Relaxed);
}

/// Whether any event can come.
#[inline]
pub(crate) fn is_in_use() -> bool {
    SOURCES.load(Relaxed) != 0
}

/// Whether an event can come and nobody would notice it.
pub(super) fn is_unwatched() -> bool {
    // SeqCst: the monitor looks after it has said that it sleeps; partner: the swap in `turn` (invariant 8).
    is_in_use() && !TAKEN.load(SeqCst)
}

/// The right to collect events, of one thread at a time.
pub(crate) struct Turn(&'static dyn Collect);

/// The turn, if an event can come and nobody has the turn.
pub(super) fn turn() -> Option<Turn> {
    if !is_in_use() || TAKEN.load(Relaxed) {
        return None;
    }
    let driver = DRIVER.get()?;
    perturb::point("events: turn");
    // SeqCst: a worker that goes to sleep without the turn, and the monitor that looks for sleepers without one,
    // see each other; partner: the load in `is_unwatched`.
    (!TAKEN.swap(true, SeqCst)).then(|| Turn(*driver))
}

/// Ends the wait of the thread that has the turn, or the wait of the next such thread.
pub(super) fn ring() {
    if let Some(driver) = DRIVER.get() {
        driver.ring();
    }
}

impl Turn {
    /// Collects events, for at most `nanos`. Returns the threads that they make ready.
    pub(crate) fn collect(&self, nanos: Option<u64>) -> Fifo {
        perturb::point("events: collecting");
        let ready = self.0.collect(nanos);
        ASKED.store(clock::now(), Relaxed);
        ready
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        perturb::point("events: turn over");
        // SeqCst: partner: the load in `is_unwatched`.
        TAKEN.store(false, SeqCst);
    }
}

/// How long nobody has looked for events that can come.
pub(super) fn unseen(now: u64) -> u64 {
    match is_in_use() && !TAKEN.load(Relaxed) {
        true => now.saturating_sub(ASKED.load(Relaxed)),
        false => 0,
    }
}

// ==== the threads that events make ready ====

/// What a driver holds back at a processor, to hand it to the kernel together with more of its kind.
pub(crate) trait HeldBack: Any {
    /// Hands it over. Returns the threads that waited for that. It does not block, runs under any thread
    /// pointer, and allocates nothing.
    fn flush(&mut self) -> Fifo;
}

/// Takes `ready` into the queue of `processor`, which is the caller's. True: `ready` was not empty.
pub(super) fn take_in(processor: &mut Owned<'_>, ready: Fifo) -> bool {
    let count = ready.len();
    let cluster = processor.cluster();
    arrive(processor, ready);
    if is_too_much(processor, count) || cluster.policy.len(None) != 0 {
        cluster.notify();
    }
    count != 0
}

/// Takes `ready` into the queue of `processor`, and expects each of these threads to run for a moment.
fn arrive(processor: &mut Owned<'_>, mut ready: Fifo) {
    let count = ready.len();
    let cluster = processor.cluster();
    let mut expected = 0;
    while let Some(green) = ready.pop() {
        if count > 1 {
            green.prefetch();
        }
        probe::readied(By::Processor(processor.lend()), green, ReadyReason::Arrived);
        if core::ptr::eq(green.cluster(), cluster) {
            let thread = Ready::new(green);
            let seat = Some(processor.seat());
            cluster.policy.ready(thread, Readied::Arrived, seat);
            expected += 1;
        } else {
            ready_globally(green, Readied::Arrived);
        }
    }
    let switches = processor.counts.switches.get();
    let until = &mut processor.own().arrivals_until;
    *until = switches.max(*until) + expected;
}

/// Whether what the running thread hands to the kernel should wait for threads behind it that may hand over
/// something, too: arrivals are in the queue, and nothing else, or something is held back already.
pub(crate) fn has_company(processor: &mut Owned<'_>) -> bool {
    let next = processor.counts.switches.get() + 1;
    let arrivals = processor.own().arrivals_until.saturating_sub(next);
    let waiting = || processor.cluster().policy.len(Some(processor.index));
    (arrivals != 0 || processor.holds.load(Relaxed)) && waiting() as u64 <= arrivals
}

/// A driver holds something back for the running thread, which parks now. If that is all that it can hold, it
/// goes out next.
pub(crate) fn hold(processor: &mut Owned<'_>, is_full: bool) {
    processor.holds.store(true, Relaxed);
    let switches = processor.counts.switches.get();
    let own = processor.own();
    let last = match is_full {
        true => switches + 1,
        false => own.arrivals_until,
    };
    own.looks.flush = own.looks.flush.min(last);
    own.looks.next = own.looks.next.min(last);
}

/// Hands over what a driver holds back at `processor`, for its owner, and takes in the threads that waited for
/// that.
#[inline]
pub(super) fn flush(processor: &mut Owned<'_>) {
    if processor.holds.load(Relaxed) {
        flush_now(processor);
    }
}

#[cold]
#[inline(never)]
fn flush_now(processor: &mut Owned<'_>) {
    processor.holds.store(false, Relaxed);
    let own = processor.own();
    own.looks.flush = NEVER;
    if let Some(held) = &mut own.held {
        let ready = held.flush();
        arrive(processor, ready);
    }
}

/// Whether `processor`, which takes in `count` threads, needs help.
fn is_too_much(processor: &mut Owned<'_>, count: usize) -> bool {
    let crowded_since = &mut processor.own().crowded_since;
    if count < BATCH {
        *crowded_since = NEVER;
        return false;
    }
    let now = ASKED.load(Relaxed);
    let since = (*crowded_since).min(now);
    let too_much = now - since >= HELP_AFTER;
    *crowded_since = if too_much { NEVER } else { since };
    too_much
}

/// Makes all of `ready` ready; the caller has no processor, and no preemption.
pub(crate) fn pass_on(mut ready: Fifo) {
    while let Some(green) = ready.pop() {
        perturb::point("io: passing on");
        probe::readied(By::Outside, green, ReadyReason::Arrived);
        ready_globally(green, Readied::Arrived);
    }
}

/// One look, by the owner of `processor`. True: events came.
pub(super) fn look(processor: &mut Owned<'_>) -> bool {
    let ready = turn().map(|turn| turn.collect(Some(0)));
    perturb::point("io: collected");
    ready.is_some_and(|ready| take_in(processor, ready))
}

/// Looks for a while, if events have come so quickly of late that it pays: sleeping and being woken
/// would take longer. The owner of `processor` searches. Returns the threads that are ready now, or none if there is other
/// work to do; `None`: there was nothing, or looking does not pay.
pub(super) fn spin(processor: &mut Owned<'_>) -> Option<Fifo> {
    if !processor.own().spin_pays || !processor.cluster().config.ideas.spinning {
        return None;
    }
    let turn = turn()?;
    let end = clock::now() + SPIN;
    loop {
        let ready = turn.collect(Some(0));
        if ready.len() != 0 || processor.cluster().something_to_do() {
            return Some(ready);
        }
        // Without this call, `echo at half load` (benches/latency) has a worse p99.
        let before = clock::now();
        kernel_thread::give_way();
        let now = clock::now();
        if now - before >= LENT {
            processor.own().spins_from = now + APART;
        }
        if now >= end {
            processor.own().spin_pays = false;
            return None;
        }
    }
}

/// Takes in the threads that events made ready while the worker, which has a processor now, slept for `slept`
/// nanoseconds.
pub(super) fn settle(run: &mut RunLoop, ready: Fifo, slept: u64) {
    match run.owned() {
        Some(mut processor) => {
            if take_in(&mut processor, ready) {
                let own = processor.own();
                own.spin_pays = slept < SPIN && ASKED.load(Relaxed) >= own.spins_from;
            }
        }
        None => pass_on(ready),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Records that no code runs.
    fn records(count: usize) -> &'static [Green] {
        (0..count).map(|_| Green::new()).collect::<Vec<_>>().leak()
    }

    /// Checks invariants 3 and 4 for all entries, which are `count`.
    fn check(heap: &TimerHeap, count: usize) {
        let mut found = 0;
        let mut todo = Vec::new();
        let mut least = NONE.0;
        for (rank, root) in heap.roots.iter().enumerate() {
            assert_eq!(heap.occupied >> rank & 1 != 0, root.is_some());
            let Some((key, root)) = *root else { continue };
            assert!(root.timer.previous.get().is_none() && root.timer.next.get().is_none());
            assert_eq!(
                (root.timer.rank.get(), root.timer.key.get()),
                (rank as u8, key)
            );
            least = least.min(key);
            todo.push(root);
        }
        assert_eq!(heap.first.0, least);
        assert!(todo.is_empty() || heap.roots[heap.first.1].unwrap().0 == least);
        while let Some(parent) = todo.pop() {
            found += 1;
            assert!(parent.timer.queued.get());
            let (mut previous, mut next) = (parent, parent.timer.child.get());
            let mut children = 0;
            while let Some(child) = next {
                assert!(ptr::eq(child.timer.previous.get().unwrap(), previous));
                assert!(parent.timer.key.get() < child.timer.key.get());
                todo.push(child);
                children += 1;
                (previous, next) = (child, child.timer.next.get());
            }
            assert!(children <= parent.timer.rank.get());
        }
        assert_eq!(found, count);
    }

    /// Whether `popped` is this record.
    fn is(popped: Link, record: Option<&'static Green>) -> bool {
        popped.map(ptr::from_ref) == record.map(ptr::from_ref)
    }

    #[test]
    fn agrees_with_a_sorted_map() {
        for seed in 0..if cfg!(miri) { 2 } else { 40 } {
            println!("seed {seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let own = records(if cfg!(miri) { 20 } else { 300 });
            let mut heap = TimerHeap::new();
            let mut model = BTreeMap::new();
            let mut keys = vec![None; own.len()];
            // Some rounds have few different deadlines, so that ties are common.
            let range = [5, 1000, u64::MAX][seed as usize % 3];
            for step in 0..if cfg!(miri) { 200 } else { 4000 } {
                let index = random.usize(..own.len());
                match random.u8(..8) {
                    0..4 if keys[index].is_none() => {
                        let key = (random.u64(..range), step);
                        keys[index] = Some(key);
                        model.insert(key, index);
                        heap.insert(&own[index], key.0);
                    }
                    4..6 => {
                        let known = keys[index].take();
                        assert_eq!(heap.remove(&own[index]), known.is_some());
                        known.map(|key| model.remove(&key));
                    }
                    6 => {
                        let now = random.u64(..range);
                        let due = model.first_key_value().filter(|(key, _)| key.0 <= now);
                        let due = due.map(|(_, &index)| index);
                        assert!(is(heap.pop_due(now), due.map(|index| &own[index])));
                        if let Some(index) = due {
                            model.remove(&keys[index].take().unwrap());
                        }
                    }
                    _ => {}
                }
                assert_eq!(
                    heap.next_deadline(),
                    model.first_key_value().map_or(NEVER, |(key, _)| key.0)
                );
                if step % 64 == 0 {
                    check(&heap, model.len());
                }
            }
        }
    }

    #[test]
    fn equal_deadlines_keep_their_order() {
        let own = records(100);
        let mut heap = TimerHeap::new();
        own.iter().for_each(|record| heap.insert(record, 7));
        assert!(heap.pop_due(6).is_none());
        assert!(own.iter().all(|record| is(heap.pop_due(7), Some(record))));
        assert!(heap.pop_due(u64::MAX).is_none() && heap.next_deadline() == NEVER);
    }

    #[test]
    fn many_on_a_small_stack() {
        let count = if cfg!(miri) { 1000 } else { 100_000 };
        let orders: [fn(u64, u64) -> u64; 2] = [|i, _| i, |i, count| count - 1 - i];
        let run = move || {
            for order in orders {
                let mut heap = TimerHeap::new();
                for (i, record) in records(count as usize).iter().enumerate() {
                    heap.insert(record, order(i as u64, count));
                }
                check(&heap, count as usize);
                for due in 0..count {
                    let first = heap.pop_due(u64::MAX).unwrap();
                    assert_eq!((first.timer.key.get() >> 64) as u64, due);
                }
                check(&heap, 0);
            }
        };
        std::thread::Builder::new()
            .stack_size(16 << 10)
            .spawn(run)
            .unwrap()
            .join()
            .unwrap();
    }

    #[test]
    fn looks_keep_pace_with_threads_of_any_length() {
        for length in [20, 100, 1_000, 50_000] {
            let (mut looks, mut now) = (Looks::new(), 0);
            let (mut longest, mut last) = (0, 0);
            for switches in 1..10_000 {
                now += length;
                if switches < looks.next {
                    assert!(switches % LOOK_AT_TIMERS != 0, "it looks at each of these");
                    continue;
                }
                looks.keep_pace(now);
                looks.plan(switches);
                // It has found its pace by then.
                if switches > 4 * LOOK_AT_TIMERS {
                    longest = longest.max(now - last);
                }
                last = now;
            }
            assert!(longest <= PACE.max(length), "{longest} for {length}");
        }
    }
}
