//! Programs that hang, or are asked for a dump: what they say, line by line.
//!
//! The idea: each program runs as a process of its own (`support/programs.rs`). The reports of the examples with
//! a known deadlock are compared with what they must be, in both modes and with each policy.

#[path = "support/dumps.rs"]
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
mod dumps;
#[path = "../examples/debugging/full_channel.rs"]
mod full_channel;
#[path = "../examples/debugging/join_cycle.rs"]
mod join_cycle;
#[path = "../examples/debugging/lost_permit.rs"]
mod lost_permit;
#[path = "support/programs.rs"]
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
mod programs;
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "support/quit.rs"]
mod quit;
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "support/reports.rs"]
mod reports;
#[path = "../examples/debugging/self_lock.rs"]
mod self_lock;
#[path = "../examples/debugging/two_locks.rs"]
mod two_locks;

#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
fn main() {
    let examples: &[programs::Named] = &[
        ("two_locks", two_locks::main),
        ("full_channel", full_channel::main),
        ("join_cycle", join_cycle::main),
        ("lost_permit", lost_permit::main),
        ("self_lock", self_lock::main),
    ];
    let programs = [examples, reports::PROGRAMS, quit::PROGRAMS].concat();
    programs::main(&programs, &[reports::TESTS, quit::TESTS].concat());
}

#[cfg(not(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
)))]
fn main() {}
