//! A glibc that the crate was not tested with: an older one is refused, a newer one is used without the
//! tricks that no trial proves.
//!
//! The idea: this program has a `gnu_get_libc_version` of its own, and a
//! `pthread_key_create` that a trial calls. What the first tells, and whether the second crashes, is in the
//! environment; without that, and in all else, it is the glibc that is there.

use crate::common::*;
use greenthread::runtime::{Mode, Runtime};
use std::ffi::{c_char, c_int, c_void};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The variable with the version that libc tells in a child.
const VERSION: &str = "GT_LIBC_VERSION";

/// (It allocates nothing, as libc's: the crate asks while it looks for malloc's cache.)
#[unsafe(no_mangle)]
extern "C" fn gnu_get_libc_version() -> *const c_char {
    type Tell = extern "C" fn() -> *const c_char;
    ASKED.store(std::process::id(), Relaxed);
    // SAFETY: the text of a variable that nobody changes, behind the name of libc that it begins with; libc's function of
    // that name.
    unsafe {
        let told = libc::getenv(c"GT_LIBC_VERSION".as_ptr());
        if !told.is_null() {
            return told.add("glibc ".len());
        }
        let real = libc::dlsym(libc::RTLD_NEXT, c"gnu_get_libc_version".as_ptr());
        std::mem::transmute::<*mut c_void, Tell>(real)()
    }
}

/// The variable that says what `pthread_key_create` does instead of its work in a process that was forked.
const FAULT: &str = "GT_LIBC_FAULT";

/// The process that asked for the version.
static ASKED: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_key_create(
    key: *mut libc::pthread_key_t,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
) -> c_int {
    type Create = unsafe extern "C" fn(
        *mut libc::pthread_key_t,
        Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    let fault = std::env::var(FAULT).ok();
    let is_trial = ![0, std::process::id()].contains(&ASKED.load(Relaxed));
    match fault.as_deref().filter(|_| is_trial) {
        // SAFETY: it is not, on purpose.
        Some("crash") => unsafe { black_box(0x10 as *mut u8).write_volatile(0) },
        Some("hang") => loop {
            std::hint::spin_loop();
        },
        _ => {}
    }
    // SAFETY: libc's function of that name, with the caller's arguments.
    unsafe {
        let real = libc::dlsym(libc::RTLD_NEXT, c"pthread_key_create".as_ptr());
        std::mem::transmute::<*mut c_void, Create>(real)(key, destructor)
    }
}

fn with_version(test: &str, version: &str) -> std::process::Output {
    child_with(test, version, &[(VERSION, version)])
}

#[test]
fn an_older_glibc_is_refused() {
    const NAME: &str = "libc_versions::an_older_glibc_is_refused";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        assert_eq!(Runtime::global().mode(), Mode::Kernel);
        return assert_eq!(greenthread::spawn(|| 6 * 7).join().unwrap(), 42);
    }
    if !green() {
        return; // nothing is said of a mode that was asked for
    }
    for version in ["glibc 2.33", "glibc 1.99"] {
        let out = with_version(NAME, version);
        assert_code(&out, 0);
        line_with(&out, &["every thread is a kernel thread", version]);
    }
}

/// Threads are kernel threads, and the program goes on.
#[test]
fn a_newer_glibc_may_crash() {
    const NAME: &str = "libc_versions::a_newer_glibc_may_crash";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        assert_eq!(Runtime::global().mode(), Mode::Kernel);
        return assert_eq!(greenthread::spawn(|| 6 * 7).join().unwrap(), 42);
    }
    if !green() {
        return;
    }
    for fault in ["crash", "hang"] {
        let out = child_with(NAME, fault, &[(VERSION, "glibc 2.44"), (FAULT, fault)]);
        assert_code(&out, 0);
        line_with(
            &out,
            &["every thread is a kernel thread", "did not come to the end"],
        );
    }
}

/// Whether malloc's cache moves from a thread that rests to the next on the same processor: then that gets
/// the chunk that the first one freed last.
fn cache_moves() -> bool {
    const SIZE: usize = 700;
    let chunk = || {
        // SAFETY: the chunk is freed once.
        unsafe {
            let chunk = black_box(libc::malloc(black_box(SIZE)));
            libc::free(chunk);
            chunk as usize
        }
    };
    let runtime = Runtime::builder().processors(1).build().expect("a runtime");
    let moves = runtime.spawn(move || {
        let mut moved = 0;
        for _ in 0..20 {
            let other = greenthread::spawn(move || {
                greenthread::yield_now();
                chunk()
            });
            // This thread rests, and keeps its room, so the other one does not get its cache that way.
            greenthread::yield_now();
            let before = chunk();
            moved += usize::from(other.join().unwrap() == before);
        }
        println!("{moved} of 20 chunks moved");
        moved > 0
    });
    moves.join().unwrap()
}

/// Whether a library is still loaded after it was closed.
fn stays_loaded() -> bool {
    const LIBRARY: &std::ffi::CStr = c"libBrokenLocale.so.1";
    let open = |flags| {
        // SAFETY: a library of glibc's, without constructors.
        let handle: *mut c_void =
            unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | flags) };
        (!handle.is_null()).then_some(handle)
    };
    let handle = open(0).expect("a library of glibc's");
    // SAFETY: a handle of the line above.
    assert_eq!(unsafe { libc::dlclose(handle) }, 0);
    open(libc::RTLD_NOLOAD).is_some()
}

#[test]
fn a_newer_glibc_is_used_without_tricks() {
    const NAME: &str = "libc_versions::a_newer_glibc_is_used_without_tricks";
    let _w = watchdog(NAME);
    let Some(version) = child_case(NAME) else {
        if !green() {
            return;
        }
        for version in ["glibc 2.36", "glibc 2.43", "glibc 2.44", "glibc 3.0"] {
            assert_code(&with_version(NAME, version), 0);
        }
        return;
    };
    assert_eq!(Runtime::global().mode(), Mode::Green);
    let is_known = version.starts_with("glibc 2.36") || version.starts_with("glibc 2.43");
    assert_eq!(cache_moves(), is_known, "{version}");
    assert_eq!(stays_loaded(), !is_known, "{version}");
    // It works all the same: threads come and go, and allocate and free for each other.
    let threads = (0..1_000).map(|i| greenthread::spawn(move || vec![i as u8; 100 + i]));
    let lengths = threads.map(|thread| thread.join().unwrap().len());
    assert_eq!(lengths.sum::<usize>(), (0..1_000).map(|i| 100 + i).sum());
}
