//! Who arrives beside threads that compute runs soon, and they run on beside who arrives.
//!
//! Under the policy of `GREENTHREAD_POLICY`: `.ci/run` comes here with each.

#![cfg(feature = "net")]

use crate::support::hogs::{Hogs, compute};
use crate::support::storm::burn;
use crate::support::*;
use greenthread::runtime::Runtime;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

/// A time slice, and what switching takes: of each processor.
const MEDIAN: Duration = Duration::from_millis(12);
/// Four slices of each.
const NEARLY_ALL: Duration = Duration::from_millis(40);
const PROCESSORS: u32 = 2;
const SAMPLES: usize = 60;

/// How long each of the samples is under way, by the CPU time that the process uses meanwhile: the hogs use all that the
/// system gives, and what it gives to other processes does not count. `send` returns the time at which it has sent;
/// a thread runs `receive` for each.
fn under_way(
    runtime: &Runtime,
    mut receive: impl FnMut() + Send + 'static,
    mut send: impl FnMut() -> Duration,
) -> Samples {
    let receives = move |_| {
        receive();
        cpu_time()
    };
    let receiver = runtime.spawn(move || (0..SAMPLES).map(receives).collect::<Vec<_>>());
    let sent: Vec<_> = (0..SAMPLES).map(|_| send()).collect();
    let received = receiver.join().unwrap().into_iter();
    let pairs = received.zip(sent);
    pairs.map(|(to, from)| to.saturating_sub(from)).collect()
}

fn spawned(runtime: &Runtime, rng: &mut Rng) -> Samples {
    let spawn = |_| {
        std::thread::sleep(rng.micros_below(3_000));
        let sent = cpu_time();
        runtime.spawn(cpu_time).join().unwrap().saturating_sub(sent)
    };
    (0..SAMPLES).map(spawn).collect()
}

fn woken(runtime: &Runtime, rng: &mut Rng) -> Samples {
    let (sender, receiver) = greenthread::channel::unbounded();
    let receive = move || receiver.recv().unwrap();
    under_way(runtime, receive, || {
        std::thread::sleep(rng.micros_below(4_000));
        let sent = cpu_time();
        sender.send(()).unwrap();
        sent
    })
}

fn timed(runtime: &Runtime, rng: &mut Rng) -> Samples {
    let mut rng = Rng::new(rng.next());
    let (tell, told) = std::sync::mpsc::channel();
    let receive = move || {
        let due = Instant::now() + rng.micros_below(4_000);
        tell.send(due).unwrap();
        greenthread::sleep_until(due);
    };
    under_way(runtime, receive, || {
        let due: Instant = told.recv().unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        cpu_time()
    })
}

fn from_a_socket(runtime: &Runtime, rng: &mut Rng) -> Samples {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut writer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    writer.set_nodelay(true).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let mut reader: greenthread::net::TcpStream = socket.into();
    let receive = move || reader.read_exact(&mut [0]).unwrap();
    under_way(runtime, receive, || {
        std::thread::sleep(rng.micros_below(4_000));
        let sent = cpu_time();
        writer.write_all(&[1]).unwrap();
        sent
    })
}

type Arrival = (&'static str, fn(&Runtime, &mut Rng) -> Samples);

#[test]
fn who_arrives_beside_hogs_waits_for_one_slice() {
    const ARRIVALS: [Arrival; 4] = [
        ("spawned from outside", spawned),
        ("woken from outside", woken),
        ("woken by a timer", timed),
        ("woken by a socket", from_a_socket),
    ];
    let _alone = alone();
    let dog = Watchdog::new("arrivals beside hogs");
    let mut rng = Rng::from_env();
    for n in [2, 16, 100] {
        let (runtime, green) = runtime(2);
        let hogs = Hogs::start(&runtime, n, |_| compute);
        for (what, arrive) in ARRIVALS {
            best_of(5, what, || {
                dog.progress();
                let late = arrive(&runtime, &mut rng);
                let [median, nearly_all] = [0.5, 0.97].map(|q| late.quantile(q));
                eprintln!("{n} hogs, {what}: {late}, p97 {nearly_all:.1?}");
                !green || median <= PROCESSORS * MEDIAN && nearly_all <= PROCESSORS * NEARLY_ALL
            });
        }
        drop(hogs);
        runtime.shutdown();
    }
}

/// More arrivals wait than two processors can run: each of the hogs goes on nevertheless. Under a
/// policy that lets arrivals go first for ever they would stand still.
#[test]
fn a_flood_of_arrivals_starves_no_hog() {
    // Enough for half a second: so long may the system not run who sees to more.
    flood(Duration::from_micros(200), 5_000, 10);
}

/// As above; and each uses up its slice.
#[test]
fn a_flood_of_arrivals_that_compute_starves_no_hog() {
    flood(Duration::from_millis(30), 20, 3);
}

/// Each arrival runs for `moment`; as many as `outstanding` have not begun. Each hog is to be run again
/// so many times, at least.
fn flood(moment: Duration, outstanding: usize, turns: u32) {
    const HOGS: usize = 4;
    let _alone = alone();
    let dog = Watchdog::new("a flood of arrivals");
    let (runtime, green) = runtime(2);
    if !green {
        return; // the system's scheduler is not ours to test, least of all with so many
    }
    let hogs = Hogs::start(&runtime, HOGS, |_| compute);
    let (stop, waiting) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
    let arrived = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                while waiting.load(Relaxed) < outstanding {
                    waiting.fetch_add(1, Relaxed);
                    let waiting = waiting.clone();
                    runtime.spawn(move || {
                        waiting.fetch_sub(1, Relaxed);
                        burn(moment);
                    });
                    arrived.fetch_add(1, Relaxed);
                }
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        while arrived.load(Relaxed) < outstanding {
            std::thread::yield_now();
        }
        let mut turns_left = turns;
        // Until it has flowed.
        while turns_left != 0 || arrived.load(Relaxed) <= outstanding {
            turns_left = turns_left.saturating_sub(1);
            let before = hogs.rounds();
            let all_have_run = || {
                let now = hogs.rounds();
                now.iter().zip(&before).all(|(now, before)| now > before)
            };
            while !all_have_run() {
                std::thread::sleep(Duration::from_millis(1));
            }
            dog.progress();
        }
        stop.store(true, Relaxed);
    });
    eprintln!("{arrived:?} arrivals beside {HOGS} hogs");
    drop(hogs);
    runtime.shutdown();
}
