//! Sanitizers: runtimes by which a compiler finds faults in a program, while it runs.
//!
//! Such a runtime keeps a record of each kernel thread in the kernel thread's thread-locals, and the bounds of its
//! stack. A green thread has thread-locals and a stack of its own, which the runtime has never seen. So where there is
//! one that does not get along with that, every thread is a kernel thread.
//!
//! *AddressSanitizer* does, in a crate that is built with it on x86-64 (`cfg(asan)`). To it a green thread is a thread
//! that it does not know: its thread-locals have no record, and allocations go by way of those that all such threads share.
//! It marks memory that must not be touched, as the gaps between the variables of a frame; a function's end takes its marks
//! away. Three things are left to be told:
//! 1. The last frames of a thread end without a return: the marks go when the stack changes hands
//!    ([`forget_frames`]). So do those on memory that is unmapped.
//! 2. Frames of others are read by instructions that it does not see (`arch::stack_word`).
//! 3. What only a green thread's stack or thread-locals lead to has not leaked ([`holds_pointers`]).
//!
//! *ThreadSanitizer* does, too, in a crate that is built with it on x86-64 (`tsan`).
//!
//! The runtime is in the program, in a shared library, or not there. The names of its functions are weak: their
//! addresses, which the linker or the loader fills in, are null if there is no such function. (`dlsym` finds nothing in
//! a program whose linker was not told to export the names.)

use core::arch::global_asm;
use core::ffi::{CStr, c_void};
use core::marker::PhantomData;

#[cfg(tsan)]
#[path = "tsan.rs"]
pub(crate) mod tsan;
#[cfg(tsan)]
pub(crate) use tsan::Fiber;

/// The sanitizers, each with a function that it alone has.
macro_rules! sanitizers {
    ($($function:literal $name:literal)*) => {
        global_asm!(
            ".pushsection .data.rel.ro.greenthread_sanitizers, \"aw\"",
            ".p2align 3",
            ".hidden greenthread_sanitizers",
            ".globl greenthread_sanitizers",
            "greenthread_sanitizers:",
            $(concat!(".weak ", $function, "\n.quad ", $function),)*
            ".popsection",
        );
        const NAMES: &[&str] = &[$($name),*];
    };
}

sanitizers! {
    "__asan_init" "AddressSanitizer"
    "__hwasan_init" "HWAddressSanitizer"
    "__tsan_init" "ThreadSanitizer"
    "__msan_init" "MemorySanitizer"
    "__lsan_init" "LeakSanitizer"
    "__rtsan_init" "RealtimeSanitizer"
    "__safestack_init" "SafeStack"
    "dfsan_set_label" "DataFlowSanitizer"
}

unsafe extern "C" {
    #[link_name = "greenthread_sanitizers"]
    static FUNCTIONS: [*const c_void; NAMES.len()];
}

/// The sanitizer in this process, if there is one that green threads do not get along with.
pub(crate) fn stranger() -> Option<&'static str> {
    // SAFETY: the words above, as many as names, which nobody writes once the loader has.
    let functions = unsafe { FUNCTIONS.iter() };
    let mut found = functions.zip(NAMES).filter(|(at, _)| !at.is_null());
    let name = found.next().map(|(_, &name)| name);
    name.filter(|&name| match name {
        "AddressSanitizer" => !cfg!(asan),
        "ThreadSanitizer" => !cfg!(tsan),
        _ => true,
    })
}

/// Looks for what the other functions need. An error says why there can be no green threads.
pub(crate) fn learn() -> Result<(), String> {
    #[cfg(tsan)]
    tsan::learn()?;
    Ok(())
}

/// The sanitizer's function by which it learns of calls of a function of libc's.
pub(crate) fn interceptor(_name: &CStr) -> Option<usize> {
    #[cfg(tsan)]
    return tsan::interceptor(_name);
    #[cfg(not(tsan))]
    None
}

/// Whether ThreadSanitizer is here.
pub(crate) const IS_TSAN: bool = cfg!(tsan);

/// ThreadSanitizer's part of a green thread.
#[cfg(not(tsan))]
pub(crate) struct Fiber;

#[cfg(not(tsan))]
impl Fiber {
    pub(crate) const fn new() -> Fiber {
        Fiber
    }

    #[inline(always)]
    pub(crate) fn begin(&self, _thread_pointer: *mut u8) {}

    #[inline(always)]
    pub(crate) fn end(&self, _start: usize, _end: usize) {}

    #[inline(always)]
    pub(crate) fn enter(&self) {}

    #[inline(always)]
    pub(crate) fn leave(&self) {}
}

/// While it lives, ThreadSanitizer sees nothing of what the calling thread does.
pub(crate) struct Unseen(PhantomData<*mut ()>);

#[inline(always)]
pub(crate) fn unseen() -> Unseen {
    #[cfg(tsan)]
    tsan::hide();
    Unseen(PhantomData)
}

impl Drop for Unseen {
    #[inline(always)]
    fn drop(&mut self) {
        see_again();
    }
}

/// What the end of an [`Unseen`] does, for one that was forgotten.
#[inline(always)]
pub(crate) fn see_again() {
    #[cfg(tsan)]
    tsan::reveal();
}

/// What the caller has done comes before what is done by who [`observe`]s the same address later; the scheduler sees to that, unseen
/// by ThreadSanitizer.
#[inline(always)]
pub(crate) fn publish<T>(_at: &T) {
    #[cfg(tsan)]
    tsan::publish(core::ptr::from_ref(_at).addr());
}

/// See [`publish`].
#[inline(always)]
pub(crate) fn observe<T>(_at: &T) {
    #[cfg(tsan)]
    tsan::observe(core::ptr::from_ref(_at).addr());
}

/// The block with this thread pointer may be used by code that runs in the caller's name.
pub(crate) fn lend_own(_thread_pointer: *mut u8) {
    #[cfg(tsan)]
    tsan::lend_own(_thread_pointer);
}

/// Nobody uses this memory any more.
///
/// # Safety
/// As for [`forget_frames`].
pub(crate) unsafe fn forget(start: usize, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { forget_frames(start, length) };
    #[cfg(tsan)]
    // SAFETY: the caller's promise.
    unsafe {
        tsan::forget_accesses(start, length)
    };
}

#[cfg(asan)]
unsafe extern "C" {
    fn __asan_unpoison_memory_region(start: *const c_void, length: usize);
    fn __lsan_register_root_region(start: *const c_void, length: usize);
    fn __lsan_unregister_root_region(start: *const c_void, length: usize);
}

/// The frames in this memory are gone, although nothing has returned from them.
///
/// # Safety
/// Nobody uses the memory: faults in its use are found no more.
#[inline(always)]
pub(crate) unsafe fn forget_frames(_start: usize, _length: usize) {
    #[cfg(asan)]
    // SAFETY: it changes marks only. It takes no lock.
    unsafe {
        __asan_unpoison_memory_region(_start as *const c_void, _length)
    };
}

/// Pointers from this memory count, from now on. Takes a lock that only preemptible threads take.
pub(crate) fn holds_pointers(_start: usize, _end: usize) {
    #[cfg(asan)]
    // SAFETY: it notes the two numbers.
    unsafe {
        __lsan_register_root_region(_start as *const c_void, _end - _start)
    };
}

/// Pointers from this memory count no more.
pub(crate) fn holds_no_pointers(_start: usize, _end: usize) {
    #[cfg(asan)]
    // SAFETY: `holds_pointers` has noted the two numbers.
    unsafe {
        __lsan_unregister_root_region(_start as *const c_void, _end - _start)
    };
}
