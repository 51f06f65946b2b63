//! Locks and channels of crates, on green threads: parking_lot, crossbeam-channel, flume, oneshot, event-listener.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{Test, some};

/// Kernel threads while all wait, and at any time.
const BOUND: usize = 20;
const PEAK: usize = 300;

fn crowd() -> usize {
    some(1_000, 200)
}

/// 0 + 1 + … + (n - 1)
fn sum(n: usize) -> usize {
    n * (n - 1) / 2
}

#[test]
fn parking_lot_mutex() {
    let test = Test::new("parking_lot::Mutex", 60);
    let n = crowd();
    let mutex = Arc::new(parking_lot::Mutex::new(0));
    let ours = mutex.clone();
    let held = ours.lock();
    test.crowd(n, BOUND, move |i| *mutex.lock() += i, || drop(held));
    assert_eq!(*ours.lock(), sum(n));
    test.report();
}

#[test]
fn parking_lot_rwlock() {
    let test = Test::new("parking_lot::RwLock", 60);
    let n = crowd();
    let lock = Arc::new(parking_lot::RwLock::new(0));
    let ours = lock.clone();
    let held = ours.write();
    test.crowd(
        n,
        BOUND,
        move |i| match i % 3 {
            0 => *lock.write() += 1,
            1 => assert!(*lock.read() <= n),
            _ => {
                let upgradable = lock.upgradable_read();
                *parking_lot::RwLockUpgradableReadGuard::upgrade(upgradable) += 1;
            }
        },
        || drop(held),
    );
    assert_eq!(*ours.read(), (0..n).filter(|i| i % 3 != 1).count());
    test.report();
}

#[test]
fn parking_lot_condvar() {
    let test = Test::new("parking_lot::Condvar", 60);
    let n = crowd();
    let state = Arc::new((
        parking_lot::Mutex::new((0, false)),
        parking_lot::Condvar::new(),
    ));
    let ours = state.clone();
    test.crowd(
        n,
        BOUND,
        move |_| {
            let mut guard = state.0.lock();
            guard.0 += 1;
            state.1.wait_while(&mut guard, |state| !state.1);
        },
        || {
            let mut guard = ours.0.lock();
            assert_eq!(guard.0, n);
            guard.1 = true;
            assert_eq!(ours.1.notify_all(), n);
        },
    );
    test.report();
}

#[test]
fn parking_lot_timeouts() {
    let test = Test::new("parking_lot, timeouts", 60);
    let wait = Duration::from_millis(300);
    let mutex = Arc::new(parking_lot::Mutex::new(()));
    let ours = mutex.clone();
    let held = ours.lock();
    test.at_once(crowd(), move |_| {
        let start = Instant::now();
        assert!(mutex.try_lock_for(wait).is_none());
        assert!(start.elapsed() >= wait, "too early");
    });
    drop(held);
    test.never_above(PEAK);
}

#[test]
fn crossbeam_receivers() {
    let test = Test::new("crossbeam-channel, receivers", 60);
    let n = crowd();
    let (sender, receiver) = crossbeam_channel::unbounded();
    let got = test.crowd(
        n,
        BOUND,
        move |_| receiver.recv().unwrap(),
        || (0..n).for_each(|i| sender.send(i).unwrap()),
    );
    assert_eq!(got.into_iter().sum::<usize>(), sum(n));
    test.report();
}

#[test]
fn crossbeam_senders() {
    let test = Test::new("crossbeam-channel, senders at a rendezvous", 60);
    let n = crowd();
    let (sender, receiver) = crossbeam_channel::bounded(0);
    let mut got = 0;
    test.crowd(
        n,
        BOUND,
        move |i| sender.send(i).unwrap(),
        || got = (0..n).map(|_| receiver.recv().unwrap()).sum(),
    );
    assert_eq!(got, sum(n));
    test.report();
}

#[test]
fn crossbeam_select() {
    let test = Test::new("crossbeam-channel, select", 60);
    let n = crowd();
    let (left, lefts) = crossbeam_channel::unbounded();
    let (right, rights) = crossbeam_channel::bounded(1);
    let got = test.crowd(
        n,
        BOUND,
        move |_| {
            crossbeam_channel::select! {
                recv(lefts) -> message => message.unwrap(),
                recv(rights) -> message => message.unwrap(),
                recv(crossbeam_channel::never()) -> message => message.unwrap(),
                default(Duration::from_secs(50)) => panic!("forgotten"),
            }
        },
        || {
            for i in 0..n {
                [&left, &right][i % 2].send(i).unwrap();
            }
        },
    );
    assert_eq!(got.into_iter().sum::<usize>(), sum(n));
    test.report();
}

#[test]
fn crossbeam_timers() {
    let test = Test::new("crossbeam-channel, after", 60);
    let wait = Duration::from_millis(300);
    test.at_once(crowd(), move |_| {
        let start = Instant::now();
        crossbeam_channel::after(wait).recv().unwrap();
        assert!(start.elapsed() >= wait, "too early");
    });
    test.never_above(PEAK);
}

#[test]
fn flume() {
    let test = Test::new("flume", 60);
    let n = crowd();
    let (sender, receiver) = flume::bounded(1);
    let got = test.crowd(
        n,
        BOUND,
        move |_| receiver.recv().unwrap(),
        || (0..n).for_each(|i| sender.send(i).unwrap()),
    );
    assert_eq!(got.into_iter().sum::<usize>(), sum(n));

    let (sender, receiver) = flume::bounded(0);
    let mut got = 0;
    test.crowd(
        n,
        BOUND,
        move |i| sender.send(i).unwrap(),
        || got = (0..n).map(|_| receiver.recv().unwrap()).sum(),
    );
    assert_eq!(got, sum(n));
    test.report();
}

#[test]
fn oneshot() {
    let test = Test::new("oneshot", 60);
    let n = crowd();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..n).map(|_| oneshot::channel()).unzip();
    let receivers: Vec<_> = receivers.into_iter().map(|r| Mutex::new(Some(r))).collect();
    let got = test.crowd(
        n,
        BOUND,
        move |i| {
            let receiver = receivers[i].lock().unwrap().take().unwrap();
            receiver.recv()
        },
        || {
            for (i, sender) in senders.into_iter().enumerate() {
                match i % 10 {
                    0 => drop(sender),
                    _ => sender.send(i).unwrap(),
                }
            }
        },
    );
    for (i, got) in got.into_iter().enumerate() {
        assert_eq!(got.ok(), (i % 10 != 0).then_some(i));
    }
    test.report();
}

#[test]
fn event_listener() {
    use event_listener::Listener;
    let test = Test::new("event-listener", 60);
    let n = crowd();
    let event = Arc::new(event_listener::Event::new());
    let flag = Arc::new(AtomicUsize::new(0));
    let (ours, set) = (event.clone(), flag.clone());
    test.crowd(
        n,
        BOUND,
        move |_| {
            while flag.load(Relaxed) == 0 {
                let listener = event.listen();
                if flag.load(Relaxed) == 0 {
                    listener.wait();
                }
            }
        },
        || {
            set.store(1, Relaxed);
            ours.notify(n);
        },
    );
    test.report();
}

/// Producers and consumers through a short buffer, green and kernel threads mixed.
#[test]
fn pipelines() {
    let test = Test::new("channels, green and kernel threads mixed", 120);
    let (threads, messages) = (some(100, 20), some(500, 100));
    macro_rules! pass {
        ($what:literal, $bounded:expr) => {{
            let (sender, receiver) = $bounded;
            let produce = move |i: usize| {
                for j in 0..messages {
                    sender.send(i * messages + j).unwrap();
                }
            };
            let consume = move || receiver.iter().sum::<usize>();
            let produce = Arc::new(produce);
            let mut producers: Vec<_> = (1..threads)
                .map(|i| {
                    let produce = produce.clone();
                    greenthread::spawn(move || produce(i))
                })
                .collect();
            let consumers: Vec<_> = (0..threads)
                .map(|_| greenthread::spawn(consume.clone()))
                .collect();
            let foreign = std::thread::spawn(consume);
            std::thread::spawn(move || produce(0)).join().unwrap();
            producers.drain(..).for_each(|t| t.join().unwrap());
            let green: usize = consumers.into_iter().map(|t| t.join().unwrap()).sum();
            let all = green + foreign.join().unwrap();
            assert_eq!(all, sum(threads * messages), $what);
        }};
    }
    pass!("crossbeam-channel", crossbeam_channel::bounded(3));
    pass!("crossbeam-channel", crossbeam_channel::bounded(0));
    pass!("flume", flume::bounded(3));
    pass!("flume", flume::bounded(0));
    test.never_above(PEAK);
}
