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
use cfi::{Rule, Tables};
use registers::HERE;
pub(crate) use registers::Registers;

/// The most frames that are read of a stack.
pub(crate) const FRAMES: usize = 256;

/// Whose extensions the tables have.
pub(super) const VENDOR: gimli::Vendor = HERE.vendor;

/// How many rules are kept, a power of two.
const RULES: usize = 4096;

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

/// Why there is no frame below.
enum Trouble {
    /// This was the last one.
    Bottom,
    /// The rule needs a register that is not known.
    Unknown,
    /// The memory cannot be read, or the rule makes no sense here.
    Lost,
}

/// Returns the word at an address, if that is one of the thread's stack.
type Read<'a> = &'a mut dyn FnMut(usize) -> Result<usize, Trouble>;

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

impl Kept {
    const NONE: Kept = Kept {
        address: 0,
        rule: Rule::Untold,
    };
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
        &self.tables.modules
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
            true => read(address).ok_or(Trouble::Lost),
            false => Err(Trouble::Lost),
        };
        let (mut count, mut end) = self.walk(registers, false, &mut read);
        if let Err(Trouble::Unknown) = end {
            (count, end) = self.walk(registers, true, &mut read);
        }
        self.frames[..count].iter().copied().for_each(out);
        match end {
            Ok(()) => End::Cut,
            Err(Trouble::Bottom) => End::Bottom,
            Err(Trouble::Unknown | Trouble::Lost) => End::Lost,
        }
    }

    /// Fills `frames`. Returns how many there are, and what has ended them.
    fn walk(
        &mut self,
        mut at: Registers,
        with_all: bool,
        read: Read<'_>,
    ) -> (usize, Result<(), Trouble>) {
        for count in 0..FRAMES {
            self.frames[count] = at.pc.wrapping_add(usize::from(at.is_exact));
            let below = self.step(&mut at, with_all, read);
            if below.is_err() {
                return (count + 1, below);
            }
            if at.pc == 0 {
                return (count + 1, Err(Trouble::Bottom));
            }
        }
        (FRAMES, Ok(()))
    }

    /// Goes to the frame below.
    #[inline]
    fn step(&mut self, at: &mut Registers, with_all: bool, read: Read<'_>) -> Result<(), Trouble> {
        let address = at.pc.wrapping_sub(usize::from(!at.is_exact));
        let (base, cfa, bp_at, pc_at) = match self.rule(address) {
            Rule::End => return Err(Trouble::Bottom),
            Rule::Signal => return step_by_record(at, read),
            Rule::Untold => return self.step_by_custom(at, read),
            Rule::FromSp { cfa, bp_at, pc_at } if !with_all => (at.sp(), cfa, bp_at, pc_at),
            Rule::FromBp { cfa, bp_at, pc_at } if !with_all => (at.bp(), cfa, bp_at, pc_at),
            _ => return self.step_by_tables(at, address, read),
        };
        let cfa = base.wrapping_add_signed(cfa as isize);
        // A function that has not saved the return address may have no frame yet.
        let is_leaf = pc_at == Rule::SAME;
        if cfa < at.sp() || cfa == at.sp() && !is_leaf {
            return Err(Trouble::Lost);
        }
        let bp = match bp_at {
            Rule::SAME => at.bp(),
            bp_at => read(cfa.wrapping_add_signed(bp_at as isize))?,
        };
        let pc = match is_leaf {
            true => at.link().ok_or(Trouble::Lost)?,
            false => read(cfa.wrapping_add_signed(pc_at as isize))?,
        };
        at.go_down(pc, cfa, bp);
        Ok(())
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
        at: &mut Registers,
        address: usize,
        read: Read<'_>,
    ) -> Result<(), Trouble> {
        let below = self.tables.below(address, at, read)?;
        let has_no_frame = below.sp() == at.sp() && at.is_exact;
        // Only a signal's frame is exact.
        if !below.is_exact && below.sp() <= at.sp() && !has_no_frame {
            return Err(Trouble::Lost);
        }
        *at = below;
        Ok(())
    }

    /// Without a rule, by what is usual: a function that was just called has the address to return to in the
    /// link register, or on top of the stack; any other keeps a frame pointer. Only an address of code is believed.
    #[cold]
    fn step_by_custom(&mut self, at: &mut Registers, read: Read<'_>) -> Result<(), Trouble> {
        const WORD: usize = size_of::<usize>();
        let (sp, bp) = (at.sp(), at.bp());
        let modules = &self.tables.modules;
        let is_code = |&pc: &usize| modules.has_code(pc);
        let mut code_at = |address| read(address).ok().map(plain_address).filter(is_code);
        let just_called = match at.link() {
            _ if !at.is_exact => None,
            Some(pc) => Some((pc, sp)).filter(|(pc, _)| is_code(pc)),
            None => code_at(sp).map(|pc| (pc, sp.wrapping_add(WORD))),
        };
        if let Some((pc, sp)) = just_called {
            at.go_down(pc, sp, bp);
            return Ok(());
        }
        if bp < sp {
            return Err(Trouble::Lost);
        }
        let pc = code_at(bp.wrapping_add(WORD)).ok_or(Trouble::Lost)?;
        at.go_down(pc, bp.wrapping_add(2 * WORD), read(bp)?);
        Ok(())
    }
}

/// From the code below a signal's handler, by the kernel's record.
#[cold]
fn step_by_record(at: &mut Registers, read: Read<'_>) -> Result<(), Trouble> {
    let signal = HERE.signal.as_ref().ok_or(Trouble::Lost)?;
    let start = at.sp().wrapping_add(signal.registers_at);
    let mut register = |number: usize| read(start.wrapping_add(number * size_of::<usize>()));
    *at = Registers::interrupted(&mut register)?;
    Ok(())
}
