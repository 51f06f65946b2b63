//! Models of a value's dependents: tasks are added while it is resolved.

use std::{mem, sync::Arc};

use loom::{
    cell::UnsafeCell,
    thread::{self, JoinHandle, panicking},
};

use crate::{
    atomic::{
        AtomicUsize,
        Ordering::{AcqRel, Relaxed},
    },
    dataflow::dependents::Dependents,
};

struct Input {
    value: UnsafeCell<u32>,
    dependents: Dependents<Reference>,
}

struct Task {
    inputs: Vec<Arc<Input>>,
    references: AtomicUsize,
    runs: UnsafeCell<u32>,
}

/// Stands in for an `Arc<Task>`: who gives up the last by `arrive` has the task for itself.
struct Reference(Arc<Task>);

impl Input {
    fn new() -> Arc<Input> {
        Arc::new(Input {
            value: UnsafeCell::new(0),
            dependents: Dependents::new(),
        })
    }

    fn resolve(&self) {
        // SAFETY: what the model checks.
        self.value.with_mut(|value| unsafe { *value = 1 });
        for dependent in self.dependents.close() {
            dependent.arrive();
        }
    }

    fn see(&self) {
        // SAFETY: what the model checks.
        self.value
            .with(|value| assert_eq!(unsafe { *value }, 1, "lost or doubled"));
    }
}

impl Reference {
    fn another(&self) -> Reference {
        self.0.references.fetch_add(1, Relaxed);
        Reference(self.0.clone())
    }

    fn arrive(self) {
        let task = self.0.clone();
        mem::forget(self);
        // SAFETY: forgotten above, so this is its count.
        unsafe { Arc::decrement_strong_count(Arc::as_ptr(&task)) };
        if task.references.fetch_sub(1, AcqRel) == 1 {
            task.inputs.iter().for_each(|input| input.see());
            // SAFETY: what the model checks.
            task.runs.with_mut(|runs| unsafe { *runs += 1 });
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // A model that failed drops what is left.
        if !panicking() {
            let before = self.0.references.fetch_sub(1, AcqRel);
            assert!(before > 1, "lost or doubled");
        }
    }
}

/// What `task::when` does.
fn when(inputs: &[Arc<Input>]) -> Arc<Task> {
    let task = Arc::new(Task {
        inputs: inputs.to_vec(),
        references: AtomicUsize::new(1),
        runs: UnsafeCell::new(0),
    });
    let own = Reference(task.clone());
    for input in inputs {
        input.dependents.add(|| own.another());
    }
    own.arrive();
    task
}

fn resolver(input: &Arc<Input>) -> JoinHandle<()> {
    let input = input.clone();
    thread::spawn(move || input.resolve())
}

fn has_run(task: &Task) {
    // SAFETY: what the model checks.
    task.runs
        .with(|runs| assert_eq!(unsafe { *runs }, 1, "lost or doubled"));
}

/// One task, one input. No bound.
pub(crate) fn one_added() {
    crate::check(None, || {
        let input = Input::new();
        let resolver = resolver(&input);
        let task = when(&[input]);
        resolver.join().unwrap();
        has_run(&task);
    });
}

/// Two threads add a task each, a third resolves. At most 3 preemptions.
pub(crate) fn two_added() {
    crate::check(Some(3), || {
        let input = Input::new();
        let resolver = resolver(&input);
        let adder = thread::spawn({
            let input = input.clone();
            move || when(&[input])
        });
        let one = when(&[input]);
        let other = adder.join().unwrap();
        resolver.join().unwrap();
        has_run(&one);
        has_run(&other);
    });
}

/// One task with two inputs, each resolved by a thread. At most 3 preemptions.
pub(crate) fn two_inputs() {
    crate::check(Some(3), || {
        let inputs = [Input::new(), Input::new()];
        let resolvers = [resolver(&inputs[0]), resolver(&inputs[1])];
        let task = when(&inputs);
        for resolver in resolvers {
            resolver.join().unwrap();
        }
        has_run(&task);
    });
}
