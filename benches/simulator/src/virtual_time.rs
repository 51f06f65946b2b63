//! Virtual time. A virtual processor is a coroutine with a clock; the one whose clock is furthest
//! behind runs. An atomic operation advances the clock by what it costs, and lets the others catch
//! up before it takes place.
//!
//! # Cache lines
//!
//! A line (64 bytes, by address) is in any number of caches for reading, or in one for writing.
//!
//! | operation | the line is | cost |
//! |---|---|---|
//! | load | in the own cache | a hit |
//! | load | not | waits until a write under way has ended, then a transfer from the nearest cache that has the line |
//! | store, modify | in the own cache alone | a hit, or a local read-modify-write |
//! | store, modify | not | waits until all transfers of the line under way have ended, then one more: from the farthest cache that has the line, which must give it up |
//!
//! The machine has one or more packages, with the same number of neighbouring processors each. A transfer
//! within a package costs [`Costs::transfer`], one from another package [`Costs::across`]. A reader whose
//! package is about to get the line for another reader takes it from that one, or from afar if that is
//! sooner.
//!
//! So those that write to one line take turns, in the order of their requests: contention queues up
//! by itself. Who has fetched a line to write to it keeps it for a moment, however many want it.
//! Readers fetch a line at the same time: an assumption in favour of whoever is spun at. The third
//! load in a row of one word by one processor is taken for a spin loop's, and costs a pause. Stores
//! wait for their lines; nothing overlaps.
//!
//! # Why it is exact
//!
//! 1. A miss is requested when no clock is behind the processor's; the line's state then says when it
//!    has come, and that whoever asks later comes later. The operation takes place at that time, when
//!    again no clock is behind.
//! 2. A hit may run ahead of the clocks behind by the time of the shortest transfer: whoever is behind
//!    cannot write to this line in less. (Only loads run ahead: a store is seen by whoever is behind.)
//!
//! So the operations of all processors have one order, which agrees with their virtual times: what is
//! simulated is a sequentially consistent machine. It is the same every time: ties go to the lower
//! number, and whatever is random is seeded.

use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use core::hash::BuildHasherDefault;
use core::ptr;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::cost::{Costs, LINES};

#[path = "lines.rs"]
mod lines;

use lines::{LINE, Line, Set, Spread};

/// The most processors that there can be.
pub const MAX: usize = 1024;
/// The most packages.
pub const PACKAGES: usize = 4;
/// No processor's number: for what lies in no cache.
pub(crate) const NOWHERE: usize = usize::MAX;
const STACK: usize = 64 * 1024;
/// The tail of a futex's name in the table of lines: the kernel's line for it.
const IN_THE_KERNEL: usize = 1 << 63;

/// Picoseconds.
type Time = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    Modify,
}

type Switch = Yielder<(), ()>;

struct Processor {
    clock: Cell<Time>,
    package: usize,
    /// The word that it accessed last, and how many loads in a row that was.
    looks_at: Cell<(usize, u32)>,
    /// The line that it fetched last for writing, and until when it keeps it at least.
    keeps: Cell<(usize, Time)>,
    switch: Cell<*const Switch>,
}

impl Processor {
    fn add(&self, time: Time) {
        self.clock.set(self.clock.get() + time);
    }
}

struct Prices {
    hit: Time,
    modify: Time,
    fence: Time,
    transfer: Time,
    across: Time,
    /// The shortest transfer that there is.
    shortest: Time,
    migration: Time,
    keep: Time,
    pause: Time,
    ticks: Time,
    system_call: Time,
    wake_call: Time,
    wake_latency: Time,
}

struct Engine {
    processors: Vec<Processor>,
    /// The processors of each package.
    packages: Vec<Set>,
    running: Cell<usize>,
    /// Those that wait for their time, the earliest first.
    queue: RefCell<BinaryHeap<Reverse<(Time, usize)>>>,
    lines: RefCell<HashMap<usize, Line, BuildHasherDefault<Spread>>>,
    sleepers: RefCell<HashMap<usize, VecDeque<usize>, BuildHasherDefault<Spread>>>,
    prices: Prices,
}

std::thread_local! {
    static ENGINE: Cell<*const Engine> = const { Cell::new(ptr::null()) };
}

fn time(nanoseconds: f64) -> Time {
    (nanoseconds * 1000.0).round() as Time
}

/// Calls `f` with the simulation that runs here. Outside of one, memory costs nothing.
#[inline]
fn with(f: impl FnOnce(&Engine)) {
    // SAFETY: null, or the engine of the call of `run` that this is in, which outlives its coroutines.
    if let Some(engine) = unsafe { ENGINE.get().as_ref() } {
        f(engine);
    }
}

/// Runs `body` on so many processors until all have returned.
///
/// # Panics
/// If nobody can go on: all that are left sleep.
pub fn run(processors: usize, costs: &Costs, body: impl Fn(usize)) {
    assert!((1..=MAX).contains(&processors), "1 to {MAX} processors");
    assert!(
        (1..=PACKAGES).contains(&costs.packages),
        "1 to {PACKAGES} packages"
    );
    let package = |index: usize| index * costs.packages / processors;
    let mut packages = vec![Set::default(); costs.packages];
    (0..processors).for_each(|index| packages[package(index)][index / 64] |= 1 << (index % 64));
    let engine = Engine {
        packages,
        processors: (0..processors)
            .map(|index| Processor {
                clock: Cell::new(0),
                package: package(index),
                looks_at: Cell::new((0, 0)),
                keeps: Cell::new((0, 0)),
                switch: Cell::new(ptr::null()),
            })
            .collect(),
        running: Cell::new(0),
        queue: RefCell::new((0..processors).map(|i| Reverse((0, i))).collect()),
        lines: RefCell::default(),
        sleepers: RefCell::default(),
        prices: Prices {
            hit: time(costs.hit),
            modify: time(costs.modify),
            fence: time(costs.fence),
            transfer: time(costs.transfer),
            across: time(costs.across),
            shortest: time(match costs.packages {
                1 => costs.transfer,
                _ => costs.transfer.min(costs.across),
            }),
            migration: time(costs.migration),
            keep: time(costs.keep),
            pause: time(costs.pause),
            ticks: time(costs.ticks),
            system_call: time(costs.system_call),
            wake_call: time(costs.wake_call),
            wake_latency: time(costs.wake_latency),
        },
    };
    struct Over(*const Engine);
    impl Drop for Over {
        fn drop(&mut self) {
            ENGINE.set(self.0);
        }
    }
    let _over = Over(ENGINE.replace(&engine));
    let (body, engine) = (&body, &engine);
    let mut coroutines: Vec<_> = (0..processors)
        .map(|i| {
            let stack = DefaultStack::new(STACK).expect("no memory for a stack");
            // SAFETY: the coroutine borrows `body` and `engine`, and is dropped before them.
            Some(unsafe {
                Coroutine::with_stack_unchecked(stack, move |switch: &Switch, ()| {
                    engine.processors[i].switch.set(switch);
                    body(i);
                })
            })
        })
        .collect();
    let mut left = processors;
    loop {
        let Some(Reverse((_, next))) = engine.queue.borrow_mut().pop() else {
            break;
        };
        engine.running.set(next);
        let coroutine = coroutines[next]
            .as_mut()
            .expect("a processor runs after its end");
        if let CoroutineResult::Return(()) = coroutine.resume(()) {
            coroutines[next] = None;
            left -= 1;
        }
    }
    if left != 0 {
        // Their stacks are given up: nothing on them is needed any more.
        coroutines.into_iter().for_each(core::mem::forget);
        panic!("{left} of {processors} processors sleep, and nobody wakes them");
    }
}

/// The running processor's time, in nanoseconds.
pub fn now() -> f64 {
    let mut now = 0;
    with(|engine| now = engine.me().clock.get());
    now as f64 / 1000.0
}

/// The running processor works by itself for so long.
pub(crate) fn spend(nanoseconds: f64) {
    with(|engine| engine.advance(time(nanoseconds)));
}

/// The running processor makes a full fence.
pub(crate) fn fence() {
    with(|engine| engine.advance(engine.prices.fence));
}

/// The running processor lets a moment pass in a spin loop.
pub(crate) fn pause() {
    with(|engine| engine.advance(engine.prices.pause));
}

/// The same, so many times.
pub(crate) fn pause_for(pauses: u32) {
    with(|engine| engine.advance(engine.prices.pause * Time::from(pauses)));
}

/// The running processor loads so many words from its own cache, which nobody writes.
pub(crate) fn hits(count: usize) {
    with(|engine| engine.advance(engine.prices.hit * count as Time));
}

/// The running processor makes a system call that has little to do.
pub(crate) fn system_call() {
    with(|engine| engine.advance(engine.prices.system_call));
}

/// The running processor looks at its clock, which goes with all others'.
pub(crate) fn ticks() -> u64 {
    let mut now = 0;
    with(|engine| {
        engine.advance(engine.prices.ticks);
        now = engine.me().clock.get();
    });
    now
}

/// The running processor fetches `lines` lines of a thread that processor `from` has used last. They
/// come at once, not one after the other.
pub(crate) fn fetch(lines: usize, from: usize) {
    with(|engine| {
        let me = engine.running.get();
        if from == me || from == NOWHERE {
            return;
        }
        let (whole, prices) = (engine.prices.migration, &engine.prices);
        let share = whole * lines as Time / LINES as Time;
        engine.advance(match engine.are_apart(me, from) && prices.transfer != 0 {
            false => share,
            true => share * prices.across / prices.transfer,
        });
    });
}

/// The running processor's number.
pub(crate) fn cpu() -> usize {
    let mut index = 0;
    with(|engine| index = engine.running.get());
    index
}

/// Whether two processors are in different packages. `None`: there is only one package.
pub(crate) fn are_apart(one: usize, other: usize) -> Option<bool> {
    let mut apart = None;
    with(|engine| apart = (engine.packages.len() > 1).then(|| engine.are_apart(one, other)));
    apart
}

/// The running processor accesses the word at `address`: when this returns, it is its turn.
#[inline]
pub(crate) fn access(address: usize, access: Access) {
    with(|engine| engine.access(address, access));
}

/// The running processor modifies a word, whatever is in it.
pub fn modify<T>(word: *const T) {
    access(word.addr(), Access::Modify);
}

/// The running processor loads a word, whatever is in it.
pub fn load<T>(word: *const T) {
    access(word.addr(), Access::Load);
}

/// The running processor sleeps until it is woken, if `must` still says so in the kernel.
pub(crate) fn futex_wait(word: usize, must: impl FnOnce() -> bool) {
    with(|engine| {
        engine.advance(engine.prices.system_call);
        engine.access(word | IN_THE_KERNEL, Access::Modify);
        if must() {
            let mut sleepers = engine.sleepers.borrow_mut();
            sleepers
                .entry(word)
                .or_default()
                .push_back(engine.running.get());
            drop(sleepers);
            engine.leave();
        }
    });
}

/// The running processor wakes so many of those that sleep at `word`, the first ones first.
pub(crate) fn futex_wake(word: usize, count: u32) {
    with(|engine| {
        engine.advance(engine.prices.system_call);
        engine.access(word | IN_THE_KERNEL, Access::Modify);
        for _ in 0..count {
            let mut sleepers = engine.sleepers.borrow_mut();
            let Some(sleeper) = sleepers.get_mut(&word).and_then(VecDeque::pop_front) else {
                break;
            };
            drop(sleepers);
            let woken_at = engine.me().clock.get() + engine.prices.wake_latency;
            engine.advance(engine.prices.wake_call);
            let clock = &engine.processors[sleeper].clock;
            clock.set(clock.get().max(woken_at));
            engine
                .queue
                .borrow_mut()
                .push(Reverse((clock.get(), sleeper)));
        }
    });
}

impl Engine {
    fn are_apart(&self, one: usize, other: usize) -> bool {
        self.processors[one].package != self.processors[other].package
    }

    fn me(&self) -> &Processor {
        &self.processors[self.running.get()]
    }

    fn advance(&self, time: Time) {
        let me = self.me();
        me.add(time);
        me.looks_at.set((0, 0));
    }

    fn access(&self, address: usize, access: Access) {
        let (index, me) = (self.running.get(), self.me());
        let (line, prices) = (address / LINE, &self.prices);
        let looks = match (access, me.looks_at.get()) {
            (Access::Load, (at, looks)) if at == address => looks + 1,
            (Access::Load, _) => 1,
            _ => 0,
        };
        me.looks_at.set((address, looks));
        self.let_others_catch_up(if access == Access::Load {
            prices.shortest
        } else {
            0
        });
        if self.has(index, line, access) {
            return me.add(match access {
                Access::Load if looks > 2 => prices.pause,
                Access::Load | Access::Store => prices.hit,
                Access::Modify => prices.modify,
            });
        }
        self.let_others_catch_up(0);
        let mut lines = self.lines.borrow_mut();
        let state = lines.entry(line).or_default();
        if !state.is_held() {
            // From memory, once: not what is to be measured.
            state.add(index);
            return me.add(prices.hit);
        }
        let here = &self.packages[me.package];
        let mut start = me.clock.get().max(state.written);
        let end;
        if access == Access::Load {
            let from_here = start.max(state.came[me.package]) + prices.transfer;
            let from_afar = start + prices.across;
            end = match (state.is_held_among(here), state.is_held_outside(here)) {
                (true, true) => from_here.min(from_afar),
                (true, false) => from_here,
                (false, _) => {
                    state.came[me.package] = from_afar;
                    from_afar
                }
            };
            state.read = state.read.max(end);
        } else {
            start = start.max(state.read);
            end = start
                + match state.is_held_outside(here) {
                    true => prices.across,
                    false => prices.transfer,
                };
            state.written = end + prices.keep;
            state.holders = Default::default();
            state.came = Default::default();
            state.came[me.package] = end;
            me.keeps.set((line, state.written));
        }
        state.add(index);
        drop(lines);
        me.clock.set(end);
        self.let_others_catch_up(0);
    }

    /// Whether such an access to `line` is a hit.
    fn has(&self, processor: usize, line: usize, access: Access) -> bool {
        let me = &self.processors[processor];
        let (kept, until) = me.keeps.get();
        let lines = self.lines.borrow();
        let holds = lines.get(&line).is_some_and(|state| match access {
            Access::Load => state.is_held_by(processor),
            Access::Store | Access::Modify => state.is_held_by_alone(processor),
        });
        holds || kept == line && me.clock.get() < until
    }

    /// Until nobody's clock is behind this one's by more than `ahead`.
    fn let_others_catch_up(&self, ahead: Time) {
        let now = self.me().clock.get();
        let mut queue = self.queue.borrow_mut();
        let is_late = |&Reverse((time, _)): &Reverse<(Time, usize)>| time + ahead < now;
        if queue.peek().is_some_and(is_late) {
            queue.push(Reverse((now, self.running.get())));
            drop(queue);
            self.leave();
        }
    }

    fn leave(&self) {
        // SAFETY: set by the coroutine that runs, at its beginning.
        unsafe { &*self.me().switch.get() }.suspend(());
    }
}

/// Random numbers (xorshift; Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, processor: usize) -> Random {
        Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + processor as u64 + 1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let x = &mut self.0;
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x
    }
}
