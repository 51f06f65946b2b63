//! Keeps thread-locals of libraries that are loaded later out of the static blocks, where that can be done.
//!
//! Code for aarch64 reaches its thread-locals by *descriptors* (TLSDESC), so the loader may choose where they lie
//! when the library is loaded. It prefers the static block, as long as a rest of it lasts that is set aside
//! for this (`optional`, 512 bytes). Then it initialises them in the blocks of all pthreads; of green
//! threads that run already it does not know (the limit in [`tls`](super)). So this rest is taken away: what can be dynamic
//! is dynamic then. A library that demands the static block still gets it, from another rest.
//!
//! The number is a word of the loader's, the third behind its list of modules. It is believed only if the words
//! about it are what they must be; else nothing is done, and such libraries are reported (`modules`).
//!
//! Relaxed: the loader changes the word under its lock. If it does so at this moment, a library more is static.

use super::layout::{Layout, WORD};
use std::sync::atomic::Ordering::Relaxed;

/// Words behind the list of modules: how many of them are static, the bytes in use, those set aside, the vector of
/// the first thread, the number of changes.
const WORDS: usize = 5;
/// Bytes of the loader's data behind its list of modules.
pub(super) const BEHIND: usize = WORDS * WORD;

/// Takes the rest away. False: it was not recognised.
pub(super) fn take_away(layout: &Layout) -> bool {
    let loader = &layout.loader;
    let word = |i: usize| loader.global.word(loader.first + (1 + i) * WORD);
    let [modules, used, rest, vector, changes] = std::array::from_fn(|i| word(i).load(Relaxed));
    let above = layout.sizes.above;
    let is_recognised = (1..1 << 10).contains(&modules)
        && (1..=above).contains(&used)
        && rest <= above - used
        && vector > 1 << 16
        && vector.is_multiple_of(WORD)
        && changes < 1 << 32;
    if is_recognised {
        word(2).store(0, Relaxed);
    }
    is_recognised
}

#[cfg(all(test, target_arch = "aarch64"))]
mod tests {
    #[test]
    fn the_rest_is_recognised() {
        super::super::init().expect("green threads work here");
        assert!(super::take_away(super::super::layout::layout()));
    }
}
