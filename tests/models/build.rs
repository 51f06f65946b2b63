//! Writes the mutants: copies of a protocol's source, or of its model where an obligation lies with
//! the user, with one thing weakened; and a test for each that says how it must fail.

mod mutants;
mod parts;

use mutants::*;
use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

/// For each protocol, the sources that a mutant of it is made of: all that stand on one another.
const PROTOCOLS: &[(&str, &[&str])] = &[
    ("park_state", &[PARK_STATE]),
    ("interrupts", &[PARK_STATE, LOCK]),
    ("scopes", &[PARK_STATE, CANCEL, LOCK]),
    ("ownership", &[OWNERSHIP, LOCK]),
    ("idle", &[IDLE]),
    ("wake", &[WAKE]),
    ("post", &[POST]),
    ("deadlines", &[WATCHED]),
    ("live_count", &[LIVE_COUNT, OWNERSHIP]),
    ("shares", &[SHARES]),
    ("joinable", &[JOINABLE]),
    ("hiding", &[HIDING]),
    ("places", &[PLACES]),
    ("snapshot", &[THREADS, SWITCH]),
    ("turns", &[TURNS, SIDE]),
    ("claim", &[QUEUE]),
    ("queue", &[QUEUE]),
    ("addresses", &[QUEUE, ADDRESSES]),
    ("mutex", &[QUEUE, RAW_MUTEX]),
    ("once", &[QUEUE, ONCE]),
    ("rwlock", &[RAW_RWLOCK]),
    ("lock", &[LOCK]),
    ("local_queue", &[LOCAL_QUEUE]),
    ("readiness", &[QUEUE, REGISTRATION]),
    ("registration", &[REGISTRATION]),
    ("watch", &[WATCH]),
    ("channels", CHANNEL),
    ("select", CHANNEL),
    ("condvar", &[QUEUE, RAW_MUTEX, POISON, MUTEX, CONDVAR]),
];

/// The sources of which a part is a protocol: its parts, and what they import here.
const PARTS: &[(&str, &[&str], &str)] = &[
    (
        PARK_STATE,
        &["the park state", "the words", "a place in a list"],
        "use core::panic::{RefUnwindSafe, UnwindSafe};
        use crate::engine::atomic::{AtomicPtr, AtomicU32, Cell, Ordering::{AcqRel, Acquire, Relaxed, Release}, const_fn};
        use crate::engine::sys::{perturb, shared::{Patience, entry_fence}};
        type Frame = ();
        pub(crate) use crate::engine::sched::thread::waiter::{Parking, Waiter};",
    ),
    (
        CANCEL,
        &["lists of threads", "threads that are pinned", "the walk"],
        "use core::ptr;
        use crate::engine::atomic::{AtomicPtr, AtomicUsize, Ordering::*, fence};
        use crate::engine::inspect::notes::{WaitKind, WaitReason, WhenEnded};
        use crate::engine::sched::current::{is_forked_child, preemption_off};
        use crate::engine::sched::park::{Interrupts, Node, Parking};
        use crate::engine::sched::{Fifo, Green, ready};
        use crate::engine::sys::{kernel_thread, perturb, shared::Lock};
        use crate::engine::wait::{Outcome, Waiter};
        /// A thread has one at most, a scope's, and its words lead to that one.
        struct Frame;
        impl Frame {
            pub(crate) unsafe fn scopes<'a>(thread: &Interrupts) -> impl Iterator<Item = &'a Threads> {
                // SAFETY: what the model checks.
                unsafe { thread.top.load(Acquire).cast::<Threads>().as_ref() }.into_iter()
            }
        }
        impl Interrupts {
            /// The thread is in that scope now.
            pub(crate) fn open(&self, scope: *const Threads) {
                self.top.store(scope.cast_mut().cast(), Release);
            }
            pub(crate) fn is_open(&self) -> bool {
                !self.top.load(Acquire).is_null()
            }
        }",
    ),
    (
        HIDING,
        &["hiding"],
        "use crate::engine::atomic::{Cell, Ordering::SeqCst, compiler_fence, const_fn};
        use crate::engine::sched::{Green, ThreadFlags};",
    ),
    (
        LOCK,
        &["the lock", "the fence", "the atomic static"],
        "use core::{cell::UnsafeCell, marker::PhantomData, ops::{Deref, DerefMut}, ptr};
        use crate::engine::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence, const_fn};
        use crate::engine::sys::{futex, perturb};
        pub(crate) use crate::engine::sys::{pauses::{Backoff, Patience}, table::Table};",
    ),
    (
        IDLE,
        &["the idle word", "the deadline that is watched", "the wake word"],
        "use crate::engine::atomic::{AtomicU32, AtomicU64, Ordering::{Acquire, Relaxed, Release, SeqCst}, fence};
        use crate::engine::sched::{Cluster, Fifo, events::{self, Turn}};
        use crate::engine::sys::clock::{self, NEVER};
        use crate::engine::sys::{die, futex, perturb};",
    ),
    (NOTES, &["wait reasons"], "use crate::engine::sys::word;"),
    (
        THREADS,
        &["a snapshot"],
        "use crate::engine::arch;
        use crate::engine::atomic::{Ordering::*, fence};
        use crate::engine::inspect::{kernel::KernelThread, notes::Facts};
        use crate::engine::sched::park::{ParkState, Parking, Waiter};
        use crate::engine::sched::{Green, Identity, ThreadFlags, Worker, switch::Bounds};
        use crate::engine::sys::word;",
    ),
    (
        PLACES,
        &["places"],
        "use crate::engine::atomic::{AtomicU64, AtomicUsize, Ordering::{Acquire, Relaxed, Release}, const_fn};
        use crate::engine::sys::perturb;",
    ),
    (
        OWNERSHIP,
        &["counts", "the ownership word"],
        "use core::{mem, ptr};
        use crate::engine::atomic::{AtomicPtr, AtomicU64, Ordering::{Acquire, Relaxed, Release}};
        use crate::engine::sys::perturb;",
    ),
    (
        LIVE_COUNT,
        &["how many live"],
        "use crate::engine::atomic::{AtomicBool, Ordering::*, compiler_fence, fence};
        use crate::engine::sched::processor::Counts;
        use crate::engine::sys::{kernel_thread, perturb};",
    ),
    (
        LOCAL_QUEUE,
        &["the local queue"],
        "use crate::engine::atomic::{AtomicU32, AtomicU64, Cell, Ordering};
        use crate::engine::sched::Green;
        use crate::engine::sys::perturb;",
    ),
    (
        SHARES,
        &["the shares"],
        "use crate::engine::atomic::{AtomicUsize, Ordering::{Acquire, Relaxed, Release}, fence};
        use crate::engine::sys::{die, perturb};",
    ),
    (
        REGISTRATION,
        &["the known readiness", "the registration of a descriptor"],
        "use core::ptr;
        use std::{io, os::fd::RawFd};
        pub(crate) use crate::engine::driver::instance::{INSTANCE, Record, Source};
        use crate::engine::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
        use crate::engine::atomic::{AtomicBool, const_fn};
        use crate::engine::sched::{self, current, Fifo};
        use crate::engine::sys::{perturb, shared::{AtomicStatic, Lock}};
        use crate::engine::wait::WaitReason;
        use crate::engine::wait::queue::{Position, WaitQueue, Waited};",
    ),
    (
        SWITCH,
        &["to a thread and back"],
        "use crate::engine::arch::{self, FloatControl};
        use crate::engine::atomic::{AtomicU32, Ordering::*, compiler_fence, fence};
        pub(crate) use crate::engine::sched::context::{Action, Bounds};
        use crate::engine::sched::{Green, Worker, ThreadFlags, RunLoop, cpu_time, current, locked};
        use crate::engine::sched::{lend_cache, take_cache};
        use crate::engine::sys::{clock, signal};",
    ),
];

const CHANNEL: &[&str] = &[
    QUEUE,
    "channel/mod.rs",
    CELL,
    "channel/buffer.rs",
    "channel/error.rs",
    "channel/receiver.rs",
    "channel/select.rs",
    SELECTING,
    "channel/sender.rs",
    SHARED,
    LETTERS,
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(greenthread_model, hooks, sim, tsan)");
    println!("cargo::rustc-cfg=greenthread_model");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=mutants.rs");
    println!("cargo::rerun-if-changed=parts.rs");
    println!("cargo::rerun-if-changed=mutants");

    let here = env::var("CARGO_MANIFEST_DIR").unwrap();
    let out = env::var("OUT_DIR").unwrap();
    for (file, ..) in PARTS {
        let original = format!("{here}/../../src/{file}");
        println!("cargo::rerun-if-changed={original}");
        let name = Path::new(file).file_name().unwrap();
        fs::create_dir_all(Path::new(&out).join("parts")).unwrap();
        fs::write(
            Path::new(&out).join("parts").join(name),
            source(file, &original),
        )
        .unwrap();
    }
    let mut index = String::new();
    for mutant in MUTANTS.into_iter().flatten() {
        let &Mutant {
            protocol,
            name,
            edits,
            model,
            fails,
        } = mutant;
        let (_, sources) = PROTOCOLS
            .iter()
            .find(|known| known.0 == protocol)
            .expect(protocol);
        let mut edited = edits.iter().map(|edit| edit.0);
        assert!(
            edited.all(|file| file == MODEL || sources.contains(&file)),
            "{name}"
        );
        // A copy of a file in which the mutant takes the place of the crate; else the original.
        let copy = |file: &str, original: String| {
            println!("cargo::rerun-if-changed={original}");
            let mut text = source(file, &original);
            for (_, from, to) in edits.iter().filter(|edit| edit.0 == file) {
                // A mutant that does not mutate would prove nothing.
                let found = text.matches(from).count();
                assert_eq!(found, 1, "{name}: {from:?} in {original}");
                text = text.replace(from, to);
            }
            let text = text.replace("crate::", &format!("crate::{name}::"));
            let copy = Path::new(&out).join(name).join(file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(&copy, text).unwrap();
            let module = Path::new(file).file_stem().unwrap().to_str().unwrap();
            format!("#[path = {copy:?}] pub(crate) mod {module};")
        };
        let mut root = String::new();
        let mut folders = BTreeMap::<_, String>::new();
        for file in *sources {
            let Some(folder) = folder_of(file) else {
                // The models' own, but not one of them.
                root += &copy(file, format!("{here}/{file}"));
                continue;
            };
            let copied = copy(file, format!("{here}/../../src/{file}"));
            if !sources.contains(&&*format!("{folder}/mod.rs")) {
                *folders.entry(folder).or_default() += &copied;
            } else if file.ends_with("/mod.rs") {
                root += &copied.replace(" mod mod;", &format!(" mod {folder};"));
            }
        }
        let model_file = copy(MODEL, format!("{here}/{protocol}.rs"));
        writeln!(index, "mod {name} {{ #![allow(unused, clippy::all, clippy::undocumented_unsafe_blocks)] use crate::*;").unwrap();
        // The front comes to the copies by a facade of their own.
        let facade = format!("#[path = \"{here}/library/facade.rs\"] pub(crate) mod facade;");
        let mut engine = String::new();
        for (folder, files) in folders {
            let path = folder.replace('/', "::");
            let name = folder.strip_prefix("engine/");
            let module = |name| {
                format!("pub(crate) mod {name} {{ pub(crate) use crate::{path}::*; {files} }}")
            };
            match name {
                None => writeln!(index, "    {}", module(folder)).unwrap(),
                Some(name) => {
                    engine += &module(name);
                    writeln!(index, "    pub(crate) use self::engine::{name};").unwrap();
                }
            }
        }
        writeln!(
            index,
            "    pub(crate) mod engine {{ pub(crate) use crate::engine::*; {facade} {engine} }}"
        )
        .unwrap();
        writeln!(index, "    {root} {model_file}").unwrap();
        writeln!(
            index,
            "    #[test] fn is_caught() {{ crate::must_fail(\"{name}::is_caught\", model::{model}, {fails:?}) }}\n}}"
        )
        .unwrap();
    }
    fs::write(Path::new(&out).join("mutants.rs"), index).unwrap();
}

/// The text of a source, or of its part.
fn source(file: &str, path: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    match PARTS.iter().find(|part| part.0 == file) {
        None => text,
        Some((_, names, imports)) => format!("{imports}\n{}", parts::cut(&text, names)),
    }
}

/// The library's module that `file` belongs to; `None`: it is the models' own.
fn folder_of(file: &str) -> Option<&str> {
    const ENGINE: &str = "engine/";
    let start = if file.starts_with(ENGINE) {
        ENGINE.len()
    } else {
        0
    };
    let end = start + file[start..].find('/')?;
    Some(&file[..end])
}
