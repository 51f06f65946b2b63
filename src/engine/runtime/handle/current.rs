//! The current thread's handle: how a thread finds the data that it shares with others.
//!
//! A green thread's is in its record. A kernel thread owns a share of it, to which a thread-local points
//! ([`Identity::own`]). It is made when a caller first asks for the handle, and the destructor of a pthread key drops
//! it after those of thread-locals, which may ask.

use core::mem::ManuallyDrop;
#[cfg(not(green))]
use std::cell::Cell;

use super::shares::Shares;
use super::{Shared, Thread, Verbs, own_shared, shared_of};
use crate::engine::inspect::epoch;
use crate::engine::inspect::kernel::KernelThread;
use crate::engine::sched::{Identity, current as me, fork};
use crate::engine::sys::die;
#[cfg(green)]
use crate::engine::sys::libraries;

/// Prepares what a forked child needs.
pub(crate) fn prepare_fork() {
    #[cfg(green)]
    make_key();
    fork::register();
}

pub(super) fn unknown_kernel_thread() -> Thread {
    static VERBS: Verbs = Verbs {
        run: |_| die("a thread of the program's was to be run"),
        cancel: |_| die("a thread of the program's was not to be run"),
        // SAFETY: the box below.
        free: |shared| drop(unsafe { Box::from_raw(shared.cast_mut()) }),
    };
    let name = std::thread::current().name().map(Into::into);
    let shared = Shared::with(name, None, Shares::of_nobodys_thread(), &VERBS);
    // SAFETY: the only share.
    unsafe { Thread::from_raw(Box::into_raw(Box::new(shared))) }
}

/// Makes the key whose destructor drops a kernel thread's count; `None` if the system has no key
/// left.
#[cfg(green)]
fn make_key() -> Option<libc::pthread_key_t> {
    unsafe extern "C" fn forget(shared: *mut libc::c_void) {
        Identity::set_own(core::ptr::null());
        KernelThread::forget_own_identity();
        // SAFETY: `set_kernel_thread` left this count.
        epoch::leave_kernel_thread(unsafe { Thread::from_raw(shared.cast()) });
    }
    static KEY: std::sync::OnceLock<Option<libc::pthread_key_t>> = std::sync::OnceLock::new();
    *KEY.get_or_init(|| {
        libraries::stay_loaded(); // the destructor does
        let mut key = 0;
        // SAFETY: the call gets a valid place and a destructor of the right type.
        (unsafe { libc::pthread_key_create(&mut key, Some(forget)) } == 0).then_some(key)
    })
}

/// Makes `thread` the handle of this kernel thread, which has none yet.
pub(crate) fn set_kernel_thread(thread: Thread) {
    let shared = thread.into_raw();
    Identity::set_own(shared.cast());
    KernelThread::note_own_identity(shared.cast());
    forget_at_end(shared);
}

#[cfg(green)]
fn forget_at_end(shared: *const Shared) {
    if let Some(key) = make_key() {
        // SAFETY: the key is valid. If the call fails, or there is no key, one record is not freed.
        unsafe { libc::pthread_setspecific(key, shared.cast()) };
    }
}

/// Lets a thread-local's destructor drop the count. If destructors that run later ask for the
/// current thread, they find one without a name.
#[cfg(not(green))]
fn forget_at_end(shared: *const Shared) {
    struct Count(*const Shared);
    impl Drop for Count {
        fn drop(&mut self) {
            Identity::set_own(core::ptr::null());
            KernelThread::forget_own_identity();
            // SAFETY: `set_kernel_thread` left this count.
            epoch::leave_kernel_thread(unsafe { Thread::from_raw(self.0) });
        }
    }
    thread_local! {
        static COUNT: Cell<Option<Count>> = const { Cell::new(None) };
    }
    // If the access fails it is too late, and one record is not freed.
    let _ = COUNT.try_with(|count| count.set(Some(Count(shared))));
}

/// Returns a handle to the current thread.
///
/// # Examples
///
/// ```
/// use greenthread::thread;
///
/// let worker = thread::Builder::new().name("worker".into());
/// let name = worker.spawn(|| thread::current().name().map(str::to_owned))?;
/// assert_eq!(name.join().unwrap().as_deref(), Some("worker"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn current() -> Thread {
    let Some(green) = me::green() else {
        let known = Identity::own().cast::<Shared>();
        if known.is_null() {
            let thread = unknown_kernel_thread();
            set_kernel_thread(thread.clone());
            return thread;
        }
        // SAFETY: this thread has its own count of the data.
        return unsafe { another(known) };
    };
    // SAFETY: a count of the data is alive: the thread's own.
    unsafe { another(own_shared(green)) }
}

/// # Safety
/// A share of the data is alive.
unsafe fn another(shared: *const Shared) -> Thread {
    // SAFETY: the caller's promise; that share is only borrowed.
    Thread::clone(&ManuallyDrop::new(unsafe { Thread::from_raw(shared) }))
}

/// Returns whether the current thread is the one behind `shared`.
pub(crate) fn is_current(shared: &Shared) -> bool {
    let own = match me::green() {
        Some(green) => shared_of(green),
        None => Identity::own().cast::<Shared>(),
    };
    core::ptr::eq(own, shared)
}
