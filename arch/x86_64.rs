//! x86-64: the thread pointer is the FS base, and XSAVE saves the extended state.
//!
//! `frame` is an interrupted thread's stack and registers, `float` is the control of floating-point numbers,
//! `guarded` are accesses that may fault, `naked` the bodies of functions with libc's names, `switch` goes from one stack
//! to another.

mod float;
mod frame;
pub(crate) mod guarded;
mod naked;
#[cfg(greenthread_points)]
pub(crate) mod points;
mod switch;

pub(crate) use float::FloatControl;
pub(super) use frame::Context;
pub(crate) use naked::{call_around, call_as_pthread, jump_where, vfork, with_caller};
pub(super) use switch::at_bottom;
pub(crate) use switch::switch;

use super::{auxiliary, has_shadow_stack};
use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, __rdtscp, _MM_HINT_T0, _mm_prefetch, _rdtsc, CpuidResult};

/// The thread pointer: the address of the running thread's control block.
#[inline(always)]
pub(crate) fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the ABI keeps a pointer to the control block in its own first word, at fs:0.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Makes `pointer` the thread pointer.
///
/// # Safety
/// `pointer` is a live control block that no other kernel thread has as its thread pointer, and the
/// calling function, after inlining, touches no thread-local: a cached address would belong to the
/// other thread.
#[inline(always)]
pub(crate) unsafe fn set_thread_pointer(pointer: *mut u8) {
    // SAFETY: the block is alive and this thread's alone; `supported` has seen that user code may execute it.
    unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// What the processor tells of itself, under a number and a part of it.
#[allow(
    unused_unsafe,
    reason = "the oldest compiler calls the function unsafe"
)]
fn cpuid(number: u32, part: u32) -> CpuidResult {
    // SAFETY: every x86-64 has the instruction.
    unsafe { __cpuid_count(number, part) }
}

/// Whether user code may write the thread pointer and save the whole register state; if not, why
/// not.
pub(crate) fn supported() -> Result<(), &'static str> {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    if auxiliary(libc::AT_HWCAP2) & HWCAP2_FSGSBASE == 0 {
        return Err("the kernel does not let programs write the FS base (FSGSBASE is off)");
    }
    // std's macro would ask the processor for every feature, and a virtual machine interrupts the program at each of
    // these questions.
    const OSXSAVE: u32 = 1 << 27;
    if cpuid(1, 0).ecx & OSXSAVE == 0 {
        return Err("the processor has no XSAVE");
    }
    const ARCH_SHSTK_STATUS: usize = 0x5005;
    if has_shadow_stack(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS) {
        return Err("shadow stacks are on");
    }
    frame::measure_state();
    Ok(())
}

/// The largest pages that a kernel may have been built for.
pub(crate) const LARGEST_PAGE: usize = 4096;

/// Bytes of a page.
#[inline(always)]
pub(crate) fn page_size() -> usize {
    4096
}

/// A code address without the signature that it may have: there are none.
#[inline(always)]
pub(crate) fn plain_address(address: usize) -> usize {
    address
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
        asm!("mov {}, [{}]", lateout(reg) word, in(reg) address, options(nostack, readonly, preserves_flags))
    };
    word
}

/// A system call. A failure comes back as `-errno`; the thread-local `errno` is left alone, so this
/// is right whichever thread's control block the thread pointer names.
///
/// # Safety
/// As the system call demands.
#[inline(always)]
pub(crate) unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel's calling convention: rcx and r11 are clobbered, all else is kept.
    unsafe {
        asm!("syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a hint: it reads nothing and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
}

/// A clock that only orders: cheap, never going back on one CPU, and with the others' as far as the
/// machine keeps its counters together, which all do that are not very old.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register; every x86-64 has it.
    unsafe { _rdtsc() }
}

/// Whether [`cpu`] knows.
pub(crate) fn tells_cpu() -> bool {
    const EXTENDED: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    cpuid(0x8000_0000, 0).eax >= EXTENDED && cpuid(EXTENDED, 0).edx & RDTSCP != 0
}

/// The CPU that this runs on, or did a moment ago. Only where [`tells_cpu`].
pub(crate) fn cpu() -> usize {
    // Linux keeps the CPU's number in this register for user code to read, and the number of the node in the bits
    // above.
    const NUMBER: u32 = (1 << 12) - 1;
    let mut register = 0;
    // SAFETY: writes to a valid word; the caller has asked whether the instruction is there.
    unsafe { __rdtscp(&mut register) };
    (register & NUMBER) as usize
}
