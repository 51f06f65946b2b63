//! The stand-in for `current`: no thread is green, and the runtime preempts no thread.

use core::marker::PhantomData;

use super::Green;
use super::switch::Action;

/// Stays with its thread, as the real guard does.
pub(crate) struct PreemptionOff(PhantomData<*mut ()>);

pub(crate) fn preemption_off() -> PreemptionOff {
    PreemptionOff(PhantomData)
}

/// For the holder of a policy's `Lock`; no policy is asked here.
pub(crate) fn preemption_off_by_user() -> PreemptionOff {
    PreemptionOff(PhantomData)
}

pub(crate) fn is_preemption_off() -> bool {
    false
}

/// A word that tells the calling thread from all others that live.
pub(crate) fn mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| core::ptr::from_ref(mark).addr())
}

pub(crate) fn green() -> Option<&'static Green> {
    None
}

/// A green thread inside the runtime.
pub(crate) struct Entered(&'static Green);

pub(crate) fn enter() -> Option<Entered> {
    None
}

impl Entered {
    pub(crate) fn green(&self) -> &'static Green {
        self.0
    }

    pub(crate) fn suspend(self, _: Action) {
        match self.0.never {}
    }
}

/// As the real one, which leaves the runtime.
impl Drop for Entered {
    fn drop(&mut self) {
        match self.0.never {}
    }
}

/// Runs `f`, which blocks the thread: the system runs others.
pub(crate) fn blocking<F: FnOnce() -> T, T>(f: F) -> T {
    f()
}

/// Runs `f`, whose calls of libc are libc's, as all are here.
pub(crate) fn unhooked<F: FnOnce() -> T, T>(f: F) -> T {
    f()
}
