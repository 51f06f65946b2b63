//! What is kept of each processor and each worker: arrays by the number of the one and the index of the other. They
//! are mapped in pieces, when an event first needs one, and stay; the scheduler, which calls, may not allocate.
//!
//! Orderings: a piece is stored with Release and loaded with Acquire: who sees it sees that its bytes are zero.

use core::cell::UnsafeCell;

use crate::atomic::Ordering::{Acquire, Release};
use crate::engine::probe::Processor;
use crate::sys::{lock::Lock, mm, statics::AtomicStatic};

const IN_A_PIECE: usize = 256;
/// So a million processors can be kept: there may be as many in the life of a process that often starts a runtime.
const PIECES: usize = 4096;

/// A type of which zero bytes are a value.
///
/// # Safety
/// They are.
pub(super) unsafe trait Zeroable: 'static {}

/// New memory, of zero bytes, that stays.
pub(super) fn mapped<T>() -> Option<*mut T> {
    let memory = mm::map(size_of::<T>().next_multiple_of(mm::page())).ok()?;
    Some(core::ptr::with_exposed_provenance_mut(memory))
}

struct Pieces<T: 'static> {
    pieces: [AtomicStatic<Piece<T>>; PIECES],
    making: Lock<()>,
}

struct Piece<T>([UnsafeCell<T>; IN_A_PIECE]);

// SAFETY: `ByProcessor` and `ByWorker` say who touches the entries.
unsafe impl<T: Send> Sync for Piece<T> {}

impl<T: Zeroable + Send> Pieces<T> {
    const fn new() -> Pieces<T> {
        Pieces {
            pieces: [const { AtomicStatic::none() }; PIECES],
            making: Lock::new(()),
        }
    }

    #[inline]
    fn entry(&self, index: usize) -> Option<&'static UnsafeCell<T>> {
        let place = self.pieces.get(index / IN_A_PIECE)?;
        // Acquire: partner: Release in `make`.
        let piece = match place.load(Acquire) {
            None => self.make(place)?,
            Some(piece) => piece,
        };
        piece.0.get(index % IN_A_PIECE)
    }

    #[cold]
    #[inline(never)]
    fn make(&self, place: &AtomicStatic<Piece<T>>) -> Option<&'static Piece<T>> {
        let _making = self.making.lock();
        if let made @ Some(_) = place.load(Acquire) {
            return made;
        }
        // SAFETY: new memory, large enough and aligned to a page, which stays; zero bytes are a value.
        let made = mapped().map(|piece: *mut Piece<T>| unsafe { &*piece.cast_const() });
        // Release: partner: Acquire in `entry`.
        place.store(made, Release);
        made
    }
}

/// Something of each processor, which belongs to the processor's owner.
pub(super) struct ByProcessor<T: 'static>(Pieces<T>);

impl<T: Zeroable + Send> ByProcessor<T> {
    pub(super) const fn new() -> ByProcessor<T> {
        ByProcessor(Pieces::new())
    }

    /// `None`: there is no memory for it.
    #[inline]
    pub(super) fn of<'a>(&self, processor: &'a mut Processor<'_>) -> Option<&'a mut T> {
        let entry = self.0.entry(processor.number())?;
        // SAFETY: only the owner of a processor has a `Processor`, which is borrowed as long as this is.
        Some(unsafe { &mut *entry.get() })
    }
}

/// Something of each worker, for any thread.
pub(super) struct ByWorker<T: 'static>(Pieces<T>);

impl<T: Zeroable + Send + Sync> ByWorker<T> {
    pub(super) const fn new() -> ByWorker<T> {
        ByWorker(Pieces::new())
    }

    /// `None`: there is no memory for it.
    pub(super) fn of(&self, worker: u32) -> Option<&'static T> {
        let entry = self.0.entry(worker as usize)?;
        // SAFETY: it is shared, and never borrowed uniquely.
        Some(unsafe { &*entry.get() })
    }
}
