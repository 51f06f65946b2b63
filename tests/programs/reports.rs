//! Reports of deadlocks, and what is done about them.

use super::dumps::is_like;
use super::programs::{Named, Running, print, start, until_input_ends};
use greenthread::runtime::{Builder, OnDeadlock};
use greenthread::{channel, thread};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

pub const PROGRAMS: &[Named] = &[
    ("asks to abort", || with_knob(OnDeadlock::Abort)),
    ("asks to ignore", || with_knob(OnDeadlock::Ignore)),
    ("asks to report", || with_knob(OnDeadlock::Report)),
    ("asks again", || {
        let _other = Builder::new()
            .on_deadlock(OnDeadlock::Ignore)
            .build()
            .unwrap();
        with_knob(OnDeadlock::Report)
    }),
    ("is left alone", is_left_alone),
    ("has had guests", has_had_guests),
    ("builds", builds),
    #[cfg(feature = "tracing")]
    ("subscribes", subscribes),
    ("reads", || {
        greenthread::spawn(|| ()).join().unwrap();
        until_input_ends();
    }),
];

pub const TESTS: &[Named] = &[
    ("examples", examples),
    ("abort", abort),
    ("off", off),
    ("knobs", knobs),
    ("wrong_values", wrong_values),
    ("late_deadlocks", late_deadlocks),
    #[cfg(feature = "tracing")]
    ("tracing", tracing),
];

const HEAD: &str =
    "greenthread: deadlock: every thread waits for another, and nothing outside can wake one";

/// A second report would come within this time.
const TWO_LOOKS: Duration = Duration::from_millis(1300);

/// A thread waits for ever, and the main thread for that.
fn with_knob(action: OnDeadlock) {
    let runtime = Builder::new().on_deadlock(action).build().unwrap();
    let (to, from) = channel::bounded::<u8>(1);
    runtime.spawn(move || from.recv().unwrap()).join().unwrap();
    drop(to);
}

/// A kernel thread that could have helped ends: nothing else happens then.
fn is_left_alone() {
    let (to, from) = channel::bounded::<u8>(1);
    let helper = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1200)));
    thread::spawn(move || from.recv().unwrap()).join().unwrap();
    helper.join().unwrap();
    drop(to);
}

/// Kernel threads have waited for green ones, and have ended.
fn has_had_guests() {
    for _ in 0..5 {
        std::thread::spawn(|| thread::spawn(thread::yield_now).join().unwrap())
            .join()
            .unwrap();
    }
    let (to, from) = channel::bounded::<u8>(1);
    thread::spawn(move || from.recv().unwrap()).join().unwrap();
    drop(to);
}

fn builds() {
    match Builder::new().build() {
        Ok(_) => print("built"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(if error.kind() == std::io::ErrorKind::InvalidInput {
                3
            } else {
                4
            });
        }
    }
}

/// What an example must say: the lines about the circle, and of each thread the line of its name and the place in
/// the file.
struct Expected {
    program: &'static str,
    circle: &'static [&'static str],
    threads: &'static [(&'static str, &'static str, &'static str)],
    main: &'static str,
}

const EXAMPLES: &[Expected] = &[
    Expected {
        program: "two_locks",
        circle: &[
            "  thread # \"alice\" waits for mutex 0x*, held by thread # \"bob\"",
            "  thread # \"bob\" waits for mutex 0x*, held by thread # \"alice\"",
        ],
        threads: &[
            (
                "alice",
                "mutex 0x*, held by thread # \"bob\"",
                "two_locks::transfer",
            ),
            (
                "bob",
                "mutex 0x*, held by thread # \"alice\"",
                "two_locks::transfer",
            ),
        ],
        main: "the end of thread # \"alice\"",
    },
    Expected {
        program: "full_channel",
        circle: &[],
        threads: &[
            (
                "one",
                "room in channel 0x* (length 1, capacity 1, senders 2, receivers 1)",
                "::send",
            ),
            (
                "two",
                "room in channel 0x* (length 1, capacity 1, senders 2, receivers 1)",
                "::send",
            ),
        ],
        main: "the end of thread # \"one\"",
    },
    Expected {
        program: "join_cycle",
        circle: &[
            "  thread # \"juliet\" waits for the end of thread # \"romeo\"",
            "  thread # \"romeo\" waits for the end of thread # \"juliet\"",
        ],
        threads: &[
            (
                "juliet",
                "the end of thread # \"romeo\"",
                "join_cycle::wait_for",
            ),
            (
                "romeo",
                "the end of thread # \"juliet\"",
                "join_cycle::wait_for",
            ),
        ],
        main: "unpark * (handles *)",
    },
    Expected {
        program: "lost_permit",
        circle: &[],
        threads: &[(
            "worker 2",
            "semaphore 0x* (permits 0)",
            "Semaphore::acquire",
        )],
        main: "the end of thread # \"worker 2\"",
    },
    Expected {
        program: "self_lock",
        circle: &["  thread # \"recursive\" waits for mutex 0x*, held by thread # \"recursive\""],
        threads: &[(
            "recursive",
            "mutex 0x*, held by thread # \"recursive\"",
            "self_lock::sum",
        )],
        main: "the end of thread # \"recursive\"",
    },
];

impl Expected {
    /// Threads that the report shows.
    fn all(&self) -> usize {
        self.threads.len() + 1
    }

    /// Whether the whole report is there: each thread has its stack.
    fn is_whole(&self, text: &str) -> bool {
        let is_whole = text.ends_with('\n') && text.starts_with(HEAD);
        let blocks = blocks(text);
        let has_stack = |block: &Vec<&str>| {
            block
                .last()
                .is_some_and(|line| !line.contains("spawned at"))
        };
        is_whole && blocks.last().is_some_and(has_stack) && blocks.len() == self.all()
    }

    fn check(&self, text: &str, mode: &str) {
        let fail = |what: &dyn std::fmt::Debug| -> ! {
            panic!("{}, {mode}: {what:?}:\n{text}", self.program)
        };
        // The threads' numbers differ, and those of kernel threads are called so.
        let word = if mode == "kernel" {
            "kernel thread *"
        } else {
            "thread *"
        };
        let fits = |line: &str, pattern: &str| is_like(line, &pattern.replace("thread #", word));
        let mut head: Vec<&str> = text
            .split("\n\n")
            .next()
            .unwrap_or_default()
            .lines()
            .collect();
        let counts = head.split_off(1 + self.circle.len() + usize::from(!self.circle.is_empty()));
        if head[0] != HEAD || !self.circle.is_empty() && head[1] != "these wait for each other:" {
            fail(&head);
        }
        head.drain(..head.len() - self.circle.len());
        head.sort_by_key(|line| line.split('"').nth(1).map(str::to_owned));
        if head
            .iter()
            .zip(self.circle)
            .any(|(line, pattern)| !fits(line, pattern))
        {
            fail(&head);
        }
        let count =
            |n: usize, kind: &str| format!("{n} {kind} thread{}", if n == 1 { "" } else { "s" });
        let (green, kernel) = if mode == "kernel" {
            (0, self.all())
        } else {
            (self.threads.len(), 1)
        };
        let first = format!(
            "greenthread: {} and {} of process *, at 20*-*-*T*:*:*Z",
            count(green, "green"),
            count(kernel, "kernel")
        );
        let second =
            format!("  green threads: 0 running, 0 blocked, 0 ready, 0 new, {green} parked");
        if counts.len() != 2 || !is_like(counts[0], &first) || counts[1] != second {
            fail(&counts);
        }
        let mut seen = Vec::new();
        for lines in blocks(text) {
            let name = lines[0].split('"').nth(1).unwrap_or_else(|| fail(&lines));
            seen.push(name);
            let (wait, frame, stack) = match self.threads.iter().find(|thread| thread.0 == name) {
                Some(thread) => {
                    let pattern = format!("  spawned at *{}.rs:*:*", self.program);
                    if !is_like(lines[1], &pattern) {
                        fail(&lines);
                    }
                    (thread.1, thread.2, &lines[2..])
                }
                None => (self.main, self.program, &lines[1..]),
            };
            if !fits(
                lines[0],
                &format!("*thread*\"{name}\": parked for *, waits for {wait}"),
            ) {
                fail(&(lines[0], wait));
            }
            check_stack(stack, frame).unwrap_or_else(|what| fail(&what));
        }
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != self.all() {
            fail(&seen);
        }
    }
}

/// The lines about each thread; threads that are shown together have the same place and the same stack.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut all = Vec::new();
    for block in text.split("\n\n").skip(1) {
        let mut lines = block.lines().peekable();
        let is_group = lines.next_if(|line| line.ends_with(" threads:")).is_some();
        let mut names = Vec::new();
        while let Some(name) =
            lines.next_if(|line| names.is_empty() || is_group && line.contains("thread "))
        {
            names.push(name.trim_start());
        }
        let rest: Vec<&str> = lines.collect();
        all.extend(
            names
                .into_iter()
                .map(|name| [vec![name], rest.clone()].concat()),
        );
    }
    all
}

/// Numbered frames, each perhaps with its place, and `frame` among them.
fn check_stack(lines: &[&str], frame: &str) -> Result<(), String> {
    let mut number = 0;
    for line in lines {
        if is_like(line, "             at *:*") && number != 0 {
            continue;
        }
        if !is_like(line, &format!("  {number:3}: *")) {
            return Err(format!("no frame: {line}"));
        }
        number += 1;
    }
    match lines.iter().any(|line| line.contains(frame)) {
        true => Ok(()),
        false => Err(format!("no frame {frame}")),
    }
}

/// Each example in each mode, and one with each other policy: a few at the same time.
fn examples() {
    let policies = ["relaxed-fifo", "least-loaded", "priority", "global-queue"];
    let usual =
        ["green", "kernel"].map(|mode| EXAMPLES.iter().map(move |it| (it, mode, "work-stealing")));
    let other = EXAMPLES
        .iter()
        .zip(policies)
        .map(|(it, policy)| (it, "green", policy));
    let all: Vec<_> = usual.into_iter().flatten().chain(other).collect();
    let mut running: Vec<(&Expected, &str, Running)> = Vec::new();
    for few in all.chunks(EXAMPLES.len()) {
        let begun = running.len();
        for &(expected, mode, policy) in few {
            let env = [("GREENTHREAD_MODE", mode), ("GREENTHREAD_POLICY", policy)];
            running.push((expected, mode, start(expected.program, &env, false)));
        }
        for (expected, _, program) in &mut running[begun..] {
            program.until_said("whole report", |text| expected.is_whole(text));
        }
    }
    std::thread::sleep(TWO_LOOKS);
    for (expected, mode, program) in &mut running {
        program.listen();
        program.is_alive();
        expected.check(program.said(), mode);
    }
}

fn in_both_modes(program: &str, env: (&str, &str)) -> [Running; 2] {
    ["green", "kernel"].map(|mode| start(program, &[("GREENTHREAD_MODE", mode), env], false))
}

fn abort() {
    for (program, mode) in in_both_modes("two_locks", ("GREENTHREAD_DEADLOCK", "abort"))
        .iter_mut()
        .zip(["green", "kernel"])
    {
        let status = program.end();
        assert_eq!(
            status.signal(),
            Some(libc::SIGABRT),
            "{status}: {}",
            program.said()
        );
        EXAMPLES[0].check(program.said(), mode);
    }
}

#[track_caller]
fn stay_silent(mut programs: Vec<Running>) {
    std::thread::sleep(TWO_LOOKS);
    for program in &mut programs {
        program.listen();
        program.is_alive();
        assert_eq!(program.said(), "");
    }
}

fn off() {
    stay_silent(in_both_modes("two_locks", ("GREENTHREAD_DEADLOCK", "off")).into());
}

/// A builder's wish counts more than the environment's.
fn knobs() {
    let silent = in_both_modes("asks to ignore", ("GREENTHREAD_DEADLOCK", "abort"));
    for program in &mut in_both_modes("asks to abort", ("GREENTHREAD_DEADLOCK", "off")) {
        let status = program.end();
        assert_eq!(
            status.signal(),
            Some(libc::SIGABRT),
            "{status}: {}",
            program.said()
        );
        assert!(program.said().starts_with(HEAD), "{}", program.said());
    }
    for name in ["asks to report", "asks again"] {
        for program in &mut in_both_modes(name, ("GREENTHREAD_DEADLOCK", "off")) {
            program.until_said("report", |text| text.contains(HEAD));
            program.is_alive();
        }
    }
    stay_silent(silent.into());
}

/// A value that is not accepted is an error of `build`, and the end of a program that uses the default runtime.
fn wrong_values() {
    let cases = [
        (
            "GREENTHREAD_DEADLOCK",
            "maybe",
            "accepted is report, abort or off",
        ),
        (
            "GREENTHREAD_DEADLOCK",
            "",
            "accepted is report, abort or off",
        ),
        ("GREENTHREAD_SIGQUIT", "yes", "accepted is on or off"),
    ];
    for (variable, value, accepted) in cases {
        let message = format!("{variable}={value:?}: {accepted}");
        for program in &mut in_both_modes("builds", (variable, value)) {
            let status = program.end();
            assert_eq!(status.code(), Some(3), "{}", program.said());
            assert_eq!(program.said().trim_end(), message);
        }
        for program in &mut in_both_modes("reads", (variable, value)) {
            program.close_input();
            let status = program.end();
            assert!(
                !status.success() && program.said().contains(&message),
                "{status}: {}",
                program.said()
            );
        }
    }
}

/// Deadlocks that are left when kernel threads have ended.
fn late_deadlocks() {
    let mut all = Vec::new();
    for name in ["is left alone", "has had guests"] {
        all.extend(in_both_modes(name, ("GREENTHREAD_DEADLOCK", "report")));
    }
    for program in &mut all {
        program.until_said("report", |text| text.contains(HEAD));
    }
}

/// A subscriber that ends the program when it is told of a deadlock: a thread that looked for the event would be one
/// that does not wait.
#[cfg(feature = "tracing")]
fn subscribes() {
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    struct Ends;

    impl Subscriber for Ends {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "greenthread"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            if event.metadata().fields().field("threads").is_some() {
                print("told");
                std::process::exit(3);
            }
        }

        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    tracing::subscriber::set_global_default(Ends).unwrap();
    greenthread::observe::publish_events().unwrap();
    thread::spawn(thread::park).join().unwrap();
}

/// The feature `tracing`: a deadlock is an event. Kernel threads on std alone are not looked at.
#[cfg(feature = "tracing")]
fn tracing() {
    let mut program = start("subscribes", &[], false);
    assert_eq!(program.end().code(), Some(3), "{}", program.said());
}
