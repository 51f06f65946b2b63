//! std's thread API, held against std's documentation.
//!
//! The idea: whatever `std::thread` promises on the calls we mirror, a test here asks of green
//! threads, from a kernel thread and from a green one (`both`), in both modes. Where we differ on
//! purpose it says so: a stack size that no worker can give is an `InvalidInput` error.
//!
//! Waiting is in `park.rs`, scopes in `scope.rs`.

use crate::common::*;
use greenthread as thread;
use greenthread::{Builder, JoinHandle, Thread, ThreadId};
use std::any::Any;
use std::collections::HashSet;
use std::hint::black_box;
use std::io::ErrorKind;
use std::panic::{catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};

fn text(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .expect("a payload of text")
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn types_are_as_in_std() {
    fn shared<T: Send + Sync + Unpin>() {}
    shared::<JoinHandle<()>>();
    shared::<JoinHandle<std::cell::Cell<u8>>>();
    shared::<Thread>();
    shared::<ThreadId>();
    fn value<T: Copy + Eq + std::hash::Hash + std::fmt::Debug>() {}
    value::<ThreadId>();
    let current: Thread = thread::current().clone();
    assert!(!format!("{current:?} {:?} {:?}", current.id(), Builder::new()).is_empty());
}

#[test]
fn join_gives_the_result() {
    let _w = watchdog("thread::join_gives_the_result");
    both(|| {
        thread::spawn(|| ()).join().unwrap();
        assert_eq!(thread::spawn(|| "text".to_string()).join().unwrap(), "text");
        assert_eq!(thread::spawn(|| [7u64; 512]).join().unwrap(), [7; 512]);
        let boxed: Box<dyn Fn(u32) -> u32 + Send> = thread::spawn(|| Box::new(|x: u32| x + 1) as _)
            .join()
            .unwrap();
        assert_eq!(boxed(1), 2);
        let inner = thread::spawn(|| thread::spawn(|| 6 * 7)).join().unwrap();
        assert_eq!(inner.join().unwrap(), 42);
        // Kernel threads' stacks take 2 GB of a 32-bit process's address space, which others need as well.
        let count = if cfg!(target_pointer_width = "64") {
            1000
        } else {
            100
        };
        let handles: Vec<_> = (0..count)
            .map(|i: u64| thread::spawn(move || i * i))
            .collect();
        assert!(
            handles
                .into_iter()
                .map(|h| h.join().unwrap())
                .eq((0..count).map(|i| i * i))
        );
    });
}

#[test]
fn a_panic_reaches_join_as_its_payload() {
    let _w = watchdog("thread::a_panic_reaches_join_as_its_payload");
    both(|| {
        let payload = thread::spawn(|| panic!("expected panic"))
            .join()
            .unwrap_err();
        assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "expected panic");
        let payload = thread::spawn(|| panic!("expected panic {}", black_box(7)))
            .join()
            .unwrap_err();
        assert_eq!(
            payload.downcast_ref::<String>().unwrap(),
            "expected panic 7"
        );
        let payload = thread::spawn(|| panic_any(vec![1u8, 2]))
            .join()
            .unwrap_err();
        assert_eq!(*payload.downcast::<Vec<u8>>().unwrap(), [1, 2]);
        let payload = thread::spawn(|| resume_unwind(Box::new(9u32)))
            .join()
            .unwrap_err();
        assert_eq!(*payload.downcast::<u32>().unwrap(), 9);
        // A caught one does not.
        assert!(
            thread::spawn(|| catch_unwind(|| resume_unwind(Box::new(1))).is_err())
                .join()
                .unwrap()
        );
    });
}

#[test]
fn a_panic_in_a_captures_destructor_reaches_join() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("expected panic in drop");
        }
    }
    let _w = watchdog("thread::a_panic_in_a_captures_destructor_reaches_join");
    both(|| {
        let bomb = Bomb;
        let payload = thread::spawn(move || drop(bomb)).join().unwrap_err();
        assert_eq!(text(payload), "expected panic in drop");
        let bomb = Bomb;
        let unused = move || {
            let _only_captured = &bomb;
        };
        assert_eq!(
            text(thread::spawn(unused).join().unwrap_err()),
            "expected panic in drop"
        );
    });
}

#[test]
fn a_panic_message_names_the_thread() {
    const NAME: &str = "thread::a_panic_message_names_the_thread";
    if child_case(NAME).is_some() {
        let named = Builder::new().name("worker-7".into());
        assert!(
            named
                .spawn(|| panic!("number seven"))
                .unwrap()
                .join()
                .is_err()
        );
        assert!(thread::spawn(|| panic!("number eight")).join().is_err());
        assert!(
            std::thread::Builder::new()
                .name("kernel-9".into())
                .spawn(|| panic!("nine"))
                .unwrap()
                .join()
                .is_err()
        );
        return;
    }
    let out = child(NAME, "");
    assert_code(&out, 0);
    line_with(&out, &["thread 'worker-7'", "panicked"]);
    line_with(&out, &["number seven"]);
    line_with(&out, &["thread '<unnamed>'", "panicked"]);
    line_with(&out, &["thread 'kernel-9'", "panicked"]);
    // As std's, but for the number, if std prints one.
    let form = |name| {
        let said = said(&out);
        let line = said.lines().find(|line| line.contains(name)).unwrap();
        let (before, _) = line.split_once(" panicked").unwrap();
        let mut form = before.replace(name, "");
        form.retain(|c| !c.is_ascii_digit());
        form
    };
    assert_eq!(form("worker-7"), form("kernel-9"));
}

#[test]
fn names() {
    let _w = watchdog("thread::names");
    both(|| {
        let named = |name: &str| {
            Builder::new()
                .name(name.into())
                .spawn(|| thread::current().name().map(String::from))
        };
        for name in [
            "worker-7",
            "",
            "a name longer than the fifteen bytes Linux keeps",
            "Fäden",
        ] {
            let handle = named(name).unwrap();
            assert_eq!(handle.thread().name(), Some(name));
            assert_eq!(handle.join().unwrap().as_deref(), Some(name));
        }
        let handle = thread::spawn(|| thread::current().name().map(String::from));
        assert_eq!(handle.thread().name(), None);
        assert_eq!(handle.join().unwrap(), None);
    });
    // A kernel thread is called what std calls it.
    let own = || thread::current().name().map(String::from);
    let handle = std::thread::Builder::new()
        .name("kernel".into())
        .spawn(own)
        .unwrap();
    assert_eq!(handle.join().unwrap().as_deref(), Some("kernel"));
}

#[test]
fn a_nul_in_a_name_panics() {
    let _w = watchdog("thread::a_nul_in_a_name_panics");
    both(|| {
        assert!(catch_unwind(|| drop(Builder::new().name("a\0b".into()).spawn(|| ()))).is_err())
    });
}

#[test]
fn stack_sizes_out_of_range_are_errors_and_lose_nothing() {
    let _w = watchdog("thread::stack_sizes_out_of_range_are_errors_and_lose_nothing");
    both(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let beyond = usize::try_from((64_u64 << 30) + 1).unwrap_or(usize::MAX / 2 + 2);
        for (i, size) in [beyond, usize::MAX / 2 + 2, usize::MAX - 1, usize::MAX]
            .into_iter()
            .enumerate()
        {
            let capture = Counted(drops.clone());
            let result = Builder::new().stack_size(size).spawn(move || drop(capture));
            let error = result
                .err()
                .unwrap_or_else(|| panic!("a stack of {size} bytes"));
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{size}: {error}");
            assert_eq!(
                drops.load(SeqCst),
                i + 1,
                "the closure of a failed spawn is dropped"
            );
        }
        for size in [0, 1, 4096, 16384, 16385, 100_000, 1 << 20] {
            assert_eq!(
                Builder::new()
                    .stack_size(size)
                    .spawn(|| 7)
                    .unwrap()
                    .join()
                    .unwrap(),
                7
            );
        }
    });
}

#[test]
fn a_stack_is_as_deep_as_asked() {
    fn dig(top: usize, deep: usize) -> usize {
        let here = black_box(0u8);
        if top - &raw const here as usize >= deep {
            return 1;
        }
        black_box(dig(top, deep)) + 1
    }
    fn start(deep: usize) -> usize {
        let top = black_box(0u8);
        dig(&raw const top as usize, deep)
    }
    let _w = watchdog("thread::a_stack_is_as_deep_as_asked");
    both(|| {
        for size in [64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            let handle = Builder::new()
                .stack_size(size)
                .spawn(move || start(size / 4 * 3))
                .unwrap();
            assert!(handle.join().unwrap() > size / 1024);
        }
        assert!(
            thread::spawn(|| start(192 << 10)).join().unwrap() > 0,
            "the default is generous"
        );
    });
}

#[test]
fn ids_are_unique_and_never_reused() {
    let _w = watchdog("thread::ids_are_unique_and_never_reused");
    let ids = |n: usize| {
        let handles: Vec<_> = (0..n)
            .map(|_| thread::spawn(|| thread::current().id()))
            .collect();
        handles.into_iter().map(|handle| {
            let outside = handle.thread().id();
            let inside = handle.join().unwrap();
            assert_eq!(outside, inside);
            inside
        })
    };
    let mut seen = HashSet::from([thread::current().id()]);
    assert_eq!(thread::current().id(), thread::current().id());
    assert!(ids(1000).chain(ids(1000)).all(|id| seen.insert(id)));
    assert!(
        seen.insert(
            std::thread::spawn(|| thread::current().id())
                .join()
                .unwrap()
        )
    );
}

#[test]
fn is_finished() {
    let _w = watchdog("thread::is_finished");
    both(|| {
        let (go, wait) = mpsc::channel();
        let handle = thread::spawn(move || wait.recv().unwrap());
        assert!(!handle.is_finished());
        go.send(5).unwrap();
        wait_until(|| handle.is_finished());
        assert_eq!(handle.join().unwrap(), 5);
        let handle = thread::spawn(|| resume_unwind(Box::new(1)));
        wait_until(|| handle.is_finished());
        assert!(handle.join().is_err());
    });
}

#[test]
fn a_dropped_handle_detaches() {
    let _w = watchdog("thread::a_dropped_handle_detaches");
    both(|| {
        let (send, receive) = mpsc::channel();
        for i in 0..100 {
            let send = send.clone();
            drop(thread::spawn(move || send.send(i).unwrap()));
        }
        drop(send);
        assert_eq!(receive.iter().sum::<usize>(), 4950);
    });
}

#[test]
fn results_and_captures_are_dropped_once() {
    let _w = watchdog("thread::results_and_captures_are_dropped_once");
    both(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let count = || Counted(drops.clone());
        let capture = count();
        thread::spawn(move || drop(capture)).join().unwrap();
        assert_eq!(drops.load(SeqCst), 1, "a capture, before join returns");
        let result = count();
        let result = thread::spawn(move || result).join().unwrap();
        assert_eq!(drops.load(SeqCst), 1);
        drop(result);
        assert_eq!(drops.load(SeqCst), 2, "a joined result");
        let payload = count();
        drop(thread::spawn(move || resume_unwind(Box::new(payload))).join());
        assert_eq!(drops.load(SeqCst), 3, "a payload");
        let result = count();
        drop(thread::spawn(move || result));
        wait_until(|| drops.load(SeqCst) == 4); // a handle dropped perhaps before the thread's end
        let result = count();
        let handle = thread::spawn(move || result);
        wait_until(|| handle.is_finished());
        assert_eq!(drops.load(SeqCst), 4);
        drop(handle);
        wait_until(|| drops.load(SeqCst) == 5); // a handle dropped after it
        let payload = count();
        drop(thread::spawn(move || resume_unwind(Box::new(payload))));
        wait_until(|| drops.load(SeqCst) == 6);
    });
}

#[test]
fn panicking_is_known_to_destructors() {
    struct Witness(Arc<AtomicBool>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0
                .store(thread::panicking() && std::thread::panicking(), SeqCst);
        }
    }
    let _w = watchdog("thread::panicking_is_known_to_destructors");
    both(|| {
        for panics in [true, false] {
            let saw = Arc::new(AtomicBool::new(false));
            let witness = Witness(saw.clone());
            let handle = thread::spawn(move || {
                let _witness = witness;
                assert!(!thread::panicking());
                assert!(!panics, "expected panic");
            });
            assert_eq!(handle.join().is_err(), panics);
            assert_eq!(saw.load(SeqCst), panics);
            assert!(!thread::panicking());
        }
        assert!(thread::available_parallelism().unwrap().get() >= 1);
    });
}
