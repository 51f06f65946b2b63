//! The socket on which a running program is asked about its threads (`docs/observe-socket.md`): who may ask, what is
//! answered, and what bad clients cannot do. Each test asks a process of its own.
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

#[path = "../support/asked.rs"]
mod asked;

use crate::common::directory::Directory;
use crate::common::*;
use asked::{Asked, Client, number, object, ready};
use greenthread::runtime::{Mode, Runtime};
use greenthread::sync::Mutex;
use greenthread::{Builder, sleep, spawn};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SUMMARY: &str = r#"{"version":1,"ask":"summary"}"#;

/// A thread that holds a lock, one that waits for the lock, one that computes, and one that sleeps.
fn cast() {
    let lock = Arc::new(Mutex::new(()));
    let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
        drop(Builder::new().name(name.into()).spawn(body).unwrap());
    };
    let taken = lock.clone();
    start(
        "holder",
        Box::new(move || {
            let _held = taken.lock();
            sleep(Duration::from_secs(3600));
        }),
    );
    wait_until(|| lock.try_lock().is_err());
    start("waiter", Box::new(move || wait_for_the_lock(&lock)));
    start(
        "hog",
        Box::new(|| {
            loop {
                std::hint::spin_loop();
            }
        }),
    );
    start(
        "sleeper \"é\\",
        Box::new(|| sleep(Duration::from_secs(3600))),
    );
}

#[inline(never)]
fn wait_for_the_lock(lock: &Mutex<()>) {
    drop(std::hint::black_box(lock.lock()));
}

#[test]
fn questions_are_answered() {
    let test = "socket::questions_are_answered";
    if child_case(test).is_some() {
        cast();
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let asked = Asked::start(test, "", &path);
    let mut client = Client::new(&path);
    // The threads come to their places in their own time.
    let answer = loop {
        let answer = client.ask(SUMMARY);
        let waits = object(&answer, "longest", "waiter").is_some_and(|w| w.contains("held by"));
        let all_wait = number(&answer, "\"threads\"", "parked") >= 3
            && answer.contains(r#""name":"sleeper \"é\\""#);
        if waits && all_wait && object(&answer, "busiest", "hog").is_some() {
            break answer;
        }
    };
    let process = u64::from(asked.0.id());
    assert_eq!(number(&answer, "summary", "process"), process);
    let mode = if green() { "green" } else { "kernel" };
    assert!(answer.contains(&format!("\"mode\":\"{mode}\"")), "{answer}");
    let waiter = object(&answer, "longest", "waiter").unwrap();
    assert!(waiter.contains("\"state\":\"parked\""), "{waiter}");
    assert!(waiter.contains("\"waits_for\":\"mutex 0x"), "{waiter}");
    assert!(waiter.contains("holder"), "{waiter}");
    assert!(number(&answer, "\"threads\"", "running") >= 1, "{answer}");
    if green() {
        let hog = object(&answer, "busiest", "hog").unwrap();
        assert!(number(hog, "", "busy") > 0, "{hog}");
        assert!(number(&answer, "runtimes", "switches") > 0);
        assert!(answer.contains("\"policy\":\""), "{answer}");
        assert!(number(&answer, "\"processors\":[", "queue") < 100);
    }
    let id = number(waiter, "", "id");
    let thread = client.ask(&format!(r#"{{"version":1,"ask":"thread","id":{id}}}"#));
    assert!(thread.contains("\"name\":\"waiter\""), "{thread}");
    if green() {
        assert!(thread.contains("wait_for_the_lock"), "{thread}");
    }
    let none = client.ask(r#"{"version":1,"ask":"thread","id":999999999}"#);
    assert!(none.contains("\"error\":\"there is no thread"), "{none}");
    let deadlocks = client.ask(r#"{"version":1,"ask":"deadlocks"}"#);
    assert!(deadlocks.contains("\"deadlocks\":[]"), "{deadlocks}");
    let dump = client.ask(r#"{"version":1,"ask":"dump"}"#);
    assert!(dump.contains("\"dump\":{\"version\":1,"), "{dump}");
    assert!(dump.contains("\"stacks\":["), "{dump}");
    let few = client.ask(r#"{"version":1,"ask":"summary","show":0}"#);
    assert!(few.contains("\"busiest\":[],\"longest\":[]"), "{few}");
}

#[test]
fn garbage_is_refused() {
    let test = "socket::garbage_is_refused";
    if child_case(test).is_some() {
        spawn(|| ()).join().unwrap();
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let asked = Asked::start(test, "", &path);
    let mut client = Client::new(&path);
    for garbage in [
        "",
        "GET / HTTP/1.1\r",
        "{}",
        r#"{"version":2,"ask":"summary"}"#,
        r#"{"version":1,"ask":"thread","id":-1}"#,
        r#"{"version":1,"ask":["summary"]}"#,
        "\0\u{1}\u{7f}",
    ] {
        assert!(client.ask(garbage).contains("\"error\":\""), "{garbage:?}");
    }
    // Not even text.
    client.0.get_mut().write_all(b"\xff\xfe\n").unwrap();
    assert!(client.line().contains("error"));
    // The connection is as good as before, also for a request in pieces, and for two at once.
    client
        .0
        .get_mut()
        .write_all(&SUMMARY.as_bytes()[..9])
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let rest = format!("{}\n{SUMMARY}\n", &SUMMARY[9..]);
    client.0.get_mut().write_all(rest.as_bytes()).unwrap();
    for _ in 0..2 {
        assert!(client.line().contains("\"answer\":\"summary\""));
    }
    // A request without an end.
    let mut long = Client::new(&path);
    let _ = long.0.get_mut().write_all(&vec![b'x'; 1 << 20]);
    let refused = long.line();
    assert!(
        refused.is_empty() || refused.contains("4096 bytes at most"),
        "{refused}"
    );
    assert_eq!(long.line(), "", "the connection ends");
    let mut rng = Rng::new(test);
    for _ in 0..200 {
        let mut client = Client::new(&path);
        let bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.below(256) as u8).collect();
        let _ = client.0.get_mut().write_all(&bytes);
    }
    assert!(client.ask(SUMMARY).contains("\"answer\":\"summary\""));
    asked.end();
}

#[test]
fn several_clients_and_stuck_ones() {
    let test = "socket::several_clients_and_stuck_ones";
    if child_case(test).is_some() {
        cast();
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let asked = Asked::start(test, "", &path);
    // This one asks much, and takes no answer.
    let mut stuck = Client::new(&path);
    stuck.0.get_ref().set_nonblocking(true).unwrap();
    let begun = Instant::now();
    while stuck.send(SUMMARY).is_ok() && begun.elapsed() < Duration::from_secs(5) {}
    let mut first = Client::new(&path);
    let mut second = Client::new(&path);
    let silent = Client::new(&path);
    for _ in 0..20 {
        for client in [&mut first, &mut second] {
            assert!(client.ask(SUMMARY).contains("\"answer\":\"summary\""));
        }
    }
    // There are as many as are served.
    let mut fifth = Client::new(&path);
    assert!(fifth.line().contains("clients are served already"));
    drop(silent);
    let begun = Instant::now();
    loop {
        let mut next = Client::new(&path);
        let sent = next.send(SUMMARY);
        let answer = next.line();
        if sent.is_ok() && answer.contains("\"answer\":\"summary\"") {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(40),
            "no place becomes free"
        );
    }
    drop(stuck);
    asked.end();
}

#[test]
fn the_sockets_file() {
    let test = "socket::the_sockets_file";
    if let Some(case) = child_case(test) {
        // SAFETY: a plain call.
        unsafe { libc::umask(if case == "narrow" { 0o777 } else { 0 }) };
        spawn(|| ()).join().unwrap();
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    for case in ["wide", "narrow"] {
        let asked = Asked::start(test, case, &path);
        let about = std::fs::symlink_metadata(&path).unwrap();
        assert!(about.file_type().is_socket());
        assert_eq!(about.permissions().mode() & 0o7777, 0o600);
        asked.end();
        assert!(!path.exists(), "it goes at exit");
    }
    // A process that is killed leaves it, and the next one takes its place.
    let killed = Asked::start(test, "", &path);
    drop(killed);
    assert!(std::fs::symlink_metadata(&path).is_ok());
    let living = Asked::start(test, "", &path);
    // The living one stays.
    let late = child_with(test, "", &[observe(&path)]);
    assert_code(&late, 0);
    assert!(
        said(&late).contains("another process listens there"),
        "{}",
        said(&late)
    );
    assert!(
        Client::new(&path)
            .ask(SUMMARY)
            .contains("\"answer\":\"summary\"")
    );
    living.end();
    // Another file stays.
    std::fs::write(&path, "precious").unwrap();
    let late = child_with(test, "", &[observe(&path)]);
    assert_code(&late, 0);
    assert!(
        said(&late).contains("a file that is no socket"),
        "{}",
        said(&late)
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    // So does a socket that has come in its place.
    std::fs::remove_file(&path).unwrap();
    let asked = Asked::start(test, "", &path);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    asked.end();
    assert!(std::fs::symlink_metadata(&path).is_ok());
}

fn observe(path: &Path) -> (&'static str, &'static str) {
    let value = format!("unix:{}", path.display());
    ("GREENTHREAD_OBSERVE", value.leak())
}

#[test]
fn bad_values_are_errors() {
    let test = "socket::bad_values_are_errors";
    if child_case(test).is_some() {
        match Runtime::builder().build() {
            Ok(_) => println!("accepted"),
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    let long = format!("unix:/{}", "x".repeat(107));
    for value in ["", "unix:", "tcp:80", "/run/socket", "on", &long] {
        let out = child_with(test, "", &[("GREENTHREAD_OBSERVE", value)]);
        let said = said(&out);
        assert!(said.contains("refused: GREENTHREAD_OBSERVE="), "{said}");
        assert!(said.contains("accepted is unix: and the path"), "{said}");
    }
    let nowhere = [("GREENTHREAD_OBSERVE", "unix:/nonexistent/socket")];
    let out = child_with(test, "", &nowhere);
    assert!(said(&out).contains("accepted"), "{}", said(&out));
    assert!(said(&out).contains("No such file"), "{}", said(&out));
}

#[test]
fn other_users_are_refused() {
    let test = "socket::other_users_are_refused";
    match child_case(test).as_deref() {
        None => {}
        Some("asked") => {
            spawn(|| ()).join().unwrap();
            return ready();
        }
        Some(path) => {
            become_nobody();
            match Client::connect(Path::new(path)) {
                Err(error) => println!("no connection: {error}"),
                Ok(mut client) => {
                    let _ = client.send(SUMMARY);
                    println!("answer: {}", client.line());
                }
            }
            return;
        }
    }
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return println!("skipped: only root can be another user");
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let asked = Asked::start(test, "asked", &path);
    let other = child(test, path.to_str().unwrap());
    assert!(
        said(&other).contains("no connection: Permission denied"),
        "{}",
        said(&other)
    );
    // Even if the file lets everybody in.
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let other = child(test, path.to_str().unwrap());
    assert!(
        said(&other).contains("only user 0 and root may ask"),
        "{}",
        said(&other)
    );
    assert!(!said(&other).contains("summary"), "{}", said(&other));
    assert!(
        Client::new(&path)
            .ask(SUMMARY)
            .contains("\"answer\":\"summary\"")
    );
    asked.end();
}

#[test]
fn a_forked_child_does_not_answer() {
    let test = "socket::a_forked_child_does_not_answer";
    let _dog = watchdog(test);
    if child_case(test).is_some() {
        spawn(|| ()).join().unwrap();
        // SAFETY: the child only waits for the end of its input, and then exits without ado.
        unsafe {
            if libc::fork() == 0 {
                libc::close(1);
                let mut byte = 0_u8;
                libc::read(0, (&raw mut byte).cast(), 1);
                libc::_exit(0);
            }
        }
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let mut asked = Asked::start(test, "", &path);
    let childs_life = asked.0.stdin.take();
    let mut client = Client::new(&path);
    assert!(client.ask(SUMMARY).contains("\"answer\":\"summary\""));
    drop(asked);
    // The child has neither the client's connection nor the socket.
    assert_eq!(client.line(), "");
    // It closes the socket as soon as it runs.
    let refused = || Client::connect(&path).err();
    let error = std::iter::repeat_with(refused).flatten().next().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    drop(childs_life);
}

/// The time and the memory that a summary takes do not go with the number of threads, or little.
#[test]
fn a_crowd() {
    let test = "socket::a_crowd";
    let crowd = match (Runtime::global().mode(), cfg!(debug_assertions)) {
        (Mode::Green, true) => 100_000,
        (Mode::Green, false) => 1_000_000,
        _ => 200,
    };
    if child_case(test).is_some() {
        for _ in 0..crowd {
            spawn(greenthread::park);
        }
        return ready();
    }
    let directory = Directory::new();
    let path = directory.path("socket");
    let asked = Asked::start(test, "", &path);
    let mut client = Client::new(&path);
    // Until all have got as far as their wait.
    while number(&client.ask(SUMMARY), "\"threads\"", "parked") < crowd {}
    let before = resident_of(asked.0.id());
    let begun = Instant::now();
    let mut took = Vec::new();
    for _ in 0..5 {
        let answer = client.ask(SUMMARY);
        took.push(number(&answer, "summary", "took_us"));
        assert!(number(&answer, "\"waits\"", "count") >= crowd, "{answer}");
    }
    let grown = resident_of(asked.0.id()).saturating_sub(before);
    println!(
        "{crowd} threads: summaries of {took:?} us, {:?} in all, {} KiB more memory",
        begun.elapsed(),
        grown >> 10
    );
    assert!(grown < 16 << 20, "{grown} bytes more");
}

/// Bytes of resident memory of a process.
fn resident_of(process: u32) -> u64 {
    memory_of(&process.to_string(), "VmRSS:")
}
