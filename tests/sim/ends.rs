//! How a run can fail, and what the report says of it.

use std::alloc::Layout;
use std::hint::black_box;
use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use greenthread::sim::{self, Builder, FailureKind, Isolation, Strategy};
use greenthread::spawn;

use crate::common::{assert_code, child_case, child_with, said};
use crate::support::fails;

fn few() -> Builder {
    Builder::new().seeds(20)
}

/// What a check of `body` says, which must fail with its first seeds, whatever runs first, and hold all of `words`.
#[track_caller]
fn says(
    builder: Builder,
    kind: FailureKind,
    words: &[&str],
    body: impl Fn() + Send + Sync + 'static,
) -> String {
    let failure = fails(builder, body);
    let said = failure.to_string();
    println!("{said}");
    assert_eq!(failure.kind(), kind);
    let again = format!("repeat it with GREENTHREAD_SIM_SEED={}\n", failure.seed());
    for word in words.iter().chain(&[again.as_str(), " points, hash "]) {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    said
}

const ALONE: &str = "fails alone: yes";

#[test]
fn a_panic() {
    says(
        few(),
        FailureKind::Panic,
        &["panicked: one and one", ALONE],
        || panic!("one and {}", "one"),
    );
}

#[test]
fn a_panic_of_another_thread_is_its_joiners() {
    says(
        few(),
        FailureKind::Panic,
        &["panicked: far from here", ALONE],
        || {
            let far = spawn(|| {
                let nearby = spawn(|| panic!("far from here"));
                nearby
                    .join()
                    .unwrap_or_else(|payload| std::panic::resume_unwind(payload));
            });
            far.join()
                .unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        },
    );
}

/// Nobody asks for its end, so it is no failure: as everywhere.
#[test]
fn a_panic_that_nobody_sees() {
    let summary = few().run(|| assert!(spawn(|| panic!("alone")).join().is_err()));
    assert_eq!(summary.unwrap().seeds, 20);
}

#[test]
fn an_abort() {
    says(
        few(),
        FailureKind::Signal,
        &["ended by signal 6", ALONE],
        || std::process::abort(),
    );
}

#[test]
fn a_null_pointer() {
    says(
        few(),
        FailureKind::Signal,
        &["ended by signal 11", ALONE],
        || {
            let place = black_box(std::ptr::null_mut::<u32>());
            // SAFETY: none: the process is to end.
            unsafe { place.write_volatile(1) };
        },
    );
}

#[test]
fn a_double_free() {
    says(
        few(),
        FailureKind::Signal,
        &["ended by signal 6", "free", ALONE],
        || {
            let layout = Layout::from_size_align(64, 8).unwrap();
            // SAFETY: none: the second release is wrong, and the system's allocator sees it.
            unsafe {
                let place = black_box(std::alloc::alloc(layout));
                std::alloc::dealloc(place, layout);
                std::alloc::dealloc(black_box(place), layout);
            }
        },
    );
}

#[test]
fn an_exit() {
    says(
        few(),
        FailureKind::Exit,
        &["exited with code 3", ALONE],
        || std::process::exit(3),
    );
}

#[test]
fn an_exit_that_says_all_is_well() {
    says(
        few(),
        FailureKind::Exit,
        &["exited with code 0", ALONE],
        || std::process::exit(0),
    );
}

#[test]
fn a_stack_overflow() {
    #[allow(unconditional_recursion)]
    fn deep(depth: u64) -> u64 {
        let here = black_box([depth; 64]);
        black_box(deep(depth + 1) + here[7])
    }
    says(
        few(),
        FailureKind::Signal,
        &["ended by signal", "overflow", ALONE],
        || _ = deep(0),
    );
}

/// The dump tells who waits for what, and where.
#[test]
fn a_deadlock() {
    let words = [
        "deadlock: no thread is ready",
        "parked",
        "the end of thread",
        "ends.rs",
        ALONE,
    ];
    says(few(), FailureKind::Deadlock, &words, || {
        let never = Arc::new(Barrier::new(3));
        let wait = |name: &str| {
            let never = never.clone();
            let thread = greenthread::thread::Builder::new().name(name.into());
            thread.spawn(move || _ = never.wait()).unwrap()
        };
        let threads = [wait("one"), wait("other")];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

/// A thread that sleeps for ever does not hide the others' deadlock from the limit of time.
#[test]
fn virtual_time_has_a_limit() {
    let builder = few().max_time(Duration::from_secs(3600));
    says(
        builder,
        FailureKind::Time,
        &["`max_time`", "parked", ALONE],
        || {
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        },
    );
}

#[test]
fn points_have_a_limit() {
    let builder = few().max_points(10_000);
    says(
        builder,
        FailureKind::Points,
        &["`max_points`", ALONE],
        || {
            loop {
                greenthread::yield_now();
            }
        },
    );
}

/// The report says where.
#[test]
fn a_loop_without_points() {
    let words = ["computes, or is blocked", "ends.rs", ALONE];
    says(few(), FailureKind::Stuck, &words, || {
        let mut number = 1_u64;
        while black_box(number) != 0 {
            number = number.wrapping_mul(3);
        }
    });
}

#[test]
fn a_kernel_thread() {
    let words = ["starts a kernel thread", "ends.rs", ALONE];
    says(few(), FailureKind::Outside, &words, || {
        std::thread::spawn(|| {}).join().unwrap()
    });
}

#[test]
fn a_kernel_thread_that_is_allowed() {
    let summary = few()
        .allow_kernel_threads()
        .run(|| std::thread::spawn(|| {}).join().unwrap());
    let summary = summary.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!summary.is_repeatable);
}

#[test]
fn a_child_process() {
    let words = ["starts a process", "ends.rs", ALONE];
    says(few(), FailureKind::Outside, &words, || {
        _ = Command::new("true").status().unwrap()
    });
}

#[test]
fn a_child_process_that_is_allowed() {
    let summary = few()
        .seeds(2)
        .allow_outside()
        .run(|| assert!(Command::new("true").status().unwrap().success()));
    let summary = summary.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(!summary.is_repeatable);
}

#[test]
fn an_internet_socket() {
    let words = ["makes a socket to the outside", "ends.rs", ALONE];
    says(few(), FailureKind::Outside, &words, || {
        _ = TcpListener::bind("127.0.0.1:0")
    });
}

/// Each switch that the schedule has chosen is shown with thread, file and line of the code that is tested.
#[test]
fn switches_name_the_users_code() {
    crate::support::needs_points!();
    let shared = || {
        let count = Arc::new(AtomicU32::new(0));
        let adder = |name: &str| {
            let count = count.clone();
            let thread = greenthread::thread::Builder::new().name(name.into());
            let body = move || {
                let seen = count.load(Relaxed); // the first look
                count.store(seen + 1, Relaxed); // the late store
            };
            thread.spawn(body).unwrap()
        };
        let threads = [adder("one"), adder("other")];
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(count.load(Relaxed), 2);
    };
    let said = says(
        Builder::new().strategy(Strategy::Pct { depth: 2 }),
        FailureKind::Panic,
        &["chosen switches", ALONE],
        shared,
    );
    let source = include_str!("ends.rs").lines();
    let line = source
        .enumerate()
        .find(|(_, text)| text.ends_with("// the late store"))
        .unwrap()
        .0
        + 1;
    let places = [
        format!(
            ", behind the operation at ./tests/sim/ends.rs:{} in ",
            line - 1
        ),
        format!(", at ./tests/sim/ends.rs:{line} in "),
    ];
    let is_there = |shown: &&str| places.iter().any(|place| shown.contains(place));
    let shown = said.lines().find(is_there);
    let shown = shown.unwrap_or_else(|| panic!("none of {places:?} in {said}"));
    let is_named = shown.contains("\"one\" -> ") || shown.contains("\"other\" -> ");
    assert!(is_named, "{shown}");
}

/// With one process for many seeds a static counts them, and the run that fails needs those before it. The report names them all.
#[test]
fn a_failure_that_needs_earlier_seeds() {
    const TEST: &str = "ends::a_failure_that_needs_earlier_seeds";
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let builder = Builder::new().seeds(100).isolation(Isolation::Batch);
    let body = || assert!(RUNS.fetch_add(1, Relaxed) < 3, "the fourth run");
    if child_case(TEST).is_some() {
        return one_check(builder, body);
    }
    let words = [
        "panicked: the fourth run",
        "fails alone: no; the seeds before it must have run in the process",
    ];
    let said = says(builder, FailureKind::Panic, &words, body);
    let seeds = said
        .split(['=', '\n'])
        .find(|word| word.starts_with("mixed."))
        .unwrap();
    assert!(seeds.ends_with(":0-2"), "{seeds}");
    let (first, out) = ends(TEST, &[]);
    let (again, other) = ends(TEST, &[("GREENTHREAD_SIM_SEED", seeds)]);
    assert_eq!([&*first, &*again], [seeds; 2]);
    assert_eq!(hash(&out), hash(&other));
    let (alone, _) = ends(TEST, &[("GREENTHREAD_SIM_SEED", "pct3:2")]);
    assert!(alone.starts_with("1 seeds"), "{alone}");
}

/// With a process for each seed it does not fail.
#[test]
fn each_seed_alone() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let builder = Builder::new().seeds(20).isolation(Isolation::EachSeed);
    let ended = builder.run(|| assert!(RUNS.fetch_add(1, Relaxed) < 2, "the third run"));
    assert_eq!(ended.unwrap().seeds, 20);
}

/// What is set up once in a process, such as a logger, makes later runs in the process other ones, or makes them fail: then each
/// seed has a process of its own.
#[test]
fn statics_are_seen() {
    static IS_SET_UP: Mutex<bool> = Mutex::new(false);
    let sets_up = || std::mem::replace(&mut *IS_SET_UP.lock().unwrap(), true);
    let ended = few().run(move || assert!(!sets_up(), "set up twice"));
    let summary = ended.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(summary.seeds, 20);
    let ended = few().run(move || {
        if !sets_up() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(
            sim::elapsed() > Duration::from_millis(1),
            "a run of another kind"
        );
    });
    let summary = ended.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(summary.seeds, 20);
}

#[test]
fn threads_that_are_left() {
    let leaves = || drop(spawn(|| std::thread::sleep(Duration::from_secs(3600))));
    assert_eq!(few().run(leaves).unwrap().seeds, 20);
    says(
        few().all_threads_end(true),
        FailureKind::Threads,
        &["threads are left", ALONE],
        leaves,
    );
    let ends = || {
        spawn(|| std::thread::sleep(Duration::from_secs(3600)))
            .join()
            .unwrap()
    };
    assert_eq!(few().all_threads_end(true).run(ends).unwrap().seeds, 20);
}

/// A thread of the run before cannot disturb the next seed's run.
#[test]
fn threads_that_are_left_end_with_their_run() {
    static LATE: AtomicU32 = AtomicU32::new(0);
    let ended = few().isolation(Isolation::Batch).run(|| {
        assert_eq!(LATE.load(Relaxed), 0, "a thread of another run");
        drop(spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            LATE.store(1, Relaxed);
        }));
    });
    ended.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn several_checks_in_a_test() {
    let failure = fails(few(), || panic!("the first check"));
    assert!(failure.to_string().contains("the first check"));
    assert_eq!(few().run(|| {}).unwrap().seeds, 20);
    let failure = fails(few(), || panic!("the third check"));
    assert!(failure.to_string().contains("the third check"));
    sim::check(5, || assert!(sim::is_simulated()));
    assert!(!sim::is_simulated());
}

/// `check` panics with the report.
#[test]
fn a_check_panics() {
    let ended = std::panic::catch_unwind(|| sim::check(5, || panic!("inside")));
    let payload = ended.unwrap_err();
    let said = payload.downcast_ref::<String>().unwrap();
    assert!(
        said.contains("panicked: inside") && said.contains(ALONE),
        "{said}"
    );
}

// ==== variables ====

/// In a child: one check, whose end is printed.
fn one_check(builder: Builder, body: impl Fn() + Send + Sync + 'static) {
    match builder.run(body) {
        Ok(summary) => println!("\nend: {} seeds, hash {:016x}", summary.seeds, summary.hash),
        Err(failure) => println!("\nend: {}\n{failure}", failure.seed()),
    }
}

fn ends(test: &str, variables: &[(&str, &str)]) -> (String, Output) {
    let out = child_with(test, "", variables);
    assert_code(&out, 0);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let end = text.lines().find_map(|line| line.strip_prefix("end: "));
    (
        end.unwrap_or_else(|| panic!("{}", said(&out))).to_owned(),
        out,
    )
}

/// The line with the count of points and the hash.
fn hash(out: &Output) -> String {
    let text = String::from_utf8_lossy(&out.stdout);
    let line = text.lines().find(|line| line.contains(" points, hash "));
    line.unwrap_or_else(|| panic!("{}", said(out)))
        .trim()
        .to_owned()
}

/// The seed that a report names fails again, with the same run; another one does not.
#[test]
fn a_seed_is_repeated() {
    const TEST: &str = "ends::a_seed_is_repeated";
    if child_case(TEST).is_some() {
        return one_check(Builder::new(), || {
            assert_ne!(sim::random() % 50, 0, "by chance")
        });
    }
    let (seed, first) = ends(TEST, &[]);
    let (again, second) = ends(TEST, &[("GREENTHREAD_SIM_SEED", &seed)]);
    assert_eq!(seed, again);
    assert_eq!(hash(&first), hash(&second));
    let (_, number) = seed.split_once(':').unwrap();
    let next = format!("random:{}", number.parse::<u64>().unwrap() + 1);
    let (end, _) = ends(TEST, &[("GREENTHREAD_SIM_SEED", &next)]);
    assert!(end.starts_with("1 seeds"), "{end}");
}

/// What a panic prints is no part of the run: a backtrace reads a file that is as long as chance has it.
#[test]
fn backtraces_take_no_points() {
    const TEST: &str = "ends::backtraces_take_no_points";
    if child_case(TEST).is_some() {
        return one_check(few().isolation(Isolation::EachSeed), || {
            let ended = std::panic::catch_unwind(|| panic!("caught"));
            assert!(ended.is_err());
            greenthread::yield_now();
        });
    }
    let [with, without] = ["1", "0"].map(|asked| ends(TEST, &[("RUST_BACKTRACE", asked)]).0);
    assert!(with.starts_with("20 seeds"), "{with}");
    assert_eq!(with, without);
}

#[test]
fn the_number_of_seeds_is_a_variable() {
    const TEST: &str = "ends::the_number_of_seeds_is_a_variable";
    if child_case(TEST).is_some() {
        return one_check(Builder::new().seeds(7), || {});
    }
    for (variables, seeds) in [
        (&[][..], "7 seeds"),
        (&[("GREENTHREAD_SIM_SEEDS", "30")], "30 seeds"),
    ] {
        let (end, _) = ends(TEST, variables);
        assert!(end.starts_with(seeds), "{end}");
    }
}

/// A wrong value is an error, which names the variable and the value.
#[test]
fn wrong_values_are_named() {
    const TEST: &str = "ends::wrong_values_are_named";
    if child_case(TEST).is_some() {
        return one_check(few(), || {});
    }
    let cases = [
        ("GREENTHREAD_SIM_SEEDS", "many"),
        ("GREENTHREAD_SIM_SEEDS", "-1"),
        ("GREENTHREAD_SIM_SEEDS", ""),
        ("GREENTHREAD_SIM_SEED", "17"),
        ("GREENTHREAD_SIM_SEED", "random:x"),
        ("GREENTHREAD_SIM_SEED", "chess:17"),
        ("GREENTHREAD_SIM_SEED", "random:17-16"),
        ("GREENTHREAD_SIM_SEED", "random:17-"),
        ("GREENTHREAD_SIM_SEED", "pct0.100:17"),
        ("GREENTHREAD_SIM_SEED", "pct17.100:17"),
        ("GREENTHREAD_SIM_SEED", "random:18446744073709551615"),
    ];
    for (name, value) in cases {
        let out = child_with(TEST, "", &[(name, value)]);
        assert_code(&out, 101);
        let text = said(&out);
        assert!(
            text.contains(&format!("{name}={value:?}: accepted is")),
            "{text}"
        );
    }
}

#[test]
fn no_seeds() {
    assert_eq!(
        Builder::new()
            .seeds(0)
            .run(|| panic!("never"))
            .unwrap()
            .seeds,
        0
    );
}

/// A failing check takes no longer than its run and its report do.
#[test]
fn a_report_is_soon_there() {
    let begun = Instant::now();
    fails(Builder::new().seeds(1_000_000), || panic!("at once"));
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
}
