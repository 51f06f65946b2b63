//! Calls of libc's functions that keep their first argument where the handler of a signal finds it.
//!
//! Since 2.41 glibc makes system calls that are cancellation points in one function. Their first argument comes
//! there in the register that the result overwrites, and nobody else has it. So our functions with libc's names
//! call libc's by way of a *keeper*, whose frame has it:
//!
//! ```text
//!   frame pointer -> | of the function for system calls, and    |  next frame pointer, return address, ...
//!                    | of another where cancellation is enabled |
//!                    | of libc's function, if it has a frame    |
//!                    | of the keeper                            |  ..., the first argument, MARK
//! ```
//!
//! The handler follows the frame pointers, which glibc has on aarch64. It believes what it finds one to three frames
//! up: the keeper's callee has made the system call itself, and the first arguments of function and call are
//! the same for those in [`first_argument`](Frame::first_argument). (`nanosleep` calls `clock_nanosleep`, and has one
//! frame more; `sleep` has two. `syscall` has none: its first argument is the number.)

use super::frame::Frame;

/// No other word of a stack is likely to have this value.
pub(crate) const MARK: u64 = 0x7470_656b;

/// The body of a naked function that calls the function at `$real`, an address at `$offset` in a static.
macro_rules! keeper {
    ($real:path, $offset:expr) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-32]!",
            ".cfi_adjust_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            "movz x17, #{low}",
            "movk x17, #{high}, lsl #16",
            "stp x0, x17, [sp, #16]",
            ".hidden {real}", // it is addressed from here, in a shared library, too
            "adrp x16, {real}",
            "add x16, x16, :lo12:{real}",
            "ldr x16, [x16, #{offset}]",
            "blr x16",
            "ldp x29, x30, [sp], #32",
            ".cfi_adjust_cfa_offset -32",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            low = const $crate::engine::door::real::MARK & 0xffff,
            high = const $crate::engine::door::real::MARK >> 16,
            real = sym $real,
            offset = const $offset,
        )
    };
}
pub(crate) use keeper;

impl Frame<'_> {
    /// The first argument of the system call behind which the thread was interrupted, if a keeper has it.
    ///
    /// # Safety
    /// The thread's stack can be read from the stack pointer up to `top`.
    pub(crate) unsafe fn kept_argument(&self, top: usize) -> Option<u64> {
        const WORDS: usize = 4;
        const MOST: usize = 4;
        let [_, mut lowest, mut at, _] = self.registers();
        for frames in 0..=MOST {
            let is_frame = at >= lowest && at.is_multiple_of(16);
            if !is_frame || at + WORDS * size_of::<u64>() > top {
                return None;
            }
            // SAFETY: within the stack.
            let [next, _, first, mark] = unsafe { *(at as *const [u64; WORDS]) };
            if mark == MARK {
                return self.first_argument(frames, first);
            }
            (lowest, at) = (at + 16, next as usize);
        }
        None
    }

    /// That of the system call, if so many frames away a function of libc's was called with `first`.
    fn first_argument(&self, frames: usize, first: u64) -> Option<u64> {
        let (number, [_, _, time, ..]) = self.call();
        let is_number = first <= i32::MAX as u64;
        match (number, frames) {
            (libc::SYS_ppoll, 1..=3) => Some(first),
            // Of `nanosleep`: the time is its first argument, and the clock the call's.
            (libc::SYS_clock_nanosleep, 3 | 4) if first == time => {
                Some(libc::CLOCK_REALTIME as u64)
            }
            (
                libc::SYS_clock_nanosleep
                | libc::SYS_pselect6
                | libc::SYS_epoll_pwait
                | libc::SYS_epoll_pwait2
                | libc::SYS_read
                | libc::SYS_readv
                | libc::SYS_write
                | libc::SYS_writev
                | libc::SYS_recvfrom
                | libc::SYS_recvmsg
                | libc::SYS_sendto
                | libc::SYS_sendmsg
                | libc::SYS_accept
                | libc::SYS_accept4,
                1..=3,
            ) if is_number => Some(first),
            _ => None,
        }
    }
}
