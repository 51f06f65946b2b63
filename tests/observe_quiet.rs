//! Situations that are not deadlocks: every thread waits, and yet something can wake one. Nothing may be said.
//!
//! The idea: each row of the table is a program of its own (`support/programs.rs`), which rests for longer than the
//! runtime takes to look for a deadlock, twice over, and then goes on. All rows run at the same time, in both
//! modes, beside rows that *are* deadlocks: those must be reported in the same time, so the runtime did look.

#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "support/quiet_outside.rs"]
mod outside;
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "support/programs.rs"]
mod programs;
#[cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]
#[path = "support/quiet.rs"]
mod quiet;

fn main() {
    #[cfg(all(
        target_os = "linux",
        any(
            target_arch = "x86_64",
            all(target_arch = "aarch64", target_env = "gnu")
        )
    ))]
    programs::main(quiet::PROGRAMS, quiet::TESTS);
}
