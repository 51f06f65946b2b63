//! The hook that prints the names of green threads in panic messages.
//!
//! std's message names a thread by what std knows about it, and std does not know the names of
//! green threads, nor those of the threads of a forked child.
//!
//! If the program has std's own hook when the runtime starts, this hook takes its place. It prints
//! the same message with the green thread's name and the number of its `ThreadId` (std's hook
//! prints the kernel thread's), and leaves everything else to std's. A program's own hook stays.
//!
//! std offers no way to print a backtrace in its short form, nor to tell it the name of a thread.
//! (A thread that std starts has its name, and what it prints is captured by `cargo test`: so it is with adopted threads,
//! [`adopt`](crate::thread::adopt). But not every program lets `pthread_create` be replaced.)
//!
//! To find out whether the hook is std's, it is taken twice. The first time gives the hook that was
//! set, the second time certainly std's; the two are the same if both have size zero and the same
//! table of methods.

use std::backtrace::Backtrace;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::panic::{self, PanicHookInfo};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::handle::Thread;
use crate::engine::{sched::current, sched::frames::Cancelled, sys::variable};

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

/// Installs the hook if the program has not set one of its own.
pub(crate) fn install() {
    if std::thread::panicking() {
        // A hook cannot be changed while panicking; the message then lacks the name.
        return;
    }
    let found = panic::take_hook();
    let default = panic::take_hook();
    if is_same(&found, &default) {
        panic::set_hook(Box::new(move |info| message(info, &default)));
    } else {
        panic::set_hook(found);
    }
}

fn is_same(a: &Hook, b: &Hook) -> bool {
    // Two wide pointers are equal if their tables are, too, which say the size.
    size_of_val(&**a) == 0 && core::ptr::eq(&raw const **a, &raw const **b)
}

fn message(info: &PanicHookInfo<'_>, default: &Hook) {
    if current::green().is_none() && !current::is_forked_child() {
        return default(info);
    }
    // A backtrace reads a file, whose length is chance.
    #[cfg(sim)]
    let _message = current::without_points();
    let thread = Thread::current();
    let Some(name) = thread.name() else {
        return default(info);
    };
    let place = info.location();
    let place = place.map_or_else(String::new, |place| format!(" at {place}"));
    let payload = text_of(info.payload());
    let (id, trace) = (thread.shared().identity.id(), trace());
    let text = format!("\nthread '{name}' ({id}) panicked{place}:\n{payload}\n{trace}");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Returns the text that std's hook prints below the message, as `RUST_BACKTRACE` asks for it.
fn trace() -> String {
    static HAS_HINTED: AtomicBool = AtomicBool::new(false);
    static ASKED: OnceLock<Option<OsString>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| variable::read("RUST_BACKTRACE"));
    match asked.as_deref().and_then(OsStr::to_str) {
        None | Some("0") if HAS_HINTED.swap(true, Relaxed) => String::new(),
        None | Some("0") => {
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n".into()
        }
        Some("full") => format!("stack backtrace:\n{:#}", Backtrace::force_capture()),
        Some(_) => format!(
            "stack backtrace:\n{}note: Some details are omitted, run with `RUST_BACKTRACE=full` \
             for a verbose backtrace.\n",
            short(&Backtrace::force_capture().to_string())
        ),
    }
}

/// Shortens the text of a [`Backtrace`] as std's hook does: to the frames between the two that std
/// knows by name, numbered anew. All frames stay if the names are not known.
fn short(trace: &str) -> String {
    // `str::contains` would add 5 KB to the program for this use alone.
    let has = |text: &str, part: &str| {
        let mut parts = text.as_bytes().windows(part.len());
        parts.any(|other| other == part.as_bytes())
    };
    let mut shown = String::new();
    let mut number = 0;
    let mut shows = !has(trace, "__rust_end_short_backtrace");
    for line in trace.lines() {
        if line.trim_start().starts_with("at ") {
            // This line is the location of the frame in the line above; before the first frame there is
            // none.
            if number > 0 {
                shown.extend([line, "\n"]);
            }
        } else if has(line, "__rust_begin_short_backtrace") && shows {
            break;
        } else if has(line, "__rust_end_short_backtrace") {
            shows = true;
        } else if shows {
            // Only frames that are not inlined have a number.
            let line = line.trim_start();
            let name = match line.split_once(':') {
                Some((number, name)) if number.parse::<usize>().is_ok() => name.trim_start(),
                _ => line,
            };
            shown += &format!("{number:4}: {name}\n");
            number += 1;
        }
    }
    shown
}

/// Returns the message of a panic.
pub(crate) fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    let cancelled = || payload.is::<Cancelled>().then_some("a frame has ended");
    let text = text.or_else(|| payload.downcast_ref().map(String::as_str));
    text.or_else(cancelled).unwrap_or("Box<dyn Any>")
}
