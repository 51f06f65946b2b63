//! The engine: what makes a thread green. The modules in front of it (`thread`, `sync`, `net` …) come in by
//! one door.

#[cfg(green)]
#[allow(unsafe_code, reason = "registers and assembly")]
#[path = "../../arch/mod.rs"]
pub(crate) mod arch;
pub(crate) mod atomic;
#[allow(unsafe_code, reason = "threads that begin and end")]
pub(crate) mod backend;
#[cfg(green)]
#[allow(unsafe_code, reason = "stacks that change hands")]
pub(crate) mod context;
#[cfg(green)]
#[allow(unsafe_code, reason = "intrusive timers, system calls")]
pub(crate) mod driver;
#[cfg(green)]
#[allow(unsafe_code, reason = "records, and the stacks that they get")]
pub(crate) mod green;
#[allow(unsafe_code, reason = "handles that records lead to")]
pub(crate) mod handle;
#[allow(unsafe_code, reason = "queues of records")]
pub mod policy;
#[cfg(green)]
#[allow(unsafe_code, reason = "records that change hands, signals")]
pub(crate) mod sched;
#[cfg(green)]
#[allow(unsafe_code, reason = "memory for stacks")]
pub(crate) mod stack;
#[cfg(green)]
#[allow(unsafe_code, reason = "system calls")]
pub(crate) mod sys;
#[cfg(green)]
#[allow(unsafe_code, reason = "an intrusive heap")]
pub(crate) mod timer;
#[cfg(green)]
#[allow(unsafe_code, reason = "libc's control blocks")]
pub(crate) mod tls;
#[allow(unsafe_code, reason = "a parked thread's record, nodes on stacks")]
pub(crate) mod wait;

// Everything but Linux on x86-64: kernel threads, by way of std alone.
#[cfg(not(green))]
#[allow(unsafe_code, reason = "a record that there is none of")]
pub(crate) mod elsewhere;
#[cfg(not(green))]
pub(crate) use self::elsewhere::{arch, context, green, sched, stack, sys};
