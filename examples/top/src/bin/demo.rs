//! A program to look at: a shop whose clerks wait for a ledger, with a thread that computes all the time.
//!
//!     GREENTHREAD_OBSERVE=unix:./shop.sock cargo run -p greenthread-top --bin demo -- [PARKED] [deadlock]
//!     cargo run -p greenthread-top -- ./shop.sock
//!
//! PARKED threads more do nothing but wait. With `deadlock` two threads wait for each other's locks.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use greenthread::channel::{Receiver, Sender, bounded};
use greenthread::sync::Mutex;
use greenthread::{Builder, JoinHandle, sleep};

#[track_caller]
fn start(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let builder = Builder::new().name(name.into());
    builder.spawn(work).expect("a thread")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let parked: usize = arguments
        .next()
        .map_or(0, |count| count.parse().expect("a number of threads"));
    let deadlocks = arguments.next().is_some_and(|word| word == "deadlock");
    let ledger = Arc::new(Mutex::new(0_u64));
    let auditor = start("auditor", {
        let ledger = ledger.clone();
        move || audit(&ledger)
    });
    while ledger.try_lock().is_ok() {
        sleep(Duration::from_millis(1));
    }
    for i in 1..=5 {
        let ledger = ledger.clone();
        start(format!("clerk-{i}"), move || write_to_ledger(&ledger));
    }
    let (orders, to_pack) = bounded(16);
    let (packed, to_send) = bounded(16);
    start("customers", move || order(&orders));
    start("packer", move || pack(&to_pack, &packed));
    start("courier", move || deliver(&to_send));
    start("pricing", compute_prices);
    start("night-watch", || sleep(Duration::from_secs(3600)));
    if deadlocks {
        deadlock();
    }
    // The others have come to their places before the crowd.
    sleep(Duration::from_millis(100));
    for _ in 0..parked {
        greenthread::spawn(greenthread::park);
    }
    println!("ready");
    let closing = start("closing", move || auditor.join().expect("the auditor"));
    closing.join().expect("the last thread");
}

/// Holds the ledger for ever.
fn audit(ledger: &Mutex<u64>) {
    let _ledger = ledger.lock();
    sleep(Duration::from_secs(3600));
}

#[inline(never)]
fn write_to_ledger(ledger: &Mutex<u64>) {
    *ledger.lock().expect("the ledger") += 1;
}

/// Uses as much of a processor as it gets.
#[inline(never)]
fn compute_prices() {
    let mut price = 1_u64;
    loop {
        price = black_box(price.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
}

#[inline(never)]
fn order(to: &Sender<u64>) {
    for number in 0.. {
        if to.send(number).is_err() {
            return;
        }
        if number % 64 == 0 {
            sleep(Duration::from_millis(2));
        }
    }
}

#[inline(never)]
fn pack(from: &Receiver<u64>, to: &Sender<u64>) {
    for order in from {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(3) {
            black_box(order);
        }
        if to.send(order).is_err() {
            return;
        }
    }
}

#[inline(never)]
fn deliver(from: &Receiver<u64>) {
    for order in from {
        black_box(order);
    }
}

/// Two threads take two locks in different orders.
fn deadlock() {
    let locks = Arc::new((Mutex::new(()), Mutex::new(())));
    let meeting = Arc::new(greenthread::sync::Barrier::new(2));
    for (name, is_left) in [("left", true), ("right", false)] {
        let (locks, meeting) = (locks.clone(), meeting.clone());
        start(name, move || {
            let (first, second) = match is_left {
                true => (&locks.0, &locks.1),
                false => (&locks.1, &locks.0),
            };
            let _first = first.lock();
            meeting.wait();
            let _second = second.lock();
        });
    }
}
