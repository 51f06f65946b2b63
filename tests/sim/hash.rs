//! The same seed, the same run: in two processes, with another environment and other addresses.

use greenthread::sim::Builder;

use crate::programs::{PROGRAMS, Threads};
use crate::support::seeds;

/// Programs that fail under some seeds repeat, too: a failure, in a panic's place, is a result like any other.
#[test]
fn programs_with_faults_repeat() {
    for program in PROGRAMS {
        if program.says == "deadlock" {
            continue;
        }
        let run = program.run;
        let caught = move || _ = std::panic::catch_unwind(|| run(Threads::Green));
        let ended = Builder::new().seeds(seeds()).repeats(caught);
        let summary = ended.unwrap_or_else(|failure| panic!("{}: {failure}", program.name));
        println!("{}: {summary:?}", program.name);
        assert!(summary.is_repeatable);
    }
}
