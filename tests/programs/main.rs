//! Whole programs: those that hang, or are asked for a dump, and what they say, line by line; and those that only look
//! like a deadlock, of which nothing may be said.
//!
//! The idea: each program runs as a process of its own, on its main thread (`programs.rs`), so this file has no harness
//! of std's. The reports of the examples with a known deadlock are compared with what they must be, in both modes
//! and with each policy.

#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "."]
mod where_there_are_dumps {
    #[path = "../support/dumps.rs"]
    mod dumps;
    #[path = "../../examples/debugging/full_channel.rs"]
    mod full_channel;
    #[path = "../../examples/debugging/join_cycle.rs"]
    mod join_cycle;
    #[path = "../../examples/debugging/lost_permit.rs"]
    mod lost_permit;
    #[path = "quiet_outside.rs"]
    mod outside;
    mod programs;
    mod quiet;
    mod quit;
    mod reports;
    #[path = "../../examples/debugging/self_lock.rs"]
    mod self_lock;
    #[path = "../../examples/debugging/two_locks.rs"]
    mod two_locks;

    pub fn main() {
        let examples: &[programs::Named] = &[
            ("two_locks", two_locks::main),
            ("full_channel", full_channel::main),
            ("join_cycle", join_cycle::main),
            ("lost_permit", lost_permit::main),
            ("self_lock", self_lock::main),
        ];
        let all = [examples, reports::PROGRAMS, quit::PROGRAMS, quiet::PROGRAMS].concat();
        let tests = [reports::TESTS, quit::TESTS, quiet::TESTS].concat();
        programs::main(&all, &tests);
    }
}

fn main() {
    #[cfg(all(
        target_os = "linux",
        any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_env = "gnu")
        )
    ))]
    where_there_are_dumps::main();
}
