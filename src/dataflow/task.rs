//! What waits for inputs: something to do, and the handles of what it waits for.
//!
//! The count of what is missing is that of the references to the task: each input that is not
//! resolved yet holds one, and so does whoever makes the task until it has registered everywhere.
//! All give them up by `Arc::into_inner`, which hands the task to exactly one of them, the last:
//! there it is ready, and in no other place, so it runs once, and sees all its inputs.
//!
//! A task is in its inputs and holds its inputs; the circle is broken when they are resolved. So it
//! is not dropped before it has run, whether anybody still has a handle or not, and a long chain of
//! nodes is never dropped from one end.

use std::sync::{Arc, Mutex, PoisonError};

use super::inputs::Held;
use super::stock;
use crate::engine::door::dependents::Taken;

/// What is told that an input is resolved.
pub trait Dependent: Send + Sync {
    /// One reference less. If it was the last: what is to be done now.
    fn arrive(self: Arc<Self>) -> Option<Ready>;
}

/// Something to do, whose inputs are all resolved. It gives back who waited for what it resolves.
pub(crate) type Ready = Box<dyn FnOnce() -> Told + Send>;

/// Dependents that are to be told.
pub(crate) type Told = Taken<Arc<dyn Dependent>>;

struct Task<H, W> {
    inputs: H,
    /// Never locked: whoever owns the task has it, and a shared one is `Sync` all the same.
    work: Mutex<W>,
}

impl<H: Held, W: FnOnce(H) -> Told + Send + 'static> Dependent for Task<H, W> {
    fn arrive(self: Arc<Self>) -> Option<Ready> {
        let Task { inputs, work } = Arc::into_inner(self)?;
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        Some(Box::new(move || work(inputs)))
    }
}

/// Has `work` done when `inputs` are resolved, and not on this thread.
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
