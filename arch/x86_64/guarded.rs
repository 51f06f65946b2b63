//! Accesses to memory that may not be there.
//!
//! Each function is the access and a return, and moves no stack pointer. If the access faults, the
//! handler of the fault makes the function return [`FAULT`] ([`Frame::end_access`]).

use core::arch::naked_asm;

use super::frame::Frame;

/// What an access returns that has faulted: more than any 32-bit word.
pub(crate) const FAULT: u64 = u64::MAX;

/// No function here has more bytes of code.
const LONGEST: usize = 16;

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

impl Frame<'_> {
    /// If the fault that this frame belongs to is that of an access above, ends the access. False: it
    /// belongs to other code.
    pub(crate) fn end_access(&mut self) -> bool {
        let is_in = |function: usize| (function..function + LONGEST).contains(&self.pc());
        if !is_in(load as *const () as usize) && !is_in(compare_exchange as *const () as usize) {
            return false;
        }
        // SAFETY: the stack pointer of such a function points to its return address.
        unsafe { self.return_with(FAULT) };
        true
    }
}
