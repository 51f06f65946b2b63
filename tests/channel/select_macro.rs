//! `select!` and `select_biased!`: what can be written, what is evaluated when, and that nothing is
//! lost between threads.
//!
//! The idea: crossbeam-channel's macro is the measure. Most tests need one thread, and run on a
//! kernel thread and on a green one; the last ones mix both kinds.

use crate::common::*;
use greenthread as thread;
use greenthread::channel::{
    Receiver, RecvError, SendError, Sender, after, bounded, never, tick, unbounded,
};
use greenthread::{select, select_biased};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);

/// A channel with one message in it, and a channel without.
fn full_and_empty() -> (Sender<u32>, Receiver<u32>, Sender<u32>, Receiver<u32>) {
    let (s1, r1) = unbounded();
    let (s2, r2) = bounded(0);
    s1.send(7).unwrap();
    (s1, r1, s2, r2)
}

#[test]
fn one_arm() {
    let _w = watchdog("select_macro::one_arm");
    both(|| {
        let (s, r) = bounded(1);
        select! { send(s, 1) -> res => res.unwrap() }
        select! { send(s, 2) -> _ => panic!("full"), default => {} }
        select! { send(s, 2) -> _ => panic!("full"), default(SHORT) => {} }
        assert_eq!(select! { recv(r) -> msg => msg }, Ok(1));
        select! { recv(r) -> _ => panic!("empty"), default => {} }
        select! { recv(r) -> _ => panic!("empty"), default(SHORT) => {} }
        drop(s);
        assert_eq!(select! { recv(r) -> msg => msg }, Err(RecvError));
        let (s, _) = bounded(0);
        assert_eq!(select! { send(s, 3) -> res => res }, Err(SendError(3)));
    });
}

#[test]
fn commas_and_order() {
    let _w = watchdog("select_macro::commas_and_order");
    both(|| {
        let (s, r, no_s, no_r) = full_and_empty();
        // `default` anywhere, commas after blocks or not, commas inside the parentheses or not.
        let n = select! {
            default() => 0,
            recv(no_r,) -> _ => { 1 }
            send(no_s, 3,) -> _res => { 2 },
            recv(r) -> msg => msg.unwrap()
        };
        assert_eq!(n, 7);
        let n = select! {
            recv(no_r) -> _ => 1,
            default(SHORT,) => { 2 }
            send(no_s, 3) -> _ => 3
        };
        assert_eq!(n, 2);
        // Bodies that begin or end with a block, and are more than one.
        s.send(1).unwrap();
        let n = select! {
            recv(no_r) -> _ => { "abc" }.len(),
            recv(r) -> msg => match msg {
                Ok(n) => n as usize,
                Err(_) => usize::MAX,
            } + { 1 },
            default => if s.is_empty() { 9 } else { 8 }
        };
        assert_eq!(n, 2);
        select! { default => {} }
        select! { default() => (), }
        select! { default(Duration::ZERO) => {}, }
    });
}

#[test]
fn only_a_timeout() {
    let _w = watchdog("select_macro::only_a_timeout");
    both(|| {
        let start = Instant::now();
        select! { default(SHORT) => {} }
        assert!(start.elapsed() >= SHORT);
        select_biased! { default(SHORT) => {} }
        assert!(start.elapsed() >= 2 * SHORT);
    });
}

#[test]
fn what_a_handle_can_be() {
    let _w = watchdog("select_macro::what_a_handle_can_be");
    both(|| {
        let (s, r) = unbounded::<u32>();
        let (boxed_s, shared_r) = (Box::new(s.clone()), Arc::new(r.clone()));
        let pair = (s.clone(), [r.clone(), never()]);
        select! { send(boxed_s, 1) -> res => res.unwrap() }
        select! { send(*boxed_s, 2) -> res => res.unwrap() }
        select! { send(&&&pair.0, 3) -> res => res.unwrap() }
        select! { send(s.clone(), 4) -> res => res.unwrap() }
        select! { recv(shared_r) -> msg => assert_eq!(msg, Ok(1)) }
        select! { recv(*shared_r) -> msg => assert_eq!(msg, Ok(2)) }
        select! { recv(&mut &pair.1[0]) -> msg => assert_eq!(msg, Ok(3)) }
        select! { recv({ drop(s); r.clone() }) -> msg => assert_eq!(msg, Ok(4)) }
        // Temporaries, among them what they borrow from.
        let mut maybe = [None, Some(&pair.1[0])].into_iter();
        select! {
            recv(maybe.next().unwrap().unwrap_or(&never())) -> _ => panic!("never"),
            recv(maybe.next().unwrap().unwrap_or(&never())) -> _ => panic!("empty"),
            default => {}
        }
        let cell = RefCell::new(r);
        select! { recv(cell.borrow()) -> _ => panic!("empty"), default => {} }
        select! { recv(after(SHORT)) -> at => assert!(at.unwrap() <= Instant::now()) }
        select! { recv(tick(SHORT)) -> at => assert!(at.unwrap() <= Instant::now()) }
    });
}

#[test]
fn handles_are_borrowed_until_the_body() {
    let _w = watchdog("select_macro::handles_are_borrowed_until_the_body");
    both(|| {
        let (s, r, no_s, mut no_r) = full_and_empty();
        select! {
            recv(r) -> _ => { drop(r); drop(no_r); no_r = never(); }
            recv(no_r) -> _ => {}
            send(no_s, 1) -> _ => drop(no_s),
        }
        select! {
            recv(no_r) -> _ => drop(s),
            default => { drop(no_r); drop(s) }
        }
        let (s, r) = unbounded::<u32>();
        select! {
            recv(r) -> _ => {}
            default(SHORT) => drop((s, r)),
        }
    });
}

#[test]
fn evaluated_once_in_order() {
    let _w = watchdog("select_macro::evaluated_once_in_order");
    both(|| {
        let (s, r, no_s, no_r) = full_and_empty();
        let log = RefCell::new(String::new());
        let note = |c| log.borrow_mut().push(c);
        select! {
            recv({ note('a'); &no_r }) -> _ => note('A'),
            default({ note('t'); LONG }) => note('T'),
            send({ note('b'); &no_s }, { note('m'); 1 }) -> _ => note('B'),
            recv({ note('c'); &r }) -> _ => note('C'),
        }
        assert_eq!(log.take(), "abctC");
        select! {
            recv({ note('a'); &no_r }) -> _ => note('A'),
            send({ note('b'); &s }, { note('m'); 1 }) -> _ => note('B'),
        }
        assert_eq!(log.take(), "abmB");

        // A temporary handle lives until the body has ended.
        struct Noted<'a>(&'a Receiver<u32>, &'a Cell<bool>);
        impl std::ops::Deref for Noted<'_> {
            type Target = Receiver<u32>;
            fn deref(&self) -> &Receiver<u32> {
                self.0
            }
        }
        impl Drop for Noted<'_> {
            fn drop(&mut self) {
                self.1.set(true);
            }
        }
        let dropped = Cell::new(false);
        select! {
            recv(Noted(&r, &dropped)) -> msg => assert_eq!((msg, dropped.get()), (Ok(1), false)),
        }
        assert!(dropped.get());
    });
}

#[test]
fn bodies_may_leave() {
    let _w = watchdog("select_macro::bodies_may_leave");
    fn ask(r: &Receiver<u32>) -> Result<u32, RecvError> {
        loop {
            select! {
                recv(r) -> msg => match msg? {
                    0 => continue,
                    1 => break,
                    n => return Ok(n),
                },
                default => return Ok(100),
            }
        }
        Ok(200)
    }
    both(|| {
        let (s, r) = unbounded();
        for n in [0, 0, 7, 0, 1, 0] {
            s.send(n).unwrap();
        }
        assert_eq!([ask(&r), ask(&r), ask(&r)], [Ok(7), Ok(200), Ok(100)]);
        drop(s);
        assert_eq!(ask(&r), Err(RecvError));
        let mut asked = 0;
        let count = 'outer: loop {
            for n in 0..3 {
                asked += 1;
                select! {
                    recv(r) -> _ => if asked > 4 { break 'outer n },
                    default => unreachable!(),
                }
                if asked == 2 {
                    continue 'outer;
                }
            }
        };
        assert_eq!((asked, count), (5, 2));
    });
}

#[test]
fn results_and_values() {
    let _w = watchdog("select_macro::results_and_values");
    both(|| {
        let (s, r, no_s, no_r) = full_and_empty();
        // Patterns.
        select! {
            recv(r) -> mut msg => { msg = msg.map(|n| n + 1); assert_eq!(msg, Ok(8)) }
            recv(no_r) -> Ok(_) | Err(RecvError) => {}
        }
        select! { send(s, 5) -> Ok(()) | Err(SendError(_)) => {} }
        select! { recv(r) -> r => assert_eq!(r, Ok(5)) }
        // Types: exact ones, of mixed messages, and arms that never end.
        let (texts, told) = bounded::<String>(1);
        let told: Box<dyn std::fmt::Debug> = select! {
            recv(r) -> msg => { let msg: Result<u32, RecvError> = msg; Box::new(msg) }
            send(no_s, 1) -> res => { let res: Result<(), SendError<u32>> = res; Box::new(res) }
            recv(told) -> msg => { let msg: Result<String, RecvError> = msg; Box::new(msg) }
            send(texts, "hi".into()) -> res => {
                let res: Result<(), SendError<String>> = res;
                Box::new(res)
            }
            default => unreachable!(),
        };
        assert_eq!(format!("{told:?}"), "Ok(())");
        // As the operand of an expression, and in a closure.
        let two = || 1 + select! { recv(r) -> _ => 0, default => 1 };
        assert_eq!(two(), 2);
        // A message type is inferred from the channel's other use.
        let (s, r) = unbounded();
        select! { recv(r) -> _ => panic!("empty"), default => {} }
        s.send([0u8; 3]).unwrap();
        // Moved into whichever body runs.
        let once = Box::new(());
        select! {
            recv(r) -> _ => drop(once),
            recv(never::<()>()) -> _ => drop(once),
            default => drop(once),
        }
    });
}

#[test]
fn nested() {
    let _w = watchdog("select_macro::nested");
    both(|| {
        let (s, r, no_s, no_r) = full_and_empty();
        let n = select! {
            recv(r) -> outer => select! {
                recv(r) -> _ => 0,
                send(s, select! { recv(no_r) -> _ => 1, default => 2 }) -> _ => select_biased! {
                    recv(r) -> inner => 10 * outer.unwrap() + inner.unwrap(),
                    send(no_s, 1) -> _ => 3,
                },
            },
            default => 4,
        };
        assert_eq!(n, 72);
    });
}

/// Names that the macro uses itself, or might.
#[test]
fn hygiene() {
    mod core {}
    mod std {}
    #[allow(dead_code)]
    struct Operation;
    #[allow(dead_code)]
    enum Result {
        Ok,
        Err,
    }
    macro_rules! receive_or {
        ($handle:ident, $index:expr) => {
            select! { recv($handle) -> selected => selected.ok(), default => $index }
        };
    }
    let (selected, handle) = unbounded();
    let (index, other) = (Some(3), never::<u8>());
    assert_eq!(receive_or!(handle, index), Some(3));
    select! {
        recv(other) -> _ => {}
        send(selected, index.unwrap()) -> handle => assert!(handle.is_ok() && index == Some(3)),
    }
    select! {
        recv(other) -> _ => {}
        recv(handle) -> index => assert!(index.is_ok() && selected.is_empty()),
    }
}

#[test]
fn forty_arms() {
    let _w = watchdog("select_macro::forty_arms");
    macro_rules! select_of {
        ($r:ident: $($n:literal)*) => {
            select! { $(recv($r($n)) -> msg => ($n, msg),)* }
        };
    }
    both(|| {
        let channels: Vec<_> = (0..40).map(|_| bounded::<usize>(1)).collect();
        let r = |i: usize| &channels[i].1;
        for (i, (s, _)) in channels.iter().enumerate() {
            s.send(i).unwrap();
            let selected = select_of!(r: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22
                23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
            assert_eq!(selected, (i, Ok(i)));
        }
    });
}

#[test]
fn biased_or_not() {
    let _w = watchdog("select_macro::biased_or_not");
    const ROUNDS: usize = 3_000;
    /// Which of three arms, all of which can go on; with no `default`, and with either.
    macro_rules! which {
        ($select:ident, $round:expr, $r1:expr, $r2:expr, $s3:expr) => {
            match $round % 3 {
                0 => $select! { recv($r1) -> _ => 0, recv($r2) -> _ => 1, send($s3, ()) -> _ => 2 },
                1 => $select! {
                    recv($r1) -> _ => 0, recv($r2) -> _ => 1, send($s3, ()) -> _ => 2,
                    default => panic!("not ready"),
                },
                _ => $select! {
                    recv($r1) -> _ => 0, recv($r2) -> _ => 1, send($s3, ()) -> _ => 2,
                    default(LONG) => panic!("not ready"),
                },
            }
        };
    }
    both(|| {
        let ((s1, r1), (s2, r2), (s3, _r3)) = (unbounded(), unbounded(), unbounded());
        for _ in 0..ROUNDS {
            s1.send(()).unwrap();
            s2.send(()).unwrap();
        }
        let mut hits = [0; 3];
        for round in 0..ROUNDS {
            hits[which!(select, round, r1, r2, s3)] += 1;
        }
        // A third each; that one of them gets less than a fifth has odds of less than 1 in 10^50.
        assert!(hits.iter().all(|&n| n > ROUNDS / 5), "{hits:?}");
        while !r1.is_empty() {
            assert_eq!(which!(select_biased, r1.len(), r1, r2, s3), 0);
        }
        for round in 0..3 {
            assert_eq!(which!(select_biased, round, r1, r2, s3), 1);
        }
        drop(s1); // an operation that fails at once can go on
        for round in 0..3 {
            assert_eq!(which!(select_biased, round, r1, r2, s3), 0);
        }
    });
}

#[test]
fn wakes_by_each_way() {
    let _w = watchdog("select_macro::wakes_by_each_way");
    both(|| {
        for kind in 0..4 {
            let ((s1, r1), (s2, r2)) = (bounded::<u32>(0), bounded::<u32>(0));
            let (s1_too, r2_too) = (s1.clone(), r2.clone());
            let other = thread::spawn(move || match kind {
                0 => assert_eq!((r1.recv(), drop(s2)), (Ok(1), ())),
                1 => assert_eq!((s2.send(2), drop(r1)), (Ok(()), ())),
                2 => drop(r1), // and when the thread ends, the other: either arm may be chosen
                _ => drop(s2),
            });
            let got = select_biased! {
                recv(r2_too) -> msg => ('r', msg.is_ok()),
                send(s1_too, 1) -> res => ('s', res.is_ok()),
            };
            match kind {
                0 => assert_eq!(got, ('s', true)),
                1 => assert_eq!(got, ('r', true)),
                _ => assert!(!got.1),
            }
            drop((s1, r2));
            other.join().unwrap();
        }
    });
}

/// Green and kernel threads, each of which selects among sends and receives on the same three
/// channels, with and without timeouts: what goes in comes out, once.
#[test]
fn nothing_lost() {
    let _w = watchdog("select_macro::nothing_lost");
    const EACH: u64 = 500;
    const THREADS: u64 = 8;
    let (a, b, c) = (bounded(0), bounded(2), unbounded());
    let (total_s, total_r) = unbounded();
    let work = move |me: u64| {
        let (mut sent, mut got) = (0, 0);
        while sent < EACH {
            let message = me * EACH + sent;
            select! {
                send(a.0, message) -> res => { res.unwrap(); sent += 1 }
                recv(a.1) -> msg => got += msg.unwrap(),
                send(b.0, message) -> res => { res.unwrap(); sent += 1 }
                recv(b.1) -> msg => got += msg.unwrap(),
                send(c.0, message) -> res => { res.unwrap(); sent += 1 }
                recv(c.1) -> msg => got += msg.unwrap(),
                default(Duration::from_micros(me)) => thread::yield_now(),
            }
        }
        drop((a.0, b.0, c.0));
        // The rest, until all have sent theirs. Then every channel is disconnected.
        let (mut a, mut b, mut c) = (a.1, b.1, c.1);
        for _ in 0..3 {
            loop {
                select! {
                    recv(a) -> msg => match msg {
                        Ok(n) => got += n,
                        Err(_) => break a = never(),
                    },
                    recv(b) -> msg => match msg {
                        Ok(n) => got += n,
                        Err(_) => break b = never(),
                    },
                    recv(c) -> msg => match msg {
                        Ok(n) => got += n,
                        Err(_) => break c = never(),
                    },
                }
            }
        }
        total_s.send(got).unwrap();
    };
    for me in 0..THREADS {
        let work = work.clone();
        if me % 4 == 0 {
            std::thread::spawn(move || work(me));
        } else {
            thread::spawn(move || work(me));
        }
    }
    drop(work);
    let all = THREADS * EACH;
    assert_eq!(total_r.iter().sum::<u64>(), all * (all - 1) / 2);
}
