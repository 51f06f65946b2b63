//! The control of floating-point numbers.

use core::arch::asm;

/// How floating-point numbers are computed with: rounding, flushing to zero, traps. These are the control
/// bits of MXCSR and the x87 control word, which a call preserves; it need not preserve the bits that
/// note events. Kept as the difference from how a process begins, in 23 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatControl(pub(crate) u32);

impl FloatControl {
    /// As a process begins.
    pub(crate) const DEFAULT: FloatControl = FloatControl(0);
    const SSE: u32 = 0x1f80;
    const X87: u32 = 0x37f;
    /// MXCSR's control bits, ten of them from here up.
    const SSE_CONTROL: u32 = 6;
    /// Where those of the other register begin.
    const X87_AT: u32 = 10;

    /// The control in force on this kernel thread.
    #[inline(always)]
    pub(crate) fn current() -> FloatControl {
        let (mut sse, mut x87) = (0_u32, 0_u16);
        // SAFETY: each writes one register to a place of its size.
        unsafe {
            asm!("stmxcsr [{}]", "fnstcw [{}]", in(reg) &raw mut sse, in(reg) &raw mut x87,
                options(nostack, preserves_flags));
        }
        let sse = (sse & 0xffc0 ^ FloatControl::SSE) >> FloatControl::SSE_CONTROL;
        let x87 = u32::from(x87) & 0x1fff ^ FloatControl::X87;
        FloatControl(sse | x87 << FloatControl::X87_AT)
    }

    /// Puts it in force on this kernel thread.
    pub(crate) fn set(self) {
        const FIRST: u32 = (1 << FloatControl::X87_AT) - 1;
        let sse = FloatControl::SSE ^ (self.0 & FIRST) << FloatControl::SSE_CONTROL;
        let x87 = (FloatControl::X87 ^ self.0 >> FloatControl::X87_AT) as u16;
        // SAFETY: values that the registers had before. The events that the x87 has noted are forgotten first:
        // an event that only another thread has masked would trap now.
        unsafe {
            asm!("ldmxcsr [{}]", "fnclex", "fldcw [{}]", in(reg) &raw const sse,
                in(reg) &raw const x87, options(nostack, preserves_flags));
        }
    }
}
