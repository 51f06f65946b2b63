//! Dataflow: calls that return at once, and run when their inputs are there.
//!
//! [`call`]`(inputs, f)` returns a [`Value`]: a handle to the value that `f` will return. The
//! inputs are values too, so the results of some calls can be the inputs of others. In this way a
//! program builds a graph of calls, whose *nodes* run in parallel on all processors unless one
//! depends on another.
//!
//! | a node | |
//! |---|---|
//! | *waits* | while an input is missing. It is a closure in memory; no thread is parked for it |
//! | is *ready* | when all inputs are resolved. It will soon run on a green thread |
//! | is *resolved* | when its function has returned or panicked. Nodes that waited only for it are ready |
//!
//! # Examples
//!
//! ```
//! use greenthread::dataflow::{call, value};
//!
//! // A diamond: `left` and `right` run in parallel, then `bottom`.
//! let top = value(vec![3, 1, 2]);
//! let left = call(&top, |numbers| numbers.iter().sum::<u32>());
//! let right = call(&top, |numbers| numbers.len() as u32);
//! let bottom = call((left, right), |(sum, count)| sum / count);
//! assert_eq!(bottom.get(), Ok(&2));
//! ```
//!
//! # What to expect
//!
//! - **Values are shared.** A function gets references to its inputs, and [`Value::get`] returns a
//!   reference to the result. A value is made once. It is dropped when its last handle has been
//!   dropped and all nodes that depend on it have run. Hence `T: Send + Sync`.
//! - **Every node runs**, even if all its handles have been dropped, as a spawned thread does.
//! - **A panic resolves the dependents too.** They do not run, and share the same [`Failure`]. If
//!   several inputs of a node have failed, the first of them counts.
//! - **Functions may block**, for example on a channel, a lock, or another value's `get`. Other
//!   nodes run meanwhile. A function need not block to wait for nodes that it makes: it returns
//!   a `Value`, and the caller [flattens](Value::flatten) it.
//! - **Threads are shared.** A green thread runs many nodes, one after the other. So a node may
//!   find values in thread-locals that an earlier node has left there, or the token of an `unpark`.
//! - **Nodes are small.** A node that waits for one input, with a value of one word, takes about
//!   150 bytes, and 40 more for each further input. A resolved node takes 64 bytes while it has a
//!   handle. (A parked green thread takes two pages.) Neither deep nor wide graphs need stack.
//! - **In kernel-thread mode** the number of kernel threads that run nodes is the number of
//!   processors. More of them run nodes only while those are blocked.
//!
//! The design and the words *waiting*, *ready* and *resolved* are those of "Architecting
//! Asynchronous Schedulers", which describes the runtime of the language Passerine.

// In "Architecting Asynchronous Schedulers" everything is a call of this kind, and a *process* runs
// the ready ones. Here processes are green threads, and the scheduler below does its part:
// stealing, sleeping, and waking as many processors as there is work for.
//
// | file | idea |
// |---|---|
// | `mod` | `call` |
// | `value` | the handle of a node; the slot for its outcome: a value, or a panic on its way, and for the nodes that wait for it; the shapes of inputs |
// | `stock` | the last of the inputs makes a node ready; the threads that run ready nodes |

mod stock;
mod value;

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

pub use self::value::{Failure, Inputs, Value, Values};
use self::value::{Held, Outcome, Slot};
use crate::wait::Surroundings;

/// Calls `f` with the values of `inputs` once they are all there, and returns a handle to the
/// result.
///
/// This function itself returns at once. `f` runs on a green thread of the runtime in which its
/// last input is resolved. If no input is missing, that is the runtime of the current thread, or
/// the default runtime if the current thread is a kernel thread. [`Inputs`] lists the shapes that
/// `inputs` may have and the arguments that `f` gets for them.
///
/// If `f` panics, the result is a [`Failure`]. If an input has failed, the result is the same
/// failure, and `f` is dropped without being called.
///
/// # Panics
///
/// Panics if a thread is needed and cannot be started, as [`spawn`](crate::spawn) does.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::call;
///
/// let text = call((), |()| std::fs::read_to_string("Cargo.toml").unwrap());
/// let lines = call(&text, |text| text.lines().count());
/// let bytes = call(&text, |text| text.len());
/// let mean = call((bytes, lines), |(bytes, lines)| bytes / lines);
/// assert!(*mean.get().unwrap() > 1);
/// ```
#[track_caller]
pub fn call<I, F, T>(inputs: I, f: F) -> Value<T>
where
    I: Inputs,
    F: for<'a> FnOnce(Values<'a, I>) -> T + Send + 'static,
    T: Send + Sync + 'static,
{
    let origin = Location::caller();
    let slot = Arc::new(Slot::new());
    let value = Value(slot.clone());
    let surroundings = Surroundings::here();
    stock::when(inputs.hold(), move |inputs: I::Held| {
        // The inputs are dropped inside the closure, before any thread sees that the node is resolved.
        let run = move || {
            let inputs = inputs;
            surroundings.run(|| inputs.values().map(f))
        };
        slot.resolve(match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(value)) => Outcome::Own(value),
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(payload) => Outcome::Failed(Failure::new(payload, origin)),
        })
    });
    value
}

/// Creates a value that is resolved already, to be used as an input.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{call, value};
///
/// let sum = call((value(40), value(2)), |(a, b)| a + b);
/// assert_eq!(sum.get(), Ok(&42));
/// ```
pub fn value<T: Send + Sync + 'static>(value: T) -> Value<T> {
    let slot = Slot::new();
    drop(slot.resolve(Outcome::Own(value)));
    Value(Arc::new(slot))
}
