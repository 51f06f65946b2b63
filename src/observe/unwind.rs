//! Reads the stack of a thread that stands still: from its registers, by way of the unwind tables, to the
//! bottom.
//!
//! A green thread's bottom is `arch::call_at_bottom`, whose entry in the tables says that nothing lies
//! below it. The stack is read by a callback, one aligned word at a time; what it cannot read ends the
//! stack. Nothing is believed of what is read: it leads to more addresses to read, never to an access.
//!
//! 1. A thread's first address, and one that a signal has interrupted, are of the next instruction. Any
//!    other is a return address, and may lie behind the last instruction of its function: what is looked
//!    up is the byte before it.
//! 2. The stack pointer only grows from frame to frame, but for a signal's, whose handler may run on
//!    another stack. There are at most [`FRAMES`] frames, so all stacks come to an end.
//! 3. Nearly all frames need the stack pointer and the frame pointer only, and rules for those are kept by
//!    address (`cfi::Rule`). Where a frame's rule needs more, the tables are asked, at some hundred times
//!    the cost; if it needs a register that was not followed on the way, the stack is read once more from the
//!    top, with all registers.
//!
//! 4. Reading a stack allocates nothing and takes no lock. Making an unwinder does both.
//!
//! Rejected: the crate `framehop`, which does the same and more. It treats the address below a signal's
//! frame as a return address, cannot compute rules that read memory (glibc's `__restore_rt`, functions that
//! align their stack), keeps 509 rules, and brings a second version of `gimli`.

mod cfi;
mod registers;
#[cfg(test)]
#[allow(unsafe_code, reason = "stacks to read")]
pub(crate) mod tests;

use super::modules::Modules;
use crate::engine::inspect::system::plain_address;
use cfi::{Registry, Rule, Tables, Trouble};
use registers::HERE;

/// The most frames that are read of a stack.
pub(crate) const FRAMES: usize = 256;

/// Whose extensions the tables have.
pub(super) const VENDOR: gimli::Vendor = HERE.vendor;

/// How many rules are kept, a power of two.
const RULES: usize = 4096;

/// Where a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The next instruction.
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) bp: usize,
    /// Another one, with its number in the tables.
    other: Option<(usize, usize)>,
}

impl Registers {
    /// Of a thread of which no more is known.
    pub(crate) fn new(pc: usize, sp: usize, bp: usize) -> Registers {
        let other = None;
        Registers { pc, sp, bp, other }
    }

    /// Of a thread that a signal has interrupted, as `arch::Frame` gives them out.
    pub(crate) fn of_signal([pc, sp, bp, fourth]: [usize; 4]) -> Registers {
        let other = Some((HERE.fourth_of_signal, fourth));
        Registers { pc, sp, bp, other }
    }

    /// Of a thread that has left its stack by a switch (`arch::switch`) and left off at `sp`, where that
    /// has saved the address at which to go on and two registers.
    pub(crate) fn of_switch(
        sp: usize,
        mut read: impl FnMut(usize) -> Option<usize>,
    ) -> Option<Registers> {
        const WORD: usize = size_of::<usize>();
        let mut saved = |word: usize| read(sp.wrapping_add(word * WORD));
        let (other, other_at) = HERE.saved_other;
        Some(Registers {
            pc: saved(HERE.saved_pc)?,
            sp: sp.wrapping_add(HERE.saved * WORD),
            bp: saved(HERE.saved_bp)?,
            other: saved(other_at).map(|value| (other, value)),
        })
    }
}

/// How a stack came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the bottom.
    Bottom,
    /// There are more than [`FRAMES`] frames.
    Cut,
    /// What lies below is not known: there is no rule, or it could not be read, or makes no sense.
    Lost,
}

/// Reads stacks. It knows the libraries that were loaded when it was made.
pub(crate) struct Unwinder {
    tables: Tables,
    rules: Box<[Kept]>,
    frames: Box<[usize; FRAMES]>,
}

/// A rule, and the address it is for; 0 if there is none.
#[derive(Clone, Copy)]
struct Kept {
    address: usize,
    rule: Rule,
}

/// Where a thread stands in one of its frames.
struct Place {
    registry: Registry,
    /// The next instruction, and not a return address.
    is_exact: bool,
}

enum Step {
    /// To the frame below.
    Down,
    End(End),
    /// It needs a register that was not followed.
    Unknown,
}

impl Unwinder {
    pub(crate) fn new() -> Unwinder {
        Unwinder {
            tables: Tables::new(Modules::load()),
            rules: vec![Kept::NONE; RULES].into(),
            frames: Box::new([0; FRAMES]),
        }
    }

    /// The program and its libraries.
    pub(crate) fn modules(&self) -> &Modules {
        self.tables.modules()
    }

    /// Looks for libraries that have been loaded or unloaded since.
    pub(crate) fn refresh(&mut self) {
        if !self.modules().is_current() {
            self.tables = Tables::new(Modules::load());
            self.rules.fill(Kept::NONE);
        }
    }

    /// Gives out the frames of a thread, from the innermost on, as addresses in the way of return
    /// addresses: the instruction that is meant lies *before* the address. `read` returns the word at an
    /// address, if it is one of the thread's stack.
    pub(crate) fn frames(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(usize) -> Option<usize>,
        out: &mut impl FnMut(usize),
    ) -> End {
        let mut read = |address: usize| match address.is_multiple_of(align_of::<usize>()) {
            true => read(address),
            false => None,
        };
        let walked = match self.walk(registers, false, &mut read) {
            (_, None) => self.walk(registers, true, &mut read),
            walked => walked,
        };
        self.frames[..walked.0].iter().copied().for_each(out);
        walked.1.unwrap_or(End::Lost)
    }

    /// Fills `frames`. Returns how many there are, and no end if a register was missing that could have been
    /// followed.
    fn walk(
        &mut self,
        registers: Registers,
        with_all: bool,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> (usize, Option<End>) {
        let mut place = Place {
            registry: Registry::new(registers.pc, registers.sp, registers.bp),
            is_exact: true,
        };
        if let Some((number, value)) = registers.other {
            place.registry.set(number, value);
        }
        for count in 0..FRAMES {
            let pc = place.registry.pc;
            self.frames[count] = pc.wrapping_add(usize::from(place.is_exact));
            match self.step(&mut place, with_all, read) {
                Step::Down => {}
                Step::End(end) => return (count + 1, Some(end)),
                Step::Unknown => return (count + 1, None),
            }
        }
        (FRAMES, Some(End::Cut))
    }

    #[inline]
    fn step(
        &mut self,
        place: &mut Place,
        with_all: bool,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Step {
        let address = place.registry.pc.wrapping_sub(usize::from(!place.is_exact));
        let rule = self.rule(address);
        if with_all && !matches!(rule, Rule::End | Rule::Untold | Rule::Signal) {
            return self.step_by_tables(place, address, with_all, read);
        }
        let (base, cfa, bp_at, pc_at) = match rule {
            Rule::FromSp { cfa, bp_at, pc_at } => (place.registry.sp(), cfa, bp_at, pc_at),
            Rule::FromBp { cfa, bp_at, pc_at } => (place.registry.bp(), cfa, bp_at, pc_at),
            Rule::End => return Step::End(End::Bottom),
            Rule::Signal => return self.step_by_record(place, read),
            Rule::Complicated => return self.step_by_tables(place, address, with_all, read),
            Rule::Untold => return self.step_by_custom(place, read),
        };
        let cfa = base.wrapping_add_signed(cfa as isize);
        // A function that has not saved the return address may have no frame yet.
        let is_leaf = pc_at == Rule::SAME;
        if cfa < place.registry.sp() || cfa == place.registry.sp() && !is_leaf {
            return Step::End(End::Lost);
        }
        let bp = match bp_at {
            Rule::SAME => Some(place.registry.bp()),
            at => read(cfa.wrapping_add_signed(at as isize)),
        };
        let pc = match is_leaf {
            true => place.registry.link(),
            false => read(cfa.wrapping_add_signed(pc_at as isize)),
        };
        match (pc, bp) {
            (Some(pc), Some(bp)) => {
                place.registry.go_down(pc, cfa, bp);
                place.arrive(false)
            }
            _ => Step::End(End::Lost),
        }
    }

    #[inline]
    fn rule(&mut self, address: usize) -> Rule {
        // Fibonacci hashing: the upper bits of the product depend on all of the address.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - RULES.ilog2());
        if self.rules[hash].address != address {
            let rule = self.tables.rule(address);
            self.rules[hash] = Kept { address, rule };
        }
        self.rules[hash].rule
    }

    #[cold]
    fn step_by_tables(
        &mut self,
        place: &mut Place,
        address: usize,
        with_all: bool,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Step {
        let (registry, is_signal) = match self.tables.below(address, &place.registry, read) {
            Ok(below) => below,
            Err(Trouble::Unknown) if !with_all => return Step::Unknown,
            Err(_) => return Step::End(End::Lost),
        };
        let has_no_frame = registry.sp() == place.registry.sp() && place.is_exact;
        if !is_signal && registry.sp() <= place.registry.sp() && !has_no_frame {
            return Step::End(End::Lost);
        }
        place.registry = registry;
        place.arrive(is_signal)
    }

    /// From the code below a signal's handler, by the kernel's record.
    #[cold]
    fn step_by_record(
        &mut self,
        place: &mut Place,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Step {
        let Some(signal) = &HERE.signal else {
            return Step::End(End::Lost);
        };
        let start = place.registry.sp().wrapping_add(signal.registers_at);
        let mut register = |number: usize| read(start.wrapping_add(number * size_of::<usize>()));
        let Some(registry) = Registry::interrupted(&mut register) else {
            return Step::End(End::Lost);
        };
        place.registry = registry;
        place.arrive(true)
    }

    /// Without a rule, by what is usual: a function that was just called has the address to return to in the
    /// link register, or on top of the stack; any other keeps a frame pointer. Only an address of code is believed.
    #[cold]
    fn step_by_custom(
        &mut self,
        place: &mut Place,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Step {
        const WORD: usize = size_of::<usize>();
        let (sp, bp) = (place.registry.sp(), place.registry.bp());
        let modules = self.tables.modules();
        let mut code_at = |address| {
            let pc = read(address).map(plain_address);
            pc.filter(|&pc| modules.has_code(pc))
        };
        let just_called = match (place.is_exact, place.registry.link()) {
            (false, _) => None,
            (_, Some(pc)) => modules.has_code(pc).then_some((pc, sp)),
            (_, None) => code_at(sp).map(|pc| (pc, sp.wrapping_add(WORD))),
        };
        if let Some((pc, sp)) = just_called {
            place.registry.go_down(pc, sp, bp);
            return place.arrive(false);
        }
        if bp < sp {
            return Step::End(End::Lost);
        }
        match (code_at(bp.wrapping_add(WORD)), read(bp)) {
            (Some(pc), Some(next)) => {
                place.registry.go_down(pc, bp.wrapping_add(2 * WORD), next);
                place.arrive(false)
            }
            _ => Step::End(End::Lost),
        }
    }
}

impl Place {
    #[inline]
    fn arrive(&mut self, is_exact: bool) -> Step {
        self.is_exact = is_exact;
        match self.registry.pc {
            0 => Step::End(End::Bottom),
            _ => Step::Down,
        }
    }
}

impl Kept {
    const NONE: Kept = Kept {
        address: 0,
        rule: Rule::Untold,
    };
}
