//! Joining with a time limit: never early, the handle comes back, and nothing is lost when the
//! thread ends just then.

use crate::common::*;
use greenthread as thread;
use greenthread::block_on;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

#[test]
fn a_join_may_have_a_limit() {
    let _w = watchdog("join_limits::a_join_may_have_a_limit");
    both(|| {
        let (stop, mut handle) = stoppable(4);
        for i in 0..20 {
            let (start, limit) = (Instant::now(), Duration::from_micros(100 * i));
            handle = match i % 2 {
                0 => handle.join_timeout(limit).unwrap_err(),
                _ => handle.join_deadline(start + limit).unwrap_err(),
            };
            assert!(start.elapsed() >= limit);
        }
        assert!(!handle.is_finished());
        // It can still be awaited, and joined.
        let mut future = pin!(async { handle.await.unwrap() });
        let mut context = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        stop.send(()).unwrap();
        assert_eq!(block_on(future), 4);

        let panics = thread::spawn(|| resume_unwind(Box::new(7u8)));
        let joined: Result<Result<(), _>, _> = panics.join_timeout(Duration::MAX);
        assert_eq!(*joined.unwrap().unwrap_err().downcast::<u8>().unwrap(), 7);
        // Ended: no time is needed.
        let ended = thread::spawn(|| 6);
        let mut ended = Some(ended);
        wait_until(
            || match ended.take().unwrap().join_deadline(Instant::now()) {
                Ok(result) => result.unwrap() == 6,
                Err(handle) => {
                    ended = Some(handle);
                    false
                }
            },
        );
        let borrowed = AtomicBool::new(false);
        thread::scope(|s| {
            let waiting = s.spawn(|| wait_until(|| borrowed.load(SeqCst)));
            let waiting = waiting.join_timeout(Duration::from_millis(1)).unwrap_err();
            let waiting = waiting.join_deadline(Instant::now()).unwrap_err();
            borrowed.store(true, SeqCst);
            waiting.join_timeout(Duration::MAX).unwrap().unwrap();
        });
    });
}

/// Joins whose time is up just when the thread ends.
#[test]
fn ends_and_limits_race() {
    let _w = watchdog("join_limits::ends_and_limits_race");
    let mut rng = Rng::new("join_limits::ends_and_limits_race");
    let rounds = if green() { 1000 } else { 100 };
    let racers: Vec<_> = (0..8)
        .map(|_| rng.fork())
        .map(|mut rng| {
            let race = move || {
                for round in 0..rounds {
                    let [nap, limit] = [0; 2].map(|_| Duration::from_micros(rng.below(200) as u64));
                    let mut handle = thread::spawn(move || {
                        thread::sleep(nap);
                        round
                    });
                    let result = loop {
                        match handle.join_timeout(limit) {
                            Ok(result) => break result,
                            Err(again) => handle = again,
                        }
                    };
                    assert_eq!(result.unwrap(), round);
                }
            };
            thread::spawn(race)
        })
        .collect();
    racers.into_iter().for_each(|r| r.join().unwrap());
}
