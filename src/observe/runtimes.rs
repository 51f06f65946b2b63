//! The runtimes of the process, for reports: which there are, and their figures.
//!
//! A runtime's figures are a type of the backend, a higher room. So the backend enters each runtime here, with
//! a function that tells the figures as names and numbers.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::sched::{Cluster, fork};

/// What a runtime tells of itself.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) numbers: Vec<(&'static str, u64)>,
    /// System calls that have blocked kernel threads, and how often.
    pub(crate) blocked_calls: Vec<(String, u64)>,
}

/// A runtime.
pub(crate) struct Runtime {
    /// Its cluster, if it has green threads.
    pub(crate) cluster: Option<&'static Cluster>,
    /// The name of its policy, if it has one.
    pub(crate) policy: Option<&'static str>,
    pub(crate) figures: Box<dyn Fn() -> Figures + Send + Sync>,
    /// By this it is found again: an address that no other runtime has.
    pub(crate) address: usize,
}

static ALL: Mutex<Vec<Arc<Runtime>>> = Mutex::new(Vec::new());

/// A runtime has started.
pub(crate) fn enter(runtime: Runtime) {
    change(|all| all.push(Arc::new(runtime)));
}

/// A runtime ends.
pub(crate) fn leave(address: usize) {
    change(|all| all.retain(|runtime| runtime.address != address));
}

fn change(change: impl FnOnce(&mut Vec<Arc<Runtime>>)) {
    // In a forked child the lock may be held for ever, and nobody reads the list.
    if !fork::is_child() {
        change(&mut ALL.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Those that have started and not ended, the oldest first.
pub(crate) fn all() -> Vec<Arc<Runtime>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
