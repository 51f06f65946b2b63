//! How many libraries were ever loaded: compared at each thread's start and end, so it must cost
//! nothing.
//!
//! The loader hands its counter out in `dl_iterate_phdr`, but under a lock of the whole process,
//! which a thread may hold for long (a backtrace). So we look for the counter itself, among the
//! words of the loader's `_rtld_global`: a library of glibc's that hardly anybody has loaded is
//! loaded and unloaded, and the one word is taken that followed the answers of `dl_iterate_phdr`
//! all the way. If that fails, the function is called every time.
//!
//! Relaxed suffices: whoever uses a library knows of its loading, so he sees a counter that has
//! counted it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The loader's counter; null if it was not found.
static COUNTER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The number of libraries loaded so far, those unloaded since included.
#[inline]
pub(super) fn count() -> u64 {
    // SAFETY: null, or a word of the loader's own data.
    match unsafe { COUNTER.load(Relaxed).as_ref() } {
        Some(counter) => counter.load(Relaxed),
        None => ask(),
    }
}

#[cold]
fn ask() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        count: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's argument and ours.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0u64;
    // SAFETY: the callback's argument lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

/// Looks for the counter among the `words` words at `global`.
///
/// # Safety
/// They are the loader's, and there forever.
pub(super) unsafe fn find_counter(global: *mut u8, words: usize) {
    // SAFETY: the caller's promise.
    let word = |i: usize| unsafe { AtomicU64::from_ptr(global.cast::<u64>().add(i)) };
    let look = || {
        (
            ask(),
            (0..words)
                .map(|i| word(i).load(Relaxed))
                .collect::<Vec<u64>>(),
        )
    };
    for library in [c"libutil.so.1", c"libanl.so.1", c"libBrokenLocale.so.1"] {
        let before = look();
        // SAFETY: libraries of glibc's, without constructors.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: forgets the message.
            unsafe { libc::dlerror() };
            continue;
        }
        let during = look();
        // SAFETY: the handle from above.
        unsafe { libc::dlclose(handle) };
        let after = look();
        let looks = [before, during, after];
        let mut found =
            (0..words).filter(|&i| looks.iter().all(|(count, words)| words[i] == *count));
        if looks[0].0 < looks[1].0
            && let (Some(i), None) = (found.next(), found.next())
        {
            return COUNTER.store(std::ptr::from_ref(word(i)).cast_mut(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found() {
        super::super::init().expect("green threads work here");
        assert!(!COUNTER.load(Relaxed).is_null());
        assert_eq!(count(), ask());
    }
}
