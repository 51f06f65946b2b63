//! Models of a thread and of signal handlers that interrupt it, and each other, before any access to the words that say
//! where it may enter the scheduler. There is one kernel thread: nothing for the checker to try in turn, so the models try each
//! place, and each pair of places. A handler returns, or is left by `siglongjmp`: here it unwinds.

use std::{
    cell::Cell,
    hint::black_box,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use crate::atomic::interrupts;
use crate::sched::Green;
use crate::sched::current::{Hiding, VFORK};

#[derive(Clone, Copy)]
struct World {
    hiding: &'static Hiding,
    green: Option<&'static Green>,
    /// The second handler that runs is left, and the first, or none.
    is_left: [bool; 2],
}

std::thread_local! {
    static WORLD: Cell<Option<World>> = const { Cell::new(None) };
    /// How many handlers have begun.
    static BEGUN: Cell<usize> = const { Cell::new(0) };
}

impl World {
    fn sees(&self, green: Option<&'static Green>) -> bool {
        self.hiding.green().map(std::ptr::from_ref) == green.map(std::ptr::from_ref)
    }

    fn is_unseen(&self) {
        assert!(self.sees(None), "it enters the scheduler");
        assert!(self.hiding.is_hidden(), "it takes a lock");
        let is_told = self.green.is_none_or(|green| green.flags.is_hidden());
        assert!(is_told, "it is preempted");
    }

    fn is_seen(&self) {
        assert!(self.sees(self.green), "it is hidden for good");
        assert!(!self.hiding.is_hidden(), "it is hidden for good");
        let is_told = self.green.is_some_and(|green| green.flags.is_hidden());
        assert!(!is_told, "it is never preempted again");
    }
}

/// Well below what it interrupts, as the kernel's frame of a signal sees to.
#[inline(never)]
fn handler() {
    let frame = black_box([0_u8; 512]);
    handle((&raw const frame).addr());
    black_box(frame);
}

#[inline(never)]
fn handle(frame: usize) {
    let world = WORLD.get().unwrap();
    let number = BEGUN.replace(BEGUN.get() + 1);
    let hidden = world.hiding.hide(frame);
    world.is_unseen();
    if world.is_left[number] {
        resume_unwind(Box::new(()));
    }
    world.hiding.reveal(hidden);
}

/// Does a part of what a thread does. Whether no handler was left meanwhile, which goes on behind it.
fn is_done(part: impl Fn()) -> bool {
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(()) => true,
        Err(left) if left.is::<()>() => false,
        Err(panic) => resume_unwind(panic),
    }
}

/// What the thread does: it asks, and is a `vfork`'s parent, and asks again.
fn live(world: World) {
    is_done(|| world.is_seen());
    is_done(|| {
        world.hiding.hide(VFORK);
        world.is_unseen();
        assert!(world.hiding.frame.get() == VFORK);
    });
    // `vfork` itself returns to its caller.
    while !is_done(|| world.hiding.reveal_all()) {}
    is_done(|| world.is_seen());
}

/// Signals come after so many accesses, and after so many since the first one. Returns how many have come.
fn try_one(is_green: bool, is_left: [bool; 2], accesses: [usize; 2]) -> usize {
    loom::model(move || {
        let hiding: &Hiding = Box::leak(Box::new(Hiding::new()));
        let green = is_green.then(Green::new);
        hiding.belong_to(green);
        let world = World { hiding, green, is_left };
        WORLD.set(Some(world));
        BEGUN.set(0);
        interrupts::plan(&accesses, handler);
        live(world);
        interrupts::plan(&[], handler);
        world.is_seen();
    });
    BEGUN.get()
}

/// Tries all places for one handler, and all for a second one.
fn try_all(is_left: [bool; 2]) {
    for is_green in [false, true] {
        for first in 0.. {
            let tries = (0..).map(|second| try_one(is_green, is_left, [first, second]));
            let come = tries.take_while(|&come| come == 2).count();
            if come == 0 && try_one(is_green, is_left, [first, 0]) == 0 {
                assert!(first >= 10, "{first}");
                break;
            }
        }
    }
}

/// Both return.
pub(crate) fn handlers_return() {
    try_all([false, false]);
}

/// The second one is left: perhaps out of the first.
pub(crate) fn the_second_handler_is_left() {
    try_all([false, true]);
}

/// The first one is left, perhaps after the second.
pub(crate) fn the_first_handler_is_left() {
    try_all([true, false]);
}

/// Both are left.
pub(crate) fn both_handlers_are_left() {
    try_all([true, true]);
}
