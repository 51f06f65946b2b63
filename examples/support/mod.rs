//! The code that the example servers share, so that each of them consists of its protocol only.
//!
//! | file | idea |
//! |---|---|
//! | `args` | `--name VALUE` options with defaults, `--help` |
//! | `server` | accepts, limits, pauses when short of descriptors, stops gracefully on Ctrl-C |
//! | `client` | one connection: whole requests in, batched replies out, bounded in size and time |

#![allow(dead_code, unused_imports)] // every example uses its own part of this

mod args;
mod client;
mod server;

pub(crate) use args::{Args, wrong};
pub(crate) use client::{Client, Connection, Refusal, timed_out};
pub(crate) use server::{Limits, Server};

/// One line for the operator. A full disk or a closed pipe there is no reason to stop serving,
/// so this is not `eprintln!`, which panics.
pub(crate) fn say(line: impl std::fmt::Display) {
    let line = format!("{line}\n"); // one write, so that lines do not mix
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
