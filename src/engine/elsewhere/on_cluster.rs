//! Stands in for `thread::spawn::on_cluster`: no green thread is started.

use std::io;
use std::sync::Arc;

use super::{Shared, Wishes, Work};
use crate::engine::sched::Cluster;

/// # Safety
/// None is needed.
pub(super) unsafe fn start<F, T>(
    cluster: &'static Cluster,
    _: Arc<Shared>,
    _: &Wishes,
    _: Work<F, T>,
) -> io::Result<()> {
    cluster.never()
}
