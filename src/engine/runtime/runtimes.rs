//! Every runtime of the process, for figures about all of them. They are numbered from 0, in the order of their
//! starts; one that was shut down keeps its number and is left out.

use std::sync::{Mutex, PoisonError};

use super::Backend;

static ALL: Mutex<Vec<Backend>> = Mutex::new(Vec::new());

/// Notes a runtime that has started.
pub(super) fn add(backend: Backend) {
    ALL.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(backend);
}

/// The runtimes that have not been shut down, with their numbers.
pub(crate) fn all() -> Vec<(usize, Backend)> {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.iter().copied().enumerate();
    all.filter(|(_, backend)| !backend.is_closed()).collect()
}
