//! What a message costs: back and forth between two threads, and in a stream from one or four
//! threads to as many others. The yardsticks are std's and crossbeam's channels between kernel
//! threads. An operation is a round trip or, of a stream, one message.

use std::sync::mpsc;

use support::blocking::{self, Green, Kernel};

/// How many messages the channel of a stream holds.
const CAPACITY: usize = 100;

fn main() {
    let mut criterion = support::criterion();
    let mut group = criterion.benchmark_group("channel");
    for capacity in [1, 0] {
        let name = format!("ping-pong, capacity {capacity}");
        let green = move |n| blocking::ping_pong::<Green>(n, green(capacity), green(capacity));
        support::row(&mut group, &name, support::inside(green));
        group.bench_function(format!("{name}/std"), |b| {
            b.iter_custom(|n| blocking::ping_pong::<Kernel>(n, std(capacity), std(capacity)));
        });
        group.bench_function(format!("{name}/crossbeam"), |b| {
            let channel = || crossbeam(capacity);
            b.iter_custom(|n| blocking::ping_pong::<Kernel>(n, channel(), channel()));
        });
    }
    for pairs in [1, 4] {
        let name = format!("{pairs} to {pairs}");
        let green = move |n| {
            let (send, receive) = green(CAPACITY);
            blocking::stream::<Green>(n, vec![send; pairs], vec![receive; pairs])
        };
        support::row(&mut group, &name, support::inside(green));
        // Its receivers cannot be cloned.
        if pairs == 1 {
            group.bench_function(format!("{name}/std"), |b| {
                b.iter_custom(|n| {
                    let (send, receive) = std(CAPACITY);
                    blocking::stream::<Kernel>(n, vec![send], vec![receive])
                });
            });
        }
        group.bench_function(format!("{name}/crossbeam"), |b| {
            b.iter_custom(|n| {
                let (send, receive) = crossbeam(CAPACITY);
                blocking::stream::<Kernel>(n, vec![send; pairs], vec![receive; pairs])
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

/// The send and receive operations of a new channel of greenthread's.
fn green(capacity: usize) -> (impl Fn(u64) + Clone, impl Fn() -> u64 + Clone) {
    let (sender, receiver) = greenthread::channel::bounded(capacity);
    (
        move |message| sender.send(message).expect("nobody receives"),
        move || receiver.recv().expect("nobody sends"),
    )
}

/// The same of crossbeam's.
fn crossbeam(capacity: usize) -> (impl Fn(u64) + Clone, impl Fn() -> u64 + Clone) {
    let (sender, receiver) = crossbeam_channel::bounded(capacity);
    (
        move |message| sender.send(message).expect("nobody receives"),
        move || receiver.recv().expect("nobody sends"),
    )
}

/// The same of std's.
fn std(capacity: usize) -> (impl Fn(u64), impl Fn() -> u64) {
    let (sender, receiver) = mpsc::sync_channel(capacity);
    (
        move |message| sender.send(message).expect("nobody receives"),
        move || receiver.recv().expect("nobody sends"),
    )
}
