//! std's panic message names the thread by what std knows of it, and std knows no names of green
//! threads, nor of those of a forked child.
//!
//! So if the program has std's own hook when the runtime starts, a hook takes its place that prints
//! the same message with the green thread's name, and leaves everything else to std's. A program's
//! own hook is left alone.
//!
//! Whether the hook is std's: taking it twice gives first the one that was set, then certainly
//! std's; the two are the same if both are of size zero with the same table of methods.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write;
use std::panic::{self, PanicHookInfo};

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
    let table = |hook: &Hook| {
        let (_, table): (usize, usize) =
            // SAFETY: a reference to a trait object is two words, of which the second is the table.
            unsafe { core::mem::transmute(core::ptr::from_ref(&**hook)) };
        table
    };
    size_of_val(&**a) == 0 && size_of_val(&**b) == 0 && table(a) == table(b)
}

fn message(info: &PanicHookInfo<'_>, default: &Hook) {
    if crate::current::green().is_none() && !crate::sched::fork::is_child() {
        return default(info);
    }
    let thread = super::current();
    let Some(name) = thread.name() else {
        return default(info);
    };
    let place = info
        .location()
        .map_or_else(String::new, |place| format!(" at {place}"));
    let payload = text_of(info.payload());
    let backtrace = Backtrace::capture();
    let trace = match backtrace.status() {
        BacktraceStatus::Captured => format!("stack backtrace:\n{backtrace}"),
        _ => {
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n".into()
        }
    };
    let text = format!("\nthread '{name}' panicked{place}:\n{payload}\n{trace}");
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// What a panic said.
pub(crate) fn text_of(payload: &(dyn std::any::Any + Send)) -> &str {
    match (
        payload.downcast_ref::<&'static str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "Box<dyn Any>",
    }
}
