//! The same seed, the same run: in two processes, with another environment and other addresses.

use std::io::{Read, Write, pipe};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, mpsc};
use std::time::Duration;

use greenthread::sim::{Builder, Isolation};
use greenthread::{channel, scope, spawn, time};

use crate::programs::{PROGRAMS, Threads};
use crate::support::seeds;

/// Programs that fail under some seeds repeat, too: a failure, in a panic's place, is a result like any other.
#[test]
fn programs_with_faults_repeat() {
    for program in PROGRAMS {
        if program.says == "deadlock" {
            continue;
        }
        let run = program.run;
        let caught = move || _ = std::panic::catch_unwind(|| run(Threads::Green));
        let ended = Builder::new().seeds(seeds()).repeats(caught);
        let summary = ended.unwrap_or_else(|failure| panic!("{}: {failure}", program.name));
        println!("{}: {summary:?}", program.name);
        assert!(summary.is_repeatable);
    }
}

/// A seed's run is the same whether others ran before it in its process or not, if nothing of what they use has a static.
#[test]
fn a_seed_does_not_depend_on_those_before() {
    let programs: [(&str, fn()); 7] = [
        ("locks", locks),
        ("messages", messages),
        ("own_channels", own_channels),
        ("pipes", pipes),
        ("sockets", sockets),
        ("limits", limits),
        ("panics", panics),
    ];
    for (name, program) in programs {
        let hash = |first, count| {
            let builder = Builder::new().isolation(Isolation::Batch).first_seed(first);
            let summary = builder
                .seeds(count)
                .run(program)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
            summary.hash
        };
        let alone = (0..12).map(|seed| hash(seed, 1)).fold(0, u64::wrapping_add);
        assert_eq!(hash(0, 12), alone, "{name}");
    }
}

fn locks() {
    let (sum, changed) = (Mutex::new(0), Condvar::new());
    scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                *sum.lock().unwrap() += 1;
                changed.notify_one();
            });
        }
        let sum = sum.lock().unwrap();
        drop(changed.wait_while(sum, |sum| *sum < 3).unwrap());
    });
}

fn messages() {
    let (sender, messages) = mpsc::sync_channel(1);
    let other = sender.clone();
    let senders = [spawn(move || sender.send(1)), spawn(move || other.send(2))];
    assert_eq!(messages.iter().sum::<i32>(), 3);
    for sender in senders {
        sender.join().unwrap().unwrap();
    }
}

fn own_channels() {
    let (one, first) = channel::bounded(0);
    let (other, second) = channel::unbounded();
    scope(|scope| {
        scope.spawn(move || one.send(1).unwrap());
        scope.spawn(move || other.send(2).unwrap());
        let mut sum = 0;
        while sum < 3 {
            channel::select! {
                recv(first) -> message => sum += message.unwrap_or(0),
                recv(second) -> message => sum += message.unwrap_or(0),
            }
        }
    });
}

fn pipes() {
    let (mut out, mut into) = pipe().unwrap();
    let writer = spawn(move || into.write_all(b"hello").unwrap());
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    writer.join().unwrap();
}

fn sockets() {
    let (mut one, mut other) = UnixStream::pair().unwrap();
    let echo = spawn(move || {
        let mut byte = [0];
        other.read_exact(&mut byte).unwrap();
        other.write_all(&byte).unwrap();
    });
    one.write_all(&[7]).unwrap();
    let mut byte = [0];
    one.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [7]);
    echo.join().unwrap();
}

fn limits() {
    let (sender, messages) = mpsc::channel::<()>();
    let long = Duration::from_secs(3600);
    let _ = time::timeout(Duration::from_millis(5), || messages.recv_timeout(long));
    let slept = spawn(move || std::thread::sleep(Duration::from_millis(3)));
    slept.join().unwrap();
    drop(sender);
}

fn panics() {
    let thread = spawn(|| panic!("on purpose"));
    spawn(greenthread::yield_now).join().unwrap();
    assert!(thread.join().is_err());
}
