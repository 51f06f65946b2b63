//! The programs, and what is expected of them.

use crate::adopted::as_named;
use crate::common::*;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::thread;

/// Threads that never end by themselves: they compute, yield, sleep, wait.
fn busy() {
    let begun = Arc::new(AtomicUsize::new(0));
    let bodies: [fn(); 4] = [
        || {
            loop {
                std::hint::spin_loop();
            }
        },
        || {
            loop {
                thread::yield_now();
            }
        },
        || {
            loop {
                thread::sleep(std::time::Duration::from_millis(1));
            }
        },
        || {
            let (_sender, receiver) = channel::<()>();
            let _ = receiver.recv();
        },
    ];
    for body in bodies {
        let begun = begun.clone();
        thread::spawn(move || {
            begun.fetch_add(1, Relaxed);
            body();
            unreachable!();
        });
    }
    while begun.load(Relaxed) < bodies.len() {
        thread::yield_now();
    }
}

/// Is not dropped where a process ends.
struct Says(&'static str);

impl Drop for Says {
    fn drop(&mut self) {
        println!("dropped: {}", self.0);
    }
}

thread_local!(static LAST: Says = const { Says("a thread-local of a thread that runs") });

fn main_returns() {
    let (begun, begins) = channel();
    thread::spawn(move || {
        LAST.with(|_| begun.send(()).unwrap());
        loop {
            thread::park();
        }
    });
    begins.recv().unwrap();
    busy();
    println!("main returns");
}

fn main_panics() {
    busy();
    panic!("main panics");
}

fn a_thread_panics() {
    let handle = thread::Builder::new().name("other".into());
    let handle = handle.spawn(|| panic!("a thread panics")).unwrap();
    assert!(handle.join().is_err());
    println!("main goes on");
}

fn a_thread_exits() {
    busy();
    let _says = Says("main's");
    let handle = thread::spawn(|| {
        let _says = Says("the thread's");
        print!("a thread exits");
        std::process::exit(7)
    });
    let _: thread::Result<()> = handle.join();
    unreachable!();
}

fn a_nested_thread_exits() {
    busy();
    thread::spawn(|| {
        thread::spawn(|| {
            print!("a nested thread exits");
            std::process::exit(9)
        })
    });
    loop {
        thread::park();
    }
}

fn a_thread_aborts() {
    busy();
    let _ = thread::spawn(|| std::process::abort()).join();
}

fn a_panic_in_a_panic() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let _ = thread::spawn(|| {
        let _panics = Panics;
        panic!("first");
    })
    .join();
}

/// How it ends: a code, or the signal that ends it.
enum Ends {
    Code(i32),
    Abort,
}
use Ends::*;

/// Its name, the program, how it ends, its stdout, a part of its stderr.
type Program = (&'static str, fn(), Ends, &'static str, &'static str);

#[rustfmt::skip]
const PROGRAMS: &[Program] = &[
    ("main_returns", main_returns, Code(0), "main returns\n", ""),
    ("main_panics", main_panics, Code(101), "", "main panics"),
    ("a_thread_panics", a_thread_panics, Code(0), "main goes on\n", "thread 'other'"),
    ("a_thread_exits", a_thread_exits, Code(7), "a thread exits", ""),
    ("a_nested_thread_exits", a_nested_thread_exits, Code(9), "a nested thread exits", ""),
    ("a_thread_aborts", a_thread_aborts, Abort, "", ""),
    ("a_panic_in_a_panic", a_panic_in_a_panic, Abort, "", "again"),
];

fn expect(out: &Output, (_, _, ends, stdout, stderr): &Program) {
    match ends {
        Code(code) => assert_code(out, *code),
        Abort => assert_signal(out, libc::SIGABRT),
    }
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        *stdout,
        "{}",
        said(out)
    );
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains(stderr), "{}", said(out));
    assert_eq!(told.is_empty(), stderr.is_empty(), "{}", said(out));
}

pub fn main() {
    for program in PROGRAMS {
        if let Some(case) = child_case(program.0) {
            return as_named(&case, program.1);
        }
    }
    // Some of the arguments that cargo gives to tests: a part of a name, or a wish to see the list.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        PROGRAMS
            .iter()
            .for_each(|program| println!("{}: test", program.0));
        return;
    }
    let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
    let chosen = words.next().map_or("", |word| word.as_str());
    let _w = watchdog("adopt_main");
    for program in PROGRAMS.iter().filter(|program| program.0.contains(chosen)) {
        for way in ["plain", "adopted"] {
            expect(&child(program.0, &format!("case {way}")), program);
            println!("test {} {way} ... ok", program.0);
        }
    }
}
