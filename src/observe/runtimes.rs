//! The runtimes of the process, for the socket: their processors, and their figures.

use super::figures::Figures;
use crate::engine::facade::Backend;
use crate::engine::inspect::workers::Cluster;

/// A runtime.
#[derive(Clone, Copy)]
pub(super) struct Runtime {
    backend: Backend,
    policy: &'static str,
}

/// Those that have started and not ended, the oldest first.
pub(super) fn all() -> Vec<Runtime> {
    let all = Backend::all().into_iter();
    all.map(|running| Runtime {
        backend: running.backend,
        policy: running.policy,
    })
    .collect()
}

impl Runtime {
    /// Its cluster, if it has green threads.
    pub(super) fn cluster(&self) -> Option<&'static Cluster> {
        match self.backend {
            Backend::Green(cluster) => Some(cluster),
            Backend::Kernel(_) => None,
        }
    }

    /// The name of its policy, if it has one.
    pub(super) fn policy(&self) -> Option<&'static str> {
        self.cluster().map(|_| self.policy)
    }

    pub(super) fn figures(&self) -> Figures {
        Figures::of(self.backend.metrics())
    }
}
