//! Time is virtual: it passes with what the program does, and jumps when all wait.

use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use greenthread::sim::{self, Builder};
use greenthread::{channel, scope, spawn, time};

use crate::support::fails;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(50);

#[track_caller]
fn check(builder: Builder, body: impl Fn() + Send + Sync + 'static) {
    let ended = builder.run(body);
    ended.unwrap_or_else(|failure| panic!("{failure}"));
}

/// No thread is put aside: what is measured is what was asked for.
fn steady() -> Builder {
    Builder::new().seeds(50).stalls(0).spurious(0)
}

/// `passed` is the limit, and little more.
#[track_caller]
fn is_about(passed: Duration, limit: Duration) {
    assert!(
        passed >= limit && passed < limit + Duration::from_millis(1),
        "{passed:?} of {limit:?}"
    );
}

/// What one of libc's clocks shows.
fn read(clock: libc::clockid_t) -> Duration {
    let mut place = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the place, or fails.
    let time = unsafe {
        assert_eq!(libc::clock_gettime(clock, place.as_mut_ptr()), 0);
        place.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of `clock` in so long.
fn in_time(clock: libc::clockid_t, limit: Duration) -> libc::timespec {
    let at = read(clock) + limit;
    libc::timespec {
        tv_sec: at.as_secs() as libc::time_t,
        tv_nsec: at.subsec_nanos().into(),
    }
}

#[test]
fn clocks_strictly_increase() {
    check(Builder::new().seeds(50), || {
        let mut last = (
            Instant::now(),
            SystemTime::now(),
            read(libc::CLOCK_BOOTTIME),
            sim::elapsed(),
        );
        let used = read(libc::CLOCK_THREAD_CPUTIME_ID);
        for _ in 0..1000 {
            let now = (
                Instant::now(),
                SystemTime::now(),
                read(libc::CLOCK_BOOTTIME),
                sim::elapsed(),
            );
            assert!(now.0 > last.0 && now.1 > last.1 && now.2 > last.2 && now.3 > last.3);
            last = now;
        }
        assert!(read(libc::CLOCK_THREAD_CPUTIME_ID) > used);
    });
}

/// One thread's later reading is later than another's earlier one.
#[test]
fn clocks_agree_between_threads() {
    check(Builder::new().seeds(200), || {
        let last = Mutex::new(Instant::now());
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mut last = last.lock().unwrap();
                        let now = Instant::now();
                        assert!(now > *last);
                        *last = now;
                    }
                });
            }
        });
    });
}

#[test]
fn an_hour_takes_no_time() {
    let begun = Instant::now();
    check(steady(), || {
        let begun = Instant::now();
        std::thread::sleep(HOUR);
        is_about(begun.elapsed(), HOUR);
        greenthread::sleep(HOUR);
        is_about(begun.elapsed(), 2 * HOUR);
        let sleepers = [1, 3, 2].map(|hours| spawn(move || std::thread::sleep(hours * HOUR)));
        sleepers
            .into_iter()
            .for_each(|sleeper| sleeper.join().unwrap());
        is_about(begun.elapsed(), 5 * HOUR);
        is_about(sim::elapsed(), 5 * HOUR);
    });
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

/// `max_time` is of virtual time.
#[test]
fn a_day_is_the_limit() {
    fails(steady(), || std::thread::sleep(25 * HOUR));
    check(steady().max_time(26 * HOUR), || {
        std::thread::sleep(25 * HOUR)
    });
}

#[test]
fn time_outs_of_std() {
    check(steady(), || {
        let begun = Instant::now();
        let (_sender, receiver) = mpsc::channel::<()>();
        assert!(receiver.recv_timeout(SOON).is_err());
        is_about(begun.elapsed(), SOON);
        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let (_guard, ended) = condvar.wait_timeout(lock.lock().unwrap(), SOON).unwrap();
        assert!(ended.timed_out());
        is_about(begun.elapsed(), 2 * SOON);
        std::thread::park_timeout(SOON);
        is_about(begun.elapsed(), 3 * SOON);
    });
}

#[test]
fn time_outs_of_crossbeam() {
    use crossbeam_channel::{after, never, select, tick, unbounded};
    check(steady(), || {
        let begun = Instant::now();
        let (_sender, receiver) = unbounded::<()>();
        assert!(receiver.recv_timeout(SOON).is_err());
        is_about(begun.elapsed(), SOON);
        assert!(receiver.recv_deadline(begun + 2 * SOON).is_err());
        is_about(begun.elapsed(), 2 * SOON);
        after(SOON).recv().unwrap();
        is_about(begun.elapsed(), 3 * SOON);
        let ticker = tick(SOON);
        (0..3).for_each(|_| _ = ticker.recv().unwrap());
        is_about(begun.elapsed(), 6 * SOON);
        select! {
            recv(never::<()>()) -> _ => panic!("never"),
            default(SOON) => {}
        }
        is_about(begun.elapsed(), 7 * SOON);
    });
}

#[test]
fn time_outs_of_the_crate() {
    use greenthread::sync;
    check(steady(), || {
        let begun = Instant::now();
        let (_sender, receiver) = channel::bounded::<()>(0);
        assert!(receiver.recv_timeout(SOON).is_err());
        is_about(begun.elapsed(), SOON);
        assert!(time::timeout(SOON, greenthread::park).is_err());
        is_about(begun.elapsed(), 2 * SOON);
        assert!(sync::Semaphore::new(0).acquire_timeout(SOON).is_none());
        is_about(begun.elapsed(), 3 * SOON);
        let (lock, condvar) = (sync::Mutex::new(()), sync::Condvar::new());
        let (_guard, ended) = condvar.wait_timeout(lock.lock().unwrap(), SOON).unwrap();
        assert!(ended.timed_out());
        is_about(begun.elapsed(), 4 * SOON);
        greenthread::park_timeout(SOON);
        is_about(begun.elapsed(), 5 * SOON);
        let mut interval = time::Interval::new(SOON);
        (0..3).for_each(|_| _ = interval.tick());
        is_about(begun.elapsed(), 8 * SOON);
    });
}

#[test]
fn time_outs_of_c() {
    check(steady(), || {
        let begun = Instant::now();
        let length = libc::timespec {
            tv_sec: 0,
            tv_nsec: SOON.subsec_nanos().into(),
        };
        // SAFETY: valid times, entries and locks, here and below.
        unsafe {
            assert_eq!(libc::nanosleep(&length, null_mut()), 0);
            is_about(begun.elapsed(), SOON);
            let (monotonic, absolute) = (libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME);
            let at = in_time(monotonic, SOON);
            assert_eq!(
                libc::clock_nanosleep(monotonic, absolute, &at, null_mut()),
                0
            );
            is_about(begun.elapsed(), 2 * SOON);
            assert_eq!(libc::usleep(50_000), 0);
            is_about(begun.elapsed(), 3 * SOON);
            assert_eq!(libc::poll(null_mut(), 0, 50), 0);
            is_about(begun.elapsed(), 4 * SOON);
            let mut ends = [0; 2];
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let mut entry = libc::pollfd {
                fd: ends[0],
                events: libc::POLLIN,
                revents: 0,
            };
            assert_eq!(libc::poll(&mut entry, 1, 50), 0);
            is_about(begun.elapsed(), 5 * SOON);
            ends.into_iter().for_each(|end| _ = libc::close(end));
            let (mut lock, mut condvar) = (
                libc::PTHREAD_MUTEX_INITIALIZER,
                libc::PTHREAD_COND_INITIALIZER,
            );
            assert_eq!(libc::pthread_mutex_lock(&mut lock), 0);
            let at = in_time(libc::CLOCK_REALTIME, SOON);
            let ended = libc::pthread_cond_timedwait(&mut condvar, &mut lock, &at);
            assert_eq!(ended, libc::ETIMEDOUT);
            is_about(begun.elapsed(), 6 * SOON);
            assert_eq!(libc::pthread_mutex_unlock(&mut lock), 0);
            let mut semaphore = MaybeUninit::<libc::sem_t>::uninit();
            assert_eq!(libc::sem_init(semaphore.as_mut_ptr(), 0, 0), 0);
            let at = in_time(libc::CLOCK_REALTIME, SOON);
            assert_eq!(libc::sem_timedwait(semaphore.as_mut_ptr(), &at), -1);
            is_about(begun.elapsed(), 7 * SOON);
        }
    });
}

/// All seeds begin at one time, which is a date of the past unless the builder says another one.
#[test]
fn the_start_is_the_builders() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let since = |at: SystemTime| SystemTime::now().duration_since(at).unwrap();
    check(steady().start(at), move || assert!(since(at) < SOON));
    let in_2026 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
    check(steady(), move || assert!(since(in_2026) < SOON));
}

/// A loop that polls a clock comes to its end, and in few points: time runs faster while a thread polls alone.
#[test]
fn polling_ends() {
    check(steady().max_points(100_000), || {
        let end = Instant::now() + HOUR;
        std::thread::scope(|_| {});
        let sleeper = spawn(|| std::thread::sleep(2 * HOUR));
        while Instant::now() < end {}
        while Instant::now() < end + HOUR / 2 {
            std::thread::yield_now();
        }
        sleeper.join().unwrap();
    });
}

/// A thread that waits by looking is no obstacle to the one that it waits for, whatever the strategy prefers.
#[test]
fn spinning_ends() {
    crate::support::needs_points!();
    check(Builder::new().seeds(200).max_points(1_000_000), || {
        let turn = Arc::new(AtomicU32::new(0));
        let players = [0, 1, 2].map(|player| {
            let turn = turn.clone();
            spawn(move || {
                for round in 0..3 {
                    while turn.load(SeqCst) != round * 3 + player {
                        std::hint::spin_loop();
                    }
                    turn.fetch_add(1, SeqCst);
                }
            })
        });
        players
            .into_iter()
            .for_each(|player| player.join().unwrap());
    });
}

/// Two threads that wait for a third one by giving way, and the third one is put aside for seconds.
#[test]
fn two_that_give_way_wait_for_one_that_is_put_aside() {
    check(Builder::new().seeds(300).stalls(5), || {
        let is_over = Arc::new(AtomicU32::new(0));
        let waits = || {
            let is_over = is_over.clone();
            spawn(move || {
                while is_over.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
            })
        };
        let waiting = [waits(), waits()];
        std::thread::sleep(Duration::from_micros(1));
        is_over.store(1, SeqCst);
        waiting
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

unsafe extern "C" {
    safe fn clock() -> libc::clock_t;
}

#[test]
fn the_clocks_of_c_agree() {
    check(steady(), || {
        let mut micros = MaybeUninit::<libc::timeval>::uninit();
        // SAFETY: the calls fill valid places.
        let (begun, seconds, micros) = unsafe {
            let begun = clock();
            assert_eq!(libc::gettimeofday(micros.as_mut_ptr(), null_mut()), 0);
            (begun, libc::time(null_mut()), micros.assume_init())
        };
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let micros = Duration::new(micros.tv_sec as u64, micros.tv_usec as u32 * 1000);
        assert_eq!(seconds as u64, now.as_secs());
        assert!(
            micros < now && now - micros < Duration::from_millis(1),
            "{micros:?} {now:?}"
        );
        // CPU time is what threads have done, and sleeping is nothing.
        let before = read(libc::CLOCK_PROCESS_CPUTIME_ID);
        std::thread::sleep(HOUR);
        let used = read(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
        assert!(used < SOON, "{used:?}");
        assert!(clock() >= begun);
    });
}

/// A clock that there is not is an error, as the kernel's.
#[test]
fn no_such_clock() {
    check(steady(), || {
        let mut place = MaybeUninit::<libc::timespec>::uninit();
        // SAFETY: a valid place.
        let ended = unsafe { libc::clock_gettime(12_345, place.as_mut_ptr()) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((ended, error), (-1, Some(libc::EINVAL)));
    });
}

/// Who is first of two that are due at once is chance.
#[test]
fn sleepers_that_are_due_at_once() {
    for first in [0, 1] {
        let failure = fails(Builder::new().seeds(100), move || {
            let order = Arc::new(Mutex::new(Vec::new()));
            let at = Instant::now() + SOON;
            let sleepers = [0, 1].map(|number| {
                let order = order.clone();
                spawn(move || {
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    order.lock().unwrap().push(number);
                })
            });
            sleepers
                .into_iter()
                .for_each(|sleeper| sleeper.join().unwrap());
            assert_ne!(order.lock().unwrap()[0], first, "this one is first");
        });
        assert!(failure.to_string().contains("this one is first"));
    }
}

/// A stall: what another thread was given time for is not done in time.
#[test]
fn a_time_out_comes_before_an_answer_that_was_sent_in_time() {
    let late = || {
        let (sender, receiver) = mpsc::channel();
        let answers = spawn(move || _ = sender.send("soon"));
        assert!(
            receiver.recv_timeout(Duration::from_millis(1)).is_ok(),
            "too late"
        );
        answers.join().unwrap();
    };
    let failure = fails(Builder::new().stalls(20), late);
    assert!(failure.to_string().contains("too late"));
    check(Builder::new().stalls(0), late);
}
