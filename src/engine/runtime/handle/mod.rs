//! Handles to threads: [`Thread`], [`ThreadId`], a thread's end, and how a thread gets its own
//! handle.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the handle; a wait for the token |
//! | `current` | the current thread's handle |
//! | `end` | how joiners and futures learn of a thread's end |
//! | `shares` | who still needs a thread's data |
//! | `panic_hook` | std's panic message, with the name of the green thread |

mod current;
mod end;
mod panic_hook;
mod shares;

use core::mem::ManuallyDrop;
use core::num::NonZeroU64;
use core::panic::Location;
use core::ptr::NonNull;
use std::fmt;

pub use self::current::current;
pub(crate) use self::current::{is_current, prepare_fork, set_kernel_thread};
pub(crate) use self::end::End;
#[cfg(green)]
pub(crate) use self::panic_hook::install as install_panic_hook;
pub(crate) use self::panic_hook::text_of;
pub(crate) use self::shares::Left;
use self::shares::Shares;
use crate::engine::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::engine::sched::park::Waiter;
use crate::engine::sched::{Green, Identity, current as me};
#[cfg(green)]
use crate::engine::sys::clock;
use crate::engine::sys::word;
#[cfg(green)]
use crate::engine::wait::reason;
use crate::engine::wait::{Facts, WaitKind, WaitReason};

/// A unique identifier of a thread, green or kernel, for the life of the process.
///
/// As in std, an identifier is not used again, and it is not the operating system's.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let other = thread::spawn(|| thread::current().id());
/// let id = other.thread().id();
/// assert_eq!(other.join().unwrap(), id);
/// assert_ne!(id, thread::current().id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(NonZeroU64);

impl ThreadId {
    /// The identifier with this number; 0 is none's.
    pub(crate) fn from_number(number: u64) -> Option<ThreadId> {
        NonZeroU64::new(number).map(ThreadId)
    }
}

/// The data that the handles of one thread share. It begins with the thread's identity, to which a
/// green thread's record points.
#[repr(C)]
pub(crate) struct Shared {
    identity: Identity,
    /// A green thread's control block, whose address libc uses as the `pthread_t`; 0 until the
    /// thread runs.
    pub(crate) pthread: AtomicUsize,
    /// The token of `park` and `unpark`.
    token: Waiter,
    pub(crate) end: End,
    shares: Shares,
    /// The closure has returned.
    is_finished: AtomicBool,
    /// What only the maker of the memory that begins with this knows how to do.
    verbs: &'static Verbs,
}

/// See `packet`, which has these functions. Each gets the address of a share.
pub(crate) struct Verbs {
    /// Runs the closure, and leaves its result. It does not unwind.
    pub(super) run: unsafe fn(*const Shared),
    /// Drops the closure, which was not run.
    pub(super) cancel: unsafe fn(*const Shared),
    /// Frees the memory: the last share was given up.
    pub(super) free: unsafe fn(*const Shared),
}

/// For reports: a thread waits until another has begun.
#[cfg(green)]
static BEGUN: WaitKind = WaitKind::inside("beginning of a thread", reason::nothing);

impl Shared {
    /// Where the end lies.
    const END: usize = core::mem::offset_of!(Shared, end);

    /// The data of a new thread, with the shares of the thread and of its joiner.
    #[inline]
    pub(crate) fn new(
        name: Option<Box<str>>,
        spawned_at: &'static Location<'static>,
        verbs: &'static Verbs,
    ) -> Shared {
        Shared::with(name, Some(spawned_at), Shares::new(), verbs)
    }

    #[inline]
    fn with(
        name: Option<Box<str>>,
        spawned_at: Option<&'static Location<'static>>,
        shares: Shares,
        verbs: &'static Verbs,
    ) -> Shared {
        Shared {
            identity: Identity::new(name, spawned_at),
            pthread: AtomicUsize::new(0),
            token: Waiter::new(),
            end: End::new(),
            shares,
            is_finished: AtomicBool::new(false),
            verbs,
        }
    }

    /// Runs the thread's closure. Memory is freed now, on the thread itself and with preemption on.
    ///
    /// # Safety
    /// The share is that of a [`Job`](super::spawn::Job), which was not run yet; it is not given up meanwhile.
    pub(super) unsafe fn run(share: *const Shared) {
        // SAFETY: the caller's promise.
        unsafe { ((*share).verbs.run)(share) }
    }

    /// Drops the thread's closure.
    ///
    /// # Safety
    /// As for [`Shared::run`]; it is not run afterwards either.
    pub(super) unsafe fn cancel(share: *const Shared) {
        // SAFETY: the caller's promise.
        unsafe { ((*share).verbs.cancel)(share) }
    }

    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn is_finished(&self) -> bool {
        // Acquire: the end of the closure; partner: in `note_finished`.
        self.is_finished.load(Ordering::Acquire)
    }

    /// The closure has returned.
    pub(crate) fn note_finished(&self) {
        // Release: partner: in `is_finished`.
        self.is_finished.store(true, Ordering::Release);
    }

    /// Says, on the ending thread, that it has ended. Returns whether it has called a waker, which
    /// may have made thread-locals.
    #[must_use = "true means that the destructors of thread-locals must run again"]
    pub(crate) fn end(&self) -> bool {
        !self.shares.has_no_joiner() && self.end.come()
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.identity.name()
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    fn id(&self) -> ThreadId {
        ThreadId(self.identity.id())
    }

    /// Returns the `pthread_t` that libc has for the green thread. It exists from the thread's
    /// first run on; this waits for it.
    #[cfg(green)]
    pub(crate) fn pthread(&self) -> libc::pthread_t {
        let alarm = Waiter::new();
        loop {
            // Acquire: partner: Release in `runtime::life`.
            match self.pthread.load(Ordering::Acquire) {
                0 => drop(alarm.wait(WaitReason::only(&BEGUN), Some(clock::now() + 50_000))),
                pthread => return pthread as libc::pthread_t,
            }
        }
    }

    #[cfg(all(unix, not(green)))]
    pub(crate) fn pthread(&self) -> std::os::unix::thread::RawPthread {
        unreachable!("a green thread's handle")
    }
}

/// Returns the data that the handles of `green`, the calling thread, share.
pub(crate) fn own_shared(green: &Green) -> &Shared {
    // SAFETY: the thread owns one count of the data from before its first instruction until after
    // its last, and this call is between the two.
    unsafe { &*shared_of(green) }
}

/// Returns the data that the handles of `green` share. The thread must be alive.
pub(crate) fn shared_of(green: &Green) -> *const Shared {
    // Relaxed: the spawner wrote it before the thread was in a queue.
    green.identity.load(Ordering::Relaxed).cast_const().cast()
}

/// A handle to a thread, like [`std::thread::Thread`]: its identity, its name, and a way to unpark
/// it.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let parked = thread::spawn(thread::park);
/// let handle: thread::Thread = parked.thread().clone();
/// handle.unpark();
/// parked.join().unwrap();
/// ```
pub struct Thread(NonNull<Shared>);

// SAFETY: it gives out shared references only, to data of atomics.
unsafe impl Send for Thread where Shared: Send + Sync {}
// SAFETY: as above.
unsafe impl Sync for Thread where Shared: Send + Sync {}

impl Clone for Thread {
    #[inline]
    fn clone(&self) -> Thread {
        self.shared().shares.add();
        Thread(self.0)
    }
}

impl Drop for Thread {
    #[inline]
    fn drop(&mut self) {
        if self.shared().shares.give_up() {
            // SAFETY: it was the last share.
            unsafe { Thread::free(self) };
        }
    }
}

impl Thread {
    /// Turns a share into the address of the data.
    #[inline]
    pub(crate) fn into_raw(self) -> *const Shared {
        ManuallyDrop::new(self).as_ptr()
    }

    /// # Safety
    /// A share of the data there is the caller's, who uses it no more.
    #[inline]
    pub(crate) unsafe fn from_raw(shared: *const Shared) -> Thread {
        // SAFETY: data do not lie at address 0.
        Thread(unsafe { NonNull::new_unchecked(shared.cast_mut()) })
    }

    /// The address of the data.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *const Shared {
        self.0.as_ptr()
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The last share was given up, and `thread` is not used again.
    #[inline]
    pub(crate) unsafe fn free(thread: &Thread) {
        // SAFETY: the data began with this address when they were made; the caller's promise.
        unsafe { (thread.shared().verbs.free)(thread.0.as_ptr()) };
    }

    /// Makes the thread's token available: the thread's current call of [`park`](crate::park)
    /// returns, or else its next one.
    ///
    /// Everything that happens before this call is visible to the thread after that `park`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let parked = thread::spawn(|| {
    ///     thread::park();
    ///     "unparked"
    /// });
    /// parked.thread().unpark();
    /// assert_eq!(parked.join().unwrap(), "unparked");
    /// ```
    pub fn unpark(&self) {
        self.shared().token.wake();
    }

    /// Returns the thread's identifier.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let main = thread::current().id();
    /// let other = thread::spawn(|| thread::current().id()).join().unwrap();
    /// assert_ne!(main, other);
    /// ```
    pub fn id(&self) -> ThreadId {
        self.shared().id()
    }

    /// Returns the thread's name, or `None` if it has none. The main thread's name is `"main"`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::thread;
    ///
    /// let unnamed = thread::spawn(thread::park);
    /// assert_eq!(unnamed.thread().name(), None);
    /// # unnamed.thread().unpark();
    ///
    /// let named = thread::Builder::new().name("worker".into()).spawn(thread::park)?;
    /// assert_eq!(named.thread().name(), Some("worker"));
    /// # named.thread().unpark();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.shared().name()
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: they live until the last share is given up.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("id", &self.id())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// For reports: a thread waits to be unparked. A green thread owns one share of its data.
static PARK: WaitKind = WaitKind::inside("unpark", handles::<1>);
/// A kernel thread owns one, and another one while it waits.
static PARK_KERNEL: WaitKind = WaitKind::inside("unpark", handles::<2>);
/// If it was spawned here, it has a third one, for its end (`runtime::spawn`).
static PARK_SPAWNED_KERNEL: WaitKind = WaitKind::inside("unpark", handles::<3>);

/// For reports: how many handles there are by which the thread with this token could be unparked. The thread itself
/// owns `OWN` counts.
fn handles<const OWN: usize>(token: usize, facts: &mut Facts) {
    let shared = token.wrapping_sub(core::mem::offset_of!(Shared, token));
    let shares = shared.wrapping_add(core::mem::offset_of!(Shared, shares));
    if let Some(shares) = word::read(shares) {
        let others = Shares::count(shares).saturating_sub(OWN);
        facts.number("handles", others as u64);
    }
}

/// Blocks the current thread until its token is there, or until `deadline` (monotonic nanoseconds).
#[inline]
pub(crate) fn wait_for_token(deadline: Option<u64>) {
    let Some(green) = me::green() else {
        return wait_on_kernel_thread(deadline);
    };
    let token = &own_shared(green).token;
    token.wait(WaitReason::new(&PARK, token), deadline);
}

#[cold]
#[inline(never)]
fn wait_on_kernel_thread(deadline: Option<u64>) {
    let own = current();
    let kind = match own.shared().identity.spawned_at() {
        Some(_) => &PARK_SPAWNED_KERNEL,
        None => &PARK_KERNEL,
    };
    let token = &own.shared().token;
    token.wait(WaitReason::new(kind, token), deadline);
}

#[cfg(all(test, green))]
mod tests {
    use super::*;

    #[test]
    fn handles_are_counted() {
        let own = current::unknown_kernel_thread();
        let others: Vec<_> = (0..3).map(|_| own.clone()).collect();
        let mut facts = Facts::default();
        let token = &own.shared().token;
        (PARK.look)(core::ptr::from_ref(token).addr(), &mut facts);
        assert_eq!(facts.numbers, [("handles", 3)]);
        drop(others);
    }
}
