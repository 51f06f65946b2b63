//! Reports on a running program: what every thread does, waits for, and where.
//!
//! | file | idea |
//! |---|---|
//! | `collect` | reads all threads, one after the other, while the program runs on |
//! | `running` | the stacks of threads that run: a signal's handler copies them |
//! | `unwind`, `modules` | reads a stack; the libraries that this relies on |
//! | `stacks`, `symbols`, `debug_info` | keeps each different stack once; the names of functions; what the files tell of an address |
//! | `describe`, `descriptor`, `syscalls` | a thread's wait in words; what the system says of a descriptor; names of system calls |
//! | `deadlock` | threads that wait for each other; programs in which all do |
//! | `reporter` | the kernel thread that writes dumps when a signal asks, and looks for deadlocks |
//! | `warn` | warnings of what costs threads their time |
//! | `text`, `json` | a dump for people, and for tools |
//! | `summary`, `busy`, `runtimes` | all threads in a few figures; which are busy; what the runtimes tell of themselves |
//! | `socket` | the socket on which a running program is asked for all that, and the answers |
//!
//! Nothing here stops a thread or takes a lock of the scheduler's. `sched::sight` says why what is read is true.

mod busy;
mod collect;
pub(crate) mod deadlock;
mod debug_info;
mod describe;
mod descriptor;
mod json;
pub(crate) mod modules;
pub(crate) mod reporter;
mod running;
pub(crate) mod runtimes;
pub(crate) mod socket;
mod stacks;
mod summary;
pub(crate) mod symbols;
pub(crate) mod syscalls;
mod text;
pub(crate) mod unwind;
pub(crate) mod warn;

pub(crate) use self::collect::{Depth, Entry, Snapshot};
pub(crate) use super::sched::sight::Doing;

use std::io;

use super::sched::helper;
use super::sys::signal::{self, ALL};

/// Does `work` on the calling kernel thread without handlers of the program's, and with faults let through: a report
/// reads words that may not be there.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let mask = signal::set_mask(ALL);
    let result = work();
    signal::set_mask(mask);
    result
}

/// Starts a helper for reports.
fn employ(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    helper::spawn(name, helper::OBSERVER_STACK, Box::new(work))
}
