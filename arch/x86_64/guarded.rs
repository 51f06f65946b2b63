//! Accesses to memory that may not be there.
//!
//! Each function is the access and a return, and moves no stack pointer. If the access faults, the
//! handler of the fault makes the function return [`FAULT`] ([`Frame::end_access`]).

use core::arch::naked_asm;

use super::frame::Frame;

/// What an access returns that has faulted: more than any 32-bit word.
pub(crate) const FAULT: u64 = u64::MAX;

/// Reads a word.
///
/// # Safety
/// The handler of faults calls [`Frame::end_access`]; the address is a multiple of 4. Another thread may
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

/// The bytes of `mov eax, esi`, before the access.
const BEFORE_EXCHANGE: usize = 2;

impl Frame<'_> {
    /// If the fault that this frame belongs to is that of an access above, ends the access. False: it
    /// belongs to other code.
    pub(crate) fn end_access(&mut self) -> bool {
        // The very instructions: what lies behind such a function is other code, whose faults are its own.
        let accesses = [
            load as *const () as usize,
            compare_exchange as *const () as usize + BEFORE_EXCHANGE,
        ];
        if !accesses.contains(&self.pc()) {
            return false;
        }
        // SAFETY: the stack pointer of such a function points to its return address.
        unsafe { self.return_with(FAULT) };
        true
    }
}
