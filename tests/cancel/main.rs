//! Limits round blocking code, and cancellation: `greenthread::cancel`.

#[path = "../common/mod.rs"]
mod common;

mod found;
mod ledger;
#[cfg(all(feature = "unmodified", target_os = "linux"))]
mod libraries;
mod limits;
mod nested;
#[cfg(feature = "observe")]
mod seen;
#[cfg(all(feature = "unmodified", feature = "net", target_os = "linux"))]
mod table;
mod tokens;
