//! Every runtime of the process, for figures about all of them. They are numbered from 0, in the order of their
//! starts; one that was shut down keeps its number and is left out.

use std::sync::{Mutex, PoisonError};

use super::Backend;

static ALL: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// A runtime that has started.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    pub(crate) number: usize,
    pub(crate) backend: Backend,
    /// The name of its policy, of which kernel threads need none.
    pub(crate) policy: &'static str,
}

/// Notes a runtime that has started.
pub(super) fn add(backend: Backend, policy: &'static str) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let number = all.len();
    all.push(Running {
        number,
        backend,
        policy,
    });
}

/// The runtimes that have not been shut down.
pub(crate) fn all() -> Vec<Running> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let open = all.iter().filter(|running| !running.backend.is_closed());
    open.copied().collect()
}
