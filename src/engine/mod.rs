//! The engine: it makes threads green. The modules in front of it (`thread`, `sync`, `net` …) see the scheduler, the
//! runtimes and the drivers through [`facade`] only: these are private here. `sys`, `atomic`, `arch` and `wait` are for
//! any module. Two public modules see more: `observe` through [`inspect`] and [`probe`], `libc` through [`hooks`].
//!
//! From the top: `runtime` → `driver` → `wait` → `inspect` → `sched` → `policy` → `tls`, `stack` → `sys` → `arch`.

#[cfg(green)]
#[allow(unsafe_code, reason = "registers and assembly")]
#[path = "../../arch/mod.rs"]
pub(crate) mod arch;
pub(crate) mod atomic;
#[cfg(green)]
#[allow(unsafe_code, reason = "intrusive timers, system calls")]
mod driver;
pub(crate) mod facade;
#[cfg(interposes)]
pub(crate) mod hooks;
#[allow(unsafe_code, reason = "parks are copied from stacks that may be gone")]
pub(crate) mod inspect;
#[allow(unsafe_code, reason = "queues of records")]
pub mod policy;
#[allow(unsafe_code, reason = "what an event's owner may read of a record")]
pub(crate) mod probe;
#[allow(unsafe_code, reason = "threads that begin and end, and handles")]
mod runtime;
#[cfg(green)]
#[allow(unsafe_code, reason = "records that change hands, signals")]
mod sched;
#[cfg(green)]
#[allow(unsafe_code, reason = "memory for stacks")]
mod stack;
#[cfg(green)]
#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod sys;
#[cfg(green)]
#[allow(unsafe_code, reason = "libc's control blocks")]
mod tls;
#[allow(unsafe_code, reason = "a parked thread's record, nodes on stacks")]
pub(crate) mod wait;

// Everything but Linux on x86-64 or aarch64, with glibc: kernel threads, by way of std alone.
#[cfg(not(green))]
pub(crate) use crate::elsewhere::{arch, sched, stack, sys};

/// What users see of threads and runtimes: `greenthread::thread` and `greenthread::runtime` say it again.
pub(crate) mod public {
    pub use super::runtime::handle::{JoinHandle, Thread, ThreadId};
    pub use super::runtime::metrics::{
        BlockedCall, BlockedPlace, Bucket, Histogram, Metrics, ProcessorMetrics, QueueWait,
    };
    pub use super::runtime::options::{Driver, Mode, OnDeadlock};
    pub use super::runtime::scope::{Group, Scope};
    pub use super::runtime::spawn::{Builder, spawn};
    pub use super::sched::current::is_preemption_off;
    pub use super::sched::frames::Cancelled;
}
