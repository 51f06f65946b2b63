//! File calls that wait for somebody: opening, reading and writing FIFOs, and locks. They wait as
//! std's do, and only the green thread waits.

use crate::common::directory::Directory;
use crate::common::*;
use greenthread::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use greenthread::os::unix::fs as unix;
use greenthread::runtime::{Builder, Mode, Runtime};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
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
    let _w = watchdog("fs_waiting::opening_waits_for_the_other_end");
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
    let _w = watchdog("fs_waiting::a_hundred_that_open_keep_no_processor");
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
    let _w = watchdog("fs_waiting::a_write_beside_hogs_is_complete");
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
    let _w = watchdog("fs_waiting::locks_are_stds");
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

/// Somebody's own type, whose conversion computes until it has been preempted.
struct Computes<'a, T> {
    runtime: &'a Runtime,
    to: T,
    was_preempted: Cell<bool>,
}

impl<T> Computes<'_, T> {
    fn compute(&self) -> &T {
        let preemptions = || self.runtime.metrics().preemptions;
        // The runtime has one processor. Without a preemption others run only if it is taken.
        for _ in 0..20 {
            let has_run = Arc::new(AtomicBool::new(false));
            let other = has_run.clone();
            self.runtime.spawn(move || other.store(true, Relaxed));
            let before = preemptions();
            while !has_run.load(Relaxed) {
                std::hint::spin_loop();
            }
            self.was_preempted.set(preemptions() > before);
            if self.was_preempted.get() {
                break;
            }
        }
        &self.to
    }
}

impl AsRef<Path> for Computes<'_, &str> {
    fn as_ref(&self) -> &Path {
        Path::new(self.compute())
    }
}

impl AsFd for Computes<'_, std::fs::File> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.compute().as_fd()
    }
}

/// What users' types do is no part of the call.
#[test]
fn conversions_of_arguments_are_preempted() {
    let _w = watchdog("fs_waiting::conversions_of_arguments_are_preempted");
    let builder = Runtime::builder().time_slice(Duration::from_micros(200));
    let runtime = Arc::new(builder.processors(1).build().unwrap());
    if runtime.mode() == Mode::Kernel {
        return;
    }
    let inner = runtime.clone();
    let converted = runtime.spawn(move || {
        fn computes<T>(runtime: &Runtime, to: T) -> Computes<'_, T> {
            let was_preempted = Cell::new(false);
            Computes {
                runtime,
                to,
                was_preempted,
            }
        }
        type Call = fn(&Computes<'_, &str>) -> bool;
        let calls: [(&str, Call); 8] = [
            ("open", |path| File::open(path).is_ok()),
            ("create", |path| DirBuilder::new().create(path).is_ok()),
            ("chown", |path| unix::chown(path, None, None).is_ok()),
            ("lchown", |path| unix::lchown(path, None, None).is_ok()),
            ("chroot", |path| unix::chroot(path).is_ok()),
            ("symlink", |path| unix::symlink(path, "/nowhere/to").is_ok()),
            ("symlink at", |path| unix::symlink("to", path).is_ok()),
            ("metadata", |path| fs::metadata(path).is_ok()),
        ];
        for (name, call) in calls {
            let path = computes(&inner, "/nowhere/at all");
            assert!(!call(&path));
            assert!(path.was_preempted.get(), "{name}");
        }
        let file = computes(&inner, std::fs::File::open("/").unwrap());
        unix::fchown(&file, None, None).unwrap();
        assert!(file.was_preempted.get(), "fchown");
    });
    converted.join().unwrap();
}
