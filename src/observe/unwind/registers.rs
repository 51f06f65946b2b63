//! The registers of an architecture, as the unwind tables number them, and what the calling convention does
//! with them.

use gimli::Vendor;

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
