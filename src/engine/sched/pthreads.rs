//! Whose pthread one is.
//!
//! A pthread is the address of a control block, and a green thread has one. A pthread is a living green thread's if it is the
//! control block in a stack in which a thread lives. That is looked up from the address alone, without a lock: a signal
//! handler may ask, with any pthread.

use super::{cpu_time, fork, name};
use crate::engine::inspect::epoch::ReadSection;
use crate::engine::sched::thread_stack::{SystemName, ThreadStack};
use crate::engine::sched::{Green, current};
use crate::engine::stack;

/// Whose pthread one is.
pub(crate) enum Who {
    /// The calling green thread's.
    Own(&'static Green),
    /// Another green thread's. It may end at any moment, if the program lets it.
    Other(&'static Green),
    /// A kernel thread's, or nobody's.
    Libcs,
}

impl Who {
    pub(crate) fn is(thread: libc::pthread_t) -> Who {
        // SAFETY: it has no arguments.
        let own = unsafe { libc::pthread_self() };
        match current::owner() {
            Some(green) if thread == own => Who::Own(green),
            // In a forked child the others do not exist.
            _ if fork::is_child() => Who::Libcs,
            _ => match stack::find(thread as usize).and_then(ThreadStack::tenant_of) {
                Some((stack, green)) if stack.pthread() == thread as usize => Who::Other(green),
                _ => Who::Libcs,
            },
        }
    }

    /// The green thread, the caller's or another.
    pub(crate) fn green(self) -> Option<&'static Green> {
        match self {
            Who::Own(green) | Who::Other(green) => Some(green),
            Who::Libcs => None,
        }
    }

    /// The kernel thread that stands for it, as the kernel names it: the calling one, or the one that ran it last.
    /// `None`: libc knows it.
    pub(crate) fn kernel_thread(self) -> Option<usize> {
        const CALLING: usize = 0;
        match self {
            Who::Own(_) => Some(CALLING),
            Who::Other(green) => Some(green.last_worker().map_or(CALLING, |m| m.thread() as usize)),
            Who::Libcs => None,
        }
    }

    /// Its name is written to a place of `length` bytes; the answer is that of `pthread_getname_np`. `None`: it has none of
    /// its own.
    pub(crate) fn tell_name(self, place: usize, length: usize) -> Option<i32> {
        match self {
            Who::Own(green) => name::tell(green, place, length),
            Who::Other(green) => {
                let section = ReadSection::begin();
                let told = name::tell(green, place, length);
                section.end_without_dropping();
                told
            }
            Who::Libcs => None,
        }
    }

    /// Its name is from now on the text at `text`, of `length` bytes; the answer is that of `pthread_setname_np`. `None`:
    /// libc knows it.
    pub(crate) fn set_name(self, text: usize, length: impl FnOnce() -> usize) -> Option<i32> {
        match self {
            Who::Libcs => None,
            _ if length() >= size_of::<SystemName>() => Some(libc::ERANGE),
            Who::Other(_) => Some(libc::ENOTSUP),
            Who::Own(_) => Some(match name::set(text) {
                Some(Ok(())) => 0,
                _ => libc::EFAULT,
            }),
        }
    }

    /// The number of its clock. `None`: libc knows it, or it has ended.
    pub(crate) fn clock(self) -> Option<libc::clockid_t> {
        self.green().and_then(cpu_time::clock_of)
    }
}
