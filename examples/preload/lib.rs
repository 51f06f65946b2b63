//! The crate as a library that is preloaded into a program of which nothing was changed, in C, C++, Python or Rust:
//!
//! ```sh
//! cargo build --release -p greenthread-preload
//! LD_PRELOAD=$PWD/target/release/libgreenthread.so GREENTHREAD_PTHREADS=on python3 -m http.server
//! ```
//!
//! `docs/pthreads.md` says what becomes of a program's threads, and which programs gain nothing. The programs that this one
//! starts do not get the library, unless `GREENTHREAD_PTHREADS` is `children`.

use std::env::{remove_var, set_var, var, var_os};

const ASKED: &str = "GREENTHREAD_PTHREADS";
const LIBRARIES: &str = "LD_PRELOAD";

/// Called when the library is loaded, before the program's `main`.
extern "C" fn when_loaded() {
    let is_for_children = var_os(ASKED).is_some_and(|asked| asked == "children");
    match greenthread::thread::prepare_pthreads() {
        Ok(false) => return, // nobody has asked
        Ok(true) => {}
        Err(error) => eprintln!("greenthread: threads stay kernel threads: {error}"),
    }
    let Ok(libraries) = var(LIBRARIES) else {
        return;
    };
    if is_for_children {
        return;
    }
    let others = libraries
        .split([' ', ':'])
        .filter(|path| !path.ends_with("libgreenthread.so"));
    let others = others.collect::<Vec<_>>().join(":");
    // SAFETY: the program has one thread.
    unsafe {
        match others.is_empty() {
            true => remove_var(LIBRARIES),
            false => set_var(LIBRARIES, others),
        }
        remove_var(ASKED);
    }
}

unsafe extern "C" {
    fn greenthread_pthread_create();
}

/// The crate's is a weak one, which a library does not export.
///
/// # Safety
/// As C has it; the arguments are those of libc's.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_create() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("jmp {}", sym greenthread_pthread_create);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("b {}", sym greenthread_pthread_create);
}

#[used]
// SAFETY: the section of functions that are called when a library is loaded; this one has their type.
#[unsafe(link_section = ".init_array")]
static WHEN_LOADED: extern "C" fn() = when_loaded;
