//! Accesses to memory that may not be there.
//!
//! Each function is the access and a return, and moves no stack pointer. If the access faults, the
//! handler of the fault makes the function return `FAULT` (`Frame::end_access`).

use core::arch::naked_asm;

/// Reads a word.
///
/// # Safety
/// The handler of faults calls `Frame::end_access`; the address is a multiple of 4. Another thread may
/// write the word at the same time.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn load(address: usize) -> u64 {
    naked_asm!("mov eax, [rdi]", "ret")
}

/// Replaces a word by `new` if it is `old`; returns the value that it had. A full barrier.
///
/// # Safety
/// As [`load`].
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn compare_exchange(address: usize, old: u32, new: u32) -> u64 {
    naked_asm!("mov eax, esi", "lock cmpxchg [rdi], edx", "ret")
}

/// The very instructions: what lies behind such a function is other code, whose faults are its own.
pub(super) fn accesses() -> [usize; 2] {
    /// The bytes of `mov eax, esi`.
    const BEFORE_EXCHANGE: usize = 2;
    let exchange = compare_exchange as *const () as usize;
    [load as *const () as usize, exchange + BEFORE_EXCHANGE]
}
