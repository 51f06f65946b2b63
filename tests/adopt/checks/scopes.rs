//! Scopes: `thread::scope`, `ScopedJoinHandle`, `Builder::spawn_scoped`.

use super::*;
use std::panic::{panic_any, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::thread::{Builder, scope};

pub fn threads_borrow() {
    let words = vec!["one", "two", "three"];
    let length = AtomicUsize::new(0);
    scope(|threads| {
        for word in &words {
            threads.spawn(|| length.fetch_add(word.len(), Relaxed));
        }
    });
    assert_eq!(length.into_inner(), 11);
    assert_eq!(words.len(), 3);
}

pub fn threads_borrow_parts_mutably() {
    let mut numbers: Vec<usize> = (0..1_000).collect();
    scope(|threads| {
        for part in numbers.chunks_mut(77) {
            threads.spawn(move || part.iter_mut().for_each(|number| *number *= 2));
        }
    });
    assert!(numbers.into_iter().eq((0..1_000).map(|i| i * 2)));
}

pub fn a_scope_gives_its_value() {
    let text = String::from("kept");
    assert_eq!(
        scope(|threads| (threads.spawn(|| 2).join().unwrap(), &text)).1,
        "kept"
    );
}

pub fn an_empty_scope() {
    assert_eq!(scope(|_| 3), 3);
    assert_eq!(thread::spawn(|| scope(|_| 4)).join().unwrap(), 4);
}

pub fn a_scope_waits() {
    for _ in 0..30 {
        let ended = AtomicUsize::new(0);
        scope(|threads| {
            for _ in 0..10 {
                // The handle is dropped.
                threads.spawn(|| {
                    for _ in 0..5 {
                        thread::yield_now();
                    }
                    ended.fetch_add(1, Relaxed);
                });
            }
        });
        assert_eq!(ended.into_inner(), 10);
    }
}

pub fn a_scope_waits_for_nested_spawns() {
    let ended = AtomicUsize::new(0);
    scope(|threads| {
        threads.spawn(|| {
            for _ in 0..5 {
                threads.spawn(|| {
                    threads.spawn(|| ended.fetch_add(1, Relaxed));
                    ended.fetch_add(1, Relaxed);
                });
            }
        });
    });
    assert_eq!(ended.into_inner(), 10);
}

pub fn a_handle_gives_the_value() {
    let numbers: Vec<u64> = (0..100).collect();
    let sum: u64 = scope(|threads| {
        let parts = numbers.chunks(9);
        let handles: Vec<_> = parts
            .map(|part| threads.spawn(|| part.iter().sum::<u64>()))
            .collect();
        let joined = handles.into_iter().map(|handle| handle.join().unwrap());
        joined.sum()
    });
    assert_eq!(sum, 4_950);
}

pub fn a_value_may_borrow() {
    let text = String::from("a text of words");
    let word = scope(|threads| threads.spawn(|| text.split(' ').nth(1)).join().unwrap());
    assert_eq!(word, Some("text"));
}

pub fn a_handle_knows_its_thread() {
    scope(|threads| {
        let handle = threads.spawn(|| thread::current().id());
        let id = handle.thread().id();
        assert_eq!(handle.join().unwrap(), id);
        assert_ne!(id, thread::current().id());
    });
}

pub fn is_finished_comes() {
    let go = AtomicBool::new(false);
    scope(|threads| {
        let handle = threads.spawn(|| {
            while !go.load(Acquire) {
                thread::park();
            }
            "value"
        });
        assert!(!handle.is_finished());
        go.store(true, Release);
        handle.thread().unpark();
        wait_until(|| handle.is_finished());
        assert_eq!(handle.join().unwrap(), "value");
    });
}

pub fn a_name_is_seen() {
    let name = String::from("scoped");
    scope(|threads| {
        let body = || thread::current().name() == Some(&name);
        let handle = Builder::new()
            .name(name.clone())
            .spawn_scoped(threads, body);
        let handle = handle.unwrap();
        assert_eq!(handle.thread().name(), Some("scoped"));
        assert!(handle.join().unwrap());
        let unnamed = threads.spawn(|| thread::current().name().is_none());
        assert!(unnamed.join().unwrap());
    });
}

pub fn a_name_with_nul_panics() {
    scope(|threads| {
        let builder = Builder::new().name("\0".into());
        assert!(caught(|| builder.spawn_scoped(threads, || ())).is_err());
    });
}

/// Though nobody joined the thread.
pub fn a_panic_comes_out_of_the_scope() {
    let ended = AtomicUsize::new(0);
    let result = caught(|| {
        scope(|threads| {
            threads.spawn(|| panic_any(5));
            threads.spawn(|| ended.fetch_add(1, Relaxed));
        })
    });
    assert!(text(result.unwrap_err()).contains("scoped thread panicked"));
    assert_eq!(ended.into_inner(), 1);
}

pub fn a_joined_panic_does_not() {
    let payload = scope(|threads| threads.spawn(|| panic_any(5)).join().unwrap_err());
    assert_eq!(payload.downcast_ref::<i32>(), Some(&5));
}

/// For its threads.
pub fn the_scopes_own_panic_waits() {
    let ended = AtomicUsize::new(0);
    let result = caught(|| {
        scope(|threads| {
            for _ in 0..10 {
                threads.spawn(|| {
                    thread::yield_now();
                    ended.fetch_add(1, Relaxed);
                });
            }
            panic!("the scope's own")
        })
    });
    assert_eq!(died::<()>(result), "the scope's own");
    assert_eq!(ended.into_inner(), 10);
}

pub fn the_scopes_own_panic_wins() {
    let result = caught(|| {
        scope(|threads| {
            threads.spawn(|| panic!("a thread's"));
            resume_unwind(Box::new("the scope's own"))
        })
    });
    assert_eq!(died::<()>(result), "the scope's own");
}

pub fn scopes_nest() {
    let mut counts = [0; 3];
    let [one, two, three] = &mut counts;
    scope(|outer| {
        outer.spawn(|| *one += 1);
        scope(|inner| {
            inner.spawn(|| *two += 1);
            inner.spawn(|| *three += 1);
        });
        // The inner one has waited for its own.
        *two += 10;
    });
    assert_eq!(counts, [1, 11, 1]);
}

pub fn scopes_in_threads_of_scopes() {
    fn sum(numbers: &[u64]) -> u64 {
        if numbers.len() < 4 {
            return numbers.iter().sum();
        }
        let (left, right) = numbers.split_at(numbers.len() / 2);
        scope(|threads| {
            let left = threads.spawn(|| sum(left));
            sum(right) + left.join().unwrap()
        })
    }
    let numbers: Vec<u64> = (0..200).collect();
    assert_eq!(thread::spawn(move || sum(&numbers)).join().unwrap(), 19_900);
}

pub fn three_hundred_in_a_scope() {
    let meet = Barrier::new(300);
    let leaders = AtomicUsize::new(0);
    scope(|threads| {
        for _ in 0..300 {
            threads.spawn(|| {
                if meet.wait().is_leader() {
                    leaders.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(leaders.into_inner(), 1);
}

pub fn a_scope_is_followed_by_what_was_written() {
    for round in 0..200 {
        let words = [const { AtomicUsize::new(0) }; 4];
        scope(|threads| {
            for word in &words {
                threads.spawn(move || word.store(round, Relaxed));
            }
        });
        assert!(words.iter().all(|word| word.load(Relaxed) == round));
    }
}
