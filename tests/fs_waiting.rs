//! File calls that wait for somebody: opening, reading and writing FIFOs, and locks. They wait as
//! std's do, and only the green thread waits.

mod common;

use common::directory::Directory;
use common::*;
use greenthread::fs::{self, File, OpenOptions, TryLockError};
use greenthread::runtime::{Builder, Runtime};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

/// Whether `thread` waits: it has not ended although there was time.
fn waits<T>(thread: &greenthread::JoinHandle<T>) -> bool {
    (0..20).all(|_| {
        greenthread::sleep(Duration::from_millis(1));
        !thread.is_finished()
    })
}

#[test]
fn opening_waits_for_the_other_end() {
    let _w = watchdog("opening_waits_for_the_other_end");
    everywhere(|| {
        let directory = Directory::new();
        let path = Arc::new(directory.fifo("fifo"));
        let name = path.clone();
        let reader = greenthread::spawn(move || fs::read_to_string(&*name).unwrap());
        assert!(waits(&reader), "it was opened without a writer");
        let mut writer = OpenOptions::new().write(true).open(&*path).unwrap();
        writer.write_all(b"late ").unwrap();
        assert!(waits(&reader), "it was read to an end that has not come");
        writer.write_all(b"text").unwrap();
        drop(writer);
        assert_eq!(reader.join().unwrap(), "late text");

        let name = path.clone();
        let writer = greenthread::spawn(move || fs::write(&*name, "hello").unwrap());
        assert!(waits(&writer), "it was opened without a reader");
        let mut text = String::new();
        File::open(&*path)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        writer.join().unwrap();
        assert_eq!(text, "hello");
    });
}

#[test]
fn a_hundred_that_open_keep_no_processor() {
    let _w = watchdog("a_hundred_that_open_keep_no_processor");
    let directory = Directory::new();
    let runtime = Builder::new().processors(2).build().unwrap();
    let paths: Vec<_> = (0..100).map(|i| directory.fifo(&i.to_string())).collect();
    let opening: Vec<_> = paths
        .iter()
        .map(|path| {
            let path = path.clone();
            runtime.spawn(move || fs::read_to_string(path).unwrap())
        })
        .collect();
    for i in 0..1000 {
        assert_eq!(runtime.spawn(move || i).join().unwrap(), i);
    }
    assert!(opening.iter().all(|opens| !opens.is_finished()));
    for (i, path) in paths.into_iter().enumerate() {
        runtime.spawn(move || fs::write(path, i.to_string()).unwrap());
    }
    for (i, opens) in opening.into_iter().enumerate() {
        assert_eq!(opens.join().unwrap(), i.to_string());
    }
    runtime.shutdown();
}

/// Signals that end time slices cut no write short: others compute meanwhile.
#[test]
fn a_write_beside_hogs_is_complete() {
    let _w = watchdog("a_write_beside_hogs_is_complete");
    let directory = Directory::new();
    let path = directory.fifo("fifo");
    let builder = Runtime::builder().time_slice(Duration::from_micros(200));
    let runtime = builder.processors(2).build().unwrap();
    let (stop, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let hogs: Vec<_> = (0..3)
        .map(|_| {
            let (stop, turns) = (stop.clone(), turns.clone());
            runtime.spawn(move || {
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let name = path.clone();
    let reader = std::thread::spawn(move || {
        let (mut file, mut block) = (std::fs::File::open(name).unwrap(), vec![0; 40_000]);
        let mut count = 0;
        loop {
            match file.read(&mut block).unwrap() {
                0 => return count,
                n => count += n,
            }
        }
    });
    let written = runtime.spawn(move || {
        let mut file = OpenOptions::new().write(true).open(path).unwrap();
        let data = vec![7; 1 << 20];
        let counts: Vec<_> = (0..50).map(|_| file.write(&data).unwrap()).collect();
        counts
    });
    assert_eq!(written.join().unwrap(), vec![1 << 20; 50]);
    assert_eq!(reader.join().unwrap(), 50 << 20);
    stop.store(true, Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    runtime.shutdown();
}

#[test]
fn locks_are_stds() {
    let _w = watchdog("locks_are_stds");
    everywhere(|| {
        let directory = Directory::new();
        let path = directory.file("f", b"");
        let (one, two) = (File::open(&path).unwrap(), File::open(&path).unwrap());
        let theirs = std::fs::File::open(&path).unwrap();
        let is_locked = |tried| match tried {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => panic!("{error}"),
        };
        one.lock_shared().unwrap();
        assert!(!is_locked(two.try_lock_shared()));
        assert!(is_locked(theirs.try_lock()));
        assert!(is_locked(two.try_lock()), "converted from a shared lock");
        two.unlock().unwrap();
        assert!(!is_locked(one.try_lock()));
        assert!(is_locked(theirs.try_lock_shared()));
        let waiting = greenthread::spawn(move || {
            two.lock().unwrap();
            two
        });
        assert!(waits(&waiting));
        one.unlock().unwrap();
        let two = waiting.join().unwrap();
        assert!(is_locked(theirs.try_lock()));
        let clone = two.try_clone().unwrap();
        drop(two);
        assert!(is_locked(theirs.try_lock()));
        drop(clone);
        assert!(!is_locked(theirs.try_lock()));
    });
}
