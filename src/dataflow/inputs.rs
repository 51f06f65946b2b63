//! [`Inputs`]: the values that a node depends on, and the shape in which its function sees them.
//!
//! A caller passes handles or references to handles, alone or in tuples, arrays and vectors; a node
//! keeps [`Held`]: handles. Both can be nested, so each case is written once.

use std::sync::Arc;

use super::stock::Dependent;
use super::value::{Failure, Value};

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

impl<T: Send + Sync + 'static> Inputs for Value<T> {
    type Held = Value<T>;

    fn hold(self) -> Value<T> {
        self
    }
}

impl<T: Send + Sync + 'static> Inputs for &Value<T> {
    type Held = Value<T>;

    fn hold(self) -> Value<T> {
        self.clone()
    }
}

impl<I: Inputs> Inputs for Vec<I> {
    type Held = Vec<I::Held>;

    fn hold(self) -> Vec<I::Held> {
        self.into_iter().map(I::hold).collect()
    }
}

impl<T: Send + Sync + 'static> Inputs for &[Value<T>] {
    type Held = Vec<Value<T>>;

    fn hold(self) -> Vec<Value<T>> {
        self.to_vec()
    }
}

impl<T: Send + Sync + 'static> Inputs for &Vec<Value<T>> {
    type Held = Vec<Value<T>>;

    fn hold(self) -> Vec<Value<T>> {
        self.clone()
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
        match values.try_into() {
            Ok(values) => Ok(values),
            Err(_) => unreachable!("an array is as long as itself"),
        }
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Inputs),*> Inputs for ($($name,)*) {
            type Held = ($($name::Held,)*);

            #[allow(clippy::unused_unit, reason = "the empty one")]
            fn hold(self) -> Self::Held {
                ($(self.$index.hold(),)*)
            }
        }

        impl<$($name: Held),*> Held for ($($name,)*) {
            type Values<'a> = ($($name::Values<'a>,)*);

            #[allow(unused_variables, reason = "the empty one")]
            fn register(&self, make: &dyn Fn() -> Arc<dyn Dependent>) {
                $(self.$index.register(make);)*
            }

            fn values(&self) -> Result<Self::Values<'_>, Failure> {
                Ok(($(self.$index.values()?,)*))
            }
        }
    )*};
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
}
