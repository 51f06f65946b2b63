//! The runtimes of the process, for the socket: their processors, and their figures.

use std::sync::{Mutex, PoisonError};

use crate::engine::facade::{Backend, Figures, is_forked_child};
use crate::engine::inspect::workers::Cluster;

/// A runtime.
#[derive(Clone, Copy)]
pub(super) struct Runtime {
    backend: Backend,
    policy: &'static str,
}

static ALL: Mutex<Vec<Runtime>> = Mutex::new(Vec::new());

/// A runtime has started.
pub(super) fn enter(backend: Backend, policy: &'static str) {
    // In a forked child the lock may be held for ever, and nobody reads the list.
    if !is_forked_child() {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Runtime { backend, policy });
    }
}

/// Those that have started and not ended, the oldest first.
pub(super) fn all() -> Vec<Runtime> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|runtime| !runtime.backend.is_closed());
    all.clone()
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
        self.backend.metrics().figures()
    }
}
