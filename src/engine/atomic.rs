//! The atomics and cells that protocol files build on: the standard ones here, a model checker's where
//! those files are modelled (`tests/models`).

pub(crate) use core::cell::Cell;
pub(crate) use core::sync::atomic::*;

/// A `const fn`, which the models make a plain one: their atomics cannot be made in a constant.
macro_rules! const_fn {
    ($($function:tt)*) => { $($function)* };
}
pub(crate) use const_fn;
