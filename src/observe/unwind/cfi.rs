//! The rules of the unwind tables: where a function's caller goes on, and with which registers.
//!
//! A rule holds for some bytes of code. It says how the *canonical frame address* (CFA: the caller's stack
//! pointer) is computed, and where the caller's registers are saved, mostly at a distance from that.
//! [`Tables::rule`] returns the short form that nearly all have, to be kept; [`Tables::below`] computes a rule
//! of any form, with all registers.

use gimli::{
    CfaRule, EhFrame, Encoding, Evaluation, EvaluationResult, EvaluationStorage, Expression,
    Location, Piece, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression,
    UnwindSection, UnwindTableRow, Value,
};

use super::super::modules::{Bytes, Modules};
use super::registers::HERE;
use crate::engine::inspect::system::plain_address;
use crate::sys::word;

/// The short form of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The CFA lies at this distance from the stack pointer; the caller's frame pointer is saved at this
    /// distance from the CFA, or is the [`SAME`](Rule::SAME); so is the return address, or is still in the
    /// link register.
    FromSp { cfa: i32, bp_at: i32, pc_at: i32 },
    /// The same, from the frame pointer.
    FromBp { cfa: i32, bp_at: i32, pc_at: i32 },
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
    pub(super) const SAME: i32 = i32::MIN;
}

/// The registers of one frame, so far as they are known.
#[derive(Clone, Copy)]
pub(super) struct Registry {
    pub(super) pc: usize,
    /// By their numbers in the tables.
    values: [usize; Registry::COUNT],
    /// A bit each.
    known: u64,
}

impl Registry {
    const COUNT: usize = HERE.count;
    const BP: usize = HERE.bp;
    const SP: usize = HERE.sp;

    #[inline]
    pub(super) fn new(pc: usize, sp: usize, bp: usize) -> Registry {
        let mut new = Registry {
            pc,
            values: [0; Registry::COUNT],
            known: 0,
        };
        new.go_down(pc, sp, bp);
        new
    }

    /// To a frame of which nothing else is known.
    #[inline]
    pub(super) fn go_down(&mut self, pc: usize, sp: usize, bp: usize) {
        self.pc = plain_address(pc);
        self.values[Registry::SP] = sp;
        self.values[Registry::BP] = bp;
        self.known = 1 << Registry::SP | 1 << Registry::BP;
    }

    /// To the thread that a signal has interrupted, whose registers `read` reads, in the order of their numbers.
    /// The program counter comes last.
    pub(super) fn interrupted(mut read: impl FnMut(usize) -> Option<usize>) -> Option<Registry> {
        let last = Registry::SP + 1;
        let mut new = Registry::new(read(last)?, read(Registry::SP)?, read(Registry::BP)?);
        for number in 0..Registry::SP {
            new.set(number, read(number)?);
        }
        Some(new)
    }

    #[inline]
    pub(super) fn sp(&self) -> usize {
        self.values[Registry::SP]
    }

    #[inline]
    pub(super) fn bp(&self) -> usize {
        self.values[Registry::BP]
    }

    /// The link register, if there is one and it is known.
    #[inline]
    pub(super) fn link(&self) -> Option<usize> {
        let link = Register(HERE.link? as u16);
        self.get(link).ok().map(plain_address)
    }

    fn get(&self, register: Register) -> Result<usize, Trouble> {
        let number = register.0 as usize;
        let is_pc = number == HERE.return_address && HERE.link.is_none();
        match self.known.checked_shr(number as u32) {
            _ if is_pc => Ok(self.pc),
            Some(bits) if bits & 1 != 0 => Ok(self.values[number]),
            _ => Err(Trouble::Unknown),
        }
    }

    pub(super) fn set(&mut self, number: usize, value: usize) {
        self.values[number] = value;
        self.known |= 1 << number;
    }
}

/// Why a rule could not be computed.
pub(super) enum Trouble {
    /// It needs a register that is not known.
    Unknown,
    /// The memory cannot be read, or the rule makes no sense here.
    Unreadable,
}

/// The unwind tables of all that is loaded.
pub(super) struct Tables {
    modules: Modules,
    context: Box<UnwindContext<usize, InPlace>>,
}

/// Has space for whatever compilers write, and allocates nothing.
struct InPlace;

impl UnwindContextStorage<usize> for InPlace {
    type Rules = [(Register, RegisterRule<usize>); 64];
    type Stack = [UnwindTableRow<usize, Self>; 8];
}

impl<'a> EvaluationStorage<Bytes<'a>> for InPlace {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes<'a>, Bytes<'a>); 4];
    type Result = [Piece<Bytes<'a>>; 1];
}

/// One rule as it stands in the tables.
struct Row<'a> {
    row: &'a UnwindTableRow<usize, InPlace>,
    section: &'a EhFrame<Bytes<'a>>,
    encoding: Encoding,
    return_address: Register,
    is_signal: bool,
}

impl Tables {
    pub(super) fn new(modules: Modules) -> Tables {
        Tables {
            modules,
            context: Box::new(UnwindContext::new_in()),
        }
    }

    pub(super) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Returns the short form of the rule for the instruction at `address`.
    pub(super) fn rule(&mut self, address: usize) -> Rule {
        if self.is_below_a_handler(address) {
            return Rule::Signal;
        }
        self.with_row(address, |row| row.short())
            .unwrap_or(Rule::Untold)
    }

    /// Whether a signal's handler returns to the address behind this one.
    fn is_below_a_handler(&self, address: usize) -> bool {
        let Some(signal) = &HERE.signal else {
            return false;
        };
        let first = address.wrapping_add(1);
        first.is_multiple_of(4)
            && self.modules.has_code(first)
            && (signal.code.iter().zip(0..)).all(|(&code, i)| word::look(first + 4 * i) == Ok(code))
    }

    /// Returns the registers of the caller, and whether that was interrupted by a signal rather than making
    /// a call.
    pub(super) fn below(
        &mut self,
        address: usize,
        registry: &Registry,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Result<(Registry, bool), Trouble> {
        self.with_row(address, |row| {
            Ok((row.caller(registry, read)?, row.is_signal))
        })
        .unwrap_or(Err(Trouble::Unreadable))
    }

    fn with_row<T>(&mut self, address: usize, then: impl FnOnce(Row<'_>) -> T) -> Option<T> {
        let view = self.modules.tables(address)?;
        let header = view
            .header
            .parse(&view.bases, size_of::<usize>() as u8)
            .ok()?;
        let entry = header
            .table()?
            .fde_for_address(
                &view.frames,
                &view.bases,
                address as u64,
                EhFrame::cie_from_offset,
            )
            .ok()?;
        let row = entry
            .unwind_info_for_address(&view.frames, &view.bases, &mut self.context, address as u64)
            .ok()?;
        Some(then(Row {
            row,
            section: &view.frames,
            encoding: entry.cie().encoding(),
            return_address: entry.cie().return_address_register(),
            is_signal: entry.is_signal_trampoline(),
        }))
    }
}

impl Row<'_> {
    fn short(&self) -> Rule {
        let saved_at = |register: Register| match self.row.register(register) {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Some(Rule::SAME),
            Some(RegisterRule::Offset(at)) => i32::try_from(at).ok(),
            Some(_) => None,
        };
        let bp_at = saved_at(Register(Registry::BP as u16));
        match self.row.register(self.return_address) {
            Some(RegisterRule::Undefined) => return Rule::End,
            None if HERE.link.is_none() => return Rule::End,
            _ if self.is_signal => return Rule::Complicated,
            _ => {}
        }
        match (self.row.cfa(), bp_at, saved_at(self.return_address)) {
            (&CfaRule::RegisterAndOffset { register, offset }, Some(bp_at), Some(pc_at)) => {
                match (usize::from(register.0), i32::try_from(offset)) {
                    (Registry::SP, Ok(cfa)) => Rule::FromSp { cfa, bp_at, pc_at },
                    (Registry::BP, Ok(cfa)) => Rule::FromBp { cfa, bp_at, pc_at },
                    _ => Rule::Complicated,
                }
            }
            _ => Rule::Complicated,
        }
    }

    fn caller(
        &self,
        registry: &Registry,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Result<Registry, Trouble> {
        let cfa = match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => registry
                .get(*register)?
                .wrapping_add_signed(*offset as isize),
            CfaRule::Expression(expression) => self.evaluate(expression, None, registry, read)?,
        };
        let pc = self.register(self.return_address, cfa, registry, read)?;
        let mut caller = Registry::new(pc, cfa, 0);
        caller.known = 1 << Registry::SP;
        for number in 0..Registry::COUNT {
            let register = Register(number as u16);
            let is_told = self.row.register(register).is_some();
            let is_same = HERE.preserved >> number & 1 != 0;
            if !is_told && (number == Registry::SP || !is_same) {
                continue;
            }
            if register == self.return_address {
                continue; // the caller has used it for this call
            }
            // One that is not known need not be needed.
            if let Ok(value) = self.register(register, cfa, registry, read) {
                caller.set(number, value);
            }
        }
        Ok(caller)
    }

    fn register(
        &self,
        register: Register,
        cfa: usize,
        registry: &Registry,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Result<usize, Trouble> {
        match self.row.register(register) {
            None | Some(RegisterRule::SameValue) => registry.get(register),
            Some(RegisterRule::Offset(at)) => {
                read(cfa.wrapping_add_signed(at as isize)).ok_or(Trouble::Unreadable)
            }
            Some(RegisterRule::ValOffset(at)) => Ok(cfa.wrapping_add_signed(at as isize)),
            Some(RegisterRule::Register(other)) => registry.get(other),
            Some(RegisterRule::Expression(expression)) => {
                let at = self.evaluate(&expression, Some(cfa), registry, read)?;
                read(at).ok_or(Trouble::Unreadable)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                self.evaluate(&expression, Some(cfa), registry, read)
            }
            Some(_) => Err(Trouble::Unreadable),
        }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        first: Option<usize>,
        registry: &Registry,
        read: &mut impl FnMut(usize) -> Option<usize>,
    ) -> Result<usize, Trouble> {
        let Expression(code) = expression
            .get(self.section)
            .map_err(|_| Trouble::Unreadable)?;
        let mut evaluation = Evaluation::<_, InPlace>::new_in(code, self.encoding);
        evaluation.set_max_iterations(FUEL);
        if let Some(first) = first {
            evaluation.set_initial_value(first as u64);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| Trouble::Unreadable)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registry.get(register)? as u64;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. }
                    if usize::from(size) == size_of::<usize>() =>
                {
                    let value = read(address as usize).ok_or(Trouble::Unreadable)? as u64;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(Trouble::Unreadable),
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Ok(address as usize),
                _ => Err(Trouble::Unreadable),
            },
            _ => Err(Trouble::Unreadable),
        }
    }
}

/// The most steps that an expression may take.
const FUEL: u32 = 256;
