//! The few things that the runtime needs from a processor architecture.
//!
//! The contract, which each architecture's file fulfils:
//!
//! | item | meaning |
//! |---|---|
//! | [`thread_pointer`], [`set_thread_pointer`] | read and write the register that thread-locals hang off |
//! | [`supported`] | can user code write that register, and save all registers? asked once at start |
//! | [`syscall`] | a system call that writes no `errno`: safe whatever thread pointer is set |
//! | [`auxiliary`] | an entry of the kernel's auxiliary vector |
//! | [`Frame`] | program counter and stack pointer of an interrupted thread, and the injection of a preemption |
//! | `jump_where`, `call_around` | the bodies of functions that leave no frame of Rust's |
//! | `call_as_pthread`, `with_caller` | the bodies of the function that calls a pthread's, and of one that learns its caller |
//! | [`guarded`] | accesses to memory that may not be there |
//! | [`stack_word`] | reads a word of a stack, whosever it is |
//! | [`page_size`], [`LARGEST_PAGE`] | bytes of a page here; of the largest that a kernel of this architecture has |
//! | [`plain_address`] | a code address without the signature that it may have |
//! | [`prefetch`], [`ticks`] | a hint to the caches; a cheap clock that only orders |
//! | [`FloatControl`] | how a thread computes with floating-point numbers |
//! | [`tells_cpu`], [`cpu`] | can the number of the CPU be had without asking the kernel? and which it is |
//! | [`vfork!`] | the body of a `vfork` that calls something before and after |
//! | [`switch`], [`fresh_stack`] | from one stack to another; a stack for the first switch to it, at whose bottom every backtrace ends |
//!
//! Nothing here touches a thread-local, allocates, or takes a lock.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// An entry of the auxiliary vector, in which the kernel tells a program about the machine; 0 if there
/// is none of that kind.
pub(crate) fn auxiliary(kind: u64) -> u64 {
    // SAFETY: reads the vector, which does not change.
    unsafe { libc::getauxval(kind) }
}

/// Whether the processor keeps return addresses on a shadow stack, which does not follow a switch of stacks. The kernel
/// answers `call` with this `question`.
fn has_shadow_stack(call: i64, question: usize) -> bool {
    let mut status = 0_u64;
    let arguments = [question, &raw mut status as usize, 0, 0, 0, 0];
    // SAFETY: the call writes one word, or fails where the kernel does not know the question.
    let failed = unsafe { syscall(call, arguments) };
    failed == 0 && status & 1 != 0
}

/// What a guarded access returns that has faulted: more than any 32-bit word.
const FAULT: u64 = u64::MAX;

/// An interrupted thread's registers, as a signal handler was given them.
pub(crate) struct Frame<'a>(&'a mut Context);

impl<'a> Frame<'a> {
    /// The frame behind a signal handler's third argument.
    ///
    /// # Safety
    /// `context` is that argument, and the handler has not returned.
    pub(crate) unsafe fn new(context: *mut libc::c_void) -> Frame<'a> {
        // SAFETY: the kernel's record of the thread, which only the handler touches until it returns.
        Frame(unsafe { &mut *context.cast() })
    }

    /// The interrupted instruction.
    pub(crate) fn pc(&self) -> usize {
        self.registers()[0]
    }

    /// The stack pointer at that instruction.
    pub(crate) fn sp(&self) -> usize {
        self.registers()[1]
    }

    /// The signal mask of the interrupted thread.
    pub(crate) fn mask(&self) -> u64 {
        self.0.mask
    }
}

/// Prepares a stack for the first switch to it, which calls `function(argument)`. Returns the stack pointer to go on
/// at.
///
/// # Safety
/// `top` is the end of a stack that nobody uses, aligned to 16 bytes. `function` may be called there with the argument.
pub(crate) unsafe fn fresh_stack(
    top: usize,
    function: unsafe extern "C" fn(*mut ()) -> !,
    argument: *mut (),
) -> usize {
    let words = at_bottom(function as *const () as usize, argument as usize);
    let place = (top as *mut [usize; 4]).wrapping_sub(1);
    // SAFETY: the uppermost words of a stack that nobody uses.
    unsafe { place.write(words) };
    place as usize
}
