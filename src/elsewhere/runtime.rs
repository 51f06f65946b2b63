//! Stands in for `runtime::green`: there are no green threads here.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use super::{Backend, Driver, Metrics};
use crate::policy::Policy;
use crate::sched::{Cluster, Ideas};

/// What a cluster would be like.
#[allow(dead_code, reason = "nobody makes one of it")]
pub(super) struct Wishes {
    pub(super) processors: usize,
    pub(super) follows_quota: bool,
    pub(super) stack_size: usize,
    pub(super) time_slice: Duration,
    pub(super) signal: Option<i32>,
    pub(super) max_kernel_threads: usize,
    pub(super) driver: Option<Driver>,
    pub(super) ideas: Ideas,
}

/// Why there are no green threads.
pub(super) fn prepare(_: usize) -> io::Result<&'static Result<(), String>> {
    static REASON: OnceLock<Result<(), String>> = OnceLock::new();
    Ok(REASON.get_or_init(|| Err("they need Linux on x86-64".into())))
}

pub(super) fn start(_: Wishes, _: Box<dyn Policy>, _: bool) -> io::Result<Backend> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn driver_of(cluster: &Cluster) -> Option<Driver> {
    cluster.never()
}

pub(super) fn metrics_of(cluster: &Cluster) -> Metrics {
    cluster.never()
}

/// Nobody is preempted by us, with whatever signal.
pub(super) fn check_signal(_: i32) -> io::Result<()> {
    Ok(())
}

pub(super) fn preempt_signal() -> io::Result<Option<i32>> {
    Ok(None)
}
