//! For tests of threads that block in the kernel: in the whole test program blocking calls of libc are
//! libc's.

/// Runs before `main`, when there is one thread.
extern "C" fn switch_off() {
    // SAFETY: valid names; no other thread reads the environment.
    unsafe { libc::setenv(c"GREENTHREAD_UNMODIFIED".as_ptr(), c"off".as_ptr(), 1) };
}

#[used]
// SAFETY: the section of functions that are called at the start; this one has their type.
#[unsafe(link_section = ".init_array")]
static SWITCH_OFF: extern "C" fn() = switch_off;
