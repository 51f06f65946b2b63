//! Stands in for the library's `engine`: its policies, its idlers, and what they need.

#[path = "arch.rs"]
pub(crate) mod arch;
#[path = "atomic.rs"]
pub(crate) mod atomic;
#[allow(clippy::all, reason = "it is checked where it lives")]
#[path = "../../../../src/engine/policy/mod.rs"]
pub mod policy;
#[path = "probe.rs"]
pub(crate) mod probe;
#[path = "sched.rs"]
pub(crate) mod sched;
#[path = "sys.rs"]
pub(crate) mod sys;
