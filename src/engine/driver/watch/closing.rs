//! A watched descriptor is closed, or another file takes its number.
//!
//! | when | who | what it does |
//! |---|---|---|
//! | before it is closed | calls that have waited | go on with a duplicate ([`closing`]) |
//! | after it was closed | all others | look again ([`look_again`]) |
//!
//! The second step is for threads that poll the descriptor, for those that have come between the steps, and for all
//! if there is no descriptor left for a duplicate.
//!
//! A signal handler may have interrupted the holder of a record's lock. It makes the duplicate, and keeps it in the record. Each call
//! that has waited *settles* that before it looks at its number, and so does one that is about to wait for the first time: that may be
//! another file's. The second step is the monitor's (`sched::handed`).

use std::os::fd::RawFd;

use super::call::Seat;
use super::{Lists, NESTED, OWNER, Purpose, WATCHED, Waiting, Watched, make_ready, wake};
use crate::engine::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::engine::sched::list::Fifo;
use crate::engine::sched::{current, handed};
use crate::engine::sys;

/// The first number that a duplicate may get: a program may want the standard ones again.
const ABOVE_STANDARD: RawFd = 3;
/// No descriptor.
pub(super) const NONE: RawFd = -1;

impl Watched {
    /// Lets all threads look again.
    #[cold]
    fn wake_all(&self) {
        let mut ready = Fifo::new();
        let _off = current::preemption_off();
        let mut lists = self.lists.lock();
        while let Some(claimed) = lists.pop() {
            wake(claimed, &mut ready);
        }
        self.note(&lists);
        drop(lists);
        make_ready(ready);
    }

    /// If the number was a duplicate of ours, it is the program that closes it, and no call does.
    fn give_away(&self, lists: &Lists) {
        self.users.store(0, Relaxed);
        let _none = lists.calls.first_where(|node| {
            // SAFETY: a node in the list is the first part of a living `Seat`.
            let seat = unsafe { &*core::ptr::from_ref(node).cast::<Seat>() };
            seat.moved.store(false, Relaxed);
            false
        });
    }

    /// The calls that have waited go on with a duplicate of `fd`, if there can be one.
    fn close(&self, fd: RawFd) {
        self.settle(fd);
        self.give(fd, sys::duplicate(fd, ABOVE_STANDARD).ok(), false);
    }

    /// The same in a signal handler: the duplicate is kept for them.
    fn keep(&self, fd: RawFd) {
        let kept = sys::duplicate(fd, ABOVE_STANDARD).unwrap_or(NONE);
        // Relaxed: who opens another file under this number does so after this, by the kernel's lock of the table of descriptors.
        let is_first = self.kept.compare_exchange(NONE, kept, Relaxed, Relaxed);
        if is_first.is_err() && kept != NONE {
            sys::close(kept);
        }
        // Nobody could later. (All threads will look again.)
        disarm(fd);
    }

    /// Gives the calls that have waited what a handler has kept for them.
    #[inline]
    pub(super) fn settle(&self, fd: RawFd) {
        // Acquire: the numbers of the calls; partner: Release in `give`.
        let kept = self.kept.load(Acquire);
        if kept != NONE {
            self.give(fd, Some(kept), true);
        }
    }

    /// What a handler has kept is closed, if there is no call any more that it was for.
    pub(super) fn forget_kept(&self) {
        if self.kept.load(Relaxed) == NONE {
            return;
        }
        let kept = {
            let _off = current::preemption_off();
            let lists = self.lists.lock();
            match lists.calls.is_empty() {
                true => self.kept.swap(NONE, Relaxed),
                false => NONE,
            }
        };
        if kept != NONE {
            close_duplicate(kept);
        }
    }

    /// The calls that have waited go on with `duplicate`; `is_kept`: it is the one that a handler has kept.
    #[cold]
    fn give(&self, fd: RawFd, duplicate: Option<RawFd>, is_kept: bool) {
        let target = duplicate.and_then(|fd| Some((fd, Watched::of(fd).ok()?)));
        let mut ready = Fifo::new();
        let mut moved = false;
        {
            let _off = current::preemption_off();
            // In the order of their numbers, so that no two threads wait for each other.
            let mut early = target
                .filter(|target| target.0 < fd)
                .map(|t| t.1.lists.lock());
            let mut lists = self.lists.lock();
            let mut late = target
                .filter(|target| target.0 > fd)
                .map(|t| t.1.lists.lock());
            let kept = self.kept.load(Relaxed);
            if is_kept && duplicate != Some(kept) {
                return; // another thread has settled it
            }
            self.give_away(&lists);
            if let (Some((new, watched)), Some(theirs)) = (target, early.as_mut().or(late.as_mut()))
            {
                for purpose in [Purpose::Read, Purpose::Write] {
                    while let Some(node) = lists.of(purpose).first().map(core::ptr::from_ref) {
                        // SAFETY: a node in the list is the first part of a living `Waiting`; both locks
                        // are held.
                        unsafe {
                            lists.of(purpose).remove(node);
                            (*node.cast::<Waiting>()).fd.store(new, Relaxed);
                            theirs.of(purpose).push_back(node);
                        }
                    }
                }
                while let Some(node) = lists.calls.first().map(core::ptr::from_ref) {
                    // SAFETY: a node in the list is the first part of a living `Seat`; both locks are
                    // held.
                    unsafe {
                        lists.calls.remove(node);
                        let seat = &*node.cast::<Seat>();
                        seat.fd.store(new, Relaxed);
                        seat.moved.store(true, Relaxed);
                        theirs.calls.push_back(node);
                    }
                    watched.users.fetch_add(1, Relaxed);
                    moved = true;
                }
                if moved {
                    watched.arm_for_others(new, theirs, 0, &mut ready);
                    watched.note(theirs);
                }
            }
            self.note(&lists);
            if is_kept {
                // Release: the numbers above; partner: Acquire in `settle`.
                self.kept.store(NONE, Release);
            }
            disarm(fd);
            drop((early, lists, late));
            make_ready(ready);
        }
        if let Some(duplicate) = duplicate.filter(|_| !moved) {
            close_duplicate(duplicate);
        }
    }
}

/// No events of `fd` are asked for. A thread in `epoll_wait` has a reference to a file that it looks at: if that is the last one, the kernel
/// closes the file only when that call returns.
fn disarm(fd: RawFd) {
    if let Some(nested) = NESTED.get() {
        nested.remove(fd);
    }
}

/// Closes a duplicate of ours that no call uses.
pub(super) fn close_duplicate(fd: RawFd) {
    disarm(fd);
    sys::close(fd);
}

/// The record of `fd`, if threads may wait for it, or have waited when a handler closed it, and it is this process's.
#[inline]
fn waited_for(fd: RawFd) -> Option<&'static Watched> {
    let watched = WATCHED.find(usize::try_from(fd).ok()?)?;
    let is_waited_for = watched.is_waited_for.load(Relaxed) || watched.kept.load(Relaxed) != NONE;
    let is_ours = || OWNER.get() == Some(&std::process::id());
    (is_waited_for && is_ours()).then_some(watched)
}

/// The program is about to close `fd`, or to put another file in its place: calls that have waited for it
/// go on with a duplicate.
#[inline]
pub(crate) fn closing(fd: RawFd) {
    let Some(watched) = waited_for(fd) else {
        return;
    };
    match current::is_hidden() {
        false => watched.close(fd),
        true => watched.keep(fd),
    }
}

/// All threads that wait for `fd` look again: the program has shut it down, or closed it. In the second case
/// these are threads that poll it, and those that have come since [`closing`].
#[inline]
pub(crate) fn look_again(fd: RawFd) {
    let Some(watched) = waited_for(fd) else {
        return;
    };
    match current::is_hidden() {
        false => watched.wake_all(),
        true => {
            watched.is_to_look_again.store(true, Relaxed);
            handed::leave_chore();
        }
    }
}

/// Lets the threads look again that handlers have left to the monitor.
pub(super) fn do_chore() {
    let all = (0..WATCHED.len()).filter_map(|fd| WATCHED.find(fd));
    // Relaxed, above too: `handed` orders them.
    for watched in all.filter(|watched| watched.is_to_look_again.swap(false, Relaxed)) {
        watched.wake_all();
        watched.forget_kept();
    }
}

/// The numbers from `first` to `last` that may be waited for.
pub(crate) fn watched_from(first: u32, last: u32) -> impl Iterator<Item = RawFd> {
    let end = WATCHED.len().min((last as usize).saturating_add(1));
    (first as usize..end).map(|fd| fd as RawFd)
}
