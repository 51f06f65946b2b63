//! A task waits for inputs: work to do, and the handles of the inputs.
//!
//! The number of references to the task counts the inputs that are missing: each unresolved input
//! holds one, and so does the thread that makes the task until it has registered everywhere. Each
//! gives its reference up by `Arc::into_inner`, which returns the task to the last of them only.
//! There it is ready, and in no other place, so it runs once, and sees all its inputs.
//!
//! A task is in its inputs and holds its inputs; the circle is broken when they are resolved. So it
//! is not dropped before it has run, even if no handle is left, and a long chain of nodes is never
//! dropped from one end.

use std::sync::{Arc, Mutex, PoisonError};

use super::inputs::Held;
use super::stock;

/// A task, told when one of its inputs is resolved.
pub trait Dependent: Send + Sync {
    /// Gives one reference up. If it was the last, returns the work that is ready now.
    fn arrive(self: Arc<Self>) -> Option<Ready>;
}

/// Work whose inputs are all resolved. It returns the dependents of the value that it resolves.
pub(crate) type Ready = Box<dyn FnOnce() -> Told + Send>;

/// Dependents that must be told that their input is resolved.
pub(crate) type Told = Vec<Arc<dyn Dependent>>;

struct Task<H, W> {
    inputs: H,
    /// The mutex is never locked: the owner of the task has the work, and a shared task is `Sync`
    /// all the same.
    work: Mutex<W>,
}

impl<H: Held, W: FnOnce(H) -> Told + Send + 'static> Dependent for Task<H, W> {
    fn arrive(self: Arc<Self>) -> Option<Ready> {
        let Task { inputs, work } = Arc::into_inner(self)?;
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(Box::new(move || work(inputs)))
    }
}

/// Makes a task that does `work` when `inputs` are resolved, on another thread.
pub(super) fn when<H: Held, W>(inputs: H, work: W)
where
    W: FnOnce(H) -> Told + Send + 'static,
{
    let work = Mutex::new(work);
    let task = Arc::new(Task { inputs, work });
    task.inputs
        .register(&|| -> Arc<dyn Dependent> { task.clone() });
    if let Some(ready) = task.arrive() {
        stock::add(ready);
    }
}
