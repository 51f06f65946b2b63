//! A scope, which ends after its threads.
//!
//! The scope's threads are in a list ([`Threads`]): its owner waits until the list is empty, and a canceller that finds the owner
//! finds them, too, by a frame. A thread is in the list from before it begins until it has given up closure and result. The owner
//! that waits for the scope's end, and is ended, ends the threads by the scope's token: those of a coroutine's scope do not see
//! the frames round the coroutine.
//!
//! Invariant: only [`Scope::run`] makes a [`Scope`], and it does not return before the list is empty, and no canceller holds it.
//! So `'scope` outlives the threads, and the frame outlives those that are inside it.
//!
//! Ordering: a thread leaves the list, under its lock, after its packet has given up closure and result: no access of
//! the threads to borrowed data comes after the owner has seen the empty list.

use core::{any::Any, cell::Cell, fmt, marker::PhantomData, panic::Location, ptr};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Result;

use crate::engine::atomic::{AtomicBool, Ordering::Relaxed};
use crate::engine::inspect::notes::WhenEnded;
use crate::engine::sched::Identity;
use crate::engine::sched::cancel::{Threads, Token};
use crate::engine::sched::frames::{self, Cancelled, Frame, What, own_identity};
use crate::engine::sys::clock::NEVER;
use crate::engine::wait::WaitKind;

/// The threads of a scope, and how they have ended.
#[derive(Default)]
pub(super) struct Members {
    /// Its threads end with it. A thread is in the list from its spawn until it has given up all that it has borrowed.
    pub(super) token: Token,
    /// The frame of the scope, in which its threads run, and whose it is.
    frame: Cell<*const Frame>,
    owner: *const Identity,
    panicked: AtomicBool,
    cancelled: AtomicBool,
}

impl Members {
    /// The outermost frame for a thread of the scope.
    pub(super) fn frame(&self) -> Frame {
        Frame::inside(self.frame.get(), NEVER, What::Base(self.owner))
    }

    /// Notes how a thread ended that was not joined.
    pub(super) fn note(&self, payload: &(dyn Any + Send)) {
        let ended = match payload.is::<Cancelled>() {
            true => &self.cancelled,
            false => &self.panicked,
        };
        ended.store(true, Relaxed);
    }
}

/// What the threads of a group have in common.
#[derive(Default)]
pub(crate) struct Fate {
    token: Arc<Token>,
    /// The payload of the first panic.
    first: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Fate {
    /// Calls `f`, which comes from `at`. If it panics, the payload is kept, and the others are cancelled.
    pub(crate) fn share<T>(&self, f: impl FnOnce() -> T, at: &'static Location<'static>) -> T {
        catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
            let payload = match payload.downcast::<Cancelled>() {
                Ok(cancelled) => resume_unwind(cancelled),
                Err(payload) => payload,
            };
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            let later = match &*first {
                None => first.replace(payload),
                Some(_) => Some(payload),
            };
            drop(first);
            // Dropping it could panic.
            core::mem::forget(later);
            self.token.cancel(at);
            // The group raises what was kept.
            resume_unwind(Box::new(Cancelled::of_all(at)))
        })
    }
}

/// A scope whose threads end together, created by [`group`](crate::cancel::group).
///
/// # Examples
///
/// ```
/// use greenthread::cancel;
///
/// let sum = cancel::group(|group: &cancel::Group<'_, '_>| {
///     let six = group.spawn(|| 6);
///     six.join().unwrap() * 7
/// });
/// assert_eq!(sum, 42);
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Group<'scope, 'env: 'scope>(pub(crate) Scope<'scope, 'env>);

impl<'scope, 'env> Group<'scope, 'env> {
    #[track_caller]
    pub(crate) fn run<T>(f: impl for<'s> FnOnce(&'s Group<'s, 'env>) -> T) -> T {
        let at = Location::caller();
        let fate = Fate::default();
        let ended = frames::run(NEVER, What::token(&fate.token), || {
            Scope::run_in(&fate, |scope| {
                // SAFETY: a group is a scope, with `fate`, which outlives it.
                let group = unsafe { &*ptr::from_ref(scope).cast::<Group<'_, 'env>>() };
                fate.share(|| f(group), at)
            })
        });
        let first = fate.first.into_inner();
        if let Some(payload) = first.unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
        let result = ended.unwrap_or_else(|cancelled| Err(Box::new(cancelled)));
        result.unwrap_or_else(|payload| resume_unwind(payload))
    }

    pub(crate) fn cancel_at(&self, at: &'static Location<'static>) {
        self.fate().token.cancel(at);
    }

    pub(crate) fn fate(&self) -> &'scope Fate {
        // SAFETY: `run` has set it, and it outlives the scope.
        unsafe { &*self.0.fate }
    }
}

/// A scope to spawn scoped threads in, created by [`scope`](crate::scope()).
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// /// Doubles the numbers, each in a thread of its own.
/// fn double<'scope>(s: &'scope thread::Scope<'scope, '_>, numbers: &'scope mut [i32]) {
///     for number in numbers {
///         s.spawn(|| *number *= 2);
///     }
/// }
///
/// let mut numbers = [1, 2, 3];
/// thread::scope(|s| double(s, &mut numbers));
/// assert_eq!(numbers, [2, 4, 6]);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    members: *const Members,
    /// A group's; null for a plain scope.
    fate: *const Fate,
    // The type is invariant in both lifetimes, as std's is.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// SAFETY: what the scope leads to lives as long as the scope, and is for any thread.
unsafe impl Send for Scope<'_, '_> {}
// SAFETY: as above.
unsafe impl Sync for Scope<'_, '_> {}

// No panic interrupts a change of its list.
impl UnwindSafe for Scope<'_, '_> {}
impl RefUnwindSafe for Scope<'_, '_> {}

/// For reports.
static SCOPE: WaitKind = END_OF_SCOPE.when_ended(WhenEnded::PassesOn);
/// The same when its threads are told to end.
static ENDED_SCOPE: WaitKind = END_OF_SCOPE;
const END_OF_SCOPE: WaitKind = WaitKind::inside("end of a scope").with_numbers(|address, facts| {
    facts.word("threads", address + Threads::COUNT);
});

impl<'env> Scope<'_, 'env> {
    /// Calls `f`, and waits for the threads that it starts in the scope, which is a group's if there is a fate. Panics if a
    /// thread did that nobody has joined, and unwinds if one was ended, but not by its group.
    #[track_caller]
    pub(crate) fn run<T>(f: impl for<'s> FnOnce(&'s Scope<'s, 'env>) -> T) -> Result<T> {
        Scope::run_in(ptr::null(), f)
    }

    #[track_caller]
    fn run_in<T>(fate: *const Fate, f: impl for<'s> FnOnce(&'s Scope<'s, 'env>) -> T) -> Result<T> {
        let members = Members {
            owner: own_identity(),
            ..Members::default()
        };
        // What the owner waits for while it unwinds, its threads wait for, too.
        let end = Frame::new(NEVER, What::End);
        let _end = std::thread::panicking().then(|| end.enter());
        let frame = Frame::new(NEVER, What::Scope(&members.token));
        let scope = Scope {
            members: &members,
            fate,
            scope: PhantomData,
            env: PhantomData,
        };
        members.frame.set(&raw const frame);
        let inside = frame.enter();
        // The threads must be waited for even if `f` panics.
        let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
        if !members.token.threads.wait(&SCOPE) {
            // The threads of a coroutine's scope do not see the frames round the coroutine.
            members.token.cancel(Location::caller());
            members.token.threads.wait(&ENDED_SCOPE);
        }
        drop(inside);
        // No canceller finds the scope any more, but one may hold it.
        members.token.threads.wait(&ENDED_SCOPE);
        if result.is_ok() {
            assert!(!members.panicked.load(Relaxed), "a scoped thread panicked");
            // SAFETY: it outlives the scope.
            let fate = unsafe { fate.as_ref() };
            let is_meant = fate.is_some_and(|fate| fate.token.reason.get().is_some());
            if members.cancelled.load(Relaxed) && !is_meant {
                frames::raise_again();
            }
        }
        result
    }

    pub(super) fn members(&self) -> &Members {
        // SAFETY: it outlives the scope.
        unsafe { &*self.members }
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members();
        f.debug_struct("Scope")
            .field(
                "running_threads",
                &members.token.threads.count.load(Relaxed),
            )
            .field("panicked", &members.panicked.load(Relaxed))
            .finish_non_exhaustive()
    }
}
