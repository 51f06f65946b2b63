//! SIGQUIT: a dump, unless the program does something else with it.

use super::programs::{Named, PATIENCE, Running, print, start, until_input_ends};
use greenthread::runtime::Builder;
use greenthread::{signal::Signals, thread};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

pub const PROGRAMS: &[Named] = &[
    ("serves", serves),
    ("handles before", || {
        handle();
        serves();
    }),
    ("handles after", || {
        thread::spawn(|| ()).join().unwrap();
        handle();
        serves();
    }),
    ("listens before", || {
        listen();
        serves();
    }),
    ("listens after", || {
        thread::spawn(|| ()).join().unwrap();
        listen();
        serves();
    }),
    ("ignores", || {
        // SAFETY: a plain call.
        unsafe { libc::signal(libc::SIGQUIT, libc::SIG_IGN) };
        serves();
    }),
    ("is stuck", || is_stuck(false)),
    ("is stuck and deaf", || is_stuck(true)),
];

pub const TESTS: &[Named] = &[
    ("quit_dumps", quit_dumps),
    ("quit_to_a_file", quit_to_a_file),
    ("quit_off", quit_off),
    ("own_handlers", own_handlers),
    ("stuck_programs", stuck_programs),
];

/// Three threads wait, and the main thread for its input.
fn serves() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let names = ["tom", "dick", "harry"];
    for name in names {
        let waits = thread::Builder::new().name(name.into());
        let body = || {
            BEGUN.fetch_add(1, Relaxed);
            loop {
                thread::park();
            }
        };
        waits.spawn(body).unwrap();
    }
    // A kernel thread is in a dump once it has begun.
    while BEGUN.load(Relaxed) < names.len() {
        std::thread::yield_now();
    }
    print("ready");
    until_input_ends();
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

fn handle() {
    extern "C" fn on_quit(_: i32) {
        HANDLED.fetch_add(1, Relaxed);
        let text = "handled\n";
        // SAFETY: the bytes are valid.
        unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: a handler of the right type; a zeroed action is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_quit as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut()),
            0
        );
    }
}

fn listen() {
    let signals = Signals::new([libc::SIGQUIT]).unwrap();
    thread::spawn(move || signals.into_iter().for_each(|_| print("handled")));
}

/// Every processor computes and is never preempted. A deaf one blocks all signals, too.
fn is_stuck(is_deaf: bool) {
    static AT_WORK: AtomicUsize = AtomicUsize::new(0);
    let runtime = Builder::new()
        .processors(2)
        .preemption(false)
        .build()
        .unwrap();
    let waits = thread::Builder::new().name("patient".into());
    drop(
        waits
            .spawn(|| {
                AT_WORK.fetch_add(1, Relaxed);
                loop {
                    thread::park()
                }
            })
            .unwrap(),
    );
    for _ in 0..2 {
        runtime.spawn(move || {
            if is_deaf {
                // SAFETY: a full set is valid.
                unsafe {
                    let mut all: libc::sigset_t = std::mem::zeroed();
                    libc::sigfillset(&mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
                }
            }
            AT_WORK.fetch_add(1, Relaxed);
            computes(&AtomicBool::new(false));
        });
    }
    runtime.spawn(|| ()); // waits for ever
    // A kernel thread is in a dump once it has begun.
    while AT_WORK.load(Relaxed) < 3 {
        std::thread::yield_now();
    }
    print("ready");
    until_input_ends();
    std::process::exit(0);
}

#[inline(never)]
fn computes(stop: &AtomicBool) {
    let mut x = 1u64;
    while !stop.load(Relaxed) {
        x = black_box(x.wrapping_mul(31).wrapping_add(1));
    }
}

fn started(program: &str, env: &[(&str, &str)]) -> Running {
    let mut running = start(program, env, false);
    running.until_printed("ready");
    running
}

fn has_dumps(text: &str, count: usize) -> bool {
    let heads = text.matches("greenthread: ").count();
    let names = ["\"tom\"", "\"dick\"", "\"harry\""].map(|name| text.matches(name).count());
    heads == count && names == [count; 3] && text.matches("kernel thread").count() >= count
}

const MODES: [&str; 2] = ["green", "kernel"];

/// A dump for each signal, and the program goes on.
/// Whoever starts a program in the background of a script lets it ignore the signal: that makes no difference.
fn quit_dumps() {
    for (mode, is_ignored) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, false), (mode, true)])
    {
        let mut program = start("serves", &[("GREENTHREAD_MODE", mode)], is_ignored);
        program.until_printed("ready");
        for count in 1..=3 {
            program.signal(libc::SIGQUIT);
            program.until_said("dump", |text| has_dumps(text, count));
        }
        assert!(!program.said().contains("deadlock"), "{}", program.said());
        let spawned_at = program.said().matches("quit.rs:").count();
        assert!(spawned_at >= 3, "{}", program.said());
        program.close_input();
        program.ends_well();
    }
}

/// Into the file that GREENTHREAD_DUMP names, at its end.
fn quit_to_a_file() {
    let path = |end: &str| -> PathBuf {
        std::env::temp_dir().join(format!("greenthread-dump-{}{end}", std::process::id()))
    };
    for (mode, end) in MODES
        .into_iter()
        .flat_map(|mode| [(mode, ""), (mode, ".json")])
    {
        let path = path(end);
        let _ = std::fs::remove_file(&path);
        let env = [
            ("GREENTHREAD_MODE", mode),
            ("GREENTHREAD_DUMP", path.to_str().unwrap()),
        ];
        let mut program = started("serves", &env);
        for count in 1..=2 {
            program.signal(libc::SIGQUIT);
            let start = Instant::now();
            loop {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let is_there = match end {
                    "" => has_dumps(&text, count),
                    _ => count_json(&text) == Some(count),
                };
                if is_there {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "{mode}{end}:\n{text}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        program.close_input();
        program.ends_well();
        assert_eq!(program.said(), "");
        std::fs::remove_file(&path).unwrap();
    }
    // A file that cannot be had: the dump is not lost.
    let mut program = started("serves", &[("GREENTHREAD_DUMP", "/nowhere/at/all")]);
    program.signal(libc::SIGQUIT);
    program.until_said("dump", |text| {
        text.contains("/nowhere/at/all") && text.contains("\"harry\"")
    });
    program.close_input();
    program.ends_well();
}

/// The number of dumps, one after the other; `None`: the last one is not whole.
fn count_json(text: &str) -> Option<usize> {
    let dumps = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
    let dumps: Result<Vec<_>, _> = dumps.collect();
    dumps.ok().map(|dumps| dumps.len())
}

/// The signal keeps its default.
fn quit_off() {
    for mode in MODES {
        let mut program = started(
            "serves",
            &[("GREENTHREAD_MODE", mode), ("GREENTHREAD_SIGQUIT", "off")],
        );
        program.signal(libc::SIGQUIT);
        assert_eq!(
            program.end().signal(),
            Some(libc::SIGQUIT),
            "{}",
            program.said()
        );
        assert_eq!(program.said(), "");
    }
}

/// The program's own handler is called, and no dump is written; nor if the program ignores the signal. A dump would take some
/// time, so all programs are asked first.
fn own_handlers() {
    let names = [
        "handles before",
        "handles after",
        "listens before",
        "listens after",
    ];
    let mut all = Vec::new();
    for mode in MODES {
        let env = [("GREENTHREAD_MODE", mode)];
        for name in names {
            let mut program = started(name, &env);
            program.signal(libc::SIGQUIT);
            program.until_printed("handled");
            all.push(program);
        }
        let ignores = started("ignores", &env);
        ignores.signal(libc::SIGQUIT);
        all.push(ignores);
    }
    std::thread::sleep(Duration::from_millis(500));
    for (i, program) in all.iter_mut().enumerate() {
        program.close_input();
        program.ends_well();
        let name = names.get(i % (names.len() + 1)).unwrap_or(&"ignores");
        assert_eq!(program.said(), "", "{name}");
    }
}

/// A dump comes although every processor computes and none gives way; threads that block all signals cannot be held,
/// but do not hold it up.
fn stuck_programs() {
    let stuck = ["is stuck", "is stuck and deaf"];
    for (is_deaf, name) in stuck
        .into_iter()
        .enumerate()
        .map(|(i, name)| (i == 1, name))
    {
        for mode in MODES {
            let mut program = started(name, &[("GREENTHREAD_MODE", mode)]);
            let start = Instant::now();
            program.signal(libc::SIGQUIT);
            let is_there = |text: &str| {
                text.contains("\"patient\"")
                    && text.matches("running").count() >= 2
                    && (is_deaf || text.contains("quit::computes"))
            };
            program.until_said("dump", is_there);
            println!("{name}, {mode}: a dump after {:?}", start.elapsed());
            program.close_input();
            program.ends_well();
        }
    }
}
