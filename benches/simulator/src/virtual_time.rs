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
//! | load | not | waits until a write under way has ended, then a transfer |
//! | store, modify | in the own cache alone | a hit, or a local read-modify-write |
//! | store, modify | not | waits until all transfers of the line under way have ended, then one more |
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
//! 2. A hit may run ahead of the clocks behind by a transfer's time: whoever is behind cannot write
//!    to this line, or read what is written to it, in less.
//!
//! So the operations of all processors have one order, which agrees with their virtual times: what is
//! simulated is a sequentially consistent machine. It is the same every time: ties go to the lower
//! number, and whatever is random is seeded.

use core::cell::{Cell, RefCell};
use core::cmp::Reverse;
use core::hash::{BuildHasherDefault, Hasher};
use core::ptr;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BinaryHeap, HashMap, VecDeque};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::cost::Costs;

/// The most processors that there can be.
pub const MAX: usize = 1024;
/// Bytes.
const LINE: usize = 64;
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

#[derive(Default)]
struct Line {
    /// Whose caches it is in, a bit each.
    holders: [u64; MAX / 64],
    /// Until then a writer's transfer is under way.
    written: Time,
    /// Until then a reader's is.
    read: Time,
}

impl Line {
    fn is_held_by(&self, processor: usize) -> bool {
        self.holders[processor / 64] & 1 << (processor % 64) != 0
    }

    fn is_held_by_alone(&self, processor: usize) -> bool {
        self.is_held_by(processor)
            && self
                .holders
                .iter()
                .map(|bits| bits.count_ones())
                .sum::<u32>()
                == 1
    }

    fn is_held(&self) -> bool {
        self.holders.iter().any(|&bits| bits != 0)
    }

    fn add(&mut self, processor: usize) {
        self.holders[processor / 64] |= 1 << (processor % 64);
    }
}

struct Prices {
    hit: Time,
    modify: Time,
    fence: Time,
    transfer: Time,
    keep: Time,
    pause: Time,
    ticks: Time,
    system_call: Time,
    wake_call: Time,
    wake_latency: Time,
}

struct Engine {
    processors: Vec<Processor>,
    running: Cell<usize>,
    /// Those that wait for their time, the earliest first.
    queue: RefCell<BinaryHeap<Reverse<(Time, usize)>>>,
    lines: RefCell<HashMap<usize, Line, BuildHasherDefault<Spread>>>,
    sleepers: RefCell<HashMap<usize, VecDeque<usize>, BuildHasherDefault<Spread>>>,
    prices: Prices,
}

std::thread_local! { pub static ST: Cell<[u64;4]> = const { Cell::new([0;4]) }; }
pub fn st(i: usize) {
    let mut a = ST.get();
    a[i] += 1;
    ST.set(a);
}
pub fn stats() -> [u64; 4] {
    ST.replace([0; 4])
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
    let engine = Engine {
        processors: (0..processors)
            .map(|_| Processor {
                clock: Cell::new(0),
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

/// The running processor looks at its clock, which goes with all others'.
pub(crate) fn ticks() -> u64 {
    let mut now = 0;
    with(|engine| {
        engine.advance(engine.prices.ticks);
        now = engine.me().clock.get();
    });
    now
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
            prices.transfer
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
        let mut start = me.clock.get().max(state.written);
        if access == Access::Load {
            state.read = state.read.max(start + prices.transfer);
        } else {
            start = start.max(state.read);
            state.written = start + prices.transfer + prices.keep;
            state.holders = Default::default();
            me.keeps.set((line, state.written));
        }
        state.add(index);
        drop(lines);
        me.clock.set(start + prices.transfer);
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

/// Begins every allocation at a cache line: so what shares a line is the same every time.
struct Lines;

// SAFETY: the system's allocator, asked for more than was asked for.
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; a greater alignment is a valid one.
        unsafe { System.alloc(layout.align_to(LINE).unwrap_or(layout)) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as it was allocated.
        unsafe { System.dealloc(pointer, layout.align_to(LINE).unwrap_or(layout)) }
    }
}

#[global_allocator]
static ALLOCATOR: Lines = Lines;

/// Hashes an address by a multiplication (Knuth, "The Art of Computer Programming" 6.4).
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only addresses are hashed");
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (address as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(26);
    }
}
