//! Known stacks, one instruction after another, and nonsense.

mod callers;
mod cost;
mod nonsense;
mod parked;
mod signals;
// No other processor traps behind each instruction for a program that asks.
#[cfg(target_arch = "x86_64")]
pub(crate) mod stepped;

use super::*;
use crate::engine::inspect::system as arch;
use crate::observe::symbols::Symbols;
use core::arch::{asm, naked_asm};
use core::cell::Cell;

use corosensei::stack::{DefaultStack, Stack};

/// How a thread gives its stack up, and where the two stacks were left.
#[derive(Default)]
pub(super) struct Yield {
    own: Cell<usize>,
    caller: Cell<usize>,
    has_ended: Cell<bool>,
}

impl Yield {
    #[inline(always)]
    pub(super) fn suspend(&self) {
        // SAFETY: the thread's caller has left its stack in `run`, and waits.
        unsafe { arch::switch(self.own.as_ptr(), self.caller.get(), 0) };
    }
}

/// A stack at whose bottom every unwinder stops, as at a green thread's.
pub(super) struct Thread {
    yielder: &'static Yield,
    bounds: Bounds,
}

#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bottom: usize,
    pub(super) top: usize,
}

impl Bounds {
    pub(super) fn read(self, address: usize) -> Option<usize> {
        // SAFETY: a word of a stack that is mapped, and whose thread stands still.
        (self.bottom..self.top)
            .contains(&address)
            .then(|| unsafe { (address as *const usize).read_volatile() })
    }
}

impl Thread {
    /// It stays for good: a thread that is suspended could only be unwound, which ends at the bottom.
    pub(super) fn new<F: FnOnce(&Yield, Bounds) + 'static>(main: F) -> Thread {
        struct Main<F>(F, &'static Yield, Bounds);
        unsafe extern "C" fn enter<F: FnOnce(&Yield, Bounds)>(main: *mut ()) -> ! {
            // SAFETY: the value below, taken once.
            let Main(main, yielder, bounds) = *unsafe { Box::from_raw(main.cast::<Main<F>>()) };
            main(yielder, bounds);
            yielder.has_ended.set(true);
            yielder.suspend();
            unreachable!("it has ended");
        }
        let stack = std::mem::ManuallyDrop::new(DefaultStack::new(256 << 10).unwrap());
        let bounds = Bounds {
            bottom: stack.limit().get(),
            top: stack.base().get(),
        };
        let yielder: &'static Yield = Box::leak(Box::default());
        let main = Box::into_raw(Box::new(Main(main, yielder, bounds))).cast();
        // SAFETY: the stack is new, and `enter` takes what it is given.
        let own = unsafe { arch::fresh_stack(bounds.top, enter::<F>, main) };
        yielder.own.set(own);
        Thread { yielder, bounds }
    }

    /// Runs it until it suspends; false if it has ended.
    pub(super) fn run(&mut self) -> bool {
        let Yield { own, caller, .. } = self.yielder;
        // SAFETY: the thread has left its stack, or has not begun.
        unsafe { arch::switch(caller.as_ptr(), own.get(), 0) };
        !self.yielder.has_ended.get()
    }

    /// Where the switch has left off.
    fn saved(&self) -> usize {
        self.yielder.own.get()
    }

    pub(super) fn registers(&self) -> Registers {
        Registers::of_switch(self.saved(), |address| self.bounds.read(address)).unwrap()
    }

    pub(super) fn frames(&self) -> (Vec<usize>, End) {
        let mut frames = Vec::new();
        let end = Unwinder::new().frames(
            self.registers(),
            |address| self.bounds.read(address),
            &mut frames,
        );
        (frames, end)
    }
}

/// Of the code that asks.
#[inline(always)]
pub(super) fn registers_here() -> Registers {
    let (pc, sp, bp);
    // SAFETY: reads registers.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) sp, out(reg) bp,
            options(nomem, nostack, preserves_flags));
    }
    // SAFETY: as above.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) bp,
            options(nomem, nostack, preserves_flags));
    }
    Registers::new(pc, sp, bp)
}

/// The last parts of the functions' paths, without generic arguments.
pub(super) fn names(frames: &[usize]) -> Vec<String> {
    named(frames, true)
}

pub(super) fn named(frames: &[usize], is_full: bool) -> Vec<String> {
    let modules = Modules::load();
    let symbols = Symbols::default().stack(frames, is_full, &modules);
    symbols
        .iter()
        .map(|symbol| last(&symbol.function))
        .collect()
}

fn last(path: &str) -> String {
    let mut depth = 0;
    let mut plain = String::new();
    for letter in path.replace("->", "").chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let parts = plain.rsplit("::").map(str::to_owned);
    parts
        .into_iter()
        .find(|part| !part.is_empty())
        .unwrap_or_default()
}

/// Whether the names stand in this order, with others between them.
#[track_caller]
pub(super) fn assert_in_order(names: &[String], expected: &[&str]) {
    let mut rest = names.iter();
    for name in expected {
        assert!(
            rest.any(|other| other == name),
            "{name} of {expected:?} is not there: {names:#?}"
        );
    }
}
