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
//!    address ([`Rule`]). Where a frame's rule needs more, the tables are asked, at some hundred times
//!    the cost; if it needs a register that was not followed on the way, the stack is read once more from the
//!    top, with all registers.
//! 4. Reading a stack allocates nothing and takes no lock. Making an unwinder does both.
//!
//! A rule of the tables holds for some bytes of code. The rule says how the *canonical frame address* (CFA: the caller's
//! stack pointer) is computed, and where the caller's registers are saved, mostly at a distance from the CFA.
//! [`Row::short`] returns the short form that nearly all rules have, to be kept; [`Row::caller`] computes a
//! rule of any form, with all registers.
//!
//! Rejected: the crate `framehop`, which does the same and more. It treats the address below a signal's
//! frame as a return address, cannot compute rules that read memory (glibc's `__restore_rt`, functions that
//! align their stack), keeps 509 rules, and brings a second version of `gimli`. And `gimli`'s own `Evaluation` of expressions: it
//! knows all operations, and makes every program some 30 KB larger.
//!
//! The program and its libraries ([`Modules`]), as they are loaded when an unwinder is made: where their code lies, and their unwind tables.
//!
//! A library can be unloaded while its tables are in use. So the tables are copied, in the loader's callback, where
//! nothing is unloaded. A reference (`dlopen`) would need no copy, but then the last `dlclose` would be ours,
//! and the library's destructors would run in a thread that knows nothing of them.
//!
//! The callback runs under the loader's lock, and allocates nothing: an allocator may ask the loader for
//! something while it holds its own lock. The first walk counts, the second one copies into memory that
//! was made between the two; if a library has come meanwhile, both are made again.

#[cfg(test)]
#[allow(unsafe_code, reason = "stacks to read")]
pub(crate) mod tests;

use core::ops::Range;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, DwOp, EhFrame, EhFrameHdr, EndianSlice, Expression, LittleEndian,
    Reader, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression,
    UnwindSection, UnwindTableRow, constants as op,
};

use crate::engine::inspect::system::libraries::{self, Library};
use crate::engine::inspect::system::plain_address;
use crate::sys::word;

/// The most frames that are read of a stack.
pub(crate) const FRAMES: usize = 256;

/// The bytes of a word of memory.
const WORD: usize = size_of::<usize>();

/// How many rules are kept, a power of two.
const RULES: usize = 4096;

/// The most words that an expression of the tables may keep.
const OPERANDS: usize = 16;

/// Why there is no frame below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This was the last one, at the bottom.
    Bottom,
    /// There are more than [`FRAMES`] frames.
    Cut,
    /// What lies below is not known: there is no rule, or the memory cannot be read, or the rule makes no sense here.
    Lost,
    /// The rule needs a register that is not known.
    Unknown,
}

/// Returns the word at an address, if that is one of the thread's stack.
type Read<'a> = &'a mut dyn FnMut(usize) -> Result<usize, End>;

/// Reads stacks. It knows the libraries that were loaded when it was made.
pub(crate) struct Unwinder {
    /// The program and its libraries.
    pub(super) modules: Modules,
    context: Box<UnwindContext<usize, InPlace>>,
    /// The stack of an expression, which has space for [`OPERANDS`].
    operands: Vec<usize>,
    /// Rules, and the address that each is for; 0 if there is none.
    rules: Box<[(usize, Rule)]>,
}

impl Unwinder {
    pub(crate) fn new() -> Unwinder {
        Unwinder {
            modules: Modules::load(),
            context: Box::new(UnwindContext::new_in()),
            operands: Vec::with_capacity(OPERANDS),
            rules: vec![(0, Rule::Untold); RULES].into(),
        }
    }

    /// Fills `out`, which has space for [`FRAMES`], with the frames of a thread, from the innermost on, as addresses in the way
    /// of return addresses: the instruction that is meant lies *before* the address. `read` returns the word at an
    /// address, if it is one of the thread's stack.
    pub(crate) fn frames(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(usize) -> Option<usize>,
        out: &mut Vec<usize>,
    ) -> End {
        let mut read = |address: usize| match address.is_multiple_of(align_of::<usize>()) {
            true => read(address).ok_or(End::Lost),
            false => Err(End::Lost),
        };
        for full in [false, true] {
            match self.walk(registers, full, &mut read, out) {
                End::Unknown => {}
                end => return end,
            }
        }
        End::Lost
    }

    /// Fills `out`; if `full`, all registers are followed. Returns what has ended the frames.
    fn walk(&mut self, mut at: Registers, full: bool, read: Read<'_>, out: &mut Vec<usize>) -> End {
        out.clear();
        while out.len() < FRAMES {
            out.push(at.pc.wrapping_add(usize::from(at.is_exact)));
            if let Err(end) = self.step(&mut at, full, read) {
                return end;
            }
            if at.pc == 0 {
                return End::Bottom;
            }
        }
        End::Cut
    }

    /// Goes to the frame below.
    #[inline]
    fn step(&mut self, at: &mut Registers, full: bool, read: Read<'_>) -> Result<(), End> {
        let (base, [cfa, bp_at, pc_at]) = match self.rule(at) {
            Rule::End => return Err(End::Bottom),
            Rule::Signal => return step_by_record(at, read),
            Rule::Untold => return self.step_by_custom(at, read),
            Rule::From(base, distances) if !full => (at.values[base as usize], distances),
            _ => return self.step_by_tables(at, read),
        };
        let cfa = base.wrapping_add_signed(cfa as isize);
        // A function that has not saved the return address may have no frame yet.
        let is_leaf = pc_at == Rule::SAME;
        if cfa < at.sp() || cfa == at.sp() && !is_leaf {
            return Err(End::Lost);
        }
        let bp = match bp_at {
            Rule::SAME => at.bp(),
            bp_at => read(cfa.wrapping_add_signed(bp_at as isize))?,
        };
        let pc = match is_leaf {
            true => at.link().ok_or(End::Lost)?,
            false => read(cfa.wrapping_add_signed(pc_at as isize))?,
        };
        at.go_down(pc, cfa, bp);
        Ok(())
    }

    /// The short form of the rule for the instruction of a frame with these registers.
    #[inline]
    fn rule(&mut self, at: &Registers) -> Rule {
        let address = at.address();
        // Fibonacci hashing: the upper bits of the product depend on all of the address.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - RULES.ilog2());
        if self.rules[hash].0 != address {
            let rule = match self.is_below_a_handler(address) {
                true => Rule::Signal,
                false => self.row(at).map_or(Rule::Untold, |row| row.short()),
            };
            self.rules[hash] = (address, rule);
        }
        self.rules[hash].1
    }

    #[cold]
    fn step_by_tables(&mut self, at: &mut Registers, read: Read<'_>) -> Result<(), End> {
        let below = self.row(at).ok_or(End::Lost)?.caller(read)?;
        let has_no_frame = below.sp() == at.sp() && at.is_exact;
        // The frame below is exact only if a signal has interrupted it.
        if !below.is_exact && below.sp() <= at.sp() && !has_no_frame {
            return Err(End::Lost);
        }
        *at = below;
        Ok(())
    }

    /// Without a rule, by what is usual: a function that was just called has the address to return to in the
    /// link register, or on top of the stack; any other keeps a frame pointer. Only an address of code is believed.
    #[cold]
    fn step_by_custom(&mut self, at: &mut Registers, read: Read<'_>) -> Result<(), End> {
        let (sp, bp) = (at.sp(), at.bp());
        let modules = &self.modules;
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
            return Err(End::Lost);
        }
        let pc = code_at(bp.wrapping_add(WORD)).ok_or(End::Lost)?;
        at.go_down(pc, bp.wrapping_add(2 * WORD), read(bp)?);
        Ok(())
    }

    /// Whether a signal's handler returns to the address behind this one.
    fn is_below_a_handler(&self, address: usize) -> bool {
        let first = address.wrapping_add(1);
        here::SIGNAL.is_some_and(|(code, _)| {
            first.is_multiple_of(4)
                && self.modules.has_code(first)
                && (code.iter().zip(0..))
                    .all(|(&instruction, i)| word::look(first + 4 * i) == Some(instruction))
        })
    }

    /// The rule of the tables for the instruction of a frame with these registers.
    fn row<'a>(&'a mut self, registers: &'a Registers) -> Option<Row<'a>> {
        let (address, context) = (registers.address(), &mut self.context);
        let (header, section, bases) = self.modules.tables(address)?;
        let at = address as u64;
        let header = header.parse(&bases, WORD as u8).ok()?;
        let table = header.table()?;
        let entry = table.fde_for_address(&section, &bases, at, EhFrame::cie_from_offset);
        let entry = entry.ok()?;
        let row = entry.unwind_info_for_address(&section, &bases, context, at);
        Some(Row {
            row: row.ok()?,
            registers,
            section,
            operands: &mut self.operands,
            return_address: entry.cie().return_address_register(),
            is_signal: entry.is_signal_trampoline(),
        })
    }
}

/// From the code below a signal's handler, by the kernel's record.
#[cold]
fn step_by_record(at: &mut Registers, read: Read<'_>) -> Result<(), End> {
    let (_, registers_at) = here::SIGNAL.ok_or(End::Lost)?;
    let start = at.sp().wrapping_add(registers_at);
    // All registers in the order of their numbers; the program counter comes last.
    let mut register = |number: usize| read(start.wrapping_add(number * WORD));
    *at = Registers::at(register(here::SP + 1)?, register(here::SP)?);
    for number in 0..here::SP {
        at.set(number, register(number)?);
    }
    Ok(())
}

/// What the unwind tables of x86-64 and its calling convention say of registers. rbx, rbp, r12 to r15 are preserved. The
/// return address has a column of its own.
#[cfg(target_arch = "x86_64")]
pub(super) mod here {
    /// How many registers are followed: the numbers below this one.
    pub(super) const COUNT: usize = 16;
    pub(super) const SP: usize = 7;
    /// The frame pointer.
    pub(super) const BP: usize = 6;
    const RBX: usize = 3;
    /// The column of the return address, but for interrupted code.
    pub(super) const RETURN_ADDRESS: usize = 16;
    /// The register in which a call leaves the return address; where there is none, it lies on the stack.
    pub(super) const LINK: Option<u16> = None;
    /// The registers that a function returns with as it was called, a bit each.
    pub(super) const PRESERVED: u64 = 1 << RBX | 1 << BP | 0b1111 << 12;
    /// The fourth register that a signal's frame gives out.
    pub(super) const FOURTH_OF_SIGNAL: usize = RBX;
    /// What `arch::switch` saves, in words from the stack pointer: the address at which to go on, the frame pointer,
    /// another register; and how many words it saves in all.
    pub(super) const SAVED_PC: usize = 0;
    pub(super) const SAVED_BP: usize = 2;
    pub(super) const SAVED_OTHER: (usize, usize) = (RBX, 1);
    pub(super) const SAVED: usize = 3;
    /// Where the tables do not tell enough of the code to which a signal's handler returns: that code, whose stack pointer
    /// is at the kernel's record of the interrupted thread; and where that record has all general registers in the order
    /// of their numbers, the stack pointer, and the program counter.
    pub(super) const SIGNAL: Option<([u32; 2], usize)> = None;
    /// Whose extensions the tables have.
    pub(in crate::observe) const VENDOR: gimli::Vendor = gimli::Vendor::Default;
}

/// The same for aarch64. x19 to x29 are preserved. The return address is in x30, until the function saves it. Column 32 is
/// the program counter, which the frame of an interruption has besides.
#[cfg(target_arch = "aarch64")]
pub(super) mod here {
    pub(super) const COUNT: usize = 33;
    pub(super) const SP: usize = 31;
    pub(super) const BP: usize = 29;
    pub(super) const RETURN_ADDRESS: usize = 30;
    pub(super) const LINK: Option<u16> = Some(30);
    pub(super) const PRESERVED: u64 = 0b111_1111_1111 << 19;
    pub(super) const FOURTH_OF_SIGNAL: usize = 30;
    pub(super) const SAVED_PC: usize = 2;
    pub(super) const SAVED_BP: usize = 1;
    pub(super) const SAVED_OTHER: (usize, usize) = (19, 0);
    pub(super) const SAVED: usize = 4;
    pub(super) const SIGNAL: Option<([u32; 2], usize)> = Some((
        [0xd280_1168, 0xd400_0001], // mov x8, #139; svc #0: rt_sigreturn
        size_of::<libc::siginfo_t>() + core::mem::offset_of!(libc::ucontext_t, uc_mcontext.regs),
    ));
    pub(in crate::observe) const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
}

/// The registers of one frame, so far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pc: usize,
    /// `pc` is the next instruction's address, and not a return address.
    is_exact: bool,
    /// By their numbers in the tables.
    values: [usize; here::COUNT],
    /// A bit each.
    known: u64,
}

impl Registers {
    /// Of an interrupted thread of which these three are known.
    #[inline]
    pub(crate) fn new(pc: usize, sp: usize, bp: usize) -> Registers {
        let mut new = Registers::at(pc, sp);
        new.set(here::BP, bp);
        new
    }

    /// Of an interrupted thread of which no more is known than these two.
    fn at(pc: usize, sp: usize) -> Registers {
        let (pc, values) = (plain_address(pc), [0; here::COUNT]);
        let mut new = Registers {
            pc,
            is_exact: true,
            values,
            known: 0,
        };
        new.set(here::SP, sp);
        new
    }

    /// Of a thread that a signal has interrupted, as `arch::Frame` gives them out.
    pub(crate) fn of_signal([pc, sp, bp, fourth]: [usize; 4]) -> Registers {
        let mut new = Registers::new(pc, sp, bp);
        new.set(here::FOURTH_OF_SIGNAL, fourth);
        new
    }

    /// Of a thread that has left its stack by a switch (`arch::switch`) and left off at `sp`, where that
    /// has saved the address at which to go on and two registers.
    pub(crate) fn of_switch(
        sp: usize,
        mut read: impl FnMut(usize) -> Option<usize>,
    ) -> Option<Registers> {
        let mut saved = |word: usize| read(sp.wrapping_add(word * WORD));
        let (pc, bp) = (saved(here::SAVED_PC)?, saved(here::SAVED_BP)?);
        let mut new = Registers::new(pc, sp.wrapping_add(here::SAVED * WORD), bp);
        let (other, other_at) = here::SAVED_OTHER;
        new.set(other, saved(other_at)?);
        Some(new)
    }

    /// Goes to a caller of which nothing else is known.
    #[inline]
    fn go_down(&mut self, pc: usize, sp: usize, bp: usize) {
        self.pc = plain_address(pc);
        self.is_exact = false;
        self.known = 0;
        self.set(here::SP, sp);
        self.set(here::BP, bp);
    }

    /// The address by which the rule is found: one of the instruction that runs, or has called (1.).
    #[inline]
    fn address(&self) -> usize {
        self.pc.wrapping_sub(usize::from(!self.is_exact))
    }

    #[inline]
    fn sp(&self) -> usize {
        self.values[here::SP]
    }

    /// The frame pointer; 0 if it is not known.
    #[inline]
    fn bp(&self) -> usize {
        self.values[here::BP]
    }

    /// The link register, if there is one and it is known.
    #[inline]
    fn link(&self) -> Option<usize> {
        let link = Register(here::LINK?);
        self.get(link).ok().map(plain_address)
    }

    fn get(&self, register: Register) -> Result<usize, End> {
        let number = register.0 as usize;
        let is_pc = number == here::RETURN_ADDRESS && here::LINK.is_none();
        match self.known.checked_shr(number as u32) {
            _ if is_pc => Ok(self.pc),
            Some(bits) if bits & 1 != 0 => Ok(self.values[number]),
            _ => Err(End::Unknown),
        }
    }

    #[inline]
    fn set(&mut self, number: usize, value: usize) {
        self.values[number] = value;
        self.known |= 1 << number;
    }
}

/// The short form of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The CFA lies at the first distance from this register, the stack pointer or the frame pointer. The caller's frame
    /// pointer is saved at the second distance from the CFA, or is the [`SAME`](Rule::SAME). The return address is saved at the
    /// third one, or is still in the link register.
    From(u8, [i32; 3]),
    /// There is no caller.
    End,
    /// There is a rule of another form.
    Complicated,
    /// The kernel's record of an interrupted thread lies at the stack pointer.
    Signal,
    /// There is no rule.
    Untold,
}

impl Rule {
    const SAME: i32 = i32::MIN;
}

/// Has space for whatever compilers write, and allocates nothing.
struct InPlace;

impl UnwindContextStorage<usize> for InPlace {
    type Rules = [(Register, RegisterRule<usize>); 64];
    type Stack = [UnwindTableRow<usize, Self>; 8];
}

/// One rule as it stands in the tables.
struct Row<'a> {
    row: &'a UnwindTableRow<usize, InPlace>,
    registers: &'a Registers,
    section: EhFrame<Bytes<'a>>,
    operands: &'a mut Vec<usize>,
    return_address: Register,
    is_signal: bool,
}

impl Row<'_> {
    fn short(&self) -> Rule {
        let saved_at = |register: Register| match self.row.register(register) {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Some(Rule::SAME),
            Some(RegisterRule::Offset(at)) => i32::try_from(at).ok(),
            Some(_) => None,
        };
        let bp_at = saved_at(Register(here::BP as u16));
        match self.row.register(self.return_address) {
            Some(RegisterRule::Undefined) => return Rule::End,
            None if here::LINK.is_none() => return Rule::End,
            _ if self.is_signal => return Rule::Complicated,
            _ => {}
        }
        if let &CfaRule::RegisterAndOffset { register, offset } = self.row.cfa()
            && let base @ (here::SP | here::BP) = usize::from(register.0)
            && let (Some(bp_at), Some(pc_at)) = (bp_at, saved_at(self.return_address))
            && let Ok(cfa) = i32::try_from(offset)
        {
            return Rule::From(base as u8, [cfa, bp_at, pc_at]);
        }
        Rule::Complicated
    }

    fn caller(&mut self, read: Read<'_>) -> Result<Registers, End> {
        let cfa = match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                (self.registers.get(*register)?).wrapping_add_signed(*offset as isize)
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None, read)?,
        };
        let pc = self.register(self.return_address, cfa, read)?;
        let mut caller = Registers::at(pc, cfa);
        caller.is_exact = self.is_signal;
        for number in 0..here::COUNT {
            let register = Register(number as u16);
            let is_told = self.row.register(register).is_some();
            let is_same = here::PRESERVED >> number & 1 != 0 && number != here::SP;
            // The caller has used the register of the return address for this call. A register that is not known is left
            // out: perhaps no frame below needs it.
            if (is_told || is_same)
                && register != self.return_address
                && let Ok(value) = self.register(register, cfa, read)
            {
                caller.set(number, value);
            }
        }
        Ok(caller)
    }

    fn register(&mut self, register: Register, cfa: usize, read: Read<'_>) -> Result<usize, End> {
        match self.row.register(register) {
            None | Some(RegisterRule::SameValue) => self.registers.get(register),
            Some(RegisterRule::Offset(at)) => read(cfa.wrapping_add_signed(at as isize)),
            Some(RegisterRule::ValOffset(at)) => Ok(cfa.wrapping_add_signed(at as isize)),
            Some(RegisterRule::Register(other)) => self.registers.get(other),
            Some(RegisterRule::Expression(expression)) => {
                let at = self.evaluate(&expression, Some(cfa), read)?;
                read(at)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                self.evaluate(&expression, Some(cfa), read)
            }
            Some(_) => Err(End::Lost),
        }
    }

    /// Computes an expression, which begins with `first` on its stack. It has no loops, and only the operations that compilers
    /// and assembly use in unwind tables: a register at a distance, constants, arithmetic, and a word of memory.
    fn evaluate(
        &mut self,
        expression: &UnwindExpression<usize>,
        first: Option<usize>,
        read: Read<'_>,
    ) -> Result<usize, End> {
        let lost = |_| End::Lost;
        let Expression(mut code) = expression.get(&self.section).map_err(lost)?;
        let stack = &mut *self.operands;
        stack.clear();
        stack.extend(first);
        while !code.is_empty() {
            let operation = DwOp(code.read_u8().map_err(lost)?);
            let value = match operation {
                DwOp(literal @ 0x30..=0x4f) => usize::from(literal - 0x30),
                DwOp(register @ 0x70..=0x8f) => {
                    let base = self.registers.get(Register(u16::from(register - 0x70)))?;
                    base.wrapping_add_signed(code.read_sleb128().map_err(lost)? as isize)
                }
                op::DW_OP_const1u => usize::from(code.read_u8().map_err(lost)?),
                op::DW_OP_const1s => code.read_i8().map_err(lost)? as usize,
                op::DW_OP_constu => code.read_uleb128().map_err(lost)? as usize,
                op::DW_OP_consts => code.read_sleb128().map_err(lost)? as usize,
                op::DW_OP_deref => read(stack.pop().ok_or(End::Lost)?)?,
                op::DW_OP_plus_uconst => {
                    let more = code.read_uleb128().map_err(lost)?;
                    stack.pop().ok_or(End::Lost)?.wrapping_add(more as usize)
                }
                _ => {
                    let right = stack.pop().ok_or(End::Lost)?;
                    let left = stack.pop().ok_or(End::Lost)?;
                    match operation {
                        op::DW_OP_and => left & right,
                        op::DW_OP_minus => left.wrapping_sub(right),
                        op::DW_OP_plus => left.wrapping_add(right),
                        op::DW_OP_shl => left.unbounded_shl(right as u32),
                        op::DW_OP_ge => usize::from(left as isize >= right as isize),
                        _ => return Err(End::Lost),
                    }
                }
            };
            // Nothing may be allocated.
            if stack.len() == OPERANDS {
                return Err(End::Lost);
            }
            stack.push(value);
        }
        stack.pop().ok_or(End::Lost)
    }
}

// ==== what is loaded ====

/// Bytes of an unwind table.
pub(super) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// What is loaded.
#[derive(Default)]
pub(crate) struct Modules {
    list: Vec<Module>,
    /// What the modules' ranges of bytes are ranges of.
    copies: Vec<u8>,
    /// The program's name.
    program: String,
    /// How many modules and bytes there are, whether there was space for them or not.
    modules: usize,
    bytes: usize,
}

/// The program, or one library.
struct Module {
    /// From its first executable byte to its last.
    code: Range<usize>,
    /// What is added to the addresses in its file.
    bias: usize,
    /// Its file, as the loader names it; empty if it is the program.
    path: Range<usize>,
    /// Its two unwind tables, the one to search in first, and the addresses to which their contents are relative.
    tables: Option<[(usize, Range<usize>); 2]>,
}

/// The unwind tables of one module, to search in: the first of them in the second one, and what both are relative to.
type Tables<'a> = (EhFrameHdr<Bytes<'a>>, EhFrame<Bytes<'a>>, BaseAddresses);

impl Modules {
    /// Returns what is loaded now.
    pub(crate) fn load() -> Modules {
        let program = std::env::current_exe().unwrap_or_default();
        let program = program.file_name().unwrap_or_default();
        let mut all = Modules::default();
        loop {
            all = Modules {
                list: Vec::with_capacity(all.modules),
                copies: Vec::with_capacity(all.bytes),
                program: program.to_string_lossy().into_owned(),
                ..Modules::default()
            };
            libraries::visit(|library| all.visit(library));
            if all.modules == all.list.len() && all.bytes == all.copies.len() {
                return all;
            }
        }
    }

    fn find(&self, address: usize) -> Option<&Module> {
        let mut all = self.list.iter();
        all.find(|module| module.code.contains(&address))
    }

    /// Whether `address` may be one of an instruction.
    pub(crate) fn has_code(&self, address: usize) -> bool {
        self.find(address).is_some()
    }

    /// The module's name (a file's name without its folders) and the address in its file.
    pub(crate) fn raw(&self, address: usize) -> Option<(&str, usize)> {
        let module = self.find(address)?;
        let mut parts = self.copies[module.path.clone()].rsplit(|&byte| byte == b'/');
        let name = match parts.next() {
            None | Some([]) => &self.program,
            Some(name) => core::str::from_utf8(name).unwrap_or("?"),
        };
        Some((name, address.wrapping_sub(module.bias)))
    }

    /// The module's file, and what is added to the addresses in it.
    pub(super) fn file(&self, address: usize) -> Option<(&Path, usize)> {
        let module = self.find(address)?;
        let path = match &self.copies[module.path.clone()] {
            [] => b"/proc/self/exe",
            path => path,
        };
        Some((Path::new(OsStr::from_bytes(path)), module.bias))
    }

    /// The unwind tables of the module that has the instruction at `address`.
    fn tables(&self, address: usize) -> Option<Tables<'_>> {
        let [header, frames] = self.find(address)?.tables.clone()?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header.0 as u64);
        let bases = bases.set_eh_frame(frames.0 as u64);
        let mut frames = EhFrame::new(&self.copies[frames.1], LittleEndian);
        frames.set_address_size(WORD as u8);
        frames.set_vendor(here::VENDOR);
        let header = EhFrameHdr::new(&self.copies[header.1], LittleEndian);
        Some((header, frames, bases))
    }

    /// Counts a module, and keeps it if there is space.
    fn visit(&mut self, library: &Library<'_>) {
        let code = library
            .code()
            .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
        let Some(code) = code else { return };
        let path = self.copy(library.name.to_bytes());
        let tables = tables_in(library);
        let tables = tables.map(|tables| tables.map(|one| (one.as_ptr().addr(), self.copy(one))));
        self.modules += 1;
        if self.list.len() < self.list.capacity() {
            self.list.push(Module {
                code,
                bias: library.base,
                path,
                tables,
            });
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        self.bytes += bytes.len();
        let start = self.copies.len();
        if bytes.len() > self.copies.capacity() - start {
            return 0..0;
        }
        self.copies.extend_from_slice(bytes);
        start..self.copies.len()
    }
}

/// The search table, and what lies in its segment from the unwind table on, if there are both.
fn tables_in<'a>(library: &'a Library<'_>) -> Option<[&'a [u8]; 2]> {
    let header = library.segments(libc::PT_GNU_EH_FRAME).next()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.as_ptr().addr() as u64);
    let parsed = EhFrameHdr::new(header, LittleEndian);
    let parsed = parsed.parse(&bases, WORD as u8).ok()?;
    parsed.table()?;
    let frames = parsed.eh_frame_ptr().direct().ok()? as usize;
    library.segments(libc::PT_LOAD).find_map(|segment| {
        let at = frames.checked_sub(segment.as_ptr().addr())?;
        let frames = segment.get(at..).filter(|rest| !rest.is_empty())?;
        Some([header, frames])
    })
}

#[cfg(test)]
mod tests_of_modules {
    use super::*;

    #[test]
    fn code_is_found_where_it_is() {
        let modules = Modules::load();
        let own = code_is_found_where_it_is as fn() as usize;
        let exe = std::env::current_exe().unwrap();
        let (name, offset) = modules.raw(own).unwrap();
        assert_eq!(name, exe.file_name().unwrap().to_str().unwrap());
        assert!(offset <= own);
        assert!(modules.tables(own).is_some());
        let (name, _) = modules.raw(libc::getpid as *const () as usize).unwrap();
        assert!(name.contains("libc"), "{name}");
        assert_eq!(modules.raw(0), None);
        assert_eq!(modules.raw(usize::MAX), None);
        assert_eq!(modules.raw((&raw const modules) as usize), None);
    }

    #[test]
    fn what_is_loaded_and_unloaded_is_noticed() {
        // SAFETY: a library of libc's, and a function of its.
        let (library, function) = unsafe {
            let library = libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null());
            (library, libc::dlsym(library, c"ns_get16".as_ptr()) as usize)
        };
        assert!(function != 0);
        let with = Modules::load();
        assert_eq!(with.raw(function).unwrap().0, "libresolv.so.2");
        assert!(with.tables(function).is_some());
        // SAFETY: the handle from above, which is not used again.
        assert_eq!(unsafe { libc::dlclose(library) }, 0);
        if Modules::load().has_code(function) {
            return eprintln!("the library stays loaded");
        }
        // The tables are still there.
        let (header, _, bases) = with.tables(function).unwrap();
        let header = header.parse(&bases, 8).unwrap();
        assert!(header.table().is_some());
    }
}
