//! The control of floating-point numbers.

use core::arch::asm;

/// How floating-point numbers are computed with: rounding, flushing to zero, traps. These are the control
/// bits of FPCR, which a call preserves; FPSR, which notes events, it need not preserve. Kept
/// in 19 bits; a process begins with none of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatControl(pub(crate) u32);

/// The parts of FPCR that mean something: where each begins, how many bits it has, and where it is kept.
const PARTS: [(u32, u32, u32); 3] = [
    (19, 8, 0), // FZ16, stride, rounding, FZ, DN, AHP
    (8, 8, 8),  // the traps, EBF
    (0, 3, 16), // FIZ, AH, NEP
];

impl FloatControl {
    /// As a process begins.
    pub(crate) const DEFAULT: FloatControl = FloatControl(0);

    /// The control in force on this kernel thread.
    #[inline(always)]
    pub(crate) fn current() -> FloatControl {
        let register: u64;
        // SAFETY: reads a register.
        unsafe {
            asm!("mrs {}, fpcr", out(reg) register, options(nostack, nomem, preserves_flags))
        };
        FloatControl::packed(register as u32)
    }

    /// Puts it in force on this kernel thread.
    pub(crate) fn set(self) {
        // SAFETY: a value that the register had before.
        unsafe {
            asm!("msr fpcr, {}", in(reg) u64::from(self.unpacked()), options(nostack, preserves_flags))
        };
    }

    #[inline(always)]
    fn packed(register: u32) -> FloatControl {
        let part = |(from, bits, to): (u32, u32, u32)| (register >> from & ((1 << bits) - 1)) << to;
        FloatControl(part(PARTS[0]) | part(PARTS[1]) | part(PARTS[2]))
    }

    fn unpacked(self) -> u32 {
        let part = |(from, bits, to): (u32, u32, u32)| (self.0 >> to & ((1 << bits) - 1)) << from;
        part(PARTS[0]) | part(PARTS[1]) | part(PARTS[2])
    }
}

#[cfg(test)]
mod tests {
    use super::FloatControl;

    #[test]
    fn every_control_bit_is_kept() {
        for bit in (0..3).chain(8..16).chain(19..27) {
            let packed = FloatControl::packed(1 << bit);
            assert!(packed != FloatControl::DEFAULT && packed.0 < 1 << 23);
            assert_eq!(packed.unpacked(), 1 << bit);
        }
    }

    #[test]
    fn the_control_is_set_and_read() {
        const UPWARD: u32 = 1 << 22;
        FloatControl::packed(UPWARD).set();
        let third = || core::hint::black_box(core::hint::black_box(1.0) / 3.0_f64);
        let above = third();
        let seen = FloatControl::current();
        FloatControl::DEFAULT.set();
        assert_eq!(seen.unpacked(), UPWARD);
        assert!(above > third());
    }
}
