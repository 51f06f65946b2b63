//! [`Value`]: the handle to a node, and the slot for the node's outcome; [`Failure`]: a panic that is handed on from node
//! to node.
//!
//! | `outcome` | `dependents` | the node |
//! |---|---|---|
//! | none | a list | waits, is ready or runs |
//! | there | a list, for a moment | is resolved; any thread that looks sees it |
//! | there | none | is resolved, and its dependents are told |
//!
//! A dependent is added, and the list taken, under one lock: so a dependent is either among those that are told, or comes
//! when the list is gone, and sees the outcome, which was set before.
//!
//! Invariant: `Same` points to a node that is resolved and is not `Same` itself. So a value is one
//! step away, however many were flattened into each other.
//!
//! [`Inputs`]: the values that a node depends on, and the shape in which its function sees them. A caller passes handles or
//! references to handles, alone or in tuples, arrays and vectors; a node keeps [`Held`]: handles. Both can be nested, so each
//! case is written once.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::stock::{Dependent, Told, when};
use crate::engine::facade::text_of;
use crate::sync::{Mutex, OnceLock};

/// A handle to a value that is there already or will be computed, returned by
/// [`call`](super::call).
///
/// A clone is another handle to the same value. The value lives as long as it has a handle or a
/// node that depends on it. A node runs even if all its handles are dropped, as a thread goes on
/// when its [`JoinHandle`](crate::JoinHandle) is dropped.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{Value, call, value};
///
/// fn fibonacci(n: u64) -> Value<u64> {
///     let (mut a, mut b) = (value(0), value(1));
///     for _ in 0..n {
///         (a, b) = (b.clone(), call((a, b), |(a, b)| a + b));
///     }
///     a
/// }
/// assert_eq!(fibonacci(90).get(), Ok(&2_880_067_194_370_816_120));
/// ```
pub struct Value<T>(pub(super) Arc<Slot<T>>);

/// The outcome of a node, and the nodes that wait for it.
pub(super) struct Slot<T> {
    outcome: OnceLock<Outcome<T>>,
    /// None: the value is there, and nobody is added any more.
    dependents: Mutex<Option<Told>>,
}

pub(super) enum Outcome<T> {
    Own(T),
    Same(Value<T>),
    Failed(Failure),
}

impl<T> Slot<T> {
    pub(super) fn new() -> Slot<T> {
        Slot {
            outcome: OnceLock::new(),
            dependents: Mutex::new(Some(Told::new())),
        }
    }

    /// Sets the outcome, once. Returns the dependents that must be told of it.
    pub(super) fn resolve(&self, outcome: Outcome<T>) -> Told {
        let first = self.outcome.set(outcome);
        debug_assert!(first.is_ok(), "a node is resolved once");
        self.dependents.lock_anyway().take().unwrap_or_default()
    }
}

impl<T> Outcome<T> {
    fn value(&self) -> Result<&T, Failure> {
        match self {
            Outcome::Own(value) => Ok(value),
            Outcome::Failed(failure) => Err(failure.clone()),
            Outcome::Same(other) => other.get(),
        }
    }
}

impl<T> Value<T> {
    /// Blocks the current thread until the value is there, and returns a reference to it.
    ///
    /// Only the current thread blocks, green or kernel. The call is allowed inside a node's
    /// function.
    ///
    /// # Errors
    ///
    /// Returns the failure of the first node that panicked on the way to this value.
    ///
    /// # Examples
    ///
    /// ```
    /// let six = greenthread::dataflow::call((), |()| 6);
    /// assert_eq!(six.get().unwrap() * 7, 42);
    /// ```
    pub fn get(&self) -> Result<&T, Failure> {
        self.0.outcome.wait_for_value().value()
    }

    /// Returns the result of [`get`](Value::get) if it is there, and `None` otherwise; never
    /// blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::value;
    ///
    /// assert_eq!(value(6).try_get(), Some(Ok(&6)));
    /// ```
    pub fn try_get(&self) -> Option<Result<&T, Failure>> {
        self.0.outcome.get().map(Outcome::value)
    }

    /// Returns `true` if the value, or a failure, is there, so that [`get`](Value::get) does not
    /// block.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    /// use greenthread::sync::WaitGroup;
    ///
    /// let gate = WaitGroup::new();
    /// let other = gate.clone();
    /// let late = call((), move |()| other.wait());
    /// assert!(!late.is_resolved());
    /// drop(gate);
    /// late.get().unwrap();
    /// assert!(late.is_resolved());
    /// ```
    pub fn is_resolved(&self) -> bool {
        self.0.outcome.get().is_some()
    }
}

impl<T: Send + Sync + 'static> Value<Value<T>> {
    /// Returns a handle to the inner value, without waiting for the outer one.
    ///
    /// This is for a function that makes further nodes and returns a handle to one of them. No
    /// thread blocks while the outer or the inner value is missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::{Value, call, value};
    ///
    /// fn sum(numbers: std::ops::Range<u64>) -> Value<u64> {
    ///     let (start, end) = (numbers.start, numbers.end);
    ///     if end - start < 100 {
    ///         return value(numbers.sum());
    ///     }
    ///     let middle = start.midpoint(end);
    ///     let halves = [start..middle, middle..end]
    ///         .map(|half| call((), move |()| sum(half)).flatten());
    ///     call(halves, |[a, b]| a + b)
    /// }
    /// assert_eq!(sum(0..10_000).get(), Ok(&49_995_000));
    /// ```
    pub fn flatten(&self) -> Value<T> {
        let slot = Arc::new(Slot::new());
        let value = Value(slot.clone());
        when(self.clone(), move |outer| match outer.get() {
            Ok(inner) => {
                when(inner.clone(), move |inner| {
                    slot.resolve(Outcome::Same(inner.root()))
                });
                Told::new()
            }
            Err(failure) => slot.resolve(Outcome::Failed(failure)),
        });
        value
    }
}

impl<T> Value<T> {
    /// Follows `Same` to the node that has the outcome itself. This node must be resolved.
    fn root(self) -> Value<T> {
        match self.0.outcome.get() {
            Some(Outcome::Same(root)) => root.clone(),
            _ => self,
        }
    }
}

impl<T: Send + Sync + 'static> Held for Value<T> {
    type Values<'a> = &'a T;

    fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>) {
        if let Some(dependents) = &mut *self.0.dependents.lock_anyway() {
            dependents.push(make());
        }
    }

    fn values(&self) -> Result<&T, Failure> {
        self.get()
    }
}

clones!(Value);

impl<T: fmt::Debug> fmt::Debug for Value<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_get() {
            Some(Ok(value)) => f.debug_tuple("Value").field(value).finish(),
            Some(Err(failure)) => f.debug_tuple("Value").field(&failure).finish(),
            None => f.write_str("Value(<waiting>)"),
        }
    }
}

/// The reason why a [`Value`] has no value: a function panicked.
///
/// The function is that of the node itself or of a node that it depends on. All nodes that depend
/// on the node that panicked share one failure.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{call, value};
///
/// let broken = call((), |()| -> u32 { panic!("no such file") });
/// let sum = call((&broken, value(1)), |(a, b)| a + b);
/// let failure = sum.get().unwrap_err();
/// assert_eq!(failure.message(), "no such file");
/// assert_eq!(failure.origin().file(), file!());
/// assert!(failure.to_string().contains("no such file"));
/// ```
#[derive(Clone)]
pub struct Failure(Arc<Panic>);

struct Panic {
    message: Box<str>,
    origin: &'static Location<'static>,
    payload: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Failure {
    pub(super) fn new(payload: Box<dyn Any + Send>, origin: &'static Location<'static>) -> Failure {
        Failure(Arc::new(Panic {
            message: text_of(&*payload).into(),
            origin,
            payload: Mutex::new(Some(payload)),
        }))
    }

    /// Returns the message of the panic, or `"Box<dyn Any>"` if its payload is not a string.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    ///
    /// let broken = call((), |()| panic!("no such file"));
    /// assert_eq!(broken.get().unwrap_err().message(), "no such file");
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the place of the [`call`](super::call) whose function panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    ///
    /// let line = line!() + 1;
    /// let broken = call((), |()| panic!("no such file"));
    /// assert_eq!(broken.get().unwrap_err().origin().line(), line);
    /// ```
    pub fn origin(&self) -> &'static Location<'static> {
        self.0.origin
    }

    /// Takes the payload of the panic, for example for
    /// [`resume_unwind`](std::panic::resume_unwind).
    ///
    /// A panic has one payload, however many nodes share the failure. The first call gets it, and
    /// later calls return `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use greenthread::dataflow::call;
    /// use std::panic::panic_any;
    ///
    /// let broken = call((), |()| panic_any(42));
    /// let failure = broken.get().unwrap_err();
    /// assert_eq!(failure.take_payload().unwrap().downcast_ref(), Some(&42));
    /// assert!(failure.take_payload().is_none());
    /// ```
    pub fn take_payload(&self) -> Option<Box<dyn Any + Send>> {
        self.0.payload.lock_anyway().take()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, origin) = (self.message(), self.origin());
        write!(f, "the node called at {origin} panicked: {message}")
    }
}

without_details! {
    [] Failure, "Failure", |failure| message: failure.message(), origin: format_args!("{}", failure.origin());
}

impl Error for Failure {}

/// Two failures are equal if they come from the same panic.
impl PartialEq for Failure {
    fn eq(&self, other: &Failure) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Failure {}

// ==== inputs ====

/// The inputs of a [`call`](super::call): values, alone or in tuples, arrays, slices and vectors.
///
/// A tuple has up to twelve elements. The function of the call gets the same shape, with `&T` in
/// the place of a [`Value<T>`](Value): a value may have many dependents, all of which see the same
/// value, and nothing is cloned.
///
/// | inputs | argument of the function |
/// |---|---|
/// | `()` | `()` |
/// | `Value<T>`, `&Value<T>` | `&T` |
/// | `(A, B, …)` | `(A's, B's, …)` |
/// | `[A; N]` | `[A's; N]` |
/// | `Vec<A>` | `Vec<A's>` |
/// | `&[Value<T>]`, `&Vec<Value<T>>` | `Vec<&T>` |
///
/// The trait is sealed: it cannot be implemented outside this crate.
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{call, value};
///
/// let (a, b) = (value(2), value("x".to_string()));
/// let rest = vec![value(3), value(4)];
/// let line = call((&a, b, &rest), |(a, b, rest)| format!("{a}{b}{rest:?}"));
/// assert_eq!(line.get().unwrap(), "2x[3, 4]");
/// ```
pub trait Inputs {
    /// The handles of the inputs, which a node keeps.
    #[doc(hidden)]
    type Held: Held;

    #[doc(hidden)]
    fn hold(self) -> Self::Held;
}

/// The argument that the function of a [`call`](super::call) gets for its [`Inputs`].
///
/// # Examples
///
/// ```
/// use greenthread::dataflow::{Value, Values, call, value};
///
/// fn add((a, b): Values<'_, (Value<u32>, Value<u32>)>) -> u32 {
///     a + b
/// }
///
/// assert_eq!(call((value(1), value(2)), add).get(), Ok(&3));
/// ```
pub type Values<'a, I> = <<I as Inputs>::Held as Held>::Values<'a>;

/// Handles to the inputs of a node.
pub trait Held: Send + Sync + 'static {
    type Values<'a>;

    /// Registers a dependent, which `make` makes, with each input that is not resolved yet.
    fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>);

    /// Returns the values of inputs that are all resolved, or the first failure among them.
    fn values(&self) -> Result<Self::Values<'_>, Failure>;
}

/// Implements `Inputs`: for each type, the type of its handles, and the function that makes them.
macro_rules! inputs {
    ($($Type:ty => $Held:ty, $hold:expr;)*) => {$(
        impl<T: Send + Sync + 'static> Inputs for $Type {
            type Held = $Held;

            fn hold(self) -> $Held {
                $hold(self)
            }
        }
    )*};
}

inputs! {
    Value<T> => Value<T>, core::convert::identity;
    &Value<T> => Value<T>, Value::clone;
    &[Value<T>] => Vec<Value<T>>, <[_]>::to_vec;
    &Vec<Value<T>> => Vec<Value<T>>, Vec::clone;
}

impl<I: Inputs> Inputs for Vec<I> {
    type Held = Vec<I::Held>;

    fn hold(self) -> Vec<I::Held> {
        self.into_iter().map(I::hold).collect()
    }
}

impl<H: Held> Held for Vec<H> {
    type Values<'a> = Vec<H::Values<'a>>;

    fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>) {
        self.iter().for_each(|input| input.register(make));
    }

    fn values(&self) -> Result<Vec<H::Values<'_>>, Failure> {
        self.iter().map(H::values).collect()
    }
}

impl<I: Inputs, const N: usize> Inputs for [I; N] {
    type Held = [I::Held; N];

    fn hold(self) -> [I::Held; N] {
        self.map(I::hold)
    }
}

impl<H: Held, const N: usize> Held for [H; N] {
    type Values<'a> = [H::Values<'a>; N];

    fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>) {
        self.iter().for_each(|input| input.register(make));
    }

    fn values(&self) -> Result<[H::Values<'_>; N], Failure> {
        let values = self.iter().map(H::values).collect::<Result<Vec<_>, _>>()?;
        let values = values.try_into();
        values.map_err(|_| unreachable!("an array is as long as itself"))
    }
}

/// Implements both traits for tuples of as many parts as there are names, and of fewer.
macro_rules! tuples {
    (@fewer) => {};
    (@fewer $first:ident $($name:ident)*) => {
        tuples!($($name)*);
    };
    ($($name:ident)*) => {
        #[allow(non_snake_case, reason = "named as their types are")]
        impl<$($name: Inputs),*> Inputs for ($($name,)*) {
            type Held = ($($name::Held,)*);

            #[allow(clippy::unused_unit, reason = "the empty one")]
            fn hold(self) -> Self::Held {
                let ($($name,)*) = self;
                ($($name.hold(),)*)
            }
        }

        #[allow(non_snake_case, reason = "named as their types are")]
        impl<$($name: Held),*> Held for ($($name,)*) {
            type Values<'a> = ($($name::Values<'a>,)*);

            #[allow(unused_variables, reason = "the empty one")]
            fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>) {
                let ($($name,)*) = self;
                $($name.register(make);)*
            }

            fn values(&self) -> Result<Self::Values<'_>, Failure> {
                let ($($name,)*) = self;
                Ok(($($name.values()?,)*))
            }
        }

        tuples!(@fewer $($name)*);
    };
}

tuples!(L K J I H G F E D C B A);
