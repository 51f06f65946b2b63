//! Stands in for the library's `coroutine`: its protocol file.

#[path = "../../../src/coroutine/turns.rs"]
pub(crate) mod turns;
