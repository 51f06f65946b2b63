//! Words of memory that is glibc's: a control block, a vector, a table of keys.
//!
//! The unsafe step is to say where such memory lies, and how much of it there is. From then on each
//! access checks that it lies inside and is aligned. That costs a comparison, on ways where it does not
//! matter: at the start and the end of a thread, and when a library is loaded. All accesses are atomic,
//! since libc and other threads change some of these words meanwhile.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize};

/// Memory whose words can be read and written, for as long as `'a`.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    start: *mut u8,
    length: usize,
    memory: PhantomData<&'a AtomicUsize>,
}

impl<'a> Words<'a> {
    /// # Safety
    /// During `'a` the `length` bytes at `start` are mapped, and nothing writes there at the same
    /// time except by this type. (libc, the loader and the switch write to the block of a thread
    /// that does not run, or that runs them.)
    #[inline]
    pub(super) unsafe fn new(start: *const u8, length: usize) -> Words<'a> {
        Words {
            start: start.cast_mut(),
            length,
            memory: PhantomData,
        }
    }

    #[inline]
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// The part that begins at `offset`.
    #[inline]
    pub(super) fn from(self, offset: usize) -> Words<'a> {
        Words {
            start: self.start.wrapping_add(offset),
            length: self.length.saturating_sub(offset),
            ..self
        }
    }

    #[inline]
    pub(super) fn word(self, offset: usize) -> &'a AtomicUsize {
        self.at(offset)
    }

    #[inline]
    pub(super) fn half(self, offset: usize) -> &'a AtomicU32 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn byte(self, offset: usize) -> &'a AtomicU8 {
        self.at(offset)
    }

    #[inline]
    fn at<T: Atomic>(self, offset: usize) -> &'a T {
        let is_inside = offset <= self.length && size_of::<T>() <= self.length - offset;
        let place = self.start.wrapping_add(offset).cast::<T>();
        if !is_inside || !place.is_aligned() {
            no_place(offset, self.length);
        }
        // SAFETY: the place is inside and aligned, any bits are a value of the type, and the rest is
        // the promise of `new`.
        unsafe { &*place }
    }
}

#[cold]
fn no_place(offset: usize, length: usize) -> ! {
    panic!("{offset} is no place in {length} bytes");
}

/// An atomic integer, which is aligned to its size.
trait Atomic {}
impl Atomic for AtomicU8 {}
impl Atomic for AtomicU32 {}
impl Atomic for AtomicUsize {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn only_places_inside_can_be_had() {
        let memory = [const { AtomicUsize::new(0) }; 3];
        // SAFETY: a local, of atomics.
        let words = unsafe { Words::new(memory.as_ptr().cast(), 20) };
        words.word(8).store(0x0102_0304_0506_0708, Relaxed);
        assert_eq!(memory[1].load(Relaxed), 0x0102_0304_0506_0708);
        assert_eq!(words.half(12).load(Relaxed), 0x0102_0304);
        assert_eq!(words.byte(8).load(Relaxed), 8);
        words.byte(19).store(1, Relaxed);
        assert_eq!(words.half(16).load(Relaxed), 1 << 24);
        for outside in [16, 24, 9, 4, 1 << 20, usize::MAX, usize::MAX - 7] {
            let look = AssertUnwindSafe(|| words.word(outside).load(Relaxed));
            assert!(catch_unwind(look).is_err(), "{outside}");
        }
    }
}
