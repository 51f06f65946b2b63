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
