//! The stand-in for `runtime::green`: there are no green threads here.

use std::io;
use std::sync::OnceLock;

use super::start::Plan;
use super::{Backend, Driver, Metrics};
use crate::engine::policy::Policy;
use crate::engine::sched::Cluster;

/// The reason why there are no green threads.
pub(super) fn prepare(_: usize) -> io::Result<&'static Result<(), String>> {
    static REASON: OnceLock<Result<(), String>> = OnceLock::new();
    const WHY: &str = "green threads need Linux on x86-64 or aarch64, with glibc, \
        and neither Miri nor MemorySanitizer";
    Ok(REASON.get_or_init(|| Err(WHY.into())))
}

pub(super) fn start(_: Plan, _: Box<dyn Policy>, _: bool) -> io::Result<Backend> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn driver_of(cluster: &Cluster) -> Driver {
    cluster.never()
}

pub(super) fn metrics_of(cluster: &Cluster) -> Metrics {
    cluster.never()
}

pub(super) fn idle_of(cluster: &Cluster) -> (usize, usize) {
    cluster.never()
}

pub(super) fn is_closed(cluster: &Cluster) -> bool {
    cluster.never()
}

/// Accepts any signal: the runtime preempts no thread.
pub(super) fn check_signal(_: i32) -> io::Result<()> {
    Ok(())
}

pub(super) fn accepted_signals() -> String {
    "a number".into()
}
