//! The atomics that protocol files build on: the standard ones here, a model checker's where those
//! files are modelled (`tests/models`).

pub(crate) use core::sync::atomic::*;
