//! Accesses to memory that may not be there.
//!
//! Each function is the access and a return, and moves no stack pointer. If the access faults, the
//! handler of the fault makes the function return `FAULT` (`Frame::end_access`).

use core::arch::naked_asm;

/// Reads a word. What the caller reads later, it reads later (as on x86-64, where all loads are such).
///
/// # Safety
/// The handler of faults calls `Frame::end_access`; the address is a multiple of 4. Another thread may
/// write the word at the same time.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn load(address: usize) -> u64 {
    naked_asm!(
        "hint #34", // bti c
        "ldar w0, [x0]",
        "ret"
    )
}

/// Replaces a word by `new` if it is `old`; returns the value that it had. A full barrier.
///
/// # Safety
/// As [`load`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn compare_exchange(address: usize, old: u32, new: u32) -> u64 {
    naked_asm!(
        "hint #34", // bti c
        "dmb ish",
        "2: ldxr w3, [x0]",
        "cmp w3, w1",
        "b.ne 3f",
        "stxr w4, w2, [x0]",
        "cbnz w4, 2b",
        "3: dmb ish",
        "mov w0, w3",
        "ret",
    )
}

/// The very instructions: what lies behind such a function is other code, whose faults are its own.
pub(super) fn accesses() -> [usize; 3] {
    /// Bytes of an instruction.
    const STEP: usize = 4;
    let exchange = compare_exchange as *const () as usize;
    let (its_load, its_store) = (exchange + 2 * STEP, exchange + 5 * STEP);
    [load as *const () as usize + STEP, its_load, its_store]
}
