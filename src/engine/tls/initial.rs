//! Fields of the control block that do not begin as zero, and that nobody describes: flags and states.
//!
//! A block is made of zeroes and of what `layout` knows. If zero says something else to glibc than "a
//! joinable thread, which runs, on a stack of the caller's", glibc may free that stack: since 2.43 a zero in
//! one field says that the thread has ended, and `pthread_detach` of oneself then gives the stack away. So
//! a block begins with what the probe thread was found to begin with, which is such a thread.
//!
//! A word that may be an address is not copied. It must be one of the probe thread's stack or of a
//! library's code, where the thread's own stack, its start and its argument lie. Another one is a field
//! that the crate does not know: then a glibc that was not tested is refused.

use super::known;
use super::layout::WORD;
use super::words::Words;
use crate::engine::sys::libraries;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// Offsets of words in the control block, and their values.
pub(super) struct Initial(Vec<(usize, usize)>);

impl Initial {
    /// Looks at the `words` of the probe thread's control block, except the `known` parts. `own` are
    /// addresses that the thread's words may hold.
    pub(super) fn find(
        words: &[usize],
        known: &[Range<usize>],
        own: &[Range<usize>],
    ) -> Result<Initial, String> {
        let is_known = |at: usize| known.iter().any(|range| range.contains(&at));
        let is_own = |word: usize| own.iter().any(|range| range.contains(&word));
        let unknown = (0..words.len()).map(|i| (i * WORD, words[i]));
        let mut found = Vec::new();
        for (at, word) in unknown.filter(|&(at, word)| word != 0 && !is_known(at)) {
            if is_small(word) {
                found.push((at, word));
            } else if !known::is_known() && !is_own(word) && !is_code(word) {
                return Err(format!(
                    "the control block has a field that is not known, at {at:#x}: {word:#x}"
                ));
            }
        }
        Ok(Initial(found))
    }

    /// Writes them into the control block of a thread that has not begun.
    #[inline]
    pub(super) fn restore(&self, control: Words<'_>) {
        for &(at, word) in &self.0 {
            control.word(at).store(word, Relaxed);
        }
    }
}

/// Whether the word is no address, but one or two small numbers: nothing lies in the first MiB, and the upper
/// half of any address above 4 GiB goes with a lower half that is hardly ever small.
fn is_small(word: usize) -> bool {
    const SMALL: usize = 1 << 20;
    word as u32 as usize <= SMALL && word >> 32 <= SMALL
}

/// Whether it lies in the program or in a library.
fn is_code(address: usize) -> bool {
    libraries::find(|library| library.contains(address).then_some(())).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[test]
    fn small_numbers_are_copied_and_addresses_are_not() {
        let words = [7, 0, 0x0002_0001_0000, 0x7f12_3456_7890, 0x88_0000_0000, 3];
        let (known, own) = (0..8, 0x7f12_0000_0000..0x7f13_0000_0000);
        let initial = Initial::find(&words, slice::from_ref(&known), slice::from_ref(&own));
        let initial = initial.unwrap_or_else(|why| panic!("{why}"));
        let expected = [(16, 0x0002_0001_0000), (32, 0x88_0000_0000), (40, 3)];
        assert_eq!(initial.0, expected);
    }

    #[test]
    fn code_is_found() {
        assert!(is_code(code_is_found as *const () as usize));
        let local = 0_u8;
        assert!(!is_code(&raw const local as usize));
    }
}
