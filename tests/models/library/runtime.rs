//! Stands in for the library's `runtime`: its protocol file.

#[path = "../../../src/engine/runtime/handle/shares.rs"]
pub(crate) mod shares;
