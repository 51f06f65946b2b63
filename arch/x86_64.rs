//! x86-64: the thread pointer is the FS base, the extended state is what XSAVE saves.
//!
//! # A preemption, seen on the interrupted stack
//!
//! The signal handler (on the kernel thread's alternate stack) rewrites the interrupted frame so
//! that
//! `sigreturn` lands in [`preempt_trampoline`], as if the thread had called it between two
//! instructions:
//!
//! ```text
//!   sp at the signal ->  |  live data             |
//!                        |  red zone, 128 bytes   |  untouched
//!                        |  interrupted pc        |  written by `Frame::inject`, popped by `ret
//!                        128`
//!                        |  flags                 |
//!                        |  rbp  <- rbp           |
//!                        |  rax rcx rdx rsi rdi   |  every register a call may clobber
//!                        |  r8 r9 r10 r11         |
//!                        |  (alignment to 64)     |
//!                        |  XSAVE area            |  size from CPUID, header zeroed
//! ```
//!
//! The trampoline then calls `sched::preempt::preempted`, which switches away. When the thread is
//! resumed, on whatever kernel thread, everything is restored and `ret 128` drops pc and red zone
//! at once. Callee-saved registers are kept by the switch itself.

use core::arch::{asm, global_asm, naked_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes below the stack pointer that a leaf function may use without moving it (System V ABI).
const RED_ZONE: usize = 128;
/// Pushed registers, alignment, and the stack that the code under the trampoline needs to switch
/// away.
const TRAMPOLINE_FRAMES: usize = 12 * 8 + 64 + 2048;

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
    // SAFETY: the caller's promise; `supported` has seen that user code may execute it.
    unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
}

/// Whether user code may write the thread pointer and save the whole register state; if not, why
/// not.
pub(crate) fn supported() -> Result<(), &'static str> {
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE == 0 {
        return Err("the kernel does not let programs write the FS base (FSGSBASE is off)");
    }
    if !std::is_x86_feature_detected!("xsave") {
        return Err("the processor has no XSAVE");
    }
    // Leaf 0xd: sub-leaf 0 gives the bytes that the enabled state needs, sub-leaf 1 says whether
    // XSAVEC exists.
    let size = core::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    let compacts = core::arch::x86_64::__cpuid_count(0xd, 1).eax & 2 != 0;
    greenthread_xsave_bytes.store(size.next_multiple_of(64), Ordering::Relaxed);
    greenthread_xsave_compacts.store(compacts as usize, Ordering::Relaxed);
    Ok(())
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

/// Calls `function(argument)` in a frame at which every unwinder stops: below it lies another
/// stack.
///
/// # Safety
/// `function` neither unwinds nor is given anything it may not have.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_at_bottom(
    function: unsafe extern "C" fn(*mut ()),
    argument: *mut (),
) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        ".cfi_undefined rbp",
        "push rbp",
        "xor ebp, ebp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "pop rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// An interrupted thread's registers, as a signal handler was given them.
pub(crate) struct Frame<'a>(&'a mut libc::ucontext_t);

impl<'a> Frame<'a> {
    /// The frame behind a signal handler's third argument.
    ///
    /// # Safety
    /// `context` is that argument, and the handler has not returned.
    pub(crate) unsafe fn new(context: *mut libc::c_void) -> Frame<'a> {
        // SAFETY: the caller's promise.
        Frame(unsafe { &mut *context.cast() })
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> usize {
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
    }

    /// The stack pointer at that instruction.
    pub(crate) fn sp(&self) -> usize {
        self.0.uc_mcontext.gregs[libc::REG_RSP as usize] as usize
    }

    /// The signal mask of the interrupted thread (of which Linux has 64 bits).
    pub(crate) fn mask(&self) -> u64 {
        // SAFETY: sigset_t starts with the kernel's 64-bit mask.
        unsafe { *(&raw const self.0.uc_sigmask).cast() }
    }

    /// If the thread was interrupted in a system call that fails with EINTR because of that, makes it call
    /// again. The kernel has overwritten the call's number; it is taken from the instruction before,
    /// `mov eax, number`, and left alone if there is another one.
    ///
    /// # Safety
    /// The seven bytes before the program counter can be read.
    pub(crate) unsafe fn repeat_interrupted_call(&mut self) {
        let registers = &mut self.0.uc_mcontext.gregs;
        if registers[libc::REG_RAX as usize] != -libc::EINTR as i64 {
            return;
        }
        let pc = registers[libc::REG_RIP as usize];
        // SAFETY: the caller's promise.
        let code = unsafe { *((pc - 7) as *const [u8; 7]) };
        if let [0xb8, number @ .., 0x0f, 0x05] = code {
            let number = [number[0], number[1], number[2], number[3]];
            let number = i64::from(u32::from_le_bytes(number));
            // An interrupted close has closed: the descriptor may be another's by now.
            if number != libc::SYS_close {
                registers[libc::REG_RAX as usize] = number;
                registers[libc::REG_RIP as usize] = pc - 2;
            }
        }
    }

    /// Whether the thread is about to wait on a futex, for as long as it takes. So is one that a
    /// signal has interrupted in that: the kernel makes it call again, and looks at the word again.
    ///
    /// # Safety
    /// The frame is of code that ran, so the instruction at its program counter can be read.
    pub(crate) unsafe fn is_about_to_wait(&self) -> bool {
        let register = |name: i32| self.0.uc_mcontext.gregs[name as usize];
        let operation = register(libc::REG_RSI) as i32 & libc::FUTEX_CMD_MASK;
        let code = self.pc() as *const u8;
        register(libc::REG_RAX) == libc::SYS_futex
            && matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET)
            && register(libc::REG_R10) == 0
            // SAFETY: the caller's promise; no instruction is this first byte alone.
            && unsafe { *code == 0x0f && *code.add(1) == 0x05 }
    }

    /// Bytes that [`Frame::inject`] and all that follows need below the stack pointer.
    pub(crate) fn room_needed() -> usize {
        RED_ZONE + TRAMPOLINE_FRAMES + greenthread_xsave_bytes.load(Ordering::Relaxed)
    }

    /// Makes the thread go on in the preemption trampoline, as if it had called it here.
    ///
    /// # Safety
    /// The stack has [`Frame::room_needed`] bytes below the stack pointer, and the thread may be
    /// suspended here.
    pub(crate) unsafe fn inject(&mut self) {
        let registers = &mut self.0.uc_mcontext.gregs;
        let slot = registers[libc::REG_RSP as usize] as usize - RED_ZONE - 8;
        // SAFETY: room below the red zone was promised.
        unsafe { *(slot as *mut i64) = registers[libc::REG_RIP as usize] };
        registers[libc::REG_RSP as usize] = slot as i64;
        registers[libc::REG_RIP as usize] = preempt_trampoline as *const () as i64;
        // A thread interrupted in the middle of a string operation may have the direction flag set;
        // the trampoline saves the flags and clears it, so nothing is to be done here.
    }
}

#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named from assembly")]
static greenthread_xsave_bytes: AtomicUsize = AtomicUsize::new(4096);
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named from assembly")]
static greenthread_xsave_compacts: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    fn preempt_trampoline();
}

global_asm!(
    ".text",
    ".p2align 4",
    ".hidden preempt_trampoline",
    ".globl preempt_trampoline",
    ".type preempt_trampoline, @function",
    "preempt_trampoline:",
    "pushfq",
    "push rbp",
    "mov rbp, rsp",
    "push rax",
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    "push r9",
    "push r10",
    "push r11",
    "cld",
    "sub rsp, [rip + {bytes}]",
    "and rsp, -64",
    // XSAVE leaves the header's reserved words alone and XRSTOR faults unless they are zero.
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "cmp qword ptr [rip + {compacts}], 0",
    "mov eax, -1",
    "mov edx, -1",
    "je 2f",
    "xsavec64 [rsp]",
    "jmp 3f",
    "2:",
    "xsave64 [rsp]",
    "3:",
    "call {preempted}",
    "mov eax, -1",
    "mov edx, -1",
    "xrstor64 [rsp]",
    "lea rsp, [rbp - 72]",
    "pop r11",
    "pop r10",
    "pop r9",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    "pop rax",
    "pop rbp",
    "popfq",
    "ret 128",
    ".size preempt_trampoline, . - preempt_trampoline",
    bytes = sym greenthread_xsave_bytes,
    compacts = sym greenthread_xsave_compacts,
    preempted = sym crate::sched::preempt::preempted,
);

/// Asks for the cache line at `address`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a hint: it reads nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast())
    };
}

/// A clock that only orders: cheap, never going back on one CPU, and with the others' as far as the
/// machine keeps its counters together, which all do that are not very old.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: reads a register; every x86-64 has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether [`cpu`] knows.
pub(crate) fn tells_cpu() -> bool {
    const EXTENDED: u32 = 0x8000_0001;
    const RDTSCP: u32 = 1 << 27;
    core::arch::x86_64::__cpuid(0x8000_0000).eax >= EXTENDED
        && core::arch::x86_64::__cpuid(EXTENDED).edx & RDTSCP != 0
}

/// The CPU that this runs on, or did a moment ago. Only where [`tells_cpu`].
pub(crate) fn cpu() -> usize {
    // Linux keeps it in this register, with the node above it, for user code to read.
    const NUMBER: u32 = (1 << 12) - 1;
    let mut register = 0;
    // SAFETY: writes to a valid word; the caller has asked whether the instruction is there.
    unsafe { core::arch::x86_64::__rdtscp(&mut register) };
    (register & NUMBER) as usize
}
