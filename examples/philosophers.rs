//! A thousand dining philosophers at one table. A fork is a mutex; every philosopher takes the fork
//! with the lower number first, so the waiting philosophers never form a circle.
//!
//! ```sh
//! cargo run --release --example philosophers
//! ```

use std::time::Duration;

use greenthread::sync::{Arc, Mutex, WaitGroup};

const PHILOSOPHERS: usize = 1_000;
const MEALS: u32 = 100;

/// A fork counts the meals that were eaten with it.
type Fork = Mutex<u32>;

fn dine(seat: usize, table: &[Fork]) {
    let (left, right) = (seat, (seat + 1) % table.len());
    for meal in 0..MEALS {
        let mut first = table[left.min(right)].lock().unwrap();
        let mut second = table[left.max(right)].lock().unwrap();
        *first += 1;
        *second += 1;
        drop((first, second));
        think(seat, meal);
    }
}

/// Some think at length, some do not stop for a moment.
fn think(seat: usize, meal: u32) {
    match (seat + meal as usize) % 10 {
        0 => greenthread::sleep(Duration::from_micros(100)),
        1..=5 => greenthread::yield_now(),
        _ => {}
    }
}

fn main() {
    let table: Arc<[Fork]> = (0..PHILOSOPHERS).map(|_| Fork::default()).collect();
    let everybody = WaitGroup::new();
    for seat in 0..PHILOSOPHERS {
        let (table, me) = (table.clone(), everybody.clone());
        greenthread::spawn(move || {
            dine(seat, &table);
            drop(me);
        });
    }
    everybody.wait();
    for (number, fork) in table.iter().enumerate() {
        // Each fork lies between two philosophers.
        assert_eq!(*fork.lock().unwrap(), 2 * MEALS, "fork {number}");
    }
    println!("{PHILOSOPHERS} philosophers had {MEALS} meals each, and nobody starved");
}
