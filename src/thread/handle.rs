//! Who a thread is: [`Thread`], [`ThreadId`], and the current one.

use core::num::NonZeroU64;
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use crate::atomic::{AtomicU64, Ordering};
use crate::current as me;
use crate::wait::Waiter;

/// A unique identifier of a thread, green or kernel, for the life of the process.
///
/// As with std, an identifier is not used again, and it is not the one the operating system uses.
///
/// ```
/// let other = greenthread::spawn(|| greenthread::current().id());
/// let id = other.thread().id();
/// assert_eq!(other.join().unwrap(), id);
/// assert_ne!(id, greenthread::current().id());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(NonZeroU64);

impl ThreadId {
    fn new() -> ThreadId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        match NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)) {
            Some(id) => ThreadId(id),
            None => crate::sys::die("2^64 threads were started"),
        }
    }
}

/// What the handles of one thread share.
pub(crate) struct Shared {
    id: ThreadId,
    name: Option<Box<str>>,
    /// The token of `park` and `unpark`.
    token: Waiter,
    /// Woken when the thread has run its last destructor; `join` waits for it.
    pub(crate) ended: Waiter,
}

impl Shared {
    pub(crate) fn new(name: Option<Box<str>>) -> Arc<Shared> {
        Arc::new(Shared {
            id: ThreadId::new(),
            name,
            token: Waiter::new(),
            ended: Waiter::new(),
        })
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// A handle to a thread, as [`std::thread::Thread`]: its identity, its name, and a way to unpark
/// it.
///
/// ```
/// let parked = greenthread::spawn(|| greenthread::park());
/// parked.thread().unpark();
/// parked.join().unwrap();
/// ```
#[derive(Clone)]
pub struct Thread(Arc<Shared>);

impl Thread {
    pub(crate) fn new(shared: Arc<Shared>) -> Thread {
        Thread(shared)
    }

    /// Makes the thread's token available: its [`park`](crate::park) returns, now or when it is
    /// next called.
    ///
    /// All that happened before is visible to the thread after that `park`.
    pub fn unpark(&self) {
        self.0.token.wake();
    }

    /// The thread's identifier.
    pub fn id(&self) -> ThreadId {
        self.0.id
    }

    /// The thread's name, if it was given one; the main thread's is `"main"`.
    pub fn name(&self) -> Option<&str> {
        self.0.name()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
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

thread_local! {
    /// The handle of a kernel thread, made when it is first asked for.
    static KERNEL_THREAD: OnceCell<Thread> = const { OnceCell::new() };
}

fn unknown_kernel_thread() -> Thread {
    Thread(Shared::new(std::thread::current().name().map(Into::into)))
}

/// Makes `thread` the handle of this kernel thread, which was started by us and has none yet.
pub(crate) fn set_kernel_thread(thread: Thread) {
    KERNEL_THREAD.with(|cell| {
        let _ = cell.set(thread);
    });
}

/// A handle to the thread that asks.
///
/// ```
/// let name = greenthread::Builder::new().name("worker".into())
///     .spawn(|| greenthread::current().name().map(str::to_owned)).unwrap();
/// assert_eq!(name.join().unwrap().as_deref(), Some("worker"));
/// ```
pub fn current() -> Thread {
    let Some(green) = me::green() else {
        // A thread-local destructor may ask after the handle is gone: then it is a handle to nobody
        // else.
        return KERNEL_THREAD
            .try_with(|cell| cell.get_or_init(unknown_kernel_thread).clone())
            .unwrap_or_else(|_| unknown_kernel_thread());
    };
    let shared = green.shared.load(Ordering::Relaxed);
    // SAFETY: the thread owns one count of it from before its first instruction until after its
    // last.
    unsafe {
        Arc::increment_strong_count(shared);
        Thread(Arc::from_raw(shared))
    }
}

/// Calls `f` with the token of the thread that asks.
pub(super) fn with_token<R>(f: impl FnOnce(&Waiter) -> R) -> R {
    match me::green() {
        // SAFETY: as in `current`.
        Some(green) => f(unsafe { &(*green.shared.load(Ordering::Relaxed)).token }),
        None => f(&current().0.token),
    }
}
