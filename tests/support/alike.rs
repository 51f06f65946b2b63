//! One scene of libc calls, played on a plain kernel thread, on green threads, and on a green thread whose
//! calls are libc's: all must answer the same.
//!
//! A scene writes down what its calls answer: the result, `errno` if it is an error, and data. Helpers in a
//! scene are kernel threads. They wait until they see that the scene's thread waits ([`Scene::waits`]).

#![allow(dead_code)] // each test file uses its own part

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::*};
use std::time::Duration;

use greenthread::runtime::Runtime;

pub struct Scene {
    said: Vec<String>,
    runtime: Option<Arc<Runtime>>,
    pub is_green: bool,
}

/// What a helper needs to see that the thread of a scene waits.
#[derive(Clone)]
pub struct Watch {
    runtime: Option<Arc<Runtime>>,
    parked: u64,
    /// The kernel thread; 0: the call is over.
    tid: Arc<AtomicI32>,
}

impl Watch {
    /// Waits until the thread waits: it is parked, or its kernel thread sleeps; or until the call is over.
    pub fn wait(&self) {
        let is_parked = || {
            let runtime = self.runtime.as_ref();
            runtime.is_some_and(|runtime| runtime.metrics().parked_calls > self.parked)
        };
        let sleeps = |tid| {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"));
            let state = stat
                .ok()
                .and_then(|stat| stat.rsplit(')').next().map(String::from));
            state.is_some_and(|rest| rest.starts_with(" S"))
        };
        let mut seen_asleep = 0;
        while seen_asleep < 20 {
            let tid = self.tid.load(SeqCst);
            if tid == 0 || is_parked() {
                return;
            }
            match sleeps(tid) {
                true if self.runtime.is_none() => return,
                // A green thread may be elsewhere.
                true => seen_asleep += 1,
                false => seen_asleep = 0,
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Scene {
    /// Writes down the answer of a call, and returns it.
    #[track_caller]
    pub fn call(&mut self, what: &str, call: impl FnOnce() -> isize) -> isize {
        let answer = call();
        let errno = if answer < 0 { errno() } else { 0 };
        self.say(format!("{what}: {answer}, errno {errno}"));
        answer
    }

    /// The same, for a call that returns an `int`.
    #[track_caller]
    pub fn int(&mut self, what: &str, call: impl FnOnce() -> i32) -> i32 {
        self.call(what, || call() as isize) as i32
    }

    pub fn note(&mut self, what: impl std::fmt::Debug) {
        self.say(format!("{what:?}"));
    }

    fn say(&mut self, line: String) {
        if std::env::var_os("GT_TRACE").is_some() {
            eprintln!("{line}");
        }
        self.said.push(line);
    }

    /// Call it before the call that will wait, and hand the result to a helper.
    pub fn watch(&self) -> Watch {
        Watch {
            parked: self
                .runtime
                .as_ref()
                .map_or(0, |r| r.metrics().parked_calls),
            runtime: self.runtime.clone(),
            // SAFETY: a plain call.
            tid: Arc::new(AtomicI32::new(unsafe { libc::gettid() })),
        }
    }

    /// Runs `call` while `helper` runs on a kernel thread; that begins once this thread waits.
    pub fn waits<T: Send>(
        &mut self,
        helper: impl FnOnce() -> T + Send,
        call: impl FnOnce(&mut Scene),
    ) -> T {
        let watch = self.watch();
        let tid = watch.tid.clone();
        std::thread::scope(|threads| {
            let helper = threads.spawn(move || {
                watch.wait();
                helper()
            });
            call(self);
            tid.store(0, SeqCst);
            helper.join().expect("the helper")
        })
    }
}

fn play(runtime: Option<Arc<Runtime>>, is_green: bool, scene: fn(&mut Scene)) -> Vec<String> {
    let mut this = Scene {
        said: Vec::new(),
        runtime,
        is_green,
    };
    scene(&mut this);
    this.said
}

/// Plays the scene in all ways and compares. Where calls are not hooked, no thread gets the signal that preempts: it may cut
/// such a call short, as README says. One that was blocked and computes on without a processor would get it, too.
#[track_caller]
pub fn alike(scene: fn(&mut Scene)) {
    let plain = alike_hooked(scene);
    let runtime = Runtime::builder().processors(2);
    let runtime = runtime.preemption(false).hand_off(false).build();
    let runtime = runtime.expect("a runtime");
    let unhooked = runtime.spawn(move || greenthread::unhooked(|| play(None, false, scene)));
    same("unhooked", &plain, &unhooked.join().expect("unhooked"));
}

fn on_two() -> Runtime {
    Runtime::builder().processors(2).build().expect("a runtime")
}

/// The same, but for calls that are not hooked: in a program with handlers of its own, the signal that preempts a
/// thread may cut those short. Returns what a kernel thread has said.
#[track_caller]
pub fn alike_hooked(scene: fn(&mut Scene)) -> Vec<String> {
    let plain = std::thread::spawn(move || play(None, false, scene));
    let plain = plain.join().expect("on a kernel thread");
    let rapid = || {
        let slice = Duration::from_micros(100);
        let runtime = Runtime::builder().processors(1).time_slice(slice);
        runtime.build().expect("a runtime")
    };
    for (way, runtime) in [("green", on_two()), ("green, slices of 100 µs", rapid())] {
        let runtime = Arc::new(runtime);
        let is_green = runtime.mode() == greenthread::runtime::Mode::Green;
        let given = is_green.then(|| runtime.clone());
        let said = runtime.spawn(move || play(given, is_green, scene)).join();
        same(way, &plain, &said.expect(way));
    }
    plain
}

#[track_caller]
fn same(way: &str, plain: &[String], said: &[String]) {
    for (i, line) in plain.iter().enumerate() {
        let other = said.get(i).map_or("(nothing)", |s| s.as_str());
        assert_eq!(line, other, "line {i}: a kernel thread, {way}");
    }
    assert_eq!(plain.len(), said.len(), "{way}: lines");
}
