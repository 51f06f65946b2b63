//! Sanitizers: runtimes by which a compiler finds faults in a program, while it runs.
//!
//! Such a runtime keeps a record of each kernel thread in the kernel thread's thread-locals, and the bounds of its
//! stack. A green thread has thread-locals and a stack of its own, which the runtime has never seen. So where there is
//! one that does not get along with that, every thread is a kernel thread.
//!
//! The runtime is in the program, in a shared library, or not there. The names of its functions are weak: their
//! addresses, which the linker or the loader fills in, are null if there is no such function. (`dlsym` finds nothing in
//! a program whose linker was not told to export the names.)

use core::arch::global_asm;
use core::ffi::c_void;

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
    found.next().map(|(_, &name)| name)
}
