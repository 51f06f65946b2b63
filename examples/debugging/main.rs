//! Programs with something to find: most of them hang, or are slow. `docs/debugging.md` and `docs/gdb.md`
//! find it. Each is a file of its own.
//!
//! ```sh
//! cargo run --example debugging -- two_locks
//! ```

use std::process::ExitCode;

mod busy_lock;
mod full_channel;
mod hogs;
mod join_cycle;
mod lost_permit;
mod self_lock;
mod slow;
mod threads;
mod two_locks;

const PROGRAMS: [(&str, fn()); 9] = [
    ("busy_lock", busy_lock::main),
    ("full_channel", full_channel::main),
    ("hogs", hogs::main),
    ("join_cycle", join_cycle::main),
    ("lost_permit", lost_permit::main),
    ("self_lock", self_lock::main),
    ("slow", slow::main),
    ("threads", threads::main),
    ("two_locks", two_locks::main),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    let is_wanted = |name: &str| wanted.as_deref() == Some(name);
    if let Some((_, main)) = PROGRAMS.iter().find(|(name, _)| is_wanted(name)) {
        main();
        return ExitCode::SUCCESS;
    }
    eprintln!("which of these?");
    PROGRAMS.iter().for_each(|(name, _)| eprintln!("  {name}"));
    ExitCode::from(2)
}
