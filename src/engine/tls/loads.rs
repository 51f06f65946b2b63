//! How many libraries were ever loaded: compared at each thread's start and end, so it must cost
//! nothing.
//!
//! The loader tells its counter in `dl_iterate_phdr`, but under a lock of the whole process,
//! which a thread may hold for long (a backtrace). So we look for the counter itself, among the
//! words of the loader's `_rtld_global`: a library of glibc's that hardly any program loads is
//! loaded and unloaded, and the one word is taken that followed the answers of `dl_iterate_phdr`
//! all the way. If that fails, the function is called every time.
//!
//! Relaxed suffices: a thread that uses a library knows of its loading, so it sees a counter that has
//! counted it.

use super::glibc::{self, Loaded};
use super::words::Words;
use crate::engine::sys::libraries;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The loader's counter, if it was found.
static COUNTER: OnceLock<&AtomicUsize> = OnceLock::new();

/// The number of libraries loaded so far, those unloaded since included.
#[inline]
pub(super) fn count() -> u64 {
    match COUNTER.get() {
        Some(counter) => counter.load(Relaxed) as u64,
        None => ask(),
    }
}

#[cold]
fn ask() -> u64 {
    libraries::find(|library| Some(library.loads)).unwrap_or(0)
}

/// Looks for the counter among the first `count` of these words, which are the loader's.
pub(super) fn find_counter(words: Words<'static>, count: usize) {
    let word = |i: usize| words.word(i * size_of::<usize>());
    let look = || {
        let words = (0..count).map(|i| word(i).load(Relaxed) as u64);
        (ask(), words.collect::<Vec<u64>>())
    };
    for name in [c"libutil.so.1", c"libanl.so.1", c"libBrokenLocale.so.1"] {
        let before = look();
        // SAFETY: libraries of glibc's, without constructors.
        let Some(library) = (unsafe { Loaded::open(name) }) else {
            glibc::forget_error();
            continue;
        };
        let during = look();
        drop(library);
        let looks = [before, during, look()];
        let mut found =
            (0..count).filter(|&i| looks.iter().all(|(count, words)| words[i] == *count));
        if looks[0].0 < looks[1].0
            && let (Some(i), None) = (found.next(), found.next())
        {
            COUNTER.get_or_init(|| word(i));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found() {
        super::super::init().expect("green threads work here");
        assert!(COUNTER.get().is_some());
        assert_eq!(count(), ask());
    }
}
