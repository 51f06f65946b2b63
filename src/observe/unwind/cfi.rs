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
use super::registers::{HERE, Registers};
use super::{Read, Trouble};
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

/// The unwind tables of all that is loaded.
pub(super) struct Tables {
    pub(super) modules: Modules,
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

    /// Returns the registers of the caller.
    pub(super) fn below(
        &mut self,
        address: usize,
        registers: &Registers,
        read: Read<'_>,
    ) -> Result<Registers, Trouble> {
        self.with_row(address, |row| row.caller(registers, read))
            .unwrap_or(Err(Trouble::Lost))
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
        let bp_at = saved_at(Register(Registers::BP as u16));
        match self.row.register(self.return_address) {
            Some(RegisterRule::Undefined) => return Rule::End,
            None if HERE.link.is_none() => return Rule::End,
            _ if self.is_signal => return Rule::Complicated,
            _ => {}
        }
        match (self.row.cfa(), bp_at, saved_at(self.return_address)) {
            (&CfaRule::RegisterAndOffset { register, offset }, Some(bp_at), Some(pc_at)) => {
                match (usize::from(register.0), i32::try_from(offset)) {
                    (Registers::SP, Ok(cfa)) => Rule::FromSp { cfa, bp_at, pc_at },
                    (Registers::BP, Ok(cfa)) => Rule::FromBp { cfa, bp_at, pc_at },
                    _ => Rule::Complicated,
                }
            }
            _ => Rule::Complicated,
        }
    }

    fn caller(&self, registers: &Registers, read: Read<'_>) -> Result<Registers, Trouble> {
        let cfa = match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => registers
                .get(*register)?
                .wrapping_add_signed(*offset as isize),
            CfaRule::Expression(expression) => self.evaluate(expression, None, registers, read)?,
        };
        let pc = self.register(self.return_address, cfa, registers, read)?;
        let mut caller = Registers::at(pc, cfa);
        caller.is_exact = self.is_signal;
        for number in 0..Registers::COUNT {
            let register = Register(number as u16);
            let is_told = self.row.register(register).is_some();
            let is_same = HERE.preserved >> number & 1 != 0 && number != Registers::SP;
            // The caller has used the register of the return address for this call. One that is not known need not be
            // needed.
            if (is_told || is_same)
                && register != self.return_address
                && let Ok(value) = self.register(register, cfa, registers, read)
            {
                caller.set(number, value);
            }
        }
        Ok(caller)
    }

    fn register(
        &self,
        register: Register,
        cfa: usize,
        registers: &Registers,
        read: Read<'_>,
    ) -> Result<usize, Trouble> {
        match self.row.register(register) {
            None | Some(RegisterRule::SameValue) => registers.get(register),
            Some(RegisterRule::Offset(at)) => read(cfa.wrapping_add_signed(at as isize)),
            Some(RegisterRule::ValOffset(at)) => Ok(cfa.wrapping_add_signed(at as isize)),
            Some(RegisterRule::Register(other)) => registers.get(other),
            Some(RegisterRule::Expression(expression)) => {
                let at = self.evaluate(&expression, Some(cfa), registers, read)?;
                read(at)
            }
            Some(RegisterRule::ValExpression(expression)) => {
                self.evaluate(&expression, Some(cfa), registers, read)
            }
            Some(_) => Err(Trouble::Lost),
        }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        first: Option<usize>,
        registers: &Registers,
        read: Read<'_>,
    ) -> Result<usize, Trouble> {
        let Expression(code) = expression.get(self.section).map_err(|_| Trouble::Lost)?;
        let mut evaluation = Evaluation::<_, InPlace>::new_in(code, self.encoding);
        evaluation.set_max_iterations(FUEL);
        if let Some(first) = first {
            evaluation.set_initial_value(first as u64);
        }
        let mut state = evaluation.evaluate();
        loop {
            state = match state.map_err(|_| Trouble::Lost)? {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(register)? as u64;
                    evaluation.resume_with_register(Value::Generic(value))
                }
                EvaluationResult::RequiresMemory { address, size, .. }
                    if usize::from(size) == size_of::<usize>() =>
                {
                    let value = read(address as usize)? as u64;
                    evaluation.resume_with_memory(Value::Generic(value))
                }
                _ => return Err(Trouble::Lost),
            };
        }
        match evaluation.as_result() {
            [
                Piece {
                    location: Location::Address { address },
                    ..
                },
            ] => Ok(*address as usize),
            _ => Err(Trouble::Lost),
        }
    }
}

/// The most steps that an expression may take.
const FUEL: u32 = 256;
