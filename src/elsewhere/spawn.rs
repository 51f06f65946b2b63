//! The stand-in for `runtime::spawn`: no green thread is started.

use std::io;

use super::packet::{Job, ThreadOptions};
use crate::engine::sched::Cluster;

pub(super) fn start(cluster: &'static Cluster, _: &ThreadOptions, _: Job) -> io::Result<()> {
    cluster.never()
}
