//! Every wait of the crate's API ends with a frame, by the table of `docs/cancel.md`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use greenthread::cancel::{self, Cancelled};
use greenthread::sync::{Barrier, Condvar, Mutex, Semaphore, WaitGroup};
use greenthread::time::{self, Duration, Elapsed, Instant};
use greenthread::{channel, thread};

use crate::common::{both, watchdog};

const SOON: Duration = Duration::from_millis(5);

/// The call unwinds when the frame round it ends, and again when it has ended before.
#[track_caller]
fn unwinds<T: std::fmt::Debug>(call: impl Fn() -> T) {
    let ends = Instant::now() + SOON;
    assert_eq!(time::timeout_at(ends, &call).err(), Some(Elapsed));
    assert!(Instant::now() >= ends);
    // In a frame that has ended already; also in a loop.
    let result = time::timeout_at(Instant::now(), || {
        for _ in 0..3 {
            let payload = catch_unwind(AssertUnwindSafe(&call)).unwrap_err();
            assert!(payload.is::<Cancelled>());
        }
        call()
    });
    assert_eq!(result.err(), Some(Elapsed));
    assert!(!cancel::is_cancelled());
}

#[test]
fn channels() {
    let _w = watchdog("limits::channels");
    both(|| {
        let (s, r) = channel::unbounded::<Arc<()>>();
        unwinds(|| r.recv());
        unwinds(|| r.recv_timeout(Duration::MAX));
        unwinds(|| channel::after(Duration::MAX).recv());
        unwinds(|| channel::never::<()>().recv());
        unwinds(
            || greenthread::select! { recv(r) -> m => m.is_ok(), recv(channel::never::<()>()) -> _ => false },
        );
        s.send(Arc::default()).unwrap();
        assert!(r.recv().is_ok());
        let (s, r) = channel::bounded::<Arc<()>>(0);
        let message = Arc::new(());
        unwinds(|| s.send(message.clone()));
        unwinds(|| s.send_timeout(message.clone(), Duration::MAX));
        assert_eq!(Arc::strong_count(&message), 1);
        assert!(r.try_recv().is_err());
    });
}

#[test]
fn primitives() {
    let _w = watchdog("limits::primitives");
    both(|| {
        unwinds(thread::park);
        unwinds(|| thread::park_timeout(Duration::MAX));
        unwinds(|| thread::sleep(Duration::MAX));
        unwinds(|| time::Interval::new(Duration::from_secs(1 << 40)).tick());
        unwinds(|| greenthread::block_on(std::future::pending::<()>()));
        let semaphore = Semaphore::new(1);
        unwinds(|| semaphore.acquire_many(2).forget());
        assert!(semaphore.try_acquire().is_some());
        let group = WaitGroup::new();
        unwinds(|| group.clone().wait());
        let stop = Arc::new(Semaphore::new(0));
        let other = stop.clone();
        let handle = std::sync::Mutex::new(Some(thread::spawn(move || drop(other.acquire()))));
        unwinds(|| {
            let joined = handle.lock().unwrap().take();
            match joined {
                Some(handle) => handle.join().unwrap(),
                None => thread::park(),
            }
        });
        stop.add_permits(1);
    });
}

#[test]
fn a_barrier_takes_back() {
    let _w = watchdog("limits::a_barrier_takes_back");
    both(|| {
        let barrier = Barrier::new(2);
        unwinds(|| barrier.wait());
        let leaders = AtomicUsize::new(0);
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| leaders.fetch_add(usize::from(barrier.wait().is_leader()), SeqCst));
            }
        });
        assert_eq!(leaders.into_inner(), 1);
    });
}

/// The wait ends although another thread has the mutex and keeps it, and leaves no poison.
#[test]
fn a_condvar_does_not_lock_again() {
    let _w = watchdog("limits::a_condvar_does_not_lock_again");
    both(|| {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        // The limit is a guess of how long the other thread needs to get the mutex.
        let mut limit = SOON;
        let mut was_held = false;
        while !was_held {
            let (has_it, give_it_back) = (AtomicBool::new(false), Semaphore::new(0));
            thread::scope(|s| {
                let result = time::timeout(limit, || {
                    let guard = mutex.lock().unwrap();
                    s.spawn(|| {
                        let _guard = mutex.lock().unwrap();
                        has_it.store(true, SeqCst);
                        give_it_back.acquire().forget();
                    });
                    drop(condvar.wait(guard));
                });
                assert_eq!(result, Err(Elapsed));
                was_held = has_it.load(SeqCst);
                give_it_back.add_permits(1);
            });
            limit *= 2;
        }
        assert!(!mutex.is_poisoned());
    });
}

#[test]
fn own_limits_come_first() {
    let _w = watchdog("limits::own_limits_come_first");
    both(|| {
        let (_s, r) = channel::unbounded::<()>();
        let at = Instant::now() + SOON;
        let result = time::timeout_at(at, || r.recv_deadline(at));
        assert!(matches!(result, Ok(Err(_))));
        let result = time::timeout_at(Instant::now(), || {
            thread::sleep(Duration::ZERO);
            r.recv_timeout(Duration::ZERO)
        });
        assert!(matches!(result, Ok(Err(_))));
        let result = time::timeout(Duration::MAX, || {
            (0..3)
                .map(|_| r.recv_timeout(SOON).is_err())
                .collect::<Vec<_>>()
        });
        assert_eq!(result, Ok(vec![true; 3]));
    });
}

#[test]
fn the_outermost_is_named() {
    let _w = watchdog("limits::the_outermost_is_named");
    both(|| {
        let at = Instant::now() + SOON;
        let inner = AtomicUsize::new(0);
        let result = time::timeout_at(at, || {
            let _never = time::timeout_at(at, thread::park);
            inner.fetch_add(1, SeqCst);
        });
        assert_eq!((result, inner.load(SeqCst)), (Err(Elapsed), 0));
        let result = time::timeout(Duration::MAX, || time::timeout(SOON, thread::park));
        assert_eq!(result, Ok(Err(Elapsed)));
    });
}

#[test]
fn shields() {
    let _w = watchdog("limits::shields");
    both(|| {
        let result = time::timeout_at(Instant::now(), || {
            for _ in 0..3 {
                assert_eq!(
                    cancel::shield(Duration::MAX, || thread::sleep(SOON)),
                    Ok(())
                );
                assert_eq!(cancel::shield(SOON, thread::park), Err(Elapsed));
            }
            thread::park();
        });
        assert_eq!(result, Err(Elapsed));
    });
}

#[test]
fn destructors_wait_while_it_unwinds() {
    struct Slow(Duration);
    impl Drop for Slow {
        fn drop(&mut self) {
            thread::sleep(self.0);
            thread::spawn(|| thread::sleep(SOON)).join().unwrap();
        }
    }
    let _w = watchdog("limits::destructors_wait_while_it_unwinds");
    both(|| {
        let begin = Instant::now();
        let result = time::timeout(SOON, || {
            let _slow = Slow(4 * SOON);
            thread::park();
        });
        assert_eq!(result, Err(Elapsed));
        assert!(begin.elapsed() >= 5 * SOON);
    });
}

#[test]
fn a_value_counts() {
    let _w = watchdog("limits::a_value_counts");
    both(|| {
        let (s, r) = channel::unbounded();
        s.send(7).unwrap();
        assert_eq!(time::timeout_at(Instant::now(), || r.recv()), Ok(Ok(7)));
    });
}

#[test]
#[cfg(feature = "net")]
fn own_sockets_fail_and_stay() {
    use std::io::{ErrorKind, Read};
    let _w = watchdog("limits::own_sockets_fail_and_stay");
    both(|| {
        let listener = greenthread::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = greenthread::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        for ends in [Duration::ZERO, SOON] {
            let ends = Instant::now() + ends;
            let error = time::timeout_at(ends, || (&ours).read(&mut [0]))
                .unwrap()
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(cancel::is_cause(&error) && Instant::now() >= ends);
            let error = time::timeout_at(ends, || listener.accept())
                .unwrap()
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        std::io::Write::write_all(&mut &peer, b"7").unwrap();
        let mut byte = [0];
        assert_eq!((&ours).read(&mut byte).unwrap(), 1);
    });
}

#[test]
fn many_at_once() {
    let _w = watchdog("limits::many_at_once");
    let (_s, r) = channel::unbounded::<()>();
    let begin = Instant::now();
    let ends = begin + Duration::from_millis(100);
    let all: Vec<_> = (0..10_000)
        .map(|_| {
            let r = r.clone();
            thread::spawn(move || time::timeout_at(ends, || r.recv()).unwrap_err())
        })
        .collect();
    all.into_iter()
        .for_each(|one| assert_eq!(one.join().unwrap(), Elapsed));
    eprintln!("{:?}", begin.elapsed());
}

#[test]
fn own_children_are_ended() {
    use greenthread::process::{Command, Stdio};
    use std::io::ErrorKind;
    let _w = watchdog("limits::own_children_are_ended");
    both(|| {
        // `output` and `status` end the process, which nobody else knows.
        let output = || Command::new("sleep").arg("1000").output();
        let error = time::timeout(SOON, output).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let status = || Command::new("sleep").arg("1000").status();
        assert_eq!(
            time::timeout(SOON, status).unwrap().unwrap_err().kind(),
            ErrorKind::TimedOut
        );
        // `wait` leaves it alone.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let waited = time::timeout(SOON, || child.wait()).unwrap();
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(input);
        assert!(child.wait().unwrap().success());
    });
}

/// Each refusal is paused for, so a loop that goes on takes little of a CPU.
#[test]
fn a_loop_that_catches_is_slow() {
    let _w = watchdog("limits::a_loop_that_catches_is_slow");
    both(|| {
        let mut rounds = 0;
        let begin = Instant::now();
        let result = time::timeout_at(begin, || {
            while begin.elapsed() < 40 * SOON {
                assert!(catch_unwind(thread::park).is_err());
                rounds += 1;
            }
        });
        assert!(result.is_ok() && rounds < 40, "{rounds}");
    });
}
