//! aarch64: the thread pointer is TPIDR_EL0, and the kernel's own record of an interrupted thread saves
//! the registers.
//!
//! `frame` is an interrupted thread's stack and registers, `trampoline` the code that it is sent through,
//! `float` is the control of floating-point numbers, `guarded` are accesses that may fault, `naked` the bodies of functions
//! with libc's names, `switch` goes from one stack to another.
//!
//! *Branch protection.* Each function here that is written in assembly begins with a landing pad (`bti`,
//! which older processors take for a hint), so a program may have all its code guarded. A return address
//! is signed with the stack pointer of its frame. A green thread's frames stay where they are on its own
//! stack, whichever kernel thread runs it, and the keys are the process's, whose threads inherit them: each address is
//! authenticated as it was signed. Where an address is only looked at, [`plain_address`] takes the
//! signature away.
//!
//! *SVE.* All kernel threads have vectors of the same length, that of the process: one that gives itself another
//! (`PR_SVE_SET_VL`) must run no green threads.
//!
//! *SME.* A thread whose processor is in streaming mode, or whose ZA array is in use, is not preempted
//! (`frame`). What a thread leaves dormant in ZA, lazily saved, across a call that parks it is not followed to
//! another kernel thread.

mod float;
mod frame;
pub(crate) mod guarded;
mod naked;
#[cfg(greenthread_points)]
pub(crate) mod points;
mod switch;
mod trampoline;

pub(crate) use float::FloatControl;
pub(super) use frame::Context;
pub(crate) use naked::{call_around, call_as_pthread, jump_where, vfork, with_caller};
pub(super) use switch::at_bottom;
pub(crate) use switch::switch;

use super::{auxiliary, has_shadow_stack};
use core::arch::asm;

/// The thread pointer: the address behind the running thread's control block.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: reads a register. Not `pure`: after a switch it has another value.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags))
    };
    pointer
}

/// Makes `pointer` the thread pointer.
///
/// # Safety
/// `pointer` is the end of a live control block that no other kernel thread has as its thread pointer, and
/// the calling function, after inlining, touches no thread-local: a cached address would belong to
/// the other thread.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(pointer: *mut u8) {
    // SAFETY: the block is alive and this thread's alone; user code may always write the register.
    unsafe { asm!("msr tpidr_el0, {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// Whether stacks can be switched here; if not, why not.
pub(crate) fn supported() -> Result<(), &'static str> {
    const PR_GET_SHADOW_STACK_STATUS: usize = 74;
    match has_shadow_stack(libc::SYS_prctl, PR_GET_SHADOW_STACK_STATUS) {
        true => Err("shadow stacks (GCS) are on"),
        false => Ok(()),
    }
}

/// The largest pages that a kernel may have been built for.
pub(crate) const LARGEST_PAGE: usize = 64 << 10;

/// Bytes of a page: 4, 16 or 64 KiB, as the kernel was built.
pub(crate) fn page_size() -> usize {
    auxiliary(libc::AT_PAGESZ) as usize
}

/// Reads a word of a stack, of whatever frame: a sanitizer that checks all accesses is not asked.
///
/// # Safety
/// The address is a multiple of 8, and the word is mapped. Another thread may write it at the same time.
#[inline(always)]
pub(crate) unsafe fn stack_word(address: usize) -> usize {
    let word;
    // SAFETY: the word is mapped.
    unsafe {
        asm!("ldr {}, [{}]", lateout(reg) word, in(reg) address, options(nostack, readonly, preserves_flags))
    };
    word
}

/// A system call. A failure comes back as `-errno`; the thread-local `errno` is left alone, so this
/// is right whichever thread's control block the thread pointer names.
///
/// The kernel does not keep what SVE adds to the registers. So where the compiler uses that, this is a call of a function,
/// over which it keeps nothing there.
///
/// # Safety
/// As the system call demands.
#[cfg_attr(not(target_feature = "sve"), inline(always))]
#[cfg_attr(target_feature = "sve", inline(never))]
pub(crate) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: it keeps all registers but that of the result, and those of SVE.
    unsafe {
        asm!("svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1], in("x2") arguments[2], in("x3") arguments[3],
            in("x4") arguments[4], in("x5") arguments[5], options(nostack));
    }
    result
}

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a hint: it reads nothing and never faults.
    unsafe { asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// A clock that only orders: cheap, never going back on one CPU, and the same on all. It need not be
/// fine: some machines count every 40 ns.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register, which Linux lets user code read.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, nomem, preserves_flags)) };
    ticks
}

/// Whether [`cpu`] knows. No register that user code can read has the number.
pub(crate) fn tells_cpu() -> bool {
    false
}

/// The CPU that this runs on, or did a moment ago. Only where [`tells_cpu`].
pub(crate) fn cpu() -> usize {
    0
}

/// A code address without the signature that it may have.
#[inline]
pub(crate) fn plain_address(address: usize) -> usize {
    let plain: usize;
    // SAFETY: strips x30 (`xpaclri`); processors without signatures take it for a hint.
    unsafe {
        asm!("hint #7", inlateout("x30") address => plain, options(nostack, nomem, preserves_flags))
    };
    plain
}
