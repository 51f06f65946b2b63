//! Channels: every capacity, from kernel threads and green ones.
//!
//! The idea: crossbeam-channel's documentation is the measure. Here are the things that could go
//! wrong in our way of doing it: hand-over, disconnection, drops, panics, and many threads at once.
//! Messages are counted: each is received once or dropped once.

use crate::common;
use crate::common::{Rng, watchdog};
use greenthread as thread;
use greenthread::channel::*;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// Runs `test` on a kernel thread and in a green one.
fn both(test: fn()) {
    let _watchdog = watchdog("channel");
    common::both(test);
}

const CAPACITIES: [Option<usize>; 5] = [Some(0), Some(1), Some(3), Some(100), None];

fn channel<T>(capacity: Option<usize>) -> (Sender<T>, Receiver<T>) {
    capacity.map_or_else(unbounded, bounded)
}

/// A message that counts those that are alive, larger than a register.
struct Counted {
    number: usize,
    alive: Arc<AtomicUsize>,
    _filler: [usize; 5],
}

impl Counted {
    fn new(number: usize, alive: &Arc<AtomicUsize>) -> Counted {
        alive.fetch_add(1, Relaxed);
        Counted {
            number,
            alive: alive.clone(),
            _filler: [number; 5],
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

#[test]
fn all_messages_arrive_in_order() {
    both(|| {
        for capacity in CAPACITIES {
            let (s, r) = channel(capacity);
            let sending = thread::spawn(move || (0..10_000).for_each(|i| s.send(i).unwrap()));
            assert!((0..10_000).eq(r.iter()));
            assert_eq!(r.recv(), Err(RecvError));
            sending.join().unwrap();
        }
    });
}

#[test]
fn many_to_many() {
    both(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        for capacity in CAPACITIES {
            let (s, r) = channel(capacity);
            let receiving: Vec<_> = (0..4)
                .map(|_| {
                    let r = r.clone();
                    thread::spawn(move || {
                        let mut last = [0; 4];
                        r.iter()
                            .map(|(from, message): (usize, Counted)| {
                                assert!(message.number > last[from], "from each in order");
                                last[from] = message.number;
                                message.number
                            })
                            .sum::<usize>()
                    })
                })
                .collect();
            drop(r);
            for from in 0..4 {
                let (s, alive) = (s.clone(), alive.clone());
                thread::spawn(move || {
                    for i in 1..=2_000 {
                        s.send((from, Counted::new(i, &alive)))
                            .unwrap_or_else(|_| panic!());
                    }
                });
            }
            drop(s);
            let sum: usize = receiving.into_iter().map(|h| h.join().unwrap()).sum();
            assert_eq!(sum, 4 * 2_000 * 2_001 / 2);
            assert_eq!(alive.load(Relaxed), 0);
        }
    });
}

#[test]
fn fullness() {
    both(|| {
        let (s, r) = bounded(2);
        assert_eq!((s.capacity(), r.capacity()), (Some(2), Some(2)));
        assert!(s.is_empty() && r.is_empty() && !s.is_full() && !r.is_full());
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        s.send(1).unwrap();
        s.try_send(2).unwrap();
        assert_eq!(s.try_send(3), Err(TrySendError::Full(3)));
        assert!(s.is_full() && r.is_full());
        assert_eq!((s.len(), r.len()), (2, 2));
        assert_eq!((r.recv(), r.try_recv()), (Ok(1), Ok(2)));

        let (s, r) = bounded(0);
        assert!(s.is_empty() && s.is_full() && r.is_empty() && r.is_full());
        assert_eq!(s.capacity(), Some(0));
        assert_eq!(s.try_send(0), Err(TrySendError::Full(0)));
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));

        let (s, r) = unbounded();
        assert_eq!(s.capacity(), None);
        (0..1_000).for_each(|i| s.try_send(i).unwrap());
        assert!(!s.is_full() && r.len() == 1_000);
        assert!((0..1_000).eq(r.try_iter()));
        assert!(r.is_empty());
    });
}

#[test]
fn large_capacities_cost_nothing() {
    let (s, r) = bounded(if cfg!(target_pointer_width = "64") {
        1 << 28
    } else {
        1 << 20
    });
    s.send(1u8).unwrap();
    assert_eq!(r.recv(), Ok(1));
    assert!(catch_unwind(|| bounded::<u64>(usize::MAX / 8)).is_err());
}

#[test]
fn timeouts() {
    both(|| {
        let short = Duration::from_millis(2);
        for capacity in [0, 1] {
            let (s, r) = bounded(capacity);
            let start = Instant::now();
            assert_eq!(r.recv_timeout(short), Err(RecvTimeoutError::Timeout));
            assert_eq!(r.recv_deadline(start), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= short);
            if capacity == 1 {
                s.send(0).unwrap();
            }
            let start = Instant::now();
            assert_eq!(s.send_timeout(1, short), Err(SendTimeoutError::Timeout(1)));
            assert_eq!(s.send_deadline(1, start), Err(SendTimeoutError::Timeout(1)));
            assert!(start.elapsed() >= short);
            // Who gave up has left nothing behind.
            assert_eq!(r.try_iter().count(), capacity);
            let theirs = s.clone();
            thread::spawn(move || theirs.send_timeout(2, Duration::MAX).unwrap());
            assert_eq!(r.recv_timeout(Duration::MAX), Ok(2));
            drop(s);
            assert_eq!(
                r.recv_timeout(Duration::MAX),
                Err(RecvTimeoutError::Disconnected)
            );
        }
    });
}

#[test]
fn disconnection_wakes_all() {
    both(|| {
        for capacity in CAPACITIES {
            let (s, r) = channel::<usize>(capacity);
            let waiting: Vec<_> = (0..20)
                .map(|_| {
                    let r = r.clone();
                    thread::spawn(move || r.recv())
                })
                .collect();
            thread::yield_now();
            drop(s);
            for receiving in waiting {
                assert_eq!(receiving.join().unwrap(), Err(RecvError));
            }
            assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));

            let (s, r) = channel(capacity);
            let waiting: Vec<_> = (0..20)
                .map(|i| {
                    let s = s.clone();
                    thread::spawn(move || {
                        loop {
                            if let Err(SendError(message)) = s.send(i) {
                                break message;
                            }
                        }
                    })
                })
                .collect();
            thread::yield_now();
            drop(r);
            for (i, sending) in waiting.into_iter().enumerate() {
                assert_eq!(sending.join().unwrap(), i);
            }
            assert_eq!(s.try_send(0), Err(TrySendError::Disconnected(0)));
        }
    });
}

#[test]
fn messages_are_dropped_with_the_last_receiver() {
    both(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        for capacity in [Some(70), None] {
            let (s, r) = channel(capacity);
            for i in 0..70 {
                s.try_send(Counted::new(i, &alive))
                    .unwrap_or_else(|_| panic!());
            }
            drop(r.clone());
            assert_eq!(alive.load(Relaxed), 70);
            drop(r);
            assert_eq!(alive.load(Relaxed), 0);
            assert!(s.send(Counted::new(0, &alive)).is_err());
            assert_eq!(alive.load(Relaxed), 0);

            let (s, r) = channel(capacity);
            s.send(Counted::new(0, &alive)).unwrap_or_else(|_| panic!());
            drop(s);
            assert_eq!(alive.load(Relaxed), 1);
            drop(r);
            assert_eq!(alive.load(Relaxed), 0);
        }
    });
}

#[test]
fn a_destructor_that_panics() {
    struct Bomb(Counted);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(self.0.number != 3, "as expected");
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    for capacity in [Some(10), None] {
        let (s, r) = channel(capacity);
        for i in 0..10 {
            s.send(Bomb(Counted::new(i, &alive)))
                .unwrap_or_else(|_| panic!());
        }
        assert!(catch_unwind(AssertUnwindSafe(|| drop(r))).is_err());
        // As in crossbeam-channel, those after it leak. The channel is as any without receivers.
        assert_eq!(alive.swap(0, Relaxed), 6);
        assert!(s.is_empty() && s.send(Bomb(Counted::new(0, &alive))).is_err());
    }
}

#[test]
fn timers() {
    both(|| {
        let ms = Duration::from_millis;
        let when = Instant::now() + ms(3);
        let r = at(when);
        let r2 = r.clone();
        assert!(r.same_channel(&r2) && !r.same_channel(&at(when)));
        assert_eq!(r.capacity(), Some(1));
        assert_eq!(r.recv(), Ok(when));
        assert!(Instant::now() >= when);
        assert_eq!(r2.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(r2.recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout));
        assert!(r.is_empty() && !r.is_full());
        let past = Instant::now();
        assert_eq!(at(past).len(), 1);
        assert_eq!(at(past).try_recv(), Ok(past));
        let later = after(ms(3_600_000));
        assert_eq!(later.recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout));
        assert_eq!(later.try_recv(), Err(TryRecvError::Empty));
        assert!(later.is_empty());

        // Ticks are a period apart at least, and do not pile up.
        let mut next = Instant::now() + ms(2);
        let ticker = tick(ms(2));
        for i in 0..4 {
            if i == 2 {
                thread::sleep(ms(7));
                assert!(ticker.is_full());
            }
            let before = Instant::now();
            let ticked = if i % 2 == 0 {
                ticker.recv().ok()
            } else {
                ticker.try_recv().ok()
            };
            assert!(i % 2 == 1 || ticked.is_some());
            if let Some(ticked) = ticked {
                assert!(ticked >= next && ticked <= Instant::now());
                next = before.max(ticked) + ms(2);
            }
        }
        assert!(tick(Duration::ZERO).recv().is_ok());
        for forever in [after(Duration::MAX), tick(Duration::MAX), never()] {
            assert_eq!(forever.recv_timeout(ms(1)), Err(RecvTimeoutError::Timeout));
            assert_eq!(forever.try_recv(), Err(TryRecvError::Empty));
            assert!(forever.same_channel(&never()));
        }
        // One message, two receivers.
        let r = after(ms(2));
        let theirs = r.clone();
        let other = thread::spawn(move || theirs.recv_timeout(ms(10)).is_ok());
        let mine = r.recv_timeout(ms(10)).is_ok();
        assert!(mine != other.join().unwrap());
    });
}

#[test]
fn kernel_threads_and_green_ones() {
    let _watchdog = watchdog("channel::kernel_threads_and_green_ones");
    for capacity in CAPACITIES {
        let (s, r) = channel(capacity);
        let (back, echo) = channel(capacity);
        std::thread::spawn(move || r.iter().for_each(|i: usize| back.send(i).unwrap()));
        let green = thread::spawn(move || {
            for i in 0..2_000 {
                s.send(i).unwrap();
                assert_eq!(echo.recv(), Ok(i));
            }
        });
        green.join().unwrap();
    }
}

/// Threads that send, receive, give up and panic at random, with all kinds of operations.
#[test]
fn storm() {
    let _watchdog = watchdog("channel::storm");
    let mut rng = Rng::new("channel::storm");
    for round in 0..20 {
        let alive = Arc::new(AtomicUsize::new(0));
        let sums = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let (s, r) = channel::<Counted>(CAPACITIES[round % CAPACITIES.len()]);
        let threads: Vec<_> = (0..40)
            .map(|i| {
                let (s, r, alive) = (s.clone(), r.clone(), alive.clone());
                let (sums, mut rng) = (sums.clone(), rng.fork());
                let work = move || {
                    for _ in 0..300 {
                        let soon = Duration::from_micros(rng.below(50) as u64);
                        let choice = rng.below(9);
                        if i % 2 == 0 {
                            let message = Counted::new(rng.below(1_000), &alive);
                            let number = message.number;
                            let sent = match choice {
                                0..3 => s.send_timeout(message, soon).is_ok(),
                                3..6 => s.try_send(message).is_ok(),
                                _ => select! {
                                    send(s, message) -> sent => sent.is_ok(),
                                    default(soon) => false,
                                },
                            };
                            sums[0].fetch_add(if sent { number } else { 0 }, Relaxed);
                        } else {
                            let message = match choice {
                                0..3 => r.recv_timeout(soon).ok(),
                                3..6 => r.try_recv().ok(),
                                _ => select! {
                                    recv(r) -> message => message.ok(),
                                    default(soon) => None,
                                },
                            };
                            sums[1].fetch_add(message.map_or(0, |m| m.number), Relaxed);
                        }
                        if rng.below(600) == 0 {
                            resume_unwind(Box::new("killed")); // a panic without a message
                        }
                    }
                };
                let caught = move || drop(catch_unwind(AssertUnwindSafe(work)));
                if i % 20 < 2 {
                    Err(std::thread::spawn(caught))
                } else {
                    Ok(thread::spawn(caught))
                }
            })
            .collect();
        for thread in threads {
            match thread {
                Ok(green) => green.join().unwrap(),
                Err(kernel) => kernel.join().unwrap(),
            }
        }
        let left: usize = r.try_iter().map(|message| message.number).sum();
        assert_eq!(sums[0].load(Relaxed), sums[1].load(Relaxed) + left);
        assert_eq!(alive.load(Relaxed), 0);
    }
}

#[test]
fn traits() {
    fn has<T: Send + Sync + UnwindSafe + RefUnwindSafe + Unpin>() {}
    has::<Sender<u8>>();
    has::<Receiver<std::cell::Cell<u8>>>();
    has::<IntoIter<u8>>();
    fn crosses<T: Send + Sync>() {}
    crosses::<Select<'_>>();
    fn unwinds<T: UnwindSafe + RefUnwindSafe>() {}
    unwinds::<crossbeam_channel::SelectedOperation<'_>>();
    unwinds::<greenthread::channel::SelectedOperation<'_>>();
    const NEVER: Receiver<u8> = never();
    let (s, r) = unbounded::<u8>();
    assert_eq!(
        format!("{s:?} {r:?} {:?}", r.iter()),
        "Sender { .. } Receiver { .. } Iter { .. }"
    );
    assert_eq!(format!("{:?}", Select::new()), "Select { .. }");
    assert!(s.same_channel(&s.clone()) && r.same_channel(&r.clone()) && !r.same_channel(&NEVER));
}
