//! Torture: everything at once, for as long as one likes.
//!
//! 1. It goes in rounds. A *mix* is a runtime of its own in which several lanes play one scene after
//!    the other (`support/scenes.rs`), while its processors come and go. The other rounds are alone
//!    in the process, since they judge by what the process does.
//! 2. Every scene knows what must come out, and every runtime is shut down, which needs all of its
//!    threads to have ended.
//! 3. A scene that takes a minute hangs. A round that is alone has less patience: its runtime must
//!    not use much CPU time without getting on, however busy the worker is.
//! 4. Whoever fails ends the process, and says the seeds and what everybody was at.
//!
//! `GT_TORTURE_SECS` says for how long (1 second unless given), `GT_TORTURE_ROUND` with which rounds
//! only (`mix`, `echo` or `shutdown`); `GT_SEED` repeats the choices. It is made for the perturbed build (`src/engine/sys/perturb.rs`), and for an hour of that.
//! It finds faults that come once in a million runs: a cluster that ended without waiting for its spawner crashed within 36 s.

#![cfg(feature = "net")]

#[path = "../support/scenes.rs"]
mod scenes;

use crate::support::storm::{burn, green};
use crate::support::{Rng, cpu_time};
use greenthread::Thread;
use greenthread::runtime::Runtime;
use scenes::{SCENES, Scene};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// So long may a scene take.
const PATIENCE: Duration = Duration::from_secs(60);
/// So much CPU time may the process use before a thread that is ready gets on, nothing else being
/// there to do.
const IN_VAIN: Duration = Duration::from_millis(400);
const LANES: usize = 6;

/// What takes so long, about.
type Round = fn(&mut Rng, Duration);

const ROUNDS: [(&str, Round); 3] = [
    ("mix", mix),
    ("echo", |rng, time| {
        alone(rng, time, "echo", echo_and_bursts)
    }),
    ("shutdown", |rng, time| {
        alone(rng, time, "shutdown", shut_down_when_many_end)
    }),
];

/// What a lane is at, and since when.
static AT: Mutex<[Option<(&str, Instant)>; LANES]> = Mutex::new([None; LANES]);
static SEED: AtomicU64 = AtomicU64::new(0);
static PLAYED: AtomicU64 = AtomicU64::new(0);

/// Past the test harness, which would keep it to itself, or lose it in a crash.
fn say(text: &str) {
    let mut text = format!("torture: {text}; GT_SEED={}", SEED.load(Relaxed));
    if let Ok(seed) = std::env::var("GREENTHREAD_PERTURB_SEED") {
        text += &format!(" GREENTHREAD_PERTURB_SEED={seed}");
    }
    text += "\n";
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn fail(what: &str) -> ! {
    let at = *AT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut text = what.to_string();
    for (lane, at) in at.iter().enumerate() {
        if let Some((scene, since)) = at {
            text += &format!("; lane {lane}: {scene}, for {:.1?}", since.elapsed());
        }
    }
    say(&text);
    while std::env::var_os("GT_STRESS_HANG").is_some() {
        std::thread::sleep(PATIENCE); // for a debugger
    }
    std::process::abort()
}

/// Plays `scene` in `lane`.
fn play(lane: usize, name: &'static str, scene: impl FnOnce()) {
    let set = |at| AT.lock().unwrap()[lane] = at;
    set(Some((name, Instant::now())));
    if catch_unwind(AssertUnwindSafe(scene)).is_err() {
        fail(&format!("{name}: a check has failed"));
    }
    set(None);
    PLAYED.fetch_add(1, Relaxed);
}

/// Ends the process when a scene hangs.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let hangs = |at: &Option<(&str, Instant)>| {
                at.as_ref()
                    .is_some_and(|(_, since)| since.elapsed() > PATIENCE)
            };
            let hangs = AT.lock().unwrap().iter().any(hangs);
            if hangs {
                fail("no end after a minute");
            }
        }
    });
}

/// Scenes beside each other, from green threads and from kernel threads, for `time`.
fn mix(rng: &mut Rng, time: Duration) {
    let slice = [100, 1_000, 10_000][rng.below(3) as usize];
    let runtime = Runtime::builder()
        .processors(1 + rng.below(4) as usize)
        .time_slice(Duration::from_micros(slice))
        .build()
        .unwrap();
    let (runtime, end) = (Arc::new(runtime), Instant::now() + time);
    let lanes = (0..LANES).map(|lane| {
        let (runtime, mut rng) = (runtime.clone(), Rng::new(rng.next()));
        std::thread::spawn(move || {
            while Instant::now() < end {
                if lane == 0 {
                    let processors = 1 + rng.below(4) as usize;
                    play(lane, "resizing", || {
                        runtime.set_processors(processors).unwrap()
                    });
                    std::thread::sleep(rng.micros_below(20_000));
                    continue;
                }
                let (name, scene) = SCENES[rng.below(SCENES.len() as u64) as usize];
                let (outside, mut rng) = (rng.below(4) == 0, Rng::new(rng.next()));
                play(lane, name, || match outside {
                    true => scene(&mut rng),
                    false => runtime.spawn(move || scene(&mut rng)).join().unwrap(),
                });
            }
        })
    });
    let lanes: Vec<_> = lanes.collect();
    lanes.into_iter().for_each(|lane| lane.join().unwrap());
    let runtime = Arc::into_inner(runtime).expect("the lanes have ended");
    play(0, "shutting down", || runtime.shutdown());
}

/// One scene again and again, and nothing beside it.
fn alone(rng: &mut Rng, time: Duration, name: &'static str, scene: Scene) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        play(0, name, || scene(rng));
    }
}

/// Waits until `done` says that it is; it says so without much CPU time being used.
fn soon(what: &str, done: impl Fn() -> bool) {
    let before = cpu_time();
    while !done() {
        std::thread::sleep(Duration::from_micros(100));
        if cpu_time() - before > IN_VAIN {
            fail(&format!("{what}: {IN_VAIN:?} of CPU time in vain"));
        }
    }
}

/// A byte, by who looks for it all the time, as long as the others can run beside it.
fn read_spinning(stream: &mut UnixStream) -> u8 {
    let mut byte = [0];
    for look in 1.. {
        match stream.read(&mut byte) {
            Ok(1) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if look % 100 == 0 {
                    std::thread::yield_now();
                }
            }
            other => panic!("the echo is gone: {other:?}"),
        }
    }
    byte[0]
}

/// Bytes are echoed so quickly that a processor spins for the next and never rests, often enough to
/// use up whatever it may use between two rests. Then threads come from outside while it spins.
fn echo_and_bursts(rng: &mut Rng) {
    let runtime = Runtime::builder()
        .processors(1 + rng.below(2) as usize)
        .build()
        .unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let echo = runtime.spawn(move || {
        let mut stream = greenthread::os::unix::net::UnixStream::from(OwnedFd::from(far));
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() != 0 {
            stream.write_all(&byte).unwrap();
        }
    });
    for _ in 0..1 + rng.below(10) {
        for _ in 0..rng.below(500) {
            let sent = rng.next() as u8;
            near.write_all(&[sent]).unwrap();
            assert_eq!(read_spinning(&mut near), sent);
        }
        let (count, ended) = (1 + rng.below(20), Arc::new(AtomicU64::new(0)));
        for n in 1..=count {
            let his = ended.clone();
            burn(rng.micros_below(60));
            runtime.spawn(move || _ = his.fetch_add(1, Release));
            if n == count || rng.below(2) == 0 {
                soon("a short thread from outside", || ended.load(Acquire) == n);
            }
        }
    }
    drop(near);
    soon("the end of the echo", || echo.is_finished());
    runtime.shutdown();
}

/// A runtime becomes smaller and is shut down while the last of its many threads end: all of their
/// stacks are given back, once. Each has left something on its own.
fn shut_down_when_many_end(rng: &mut Rng) {
    let runtime = Runtime::builder()
        .processors(2 + rng.below(3) as usize)
        .build()
        .unwrap();
    let (count, go) = (
        1 + rng.below(if green() { 1_200 } else { 50 }),
        Arc::new(AtomicBool::new(false)),
    );
    let threads: Arc<Vec<OnceLock<Thread>>> =
        Arc::new((0..count).map(|_| OnceLock::new()).collect());
    let (parked, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for index in 0..count {
        let (go, threads) = (go.clone(), threads.clone());
        let (parked, ended) = (parked.clone(), ended.clone());
        runtime.spawn(move || {
            let pattern = std::hint::black_box([index; 64]);
            threads[index as usize].set(greenthread::current()).unwrap();
            parked.fetch_add(1, Release);
            while !go.load(Acquire) {
                greenthread::park();
            }
            assert!(
                pattern.iter().all(|&word| word == index),
                "two on one stack"
            );
            ended.fetch_add(1, Release);
        });
    }
    while parked.load(Acquire) != count {
        std::thread::sleep(Duration::from_micros(200));
    }
    let shrink = |runtime: &Runtime| runtime.set_processors(1).unwrap();
    let before = rng.below(2) == 0;
    if before {
        shrink(&runtime);
    }
    go.store(true, Release);
    threads
        .iter()
        .for_each(|thread| thread.get().unwrap().unpark());
    if !before {
        shrink(&runtime);
    }
    runtime.shutdown();
    assert_eq!(ended.load(Acquire), count);
}

#[test]
fn torture() {
    let (mut rng, seed) = Rng::from_env_with_seed();
    SEED.store(seed, Relaxed);
    say("begins");
    let seconds =
        std::env::var("GT_TORTURE_SECS").map_or(1, |s| s.parse().expect("GT_TORTURE_SECS"));
    let end = Instant::now() + Duration::from_secs(seconds);
    watch();
    let only = std::env::var("GT_TORTURE_ROUND").ok();
    while Instant::now() < end {
        let time = Duration::from_millis(200 + rng.below(1_000)).min(end - Instant::now());
        let (name, round) = ROUNDS[rng.below(ROUNDS.len() as u64) as usize];
        if only.as_deref().is_none_or(|only| only == name) {
            round(&mut rng, time);
        }
    }
    say(&format!("{} scenes are well", PLAYED.load(Relaxed)));
}
