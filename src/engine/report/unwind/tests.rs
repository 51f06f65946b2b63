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
use crate::engine::report::symbols::{Style, Symbols};
use core::arch::{asm, naked_asm};
use std::sync::OnceLock;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult, Yielder};

static MODULES: OnceLock<Modules> = OnceLock::new();

pub(super) type Yield = Yielder<(), ()>;

/// A stack at whose bottom every unwinder stops, as at a green thread's.
pub(super) struct Thread {
    body: core::mem::ManuallyDrop<Coroutine<(), (), (), DefaultStack>>,
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
    pub(super) fn new(main: impl FnOnce(&Yield, Bounds) + 'static) -> Thread {
        struct Main<F>(F, *const Yield, Bounds);
        unsafe extern "C" fn enter<F: FnOnce(&Yield, Bounds)>(main: *mut ()) {
            // SAFETY: the value below, taken once.
            let Main(main, yielder, bounds) = unsafe { main.cast::<Main<F>>().read() };
            // SAFETY: the yielder lives as long as the stack is used.
            main(unsafe { &*yielder }, bounds);
            core::hint::black_box(());
        }
        let stack = DefaultStack::new(256 << 10).unwrap();
        let bounds = Bounds {
            bottom: stack.limit().get(),
            top: stack.base().get(),
        };
        let start = move |yielder: &Yield, ()| at_bottom(main, yielder, bounds);
        fn at_bottom<F: FnOnce(&Yield, Bounds)>(main: F, yielder: &Yield, bounds: Bounds) {
            let mut main = core::mem::ManuallyDrop::new(Main(main, yielder, bounds));
            // SAFETY: `enter` takes what it is given.
            unsafe { call_at_bottom(enter::<F>, (&raw mut main).cast()) };
        }
        Thread {
            body: core::mem::ManuallyDrop::new(Coroutine::with_stack(stack, start)),
            bounds,
        }
    }

    /// Runs it until it suspends; false if it has ended.
    pub(super) fn run(&mut self) -> bool {
        matches!(self.body.resume(()), CoroutineResult::Yield(()))
    }

    /// Where the switch has left off: the word in the coroutine that points into the stack, to what a switch
    /// saves, an address of code among it.
    fn saved(&self) -> usize {
        let words = size_of_val(&*self.body) / size_of::<usize>();
        let start = (&raw const *self.body).cast::<usize>();
        let modules = MODULES.get_or_init(Modules::load);
        (0..words)
            // SAFETY: words of the coroutine; padding is not there.
            .map(|index| unsafe { start.add(index).read_volatile() })
            .filter(|&word| {
                let pc = self.bounds.read(word + HERE.saved_pc * size_of::<usize>());
                pc.is_some_and(|pc| modules.has_code(pc))
            })
            // It also keeps where it began, further up.
            .min()
            .expect("a suspended coroutine has a stack pointer")
    }

    pub(super) fn registers(&self) -> Registers {
        Registers::of_switch(self.saved(), |address| self.bounds.read(address)).unwrap()
    }

    pub(super) fn frames(&self) -> (Vec<usize>, End) {
        let mut frames = Vec::new();
        let end = Unwinder::new().frames(
            self.registers(),
            |address| self.bounds.read(address),
            &mut |pc| frames.push(pc),
        );
        (frames, end)
    }
}

impl Drop for Thread {
    /// One that is suspended could only be unwound, which ends at the bottom: it stays.
    fn drop(&mut self) {
        if self.body.done() {
            // SAFETY: it is not used again.
            unsafe { core::mem::ManuallyDrop::drop(&mut self.body) };
        }
    }
}

/// As `arch::call_at_bottom`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn call_at_bottom(function: unsafe extern "C" fn(*mut ()), argument: *mut ()) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined x30",
        ".cfi_undefined x29",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        "mov x29, xzr",
        "mov x2, x0",
        "mov x0, x1",
        "blr x2",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        "ret",
        ".cfi_endproc",
    )
}

/// As `arch::call_at_bottom`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn call_at_bottom(function: unsafe extern "C" fn(*mut ()), argument: *mut ()) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "push rbp",
        "xor ebp, ebp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "pop rbp",
        "ret",
        ".cfi_endproc",
    )
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
    named(frames, Style::Full)
}

pub(super) fn named(frames: &[usize], style: Style) -> Vec<String> {
    let modules = Modules::load();
    let symbols = Symbols::new().stack(frames, style, &modules);
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
