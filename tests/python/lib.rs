//! A module of Python's in Rust. Its threads call back into Python.

use greenthread::channel::bounded;
use greenthread::runtime::{Mode, Runtime};
use greenthread::thread;
use pyo3::prelude::*;
use std::time::Duration;

/// Whether its threads are green ones.
#[pyfunction]
fn is_green() -> bool {
    Runtime::global().mode() == Mode::Green
}

/// What `function` returns for 0, 1 … `count` - 1, each called in a thread of its own, added up.
#[pyfunction]
fn add_up(py: Python<'_>, function: Py<PyAny>, count: i64) -> PyResult<i64> {
    let (sender, receiver) = bounded(1);
    let threads: Vec<_> = (0..count)
        .map(|i| {
            let (sender, function) = (sender.clone(), function.clone_ref(py));
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(1));
                let value = Python::with_gil(|py| function.call1(py, (i,))?.extract::<i64>(py));
                sender.send(value).unwrap();
            })
        })
        .collect();
    drop(sender);
    py.allow_threads(|| {
        let values: Vec<PyResult<i64>> = receiver.iter().collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        values.into_iter().sum()
    })
}

#[pymodule]
fn greenthread_python(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(is_green, module)?)?;
    module.add_function(wrap_pyfunction!(add_up, module)?)
}
