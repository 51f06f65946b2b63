//! Stands in for the library's `backend`: its protocol file.

#[path = "../../../src/engine/backend/handle/shares.rs"]
pub(crate) mod shares;
