//! `greenthread::sim`: what it finds, what it says, and that a seed's run repeats.
//!
//! Without schedule points at atomic operations (`--cfg greenthread_points` and its flags, docs/sim.md) most faults of code
//! that uses std's locks cannot be found: tests that need such points say so, and pass.

#[path = "../common/mod.rs"]
mod common;

mod bugs;
mod ends;
mod found;
mod hash;
mod libraries;
mod programs;
mod support;
mod time;
mod world;
