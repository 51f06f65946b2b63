//! The switch's fast path touches no thread-local: between two green threads the thread pointer is
//! neither's own, and a thread-local read there would be the wrong thread's. The compiler could
//! break that silently, so this reads what it made: the run loop, the policy it calls, and all that
//! they call, down to where the kernel thread's own thread pointer is restored. In a shared library, too, where a
//! thread-local is reached by a call.

#[path = "../support/plugin.rs"]
mod plugin;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::Command;

const ROOTS: [&str; 3] = [
    "greenthread::engine::sched::run::run_one_after_another",
    "as greenthread::engine::policy::contract::Policy>::next",
    "as greenthread::engine::policy::contract::Policy>::ready",
];

/// Where the fast path ends: the thread pointer is restored first thing, or the process ends, or it
/// never comes there (a queue is kept within the capacity that it starts with).
const ENDS: [&str; 17] = [
    "::use_native_tls",
    "::wait_for_processor",
    "greenthread::engine::sched::locked::stay",
    "greenthread::engine::sched::locked::hand_to_its_worker",
    "greenthread::engine::sched::start::find_stack",
    // Restores it before it calls, if it is not restored.
    "greenthread::engine::sched::user_policy::UserPolicy::",
    "<greenthread::engine::sched::user_policy::UserPolicy>::",
    // Whoever has no seat, or owns no processor, is at home, or a green thread.
    "::read_without_seat",
    "::green_outside",
    "greenthread::engine::sched::start::say_drained",
    "greenthread::engine::sys::die",
    "core::panicking::",
    "core::option::",
    // The scheduler makes no errors of those that allocate: the tests' allocator sees to that.
    "__rustc::__rust_",
    "Worker<T>::resize",
    // For a stack that is to be unwound when it is resumed: none is.
    "std::panic::resume_unwind",
    // As compilers since 1.97 name it.
    "greenthread::engine::sched::thread::Green>>>::resize",
];

struct Function {
    /// Several functions can have one: a generic one's does not say of what type.
    name: String,
    instructions: usize,
    /// Instructions that read the thread pointer: for a thread-local, or for itself.
    thread_locals: Vec<String>,
    writes_thread_pointer: bool,
    calls: Vec<String>,
}

#[test]
fn the_fast_path_touches_no_thread_local() {
    let _alone = crate::support::alone();
    greenthread::spawn(|| ()).join().unwrap();
    check(&std::env::current_exe().unwrap());
}

#[test]
fn nor_does_it_in_a_shared_library() {
    let _alone = crate::support::alone();
    let functions = check(&plugin::build());
    let calls = |function: &Function| !function.thread_locals.is_empty();
    assert!(
        functions.values().any(calls),
        "no thread-local at all is seen"
    );
    // What every hooked call asks, in a signal handler, too: only before the first green thread it may call the loader.
    let asks = |name: &str| {
        name.contains("engine::sched::current::")
            && !name.contains("learn")
            && !name.contains("OWN")
    };
    let asking: Vec<_> = functions.values().filter(|it| asks(&it.name)).collect();
    assert!(!asking.is_empty());
    for function in asking {
        let mut found = function.thread_locals.iter();
        assert!(
            !found.any(|code| code.contains("__tls_get_addr")),
            "{} calls the loader",
            function.name
        );
    }
}

/// Checks the fast path in a program or a library; returns all functions of it, by their addresses.
fn check(file: &Path) -> HashMap<String, Function> {
    let output = Command::new("objdump")
        .args([
            "--disassemble",
            "--demangle",
            "--no-show-raw-insn",
            "--wide",
        ])
        .arg(file)
        .output()
        .expect("objdump, of Debian's package binutils, is needed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let functions = parse(&String::from_utf8_lossy(&output.stdout));

    let mut to_see: Vec<&str> = Vec::new();
    for root in ROOTS {
        let found: Vec<&str> = functions
            .iter()
            .filter(|(_, function)| function.name.contains(root))
            .map(|(address, _)| address.as_str())
            .collect();
        assert!(
            !found.is_empty(),
            "{root} is not in the executable: the test would see nothing"
        );
        to_see.extend(found);
    }
    let (mut seen, mut instructions, mut writes) = (HashSet::new(), 0, 0);
    let mut callers: HashMap<&str, &str> = HashMap::new();
    while let Some(address) = to_see.pop() {
        let Some(function) = functions.get(address) else {
            continue;
        };
        let is_end = ENDS.iter().any(|end| function.name.contains(end));
        if is_end || !seen.insert(address) {
            continue;
        }
        let by = std::iter::successors(Some(address), |by| callers.get(by).copied());
        assert!(
            function.thread_locals.is_empty(),
            "it touches a thread-local, {:?}, by way of {:#?}",
            function.thread_locals,
            by.map(|by| &functions[by].name).collect::<Vec<_>>()
        );
        for call in &function.calls {
            callers.entry(call).or_insert(address);
        }
        instructions += function.instructions;
        writes += function.writes_thread_pointer as usize;
        to_see.extend(function.calls.iter().map(String::as_str));
    }
    println!("{} functions, {instructions} instructions", seen.len());
    assert!(
        writes >= 1,
        "the switch was not seen: {} functions",
        seen.len()
    );
    functions
}

/// The control: code that does touch a thread-local is recognised.
#[test]
fn a_thread_local_would_be_seen() {
    let _alone = crate::support::alone();
    let text = match X86_64 {
        true => {
            "0000000000001000 <a::b>:\n    1000:\tmov    %fs:0xfffffffffffffff8,%rax\n    1009:\tcall   2000 <c::d>\n"
        }
        false => {
            "0000000000001000 <a::b>:\n    1000:\tmrs\tx8, tpidr_el0\n    1004:\tmsr\ttpidr_el0, x9\n    1008:\tb.ne\t2000 <c::d>  // b.any\n"
        }
    };
    let functions = parse(text);
    let function = &functions["1000"];
    assert_eq!(function.name, "a::b");
    assert_eq!(function.thread_locals.len(), 1);
    assert_eq!(function.writes_thread_pointer, !X86_64);
    assert_eq!(function.calls, ["2000"]);
}

const X86_64: bool = cfg!(target_arch = "x86_64");

fn reads_thread_pointer(code: &str) -> bool {
    match X86_64 {
        true => code.contains("%fs:") || code.contains("__tls_get_addr"),
        false => code.starts_with("mrs") && code.contains("tpidr_el0"),
    }
}

fn writes_thread_pointer(code: &str) -> bool {
    match X86_64 {
        true => code.contains("wrfsbase"),
        false => code.starts_with("msr") && code.contains("tpidr_el0"),
    }
}

fn jumps(code: &str) -> bool {
    match X86_64 {
        true => code.starts_with("call") || code.starts_with('j'),
        // Branches, and those on a register that is zero, or a bit.
        false => ["b", "cb", "tb"]
            .iter()
            .any(|start| code.starts_with(start)),
    }
}

fn parse(text: &str) -> HashMap<String, Function> {
    let mut functions = HashMap::new();
    let mut current: Option<(String, Function)> = None;
    for line in text.lines() {
        if let Some((address, name)) = line
            .strip_suffix(">:")
            .and_then(|line| line.split_once(" <"))
        {
            functions.extend(current.take());
            let empty = Function {
                name: name.to_owned(),
                instructions: 0,
                thread_locals: Vec::new(),
                writes_thread_pointer: false,
                calls: Vec::new(),
            };
            current = Some((address.trim_start_matches('0').to_owned(), empty));
        } else if let (Some((_, function)), Some((_, code))) =
            (&mut current, line.split_once(":\t"))
        {
            function.instructions += 1;
            function.writes_thread_pointer |= writes_thread_pointer(code);
            if reads_thread_pointer(code) {
                function.thread_locals.push(code.trim().to_owned());
            }
            let code = code.split("  // ").next().unwrap_or(code);
            if jumps(code)
                && let Some((jump, target)) = code.split_once('<')
                // A jump within a function names it with an offset.
                && !target.contains("+0x")
            {
                function
                    .calls
                    .extend(jump.split_whitespace().last().map(str::to_owned));
            }
        }
    }
    functions.extend(current);
    functions
}
