//! The stand-in for `backend::life`: no green thread is started.

use std::io;
use std::sync::Arc;

use super::{Job, Wishes};
use crate::engine::backend::handle::Shared;
use crate::engine::sched::Cluster;

/// # Safety
/// None is needed.
pub(super) unsafe fn start<J: Job>(
    cluster: &'static Cluster,
    _: Arc<Shared>,
    _: &Wishes,
    _: J,
) -> io::Result<()> {
    cluster.never()
}
