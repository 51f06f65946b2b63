//! A table of threads that wait, and of how a dump must show each.

use super::dumps::{PATIENCE, is_like, named};
use crate::common::{green, hooked};
use greenthread::observe::{self, Dump, State};
use greenthread::{Builder, JoinHandle, thread};
use serde_json::Value;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// A thread that waits, and how it must be shown.
pub struct Row {
    pub name: String,
    pub state: State,
    /// A pattern.
    pub waits_for: Option<String>,
    /// The name of the thread that it waits for.
    pub whom: Option<&'static str>,
    /// Names that are in its backtrace.
    pub frames: Vec<&'static str>,
    pub line: Option<u32>,
}

#[derive(Default)]
pub struct Table {
    pub rows: Vec<Row>,
}

impl Table {
    /// Adds the row of a thread that was spawned in the line of the call.
    #[track_caller]
    pub fn add(&mut self, name: &str, waits_for: &str, frame: &'static str) -> &mut Row {
        self.rows.push(Row {
            name: name.into(),
            state: State::Parked,
            waits_for: Some(waits_for.into()),
            whom: None,
            frames: vec![frame, "rows::runs"],
            line: Some(std::panic::Location::caller().line()),
        });
        self.rows.last_mut().unwrap()
    }

    /// As `add`, of a thread that waits by a call of libc: in kernel mode it is blocked in the kernel.
    #[track_caller]
    pub fn add_unmodified(&mut self, name: &str, waits_for: &str, frame: &'static str) {
        let line = std::panic::Location::caller().line();
        let row = self.add(name, waits_for, frame);
        row.line = Some(line);
        if !hooked() {
            (row.state, row.waits_for) = (State::Blocked, None);
            // The stack of a thread that is blocked in such a call ends at the first function of std's: these need
            // the frame pointer, which the system does not tell.
            row.frames.clear();
        }
    }

    /// What is not as it must be. Backtraces are only looked at if all else is right, and by way of JSON, where each
    /// function is looked up once.
    fn faults(&self, dump: &Dump) -> Vec<String> {
        let faults: Vec<_> = self.rows.iter().flat_map(|row| row.faults(dump)).collect();
        if !faults.is_empty() {
            return faults;
        }
        let mut json = Vec::new();
        dump.write_json(&mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let rows = self.rows.iter();
        rows.flat_map(|row| row.faults_of_backtrace(&json))
            .collect()
    }

    #[track_caller]
    pub fn expect(&self) -> Dump {
        let start = Instant::now();
        loop {
            let dump = observe::dump();
            let faults = self.faults(&dump);
            if faults.is_empty() {
                return dump;
            }
            let patience = start.elapsed() < PATIENCE;
            assert!(patience, "{}\n{dump}", faults.join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Row {
    fn faults(&self, dump: &Dump) -> Vec<String> {
        let name = &self.name;
        let Some(thread) = named(dump, name) else {
            return vec![format!("{name} is not there")];
        };
        let mut faults = Vec::new();
        let mut check = |what: &str, is_right: bool, seen: &dyn std::fmt::Debug| {
            if !is_right {
                faults.push(format!("{name}: {what}: {seen:?}"));
            }
        };
        check("state", thread.state() == self.state, &thread.state());
        check("green", thread.is_green() == green(), &thread.is_green());
        check("id", thread.id().is_some(), &thread.id());
        let waits_for = thread.waits_for();
        let is_right = match (&waits_for, &self.waits_for) {
            (Some(text), Some(pattern)) => is_like(text, pattern),
            (seen, expected) => seen.is_none() && expected.is_none(),
        };
        check("waits for", is_right, &(&waits_for, &self.waits_for));
        let whom = thread.waits_for_thread();
        let whom = whom.as_ref().and_then(|whom| whom.name());
        check("waits for the thread", whom == self.whom, &whom);
        let place = thread.spawned_at();
        if let Some(line) = self.line {
            let is_right = place.is_some_and(|place| {
                place.file().ends_with("observe/waits.rs") && place.line().abs_diff(line) <= 8
            });
            check("spawned at", is_right, &(place, line));
        }
        let is_blocked = self.state == State::Blocked;
        let call = thread.system_call();
        check("system call", call.is_some() == is_blocked, &call);
        faults
    }

    fn faults_of_backtrace(&self, json: &Value) -> Vec<String> {
        let name = &self.name;
        let threads = json["threads"].as_array().unwrap();
        let thread = threads.iter().find(|thread| thread["name"] == name[..]);
        let stack = thread.and_then(|thread| thread["stack"].as_u64());
        let backtrace = stack.map_or("none".into(), |at| json["stacks"][at as usize].to_string());
        let frames = self.frames.iter();
        let missing = frames.filter(|&&frame| !backtrace.contains(frame));
        let fault = |frame| format!("{name}: no {frame} in its backtrace: {backtrace}");
        missing.map(fault).collect()
    }
}

/// Spawns a thread of that name.
#[track_caller]
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new()
        .name(name.into())
        .spawn(|| runs(body))
        .unwrap()
}

/// The closure is inlined here, if anywhere: without debug information its own name would be lost.
#[inline(never)]
pub fn runs(body: impl FnOnce()) {
    body();
    black_box(());
}

pub static IS_OVER: AtomicBool = AtomicBool::new(false);

/// What the threads of a table wait for, kept until the table is over.
#[derive(Default)]
pub struct Kept {
    pub unparked: Vec<thread::Thread>,
    pub handles: Vec<JoinHandle<()>>,
    pub things: Vec<Box<dyn std::any::Any>>,
}

impl Kept {
    pub fn keep(&mut self, handle: JoinHandle<()>) {
        self.unparked.push(handle.thread().clone());
        self.handles.push(handle);
    }

    /// Ends the threads, which have to be able to.
    pub fn end(self) {
        IS_OVER.store(true, Relaxed);
        drop(self.things);
        self.unparked.iter().for_each(thread::Thread::unpark);
        self.handles
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}
