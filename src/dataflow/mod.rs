//! Dataflow: calls that return at once, and run when what they depend on is there.
//!
//! [`call`]`(inputs, f)` makes a *node* and returns a [`Value`], which is a promise of what `f` will
//! return. Inputs are values too. So a program that calls functions this way builds a graph as it
//! goes, and whatever does not depend on each other runs in parallel, on all processors.
//!
//! | a node | |
//! |---|---|
//! | *waits* | an input is missing. It is a closure in memory: no thread is parked for it |
//! | is *ready* | all inputs are resolved; it will run, on some green thread, soon |
//! | is *resolved* | its function has returned, or panicked; what depends on it and misses nothing else is ready |
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
//! - **Values are shared.** A node's function gets references to its inputs, and
//!   [`Value::get`] gives one to the result: a value is made once, and dropped with its last handle
//!   once all that depend on it have run. Hence `T: Send + Sync`.
//! - **Every node runs**, whether anybody still has its handle or not, as a spawned thread does.
//! - **A panic goes to the dependents.** They do not run; theirs is the same [`Failure`], and so on.
//!   Of several failed inputs the first counts.
//! - **Functions may block**, on a channel, a lock, or another value's `get`: others run meanwhile.
//!   But they need not: a function that returns a further `Value` is [flattened](Value::flatten).
//! - **Threads are shared.** A green thread runs one node after the other, so a node may find what
//!   an earlier one has left in a thread-local, or in the token of `park`.
//! - **Memory**, of a node that waits for one input with a value of a word: about 150 bytes, and 40
//!   for each further input; 64 when it is resolved, as long as somebody has the handle. (A parked
//!   green thread has two pages.) Neither deep nor wide graphs need stack.
//! - In kernel-thread mode as many kernel threads run nodes as there are processors, and more only
//!   while those are blocked.
//!
//! # Where it comes from
//!
//! "Architecting Asynchronous Schedulers", the design of Passerine's runtime: *waiting*, *ready* and
//! *resolved* are its words for futures. There everything is a call of this kind, and a *process*
//! runs the ready ones. Here processes are green threads, and the scheduler below does its part:
//! stealing, sleeping, and waking as many processors as there is work for.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | `call` |
//! | `value` | the handle, and what a node leaves there |
//! | `inputs` | which shapes inputs have, and what the function sees |
//! | `task` | the last of the inputs makes it ready |
//! | `engine/wait/dependents` | who waits for a value: the protocol between adding and resolving (modelled) |
//! | `stock` | who runs what is ready |
//! | `turn` | the same over kernel threads |
//! | `failure` | a panic on its way |

mod failure;
mod inputs;
mod stock;
mod task;
mod turn;
mod value;

use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

pub use self::failure::Failure;
use self::inputs::Held;
pub use self::inputs::{Inputs, Values};
pub use self::value::Value;
use self::value::{Outcome, Slot};

/// Calls `f` with the values of `inputs` when they are all there; returns at once.
///
/// `f` runs on a green thread of the runtime where its last input is resolved, or, if none is
/// missing, of the thread that calls (of the default runtime, if that is a kernel thread). The
/// shapes of `inputs`, and of what `f` gets for them, are those of [`Inputs`].
///
/// If `f` panics, or an input has failed, the value is a [`Failure`]; in the latter case `f` is
/// dropped without being called.
///
/// # Panics
/// If a thread is needed and cannot be started, as [`spawn`](crate::spawn).
///
/// ```
/// use greenthread::dataflow::call;
///
/// let words = call((), |()| std::fs::read_to_string("Cargo.toml").unwrap());
/// let lines = call(&words, |text| text.lines().count());
/// let bytes = call(&words, |text| text.len());
/// let mean = call((bytes, lines), |(bytes, lines)| bytes / lines);
/// assert!(*mean.get()? > 1);
/// # Ok::<(), greenthread::dataflow::Failure>(())
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
    let value = Value::of(slot.clone());
    task::when(inputs.hold(), move |inputs: I::Held| {
        // What the node holds is dropped inside, before anybody sees that it is resolved.
        let run = move || {
            let inputs = inputs;
            inputs.values().map(f)
        };
        slot.resolve(match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(value)) => Outcome::Own(value),
            Ok(Err(failure)) => Outcome::Failed(failure),
            Err(payload) => Outcome::Failed(Failure::new(payload, origin)),
        })
    });
    value
}

/// A value that is there already, to be an input.
///
/// ```
/// use greenthread::dataflow::value;
/// assert_eq!(value(42).get(), Ok(&42));
/// ```
pub fn value<T: Send + Sync + 'static>(value: T) -> Value<T> {
    let slot = Slot::new();
    drop(slot.resolve(Outcome::Own(value)));
    Value::of(Arc::new(slot))
}
