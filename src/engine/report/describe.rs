//! A thread's name, its state and its wait, in words.

use core::fmt;
use core::fmt::Write as _;
use std::time::Duration;

use super::collect::{Entry, Snapshot, Wait};
use super::syscalls;
use crate::engine::sched::sight::Doing;

/// A thread as a report calls it: its number, and its name.
pub(super) struct Named<'a>(pub(super) &'a Entry);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.0;
        match entry.is_green {
            true => write!(f, "thread {}", entry.id)?,
            false if entry.id != 0 => write!(f, "kernel thread {}", entry.id)?,
            false => write!(f, "kernel thread")?,
        }
        match &entry.name {
            Some(name) => write!(f, " {name:?}"),
            None => Ok(()),
        }
    }
}

/// The word for a state.
pub(super) fn state(entry: &Entry) -> &'static str {
    match entry.doing {
        Doing::New => "new",
        Doing::Ready => "ready",
        Doing::Running(_) if entry.call.is_some() => "blocked",
        Doing::Running(_) => "running",
        Doing::Parked => "parked",
    }
}

/// The name of the system call that the thread is blocked in.
pub(super) fn call(entry: &Entry) -> Option<String> {
    entry.call.map(syscalls::name)
}

/// A time, to two digits or so.
pub(super) fn time(millis: u64) -> String {
    let (seconds, minutes) = (millis / 1_000, millis / 60_000);
    if seconds == 0 {
        format!("{millis} ms")
    } else if minutes == 0 {
        format!("{seconds}.{} s", millis % 1_000 / 100)
    } else if minutes < 60 {
        format!("{minutes} min {} s", seconds % 60)
    } else {
        format!("{} h {} min", minutes / 60, minutes % 60)
    }
}

/// What a thread waits for: `mutex 0x7f…, held by thread 3 "b"`.
pub(super) fn wait(snapshot: &Snapshot, wait: &Wait) -> String {
    let mut text = wait.subject.name.to_string();
    let whom = wait
        .whom
        .map(|place| Named(&snapshot.threads[place as usize]));
    match (wait.facts.target, &whom) {
        (Some(_), Some(whom)) => text = format!("the end of {whom}"),
        _ if wait.of != 0 => {
            let _ = write!(text, " {:#x}", wait.of);
        }
        _ => {}
    }
    if wait.facts.holder.is_some() {
        match &whom {
            Some(whom) => {
                let _ = write!(text, ", held by {whom}");
            }
            None => text.push_str(", held by a thread that is not known"),
        }
    }
    let mut details: Vec<String> = wait
        .facts
        .numbers()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if let Some(descriptor) = wait.facts.descriptor {
        details.push(format!("descriptor {descriptor}"));
        details.extend(super::descriptor::describe(descriptor));
    }
    if !details.is_empty() {
        let _ = write!(text, " ({})", details.join(", "));
    }
    if let Some(left) = wait.left {
        let left = Duration::from_nanos(left).as_millis() as u64;
        let _ = write!(text, ", for {} at most", time(left));
    }
    text
}
