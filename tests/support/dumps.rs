//! What the tests of dumps share: looking for threads in a dump until they are as they should be, and comparing
//! text with a pattern.
//!
//! A thread is found by its name. A dump is taken anew until the thread is there and at rest: a test waits for a
//! state, not for a length of time.

#![allow(dead_code)] // every test file uses its own part of this

use greenthread::observe::{self, Dump, State, ThreadReport};
use std::time::{Duration, Instant};

/// How long a thread may take until it is as it should be: nearly as long as the watchdog waits.
pub const PATIENCE: Duration = Duration::from_secs(50);

/// Whether `text` is `pattern`, in which `*` stands for anything.
pub fn is_like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The only thread of that name.
#[track_caller]
pub fn named<'a>(dump: &'a Dump, name: &str) -> Option<ThreadReport<'a>> {
    let mut found = dump.threads().filter(|thread| thread.name() == Some(name));
    let first = found.next();
    assert!(found.next().is_none(), "{name} is listed twice:\n{dump}");
    first
}

/// Takes dumps until one satisfies `is_right`; panics with the last one.
#[track_caller]
pub fn dump_until(what: &str, mut is_right: impl FnMut(&Dump) -> bool) -> Dump {
    let start = Instant::now();
    loop {
        let dump = observe::dump();
        if is_right(&dump) {
            return dump;
        }
        assert!(start.elapsed() < PATIENCE, "{what}:\n{dump}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the thread is parked.
#[track_caller]
pub fn until_parked(name: &str) -> Dump {
    dump_until(name, |dump| {
        named(dump, name).is_some_and(|thread| thread.state() == State::Parked)
    })
}
