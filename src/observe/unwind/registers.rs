//! The registers of an architecture, as the unwind tables number them, what the calling convention does
//! with them, and those of one frame.

use gimli::{Register, Vendor};

use super::Trouble;
use crate::engine::inspect::system::plain_address;

/// An architecture's facts.
pub(super) struct Convention {
    /// How many registers are followed: the numbers below this one.
    pub(super) count: usize,
    pub(super) sp: usize,
    /// The frame pointer.
    pub(super) bp: usize,
    /// The column of the return address, but for interrupted code.
    pub(super) return_address: usize,
    /// The register in which a call leaves the return address; where there is none, it lies on the stack.
    pub(super) link: Option<usize>,
    /// The registers that a function returns with as it was called, a bit each.
    pub(super) preserved: u64,
    /// The fourth register that a signal's frame gives out.
    pub(super) fourth_of_signal: usize,
    /// What `arch::switch` saves, in words from the stack pointer: the address at which to go on, the
    /// frame pointer, another register; and how many words it saves in all.
    pub(super) saved_pc: usize,
    pub(super) saved_bp: usize,
    pub(super) saved_other: (usize, usize),
    pub(super) saved: usize,
    /// How the code below a signal's handler is known, where the tables do not tell enough of it.
    pub(super) signal: Option<Signal>,
    pub(super) vendor: Vendor,
}

/// The code to which a signal's handler returns: its stack pointer is at the kernel's record of the
/// interrupted thread.
pub(super) struct Signal {
    pub(super) code: [u32; 2],
    /// In the record: all general registers in the order of their numbers, the stack pointer, the program counter.
    pub(super) registers_at: usize,
}

/// rbx, rbp, r12 to r15 are preserved. The return address has a column of its own.
#[cfg(target_arch = "x86_64")]
pub(super) const HERE: Convention = {
    const RBX: usize = 3;
    const RBP: usize = 6;
    Convention {
        count: 16,
        sp: 7,
        bp: RBP,
        return_address: 16,
        link: None,
        preserved: 1 << RBX | 1 << RBP | 0b1111 << 12,
        fourth_of_signal: RBX,
        saved_pc: 0,
        saved_bp: 2,
        saved_other: (RBX, 1),
        saved: 3,
        signal: None,
        vendor: Vendor::Default,
    }
};

/// x19 to x29 are preserved. The return address is in x30, until the function saves it. Column 32 is the program
/// counter, which the frame of an interruption has besides.
#[cfg(target_arch = "aarch64")]
pub(super) const HERE: Convention = Convention {
    count: 33,
    sp: 31,
    bp: 29,
    return_address: 30,
    link: Some(30),
    preserved: 0b111_1111_1111 << 19,
    fourth_of_signal: 30,
    saved_pc: 2,
    saved_bp: 1,
    saved_other: (19, 0),
    saved: 4,
    signal: Some(Signal {
        code: [0xd280_1168, 0xd400_0001], // mov x8, #139; svc #0: rt_sigreturn
        registers_at: size_of::<libc::siginfo_t>()
            + core::mem::offset_of!(libc::ucontext_t, uc_mcontext.regs),
    }),
    vendor: Vendor::AArch64,
};

/// The registers of one frame, so far as they are known.
#[derive(Clone, Copy)]
pub(crate) struct Registers {
    pub(super) pc: usize,
    /// `pc` is the next instruction's address, and not a return address.
    pub(super) is_exact: bool,
    /// By their numbers in the tables.
    values: [usize; HERE.count],
    /// A bit each.
    known: u64,
}

impl Registers {
    pub(super) const COUNT: usize = HERE.count;
    pub(super) const BP: usize = HERE.bp;
    pub(super) const SP: usize = HERE.sp;

    /// The same with the frame pointer.
    #[inline]
    pub(crate) fn new(pc: usize, sp: usize, bp: usize) -> Registers {
        let mut new = Registers::at(pc, sp);
        new.set(Registers::BP, bp);
        new
    }

    /// Of an interrupted thread of which no more is known than this.
    pub(super) fn at(pc: usize, sp: usize) -> Registers {
        let (pc, values) = (plain_address(pc), [0; HERE.count]);
        let mut new = Registers {
            pc,
            is_exact: true,
            values,
            known: 0,
        };
        new.set(Registers::SP, sp);
        new
    }

    /// Of a thread that a signal has interrupted, as `arch::Frame` gives them out.
    pub(crate) fn of_signal([pc, sp, bp, fourth]: [usize; 4]) -> Registers {
        let mut new = Registers::new(pc, sp, bp);
        new.set(HERE.fourth_of_signal, fourth);
        new
    }

    /// Of a thread that has left its stack by a switch (`arch::switch`) and left off at `sp`, where that
    /// has saved the address at which to go on and two registers.
    pub(crate) fn of_switch(
        sp: usize,
        mut read: impl FnMut(usize) -> Option<usize>,
    ) -> Option<Registers> {
        const WORD: usize = size_of::<usize>();
        let mut saved = |word: usize| read(sp.wrapping_add(word * WORD));
        let (pc, bp) = (saved(HERE.saved_pc)?, saved(HERE.saved_bp)?);
        let mut new = Registers::new(pc, sp.wrapping_add(HERE.saved * WORD), bp);
        let (other, other_at) = HERE.saved_other;
        new.set(other, saved(other_at)?);
        Some(new)
    }

    /// Of a thread that a signal has interrupted, whose registers `read` reads, in the order of their numbers.
    /// The program counter comes last.
    pub(super) fn interrupted(
        read: &mut dyn FnMut(usize) -> Result<usize, Trouble>,
    ) -> Result<Registers, Trouble> {
        let mut new = Registers::at(read(Registers::SP + 1)?, read(Registers::SP)?);
        for number in 0..Registers::SP {
            new.set(number, read(number)?);
        }
        Ok(new)
    }

    /// Goes to a caller of which nothing else is known.
    #[inline]
    pub(super) fn go_down(&mut self, pc: usize, sp: usize, bp: usize) {
        self.pc = plain_address(pc);
        self.is_exact = false;
        self.known = 0;
        self.set(Registers::SP, sp);
        self.set(Registers::BP, bp);
    }

    #[inline]
    pub(super) fn sp(&self) -> usize {
        self.values[Registers::SP]
    }

    /// The frame pointer; 0 if it is not known.
    #[inline]
    pub(super) fn bp(&self) -> usize {
        self.values[Registers::BP]
    }

    /// The link register, if there is one and it is known.
    #[inline]
    pub(super) fn link(&self) -> Option<usize> {
        let link = Register(HERE.link? as u16);
        self.get(link).ok().map(plain_address)
    }

    pub(super) fn get(&self, register: Register) -> Result<usize, Trouble> {
        let number = register.0 as usize;
        let is_pc = number == HERE.return_address && HERE.link.is_none();
        match self.known.checked_shr(number as u32) {
            _ if is_pc => Ok(self.pc),
            Some(bits) if bits & 1 != 0 => Ok(self.values[number]),
            _ => Err(Trouble::Unknown),
        }
    }

    #[inline]
    pub(super) fn set(&mut self, number: usize, value: usize) {
        self.values[number] = value;
        self.known |= 1 << number;
    }
}
