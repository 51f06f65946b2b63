//! Stands in for the library's `dataflow`: its protocol file.

#[path = "../../../src/dataflow/dependents.rs"]
pub(crate) mod dependents;
