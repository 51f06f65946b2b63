//! One open file, or one file, and several that use it: other handles, std's, other processes.
//!
//! The idea: lines are counted. Each writer writes its own, one call a line; in the end every line
//! is there once, whole.

use crate::common::directory::Directory;
use crate::common::*;
use greenthread::fs::{File, OpenOptions};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::process::Stdio;

const LINES: usize = 5_000;
const START: &str = "\nstart\n";

fn line(writer: &str, number: usize) -> String {
    format!("{writer} {number} {}\n", "x".repeat(number % 90))
}

fn write_lines(writer: &str, mut to: impl Write) {
    for number in 0..LINES {
        let line = line(writer, number);
        assert_eq!(to.write(line.as_bytes()).unwrap(), line.len());
    }
}

/// Every line of the writers is in `text`, once, and each writer's in its order.
#[track_caller]
fn check(text: &str, writers: &[&str]) {
    let mut next: BTreeMap<_, _> = writers.iter().map(|writer| (*writer, 0)).collect();
    for found in text.lines() {
        let writer = found.split(' ').next().unwrap();
        let number = next
            .get_mut(writer)
            .unwrap_or_else(|| panic!("line {found:?}"));
        assert_eq!(format!("{found}\n"), line(writer, *number));
        *number += 1;
    }
    let all = writers.iter().map(|writer| (*writer, LINES)).collect();
    assert_eq!(next, all, "lines of each writer");
}

/// A parent and a child that has inherited its file.
#[test]
fn with_a_child() {
    const NAME: &str = "fs_shared::with_a_child";
    let _w = watchdog(NAME);
    if child_case(NAME).is_some() {
        let out = std::io::stdout().as_fd().try_clone_to_owned().unwrap();
        let mut out = std::fs::File::from(out);
        // After what the harness says.
        out.write_all(START.as_bytes()).unwrap();
        write_lines("child", out);
        // Not what the harness would say of this test.
        std::process::exit(0);
    }
    everywhere(|| {
        let directory = Directory::new();
        let path = directory.path("log");
        let mut file = File::create(&path).unwrap();
        let mut command = child_command(NAME, "");
        let mut child = command
            .stdout(Stdio::from(file.try_clone().unwrap()))
            .spawn()
            .unwrap();
        wait_until(|| std::fs::read_to_string(&path).unwrap().contains(START));
        write_lines("parent", &mut file);
        assert!(child.wait().unwrap().success());
        let text = std::fs::read_to_string(&path).unwrap();
        let (_, text) = text.split_once(START).unwrap();
        check(text, &["child", "parent"]);
    });
}

/// Green threads and a kernel thread, through clones, duplicates and one handle.
#[test]
fn with_other_handles() {
    let _w = watchdog("fs_shared::with_other_handles");
    everywhere(|| {
        let directory = Directory::new();
        let path = directory.path("log");
        let file = File::create(&path).unwrap();
        let theirs: std::fs::File = file.as_fd().try_clone_to_owned().unwrap().into();
        greenthread::scope(|s| {
            let kernel = std::thread::spawn(move || write_lines("kernel", theirs));
            s.spawn(|| write_lines("one", &file));
            s.spawn(|| write_lines("two", &file));
            let clone = file.try_clone().unwrap();
            s.spawn(move || write_lines("clone", clone));
            kernel.join().unwrap();
        });
        let text = std::fs::read_to_string(&path).unwrap();
        check(&text, &["kernel", "one", "two", "clone"]);
    });
}

/// Each has opened the file by itself, to append.
#[test]
fn who_appends() {
    let _w = watchdog("fs_shared::who_appends");
    everywhere(|| {
        let directory = Directory::new();
        let path = directory.path("log");
        let open = || {
            let mut options = OpenOptions::new();
            options.append(true).create(true).open(&path).unwrap()
        };
        let theirs = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        greenthread::scope(|s| {
            let kernel = std::thread::spawn(move || write_lines("kernel", theirs));
            for name in ["one", "two"] {
                let file = open();
                s.spawn(move || write_lines(name, file));
            }
            kernel.join().unwrap();
        });
        check(
            &std::fs::read_to_string(&path).unwrap(),
            &["kernel", "one", "two"],
        );
    });
}

/// Whoever moves the position moves it for all that share it; each byte is read by one of them.
#[test]
fn one_position() {
    let _w = watchdog("fs_shared::one_position");
    everywhere(|| {
        let directory = Directory::new();
        let contents: Vec<u8> = (0..1 << 20)
            .map(|i: usize| (i * 13 + i / 509) as u8)
            .collect();
        let path = directory.file("f", &contents);
        let mut ours = File::open(&path).unwrap();
        let mut theirs: std::fs::File = ours.as_fd().try_clone_to_owned().unwrap().into();
        let mut rng = Rng::new("fs_shared::one_position");
        let mut position = 0;
        for _ in 0..500 {
            let mut buffer = vec![0; rng.below(5000)];
            let read = match rng.below(4) {
                0 => theirs.read(&mut buffer).unwrap(),
                1 => {
                    position = rng.below(contents.len());
                    let to = SeekFrom::Start(position as u64);
                    assert_eq!(theirs.seek(to).unwrap(), position as u64);
                    0
                }
                _ => ours.read(&mut buffer).unwrap(),
            };
            assert_eq!(buffer[..read], contents[position..position + read]);
            position += read;
            assert_eq!(ours.stream_position().unwrap(), position as u64);
        }
        // Two at once: between them they read all of it, each in order.
        ours.rewind().unwrap();
        let all = |mut from: &mut dyn Read| {
            let (mut sum, mut count, mut block) = (0u64, 0, [0; 1000]);
            loop {
                match (&mut from).read(&mut block).unwrap() {
                    0 => return (sum, count),
                    n => {
                        count += n;
                        sum += block[..n].iter().map(|&byte| u64::from(byte)).sum::<u64>();
                    }
                }
            }
        };
        let kernel = std::thread::spawn(move || all(&mut theirs));
        let (ours, theirs) = (all(&mut ours), kernel.join().unwrap());
        let sum = contents.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert_eq!(
            (ours.0 + theirs.0, ours.1 + theirs.1),
            (sum, contents.len())
        );
    });
}
