//! The engine: it makes threads green. The modules in front of it (`thread`, `sync`, `net` …) come in by
//! one door, [`facade`]; the others are private.
//!
//! From the top: `runtime` → `driver` → `wait` → `inspect` → `sched` → `policy` → `tls`, `stack` → `sys` → `arch`.

#[cfg(green)]
#[allow(unsafe_code, reason = "registers and assembly")]
#[path = "../../arch/mod.rs"]
mod arch;
pub(crate) mod atomic;
#[cfg(green)]
#[allow(unsafe_code, reason = "intrusive timers, system calls")]
mod driver;
pub(crate) mod facade;
#[allow(unsafe_code, reason = "parks are copied from stacks that may be gone")]
pub(crate) mod inspect;
#[allow(unsafe_code, reason = "queues of records")]
pub mod policy;
#[allow(unsafe_code, reason = "what an event's owner may read of a record")]
pub(crate) mod probe;
#[allow(
    unsafe_code,
    reason = "threads that begin and end, and the handles to them"
)]
mod runtime;
#[cfg(green)]
#[allow(unsafe_code, reason = "records that change hands, signals")]
mod sched;
#[cfg(green)]
#[allow(unsafe_code, reason = "memory for stacks")]
mod stack;
#[cfg(green)]
#[allow(unsafe_code, reason = "system calls")]
mod sys;
#[cfg(green)]
#[allow(unsafe_code, reason = "libc's control blocks")]
mod tls;
#[allow(unsafe_code, reason = "a parked thread's record, nodes on stacks")]
mod wait;

// Everything but Linux on x86-64 or aarch64, with glibc: kernel threads, by way of std alone.
#[cfg(not(green))]
pub(crate) use crate::elsewhere::{arch, sched, stack, sys};
