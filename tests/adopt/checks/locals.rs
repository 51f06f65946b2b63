//! Thread-locals while their thread runs: `thread_local!`, `LocalKey`.

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};

/// Runs it in a thread.
fn inside<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(body).join().unwrap()
}

pub fn each_thread_has_its_own() {
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(7) });
    NUMBER.set(1);
    let handles: Vec<_> = (0..30)
        .map(|i| thread::spawn(move || (NUMBER.replace(i), NUMBER.get())))
        .collect();
    for (i, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().unwrap(), (7, i));
    }
    assert_eq!(NUMBER.get(), 1);
    NUMBER.set(7);
}

pub fn nested_threads_have_fresh_ones() {
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    fn nest(left: usize) -> usize {
        let fresh = NUMBER.replace(left);
        let nested = if left > 0 {
            inside(move || nest(left - 1))
        } else {
            0
        };
        assert_eq!(NUMBER.get(), left);
        fresh + nested
    }
    assert_eq!(inside(|| nest(20)), 0);
}

pub fn scoped_threads_have_fresh_ones() {
    thread_local!(static NUMBERS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });
    NUMBERS.with_borrow_mut(|numbers| numbers.push(1));
    thread::scope(|threads| {
        for i in 0..20 {
            threads.spawn(move || {
                NUMBERS.with_borrow_mut(|numbers| numbers.extend([i, i]));
                NUMBERS.with_borrow(|numbers| assert_eq!(numbers, &[i, i]));
            });
        }
    });
    assert_eq!(NUMBERS.take(), [1]);
}

pub fn they_begin_when_they_are_used() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static LAZY: usize = BEGUN.fetch_add(1, SeqCst));
    let before = BEGUN.load(SeqCst);
    inside(|| ());
    assert_eq!(BEGUN.load(SeqCst), before);
    inside(|| LAZY.with(|_| ()));
    assert_eq!(BEGUN.load(SeqCst), before + 1);
}

pub fn they_begin_once() {
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static LAZY: usize = BEGUN.fetch_add(1, SeqCst));
    let before = BEGUN.load(SeqCst);
    let handles: Vec<_> = (0..40)
        .map(|_| {
            thread::spawn(|| {
                let first = LAZY.with(|number| *number);
                for _ in 0..20 {
                    thread::yield_now();
                    assert_eq!(LAZY.with(|number| *number), first);
                }
                first
            })
        })
        .collect();
    let numbers = handles.into_iter().map(|handle| handle.join().unwrap());
    assert_eq!(numbers.collect::<HashSet<_>>().len(), 40);
    assert_eq!(BEGUN.load(SeqCst), before + 40);
}

pub fn a_constant_begins_as_it_is() {
    struct Both {
        number: u64,
        text: &'static str,
        zeros: [u8; 100],
    }
    thread_local!(static BOTH: Both = const { Both { number: u64::MAX, text: "constant", zeros: [0; 100] } });
    inside(|| {
        BOTH.with(|both| {
            assert_eq!((both.number, both.text), (u64::MAX, "constant"));
            assert_eq!(both.zeros, [0; 100]);
        })
    });
}

pub fn a_cell_can_be_used_by_its_key() {
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(5) });
    inside(|| {
        assert_eq!(NUMBER.get(), 5);
        NUMBER.set(6);
        assert_eq!(NUMBER.replace(7), 6);
        assert_eq!(NUMBER.take(), 7);
        assert_eq!(NUMBER.get(), 0);
    });
}

pub fn a_ref_cell_can_be_used_by_its_key() {
    thread_local!(static TEXT: RefCell<String> = RefCell::new("a".into()));
    inside(|| {
        assert_eq!(TEXT.with_borrow(String::len), 1);
        TEXT.with_borrow_mut(|text| text.push('b'));
        assert_eq!(TEXT.replace("c".into()), "ab");
        assert_eq!(TEXT.take(), "c");
        TEXT.set("d".into());
        assert_eq!(TEXT.with_borrow(String::clone), "d");
    });
}

pub fn set_does_not_begin_them() {
    thread_local! {
        static CELL: Cell<u32> = panic!("begins");
        static REF_CELL: RefCell<u32> = panic!("begins");
    }
    inside(|| {
        CELL.set(1);
        REF_CELL.set(2);
        assert_eq!((CELL.get(), REF_CELL.take()), (1, 2));
    });
    assert_eq!(died(thread::spawn(|| CELL.get()).join()), "begins");
}

pub fn borrowing_twice_panics() {
    thread_local!(static NUMBER: RefCell<u32> = const { RefCell::new(0) });
    inside(|| {
        NUMBER.with_borrow_mut(|_| {
            assert!(caught(|| NUMBER.with_borrow(|_| ())).is_err());
            assert!(caught(|| NUMBER.take()).is_err());
            // Another thread's is not borrowed.
            assert_eq!(inside(|| NUMBER.replace(1)), 0);
        });
        assert_eq!(NUMBER.take(), 0);
    });
}

pub fn one_may_begin_with_another() {
    thread_local! {
        static FIRST: Cell<u32> = const { Cell::new(3) };
        static SECOND: u32 = FIRST.get() * 2;
        static THIRD: String = SECOND.with(|second| second.to_string());
    }
    inside(|| {
        FIRST.set(21);
        assert_eq!(THIRD.with(String::clone), "42");
    });
    assert_eq!(inside(|| THIRD.with(String::clone)), "6");
}

pub fn a_beginning_that_panicked_is_tried_again() {
    thread_local! {
        static TRIES: Cell<u32> = const { Cell::new(0) };
        static LAZY: String = {
            TRIES.set(TRIES.get() + 1);
            assert!(TRIES.get() > 2, "too early");
            "begun".to_string()
        };
    }
    inside(|| {
        for _ in 0..2 {
            assert_eq!(died(caught(|| LAZY.with(String::len))), "too early");
        }
        assert_eq!(LAZY.with(String::clone), "begun");
        assert_eq!(TRIES.get(), 3);
    });
}

pub fn live_threads_have_different_places() {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
        static LAZY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    const COUNT: usize = 50;
    let meet = Arc::new(Barrier::new(COUNT));
    let handles: Vec<_> = (0..COUNT)
        .map(|_| {
            let meet = meet.clone();
            thread::spawn(move || {
                let places = [
                    NUMBER.with(|it| it as *const _ as usize),
                    LAZY.with(|it| it as *const _ as usize),
                ];
                meet.wait();
                places
            })
        })
        .collect();
    let places = handles
        .into_iter()
        .flat_map(|handle| handle.join().unwrap());
    assert_eq!(places.collect::<HashSet<_>>().len(), 2 * COUNT);
}

pub fn a_place_stays() {
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    fn place() -> usize {
        NUMBER.with(|it| it as *const _ as usize)
    }
    let meet = Barrier::new(30);
    thread::scope(|threads| {
        for _ in 0..30 {
            threads.spawn(|| {
                NUMBER.with(|number| {
                    let first = place();
                    for i in 0..50 {
                        number.set(i);
                        match i % 10 {
                            0 => _ = meet.wait(),
                            5 => thread::sleep(std::time::Duration::from_micros(50)),
                            _ => thread::yield_now(),
                        }
                        assert_eq!((place(), NUMBER.get()), (first, i));
                    }
                });
            });
        }
    });
}

pub fn values_stay_apart() {
    thread_local!(static VALUES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });
    let meet = Barrier::new(100);
    thread::scope(|threads| {
        for i in 0..100 {
            let meet = &meet;
            threads.spawn(move || {
                for turn in 0..30 {
                    VALUES.with_borrow_mut(|values| values.push(i * turn));
                    thread::yield_now();
                }
                meet.wait();
                let expected: Vec<_> = (0..30).map(|turn| i * turn).collect();
                assert_eq!(VALUES.take(), expected);
            });
        }
    });
}

pub fn they_need_not_be_send() {
    thread_local!(static SHARED: Rc<Cell<usize>> = Rc::default());
    thread::scope(|threads| {
        for i in 0..20 {
            threads.spawn(move || {
                let clones: Vec<_> = (0..i).map(|_| SHARED.with(Rc::clone)).collect();
                for clone in &clones {
                    clone.set(clone.get() + 1);
                    thread::yield_now();
                }
                SHARED.with(|shared| {
                    assert_eq!((shared.get(), Rc::strong_count(shared)), (i, i + 1));
                });
            });
        }
    });
}

pub fn large_ones() {
    const SIZE: usize = 32 << 10;
    thread_local!(static LARGE: RefCell<[u8; SIZE]> = const { RefCell::new([3; SIZE]) });
    thread::scope(|threads| {
        for i in 10..30 {
            threads.spawn(move || {
                LARGE.with_borrow_mut(|large| {
                    assert!(large.iter().all(|byte| *byte == 3));
                    large.fill(i);
                });
                thread::yield_now();
                LARGE.with_borrow(|large| assert!(large.iter().all(|byte| *byte == i)));
            });
        }
    });
}

pub fn aligned_ones() {
    #[repr(align(64))]
    struct Line(Cell<u8>);
    #[repr(align(1024))]
    struct Block(Cell<u8>);
    thread_local! {
        static LINE: Line = const { Line(Cell::new(1)) };
        static BLOCK: Block = const { Block(Cell::new(2)) };
    }
    for _ in 0..20 {
        inside(|| {
            LINE.with(|line| assert_eq!((line as *const _ as usize % 64, line.0.get()), (0, 1)));
            BLOCK.with(|block| {
                assert_eq!((block as *const _ as usize % 1_024, block.0.get()), (0, 2));
            });
        });
    }
}

/// Each thread has keys of its own.
pub fn hash_states_differ() {
    let hash = || RandomState::new().hash_one("text");
    let handles: Vec<_> = (0..20).map(|_| thread::spawn(hash)).collect();
    let hashes = handles.into_iter().map(|handle| handle.join().unwrap());
    assert_eq!(hashes.collect::<HashSet<_>>().len(), 20);
}
