//! What an operation on a channel leaves behind, and what may come between: small cases, each made
//! to happen.
//!
//! The idea: an operation that gives up, loses a select, or is selected and takes its time to
//! complete, must not change what others get: their messages, their order, their turn.
//!
//! "It waits now" cannot be seen from outside. [`let_wait`] gives it time to; where it has not come
//! that far, the test proves less but does not fail.

#![cfg(target_env = "gnu")] // its malloc's figures

use crate::common::*;
use greenthread as thread;
use greenthread::channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, TrySendError,
    after, bounded, never, tick, unbounded,
};
use greenthread::select;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(20);

fn let_wait() {
    thread::sleep(SHORT);
}

fn select_send<T>(sender: &Sender<T>, message: T) {
    let mut select = Select::new();
    select.send(sender);
    select.select().send(sender, message).ok().unwrap();
}

fn select_recv<T>(receiver: &Receiver<T>) -> T {
    let mut select = Select::new();
    select.recv(receiver);
    select.select().recv(receiver).unwrap()
}

/// One channel of each flavour.
fn flavours<T>() -> [(Sender<T>, Receiver<T>); 3] {
    [bounded(0), bounded(3), unbounded()]
}

/// A has been selected to receive, and takes its time; B receives, and selects again. What it gets
/// then must have been sent later than what it has got already.
#[test]
fn a_selected_receive_has_its_own_message() {
    let _w = watchdog("leftovers::a_selected_receive_has_its_own_message");
    both(|| {
        for (sender, receiver) in flavours() {
            let (go, gate) = bounded::<()>(0);
            let mine = receiver.clone();
            let a = thread::spawn(move || {
                let mut select = Select::new();
                select.recv(&mine);
                let operation = select.select();
                gate.recv().unwrap();
                operation.recv(&mine).unwrap()
            });
            let_wait();
            let b = thread::spawn(move || (receiver.recv().unwrap(), select_recv(&receiver)));
            let_wait();
            let sends = thread::spawn(move || {
                sender.send(7).unwrap();
                sender.send(8).unwrap();
                let_wait();
                sender.send(9).unwrap();
            });
            let_wait();
            let (first, second) = b.join().unwrap();
            go.send(()).unwrap();
            let other = a.join().unwrap();
            sends.join().unwrap();
            assert!(
                first < second,
                "{first} before {second}, and {other} elsewhere"
            );
            assert_eq!(first + second + other, 24);
        }
    });
}

/// A has been selected to send and takes its time; B waits for a place; C waits for a message. When
/// A is done, C has its message, and B the place that is left.
#[test]
fn a_right_that_is_not_needed_goes_to_the_next() {
    let _w = watchdog("leftovers::a_right_that_is_not_needed_goes_to_the_next");
    both(|| {
        for plain in [true, false] {
            let (sender, receiver) = bounded(1);
            sender.send(1).unwrap();
            let ((go, gate), mine) = (bounded::<()>(0), sender.clone());
            let a = thread::spawn(move || {
                let mut select = Select::new();
                select.send(&mine);
                let operation = select.select();
                gate.recv().unwrap();
                operation.send(&mine, 2).unwrap();
            });
            let_wait();
            let b = thread::spawn(move || match plain {
                true => sender.send(3).unwrap(),
                false => select_send(&sender, 3),
            });
            let_wait();
            assert_eq!(receiver.recv(), Ok(1));
            let mine = receiver.clone();
            let c = thread::spawn(move || mine.recv().unwrap());
            let_wait();
            go.send(()).unwrap();
            a.join().unwrap();
            let (one, other) = (c.join().unwrap(), receiver.recv().unwrap());
            assert_eq!(one + other, 5);
            b.join().unwrap();
        }
    });
}

/// Whoever waits when the other side goes is told so, and has its message back.
#[test]
fn the_other_side_goes_while_many_wait() {
    let _w = watchdog("leftovers::the_other_side_goes_while_many_wait");
    both(|| {
        for (sender, receiver) in flavours::<Arc<()>>() {
            let waiters: Vec<_> = (0..30)
                .map(|index| {
                    let receiver = receiver.clone();
                    thread::spawn(move || match index % 3 {
                        0 => receiver.recv().is_err(),
                        1 => {
                            receiver.recv_timeout(Duration::MAX)
                                == Err(RecvTimeoutError::Disconnected)
                        }
                        _ => select! {
                            recv(receiver) -> message => message.is_err(),
                            recv(never::<()>()) -> _ => false,
                        },
                    })
                })
                .collect();
            let_wait();
            drop(sender);
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        }
        for capacity in [0, 3] {
            let ((sender, receiver), counted) = (bounded(capacity), Arc::new(()));
            for _ in 0..capacity {
                sender.send(counted.clone()).unwrap();
            }
            let waiters: Vec<_> = (0..30)
                .map(|index| {
                    let (sender, message) = (sender.clone(), counted.clone());
                    thread::spawn(move || match index % 3 {
                        0 => drop(sender.send(message).unwrap_err().0),
                        1 => match sender.send_timeout(message, Duration::MAX) {
                            Err(SendTimeoutError::Disconnected(message)) => drop(message),
                            other => panic!("{other:?}"),
                        },
                        _ => select! {
                            send(sender, message) -> sent => drop(sent.unwrap_err().0),
                            recv(never::<()>()) -> _ => panic!("never"),
                        },
                    })
                })
                .collect();
            let_wait();
            drop(receiver);
            waiters
                .into_iter()
                .for_each(|waiter| waiter.join().unwrap());
            drop(sender);
            assert_eq!(Arc::strong_count(&counted), 1, "a message is still there");
        }
    });
}

/// Bytes that the allocator has given out.
fn in_use() -> usize {
    // SAFETY: reads figures.
    unsafe { libc::mallinfo2() }.uordblks
}

/// Selects that lose, and operations that give up, thousands of times: nobody seems to stand there
/// afterwards, and no memory has been kept.
#[test]
fn losers_leave_nothing_behind() {
    let _w = watchdog("leftovers::losers_leave_nothing_behind");
    const NAME: &str = "leftovers::losers_leave_nothing_behind";
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0); // alone, so that memory in use is its own
    }
    both(|| {
        let (idle, nobody) = bounded::<Arc<()>>(0);
        let (full, kept) = bounded(1);
        let counted = Arc::new(());
        full.send(counted.clone()).unwrap();
        let (wins, winner) = bounded(0);
        let round = |n: u32| {
            for i in 0..n {
                select! {
                    recv(winner) -> message => assert_eq!(message, Ok(i)),
                    recv(nobody) -> _ => panic!("nobody sends"),
                    send(idle, counted.clone()) -> _ => panic!("nobody receives"),
                    send(full, counted.clone()) -> _ => panic!("it is full"),
                }
                let short = Duration::from_micros(u64::from(i % 3));
                assert!(nobody.recv_timeout(short).is_err());
                assert!(idle.send_timeout(counted.clone(), short).is_err());
                assert!(full.send_timeout(counted.clone(), short).is_err());
                select! {
                    recv(nobody) -> _ => panic!("nobody sends"),
                    send(full, counted.clone()) -> _ => panic!("it is full"),
                    recv(after(short)) -> _ => {}
                }
            }
        };
        let rounds = [500, 4_000];
        let sends = thread::spawn(move || {
            let all = rounds.into_iter().flat_map(|n| 0..n);
            all.for_each(|i| wins.send(i).unwrap());
        });
        round(rounds[0]);
        let before = in_use();
        round(rounds[1]);
        let grown = in_use().saturating_sub(before);
        sends.join().unwrap();
        assert!(grown < 8 * 4_000, "{grown} bytes more in use");
        assert!(matches!(
            idle.try_send(counted.clone()),
            Err(TrySendError::Full(_))
        ));
        assert_eq!(nobody.try_recv(), Err(TryRecvError::Empty));
        assert_eq!((full.len(), Arc::strong_count(&counted)), (1, 2));
        drop((full, kept));
        assert_eq!(Arc::strong_count(&counted), 1);
        // Both are as new.
        let other = thread::spawn(move || nobody.recv().is_ok());
        idle.send(counted).unwrap();
        assert!(other.join().unwrap());
    });
}

#[test]
fn time_that_has_passed_and_time_without_end() {
    let _w = watchdog("leftovers::time_that_has_passed_and_time_without_end");
    both(|| {
        let past = Instant::now() - Duration::from_secs(1);
        let far = Instant::now() + Duration::from_secs(1 << 33);
        let forever = Duration::MAX;
        for (sender, receiver) in flavours() {
            assert_eq!(receiver.recv_deadline(past), Err(RecvTimeoutError::Timeout));
            assert_eq!(
                receiver.recv_timeout(Duration::ZERO),
                Err(RecvTimeoutError::Timeout)
            );
            // What is possible is done, in no time.
            while sender.len() < 3 && sender.send_deadline(1, past).is_ok() {}
            if sender.capacity().is_some() {
                let error = sender.send_timeout(2, Duration::ZERO);
                assert_eq!(error, Err(SendTimeoutError::Timeout(2)));
            }
            for _ in 0..sender.len() {
                assert_eq!(receiver.recv_deadline(past), Ok(1));
            }
            let (theirs, other) = (receiver.clone(), sender.clone());
            let handle = thread::spawn(move || {
                assert_eq!(theirs.recv_timeout(forever), Ok(4));
                assert_eq!(theirs.recv_deadline(far), Ok(5));
                let mut select = Select::new();
                select.recv(&theirs);
                assert_eq!(select.select_timeout(forever).unwrap().recv(&theirs), Ok(6));
                assert_eq!(select.ready_deadline(far), Ok(0));
                assert_eq!(theirs.recv(), Ok(7));
            });
            for message in 4..8 {
                let_wait();
                match message % 2 {
                    0 => other.send_timeout(message, forever).unwrap(),
                    _ => other.send_deadline(message, far).unwrap(),
                }
            }
            handle.join().unwrap();
        }
        assert!(after(Duration::ZERO).recv().is_ok());
        assert!(after(forever).try_recv().is_err() && tick(forever).try_recv().is_err());
        select! {
            recv(after(forever)) -> _ => panic!("for ever is over"),
            recv(never::<()>()) -> _ => panic!("never"),
            default(SHORT) => {}
        }
    });
}

/// The token of `park` is not used up by waiting for a channel.
#[test]
fn the_token_of_park_outlives_waits() {
    let _w = watchdog("leftovers::the_token_of_park_outlives_waits");
    both(|| {
        for (sender, receiver) in flavours() {
            let me = thread::current();
            let other = thread::spawn(move || {
                for i in 0..3 {
                    me.unpark();
                    let_wait();
                    me.unpark();
                    sender.send(i).unwrap();
                }
            });
            assert_eq!(receiver.recv(), Ok(0));
            assert_eq!(select_recv(&receiver), 1);
            assert_eq!(receiver.recv_timeout(Duration::MAX), Ok(2));
            other.join().unwrap();
            thread::park();
        }
    });
}

/// In destructors of thread-locals, and while unwinding.
#[test]
fn channels_at_the_end_of_threads() {
    struct Last(Sender<usize>, Receiver<usize>);
    impl Drop for Last {
        fn drop(&mut self) {
            let got = select! {
                recv(self.1) -> message => message.unwrap(),
                recv(after(Duration::from_secs(3_600))) -> _ => panic!("an hour"),
            };
            self.0.send(got + 1).unwrap();
            let last = self.1.recv().unwrap();
            self.0.send_timeout(last + 1, Duration::MAX).unwrap();
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    fn ends(last: Last, unwinds: bool) {
        if unwinds {
            let died = catch_unwind(AssertUnwindSafe(move || {
                let _last = last;
                resume_unwind(Box::new(7));
            }));
            assert!(died.is_err() && !thread::panicking());
        } else {
            LAST.set(Some(last));
        }
    }
    let _w = watchdog("leftovers::channels_at_the_end_of_threads");
    both(|| {
        for round in 0..8 {
            let (to, from_me) = bounded(round % 2);
            let (to_me, from) = bounded(round % 2);
            let (last, unwinds) = (Last(to_me, from_me), round >= 4);
            let body = move || ends(last, unwinds);
            let join: Box<dyn FnOnce() -> thread::Result<()>> = if round % 4 < 2 {
                let handle = thread::spawn(body);
                Box::new(|| handle.join())
            } else {
                let handle = std::thread::spawn(body);
                Box::new(|| handle.join())
            };
            for message in [10, 20] {
                to.send(message).unwrap();
                assert_eq!(from.recv(), Ok(message + 1));
            }
            join().unwrap();
        }
    });
}
