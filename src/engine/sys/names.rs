//! Where libc's names lead in this process, and the library that the crate is in.
//!
//! The loader looks a name up in the program first, then in what was preloaded, then in the libraries that the program is linked
//! with, one after another. So calls of libc come to the crate's functions of the same names (`src/libc`) if the crate is in the program, or in a
//! library that was loaded with the program, before libc. A *host* that loads such a library later has libc's functions: a host
//! in C, an interpreter with an extension module, the second of two plug-ins that have a copy of the crate each. There the
//! crate does not hear of signal masks and handlers, nor of `dlclose`; green threads would not be sound.
//!
//! The library's own references could be led to the crate's functions (as RTLD_DEEPBIND does, and linkers when they are asked to), but
//! not the host's, nor those of libraries to come. That would do harm: threads that wait at an address for the crate would not hear of
//! those that wake them by way of libc. So it is all or nothing, and what counts is the lookup that
//! everybody shares.

use core::ffi::{CStr, c_void};

use crate::engine::arch;
use crate::engine::atomic::{AtomicBool, AtomicU8, Ordering};

/// What green threads are not sound without, and what wakes threads.
#[cfg(not(target_feature = "crt-static"))]
const NEEDED: [&CStr; 5] = [
    c"pthread_sigmask",
    c"sigprocmask",
    c"sigaction",
    c"signal",
    c"dlclose",
];

/// Whether libc's names lead to the crate's functions, everywhere in the process. The first call asks the loader.
pub(crate) fn lead_here() -> bool {
    /// 0: nobody has asked yet.
    static STATE: AtomicU8 = AtomicU8::new(0);
    const YES: u8 = 1;
    const NO: u8 = 2;
    match STATE.load(Ordering::Relaxed) {
        0 => {
            let is_so = look();
            STATE.store(if is_so { YES } else { NO }, Ordering::Relaxed);
            is_so
        }
        state => state == YES,
    }
}

#[cfg(not(target_feature = "crt-static"))]
fn look() -> bool {
    // Not RTLD_DEFAULT, which is what a library finds that was loaded with RTLD_DEEPBIND.
    // SAFETY: no name is the program itself, which is loaded, and stays.
    let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) };
    let own = library_of(own_place()).map(|library| library.start);
    let is_ours = |name: &&CStr| {
        // SAFETY: a valid handle and a valid name.
        let found = unsafe { libc::dlsym(program, name.as_ptr()) };
        own.is_some() && library_of(found).map(|library| library.start) == own
    };
    !program.is_null() && NEEDED.iter().all(is_ours)
}

/// There is no loader. Other parts find out what a static program lacks.
#[cfg(target_feature = "crt-static")]
fn look() -> bool {
    true
}

/// From now on the library that the crate is in stays loaded: kernel threads run its code, and handlers, keys'
/// destructors and the hooks of `fork` lead to it.
pub(crate) fn stay_loaded() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let entry = arch::auxiliary(libc::AT_ENTRY) as usize as *const c_void;
    let program = library_of(entry).map(|program| program.start);
    if let Some(own) = library_of(own_place()).filter(|own| Some(own.start) != program) {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the loader's name for a library that is loaded. The reference is kept.
        unsafe { libc::dlopen(own.name, flags) };
    }
}

/// A place in the library that the crate is in.
fn own_place() -> *const c_void {
    static HERE: u8 = 0;
    (&raw const HERE).cast()
}

/// The program, or a library, as the loader knows it.
struct Library {
    start: *mut c_void,
    name: *const core::ffi::c_char,
}

fn library_of(place: *const c_void) -> Option<Library> {
    // SAFETY: all zero is valid; it is filled in.
    let mut about: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address, and a place for what is known of it.
    let is_known = unsafe { libc::dladdr(place, &mut about) } != 0;
    is_known.then_some(Library {
        start: about.dli_fbase,
        name: about.dli_fname,
    })
}
