//! Pipes and standard input.
//!
//! The idea: megabytes through pipes whose ends are green threads', kernel threads' and std's; and
//! children of this executable that read their own standard input.

use crate::common::*;
use greenthread::io::{self, BufRead, IoSlice, IoSliceMut, Read, Write};
use greenthread::runtime::Builder;
#[cfg(not(green))]
use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

const MEGABYTES: usize = 4 << 20;

fn is_nonblocking(end: &impl AsFd) -> bool {
    // SAFETY: asks.
    let flags = unsafe { libc::fcntl(end.as_fd().as_raw_fd(), libc::F_GETFL) };
    flags & libc::O_NONBLOCK != 0
}

#[test]
fn megabytes_both_ways() {
    let _w = watchdog("io::megabytes_both_ways");
    both(|| {
        let ((mut to, mut there), (mut back, mut from)) = {
            let ((there, to), (from, back)) = (io::pipe().unwrap(), io::pipe().unwrap());
            ((to, there), (back, from))
        };
        let data: Vec<u8> = (0..MEGABYTES).map(|i| (i * 31 + i / 977) as u8).collect();
        let echo = greenthread::spawn(move || io::copy(&mut there, &mut back).unwrap());
        let sent = data.clone();
        let sender = greenthread::spawn(move || to.write_all(&sent).unwrap());
        let mut received = vec![];
        from.read_to_end(&mut received).unwrap();
        assert!(received == data);
        assert_eq!(echo.join().unwrap(), MEGABYTES as u64);
        sender.join().unwrap();
    });
}

#[test]
fn ends_and_errors() {
    let _w = watchdog("io::ends_and_errors");
    both(|| {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let vectors = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!(writer.write_vectored(&vectors).unwrap(), 5);
        let (mut one, mut two) = ([0; 3], [0; 9]);
        let vectors = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(reader.read_vectored(vectors).unwrap(), 5);
        assert_eq!((&one, &two[..2]), (b"abc", &b"de"[..]));
        let mut other = writer.try_clone().unwrap();
        drop(writer);
        other.write_all(b"x").unwrap();
        drop(other);
        let mut text = String::new();
        reader
            .try_clone()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "x");
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);

        let (reader, mut writer) = io::pipe().unwrap();
        let writes = greenthread::spawn(move || writer.write_all(&vec![0; 1 << 20]));
        greenthread::sleep(std::time::Duration::from_millis(2));
        drop(reader); // while the other waits for room
        let error = writes.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_thread_that_waits_keeps_no_processor() {
    let _w = watchdog("io::a_thread_that_waits_keeps_no_processor");
    let runtime = Builder::new().processors(1).build().unwrap();
    let (mut readers, writers): (Vec<_>, Vec<_>) = (0..100).map(|_| io::pipe().unwrap()).unzip();
    let waiting: Vec<_> = readers
        .drain(..)
        .map(|mut reader| {
            runtime.spawn(move || {
                let mut line = String::new();
                reader.read_to_string(&mut line).unwrap();
                line.len()
            })
        })
        .collect();
    for i in 0..1000 {
        assert_eq!(runtime.spawn(move || i).join().unwrap(), i);
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()));
    let writing = runtime.spawn(move || {
        for (i, mut writer) in writers.into_iter().enumerate() {
            writer.write_all(&vec![b'a'; i]).unwrap();
        }
    });
    writing.join().unwrap();
    for (i, waits) in waiting.into_iter().enumerate() {
        assert_eq!(waits.join().unwrap(), i);
    }
    runtime.shutdown();
}

#[test]
fn standard_input() {
    const NAME: &str = "io::standard_input";
    let _w = watchdog(NAME);
    match child_case(NAME).as_deref() {
        Some("green") => greenthread::spawn(read_input).join().unwrap(),
        Some(_) => read_input(),
        None => {
            for case in ["green", "kernel"] {
                let mut child = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", NAME, "--nocapture", "--test-threads=1"])
                    .env("GT_CHILD", NAME)
                    .env("GT_CASE", case)
                    .stdin(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut input = child.stdin.take().unwrap();
                input.write_all(b"first\nsec").unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                input.write_all(b"ond\nthird\nrest\nof it").unwrap();
                drop(input);
                assert!(child.wait().unwrap().success());
            }
        }
    }
}

fn read_input() {
    let others = greenthread::spawn(|| (0..100).for_each(|_| greenthread::yield_now()));
    let stdin = io::stdin();
    assert!(!is_nonblocking(&stdin));
    assert!(!stdin.is_terminal() && !stdin.lock().is_terminal());
    let mut line = String::new();
    assert_eq!(stdin.read_line(&mut line).unwrap(), 6);
    assert_eq!(stdin.lock().lines().next().unwrap().unwrap(), "second");
    line.clear();
    std::io::stdin().read_line(&mut line).unwrap(); // the same stream
    assert_eq!(line, "third\n");
    let rest: Vec<_> = stdin.lines().map(|line| line.unwrap()).collect();
    assert_eq!(rest, ["rest", "of it"]);
    assert_eq!(io::stdin().read(&mut [0; 3]).unwrap(), 0);
    others.join().unwrap();
}
