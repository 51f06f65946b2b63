//! Ten thousand calls with limits at once, by minreq; and how late those are that do not all end at the same time.

use greenthread::time;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::stalls::{LIMIT, Left};
use support::{Test, descriptors, green, some};

/// Nobody accepts: the kernel makes the connections and keeps them in the listeners' queues, so that a call has one
/// descriptor here and not two.
fn silent(clients: usize) -> Vec<TcpListener> {
    const QUEUE: usize = 2_000;
    let listen = |_| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: a listening socket.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 4096) }, 0);
        listener
    };
    (0..clients.div_ceil(QUEUE)).map(listen).collect()
}

fn addresses(listeners: &[TcpListener]) -> Arc<[SocketAddr]> {
    let addresses = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap());
    addresses.collect()
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

fn print(what: &str, late: &mut [Duration]) {
    late.sort();
    let [p50, p99] = [50, 99].map(|percent| percentile(late, percent));
    let (n, last) = (late.len(), late[late.len() - 1]);
    eprintln!("{what}: {n} calls, late by p50 {p50:.1?}, p99 {p99:.1?}, at most {last:.1?}");
}

fn request(address: SocketAddr) {
    minreq::get(format!("http://{address}/"))
        .send()
        .unwrap_err();
}

/// All end at one instant, by which all of them wait, or nearly.
#[test]
fn ten_thousand_at_once() {
    if !green() {
        return; // libc\'s calls go on
    }
    let test = Test::new("ten thousand limits", 240);
    let n = some(10_000, 500).min(descriptors() - 1_000);
    let run = |n: usize, limit: Duration| {
        let listeners = silent(n);
        let addresses = addresses(&listeners);
        let ends = Instant::now() + limit;
        let waiting = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (addresses, waiting) = (addresses.clone(), waiting.clone());
                greenthread::spawn(move || {
                    waiting.fetch_add(usize::from(Instant::now() < ends), Relaxed);
                    let ended = time::timeout_at(ends, || request(addresses[i % addresses.len()]));
                    let end = Instant::now();
                    assert!(ended.is_ok() && end >= ends);
                    end - ends
                })
            })
            .collect();
        let mut late: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        eprintln!(
            "{} of {n} had begun before the limit",
            waiting.load(Relaxed)
        );
        late.sort();
        late
    };
    run(200, LIMIT);
    let before = Left::settled(&test);
    // As long as it takes to begin them, and more.
    let start = Instant::now();
    run(n, Duration::ZERO);
    let mut late = run(n, 2 * start.elapsed() + LIMIT);
    print("all limits at one instant", &mut late);
    assert!(late[n - 1] < Duration::from_secs(30), "{:?}", late[n - 1]);
    before.is_all(&test);
}

/// A call begins each half millisecond, and ends after its own limit: hundreds wait at a time. Sleeps of the same length,
/// begun in the same way, say how late the machine itself is.
#[test]
fn staggered() {
    if !green() {
        return; // libc\'s calls go on
    }
    let test = Test::new("staggered limits", 120);
    let n = some(2_000, 200);
    let run = |n: usize, sleeps: bool| {
        let listeners = silent(n);
        let addresses = addresses(&listeners);
        let begin = Instant::now();
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let addresses = addresses.clone();
                greenthread::spawn(move || {
                    greenthread::sleep_until(begin + i as u32 * Duration::from_micros(500));
                    let start = Instant::now();
                    if sleeps {
                        greenthread::sleep(LIMIT);
                    } else {
                        let call = || request(addresses[i % addresses.len()]);
                        assert!(time::timeout(LIMIT, call).is_ok());
                    }
                    start.elapsed().checked_sub(LIMIT).expect("too early")
                })
            })
            .collect();
        let late = threads.into_iter().map(|t| t.join().unwrap());
        late.collect::<Vec<_>>()
    };
    run(100, false);
    let before = Left::settled(&test);
    print("sleeps, staggered by 0.5 ms", &mut run(n, true));
    let mut late = run(n, false);
    print("limits, staggered by 0.5 ms", &mut late);
    // The half of them, so that one moment in which the machine did something else does not count.
    let p50 = percentile(&late, 50);
    assert!(p50 < 10 * LIMIT, "{p50:?}");
    before.is_all(&test);
}
