//! Stands in for the library's `engine`.

#[path = "arch.rs"]
pub(crate) mod arch;
#[path = "atomic.rs"]
pub(crate) mod atomic;
#[path = "driver.rs"]
pub(crate) mod driver;
#[path = "facade.rs"]
pub(crate) mod facade;
#[path = "inspect.rs"]
pub(crate) mod inspect;
#[path = "policy.rs"]
pub(crate) mod policy;
#[path = "runtime.rs"]
pub(crate) mod runtime;
#[path = "sched.rs"]
pub(crate) mod sched;
#[path = "sys.rs"]
pub(crate) mod sys;
#[path = "wait.rs"]
pub(crate) mod wait;
