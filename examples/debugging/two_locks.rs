//! Two threads that take two locks in different orders: each waits for the other, for ever.

use greenthread::sync::{Barrier, Mutex};
use greenthread::thread;
use std::sync::Arc;

pub(crate) fn main() {
    let accounts = Arc::new((Mutex::new(100), Mutex::new(200)));
    let both_have_one = Arc::new(Barrier::new(2));
    let (of_alice, of_bob) = (accounts.clone(), accounts);
    let met = both_have_one.clone();
    let alice = thread::Builder::new().name("alice".into());
    let alice = alice
        .spawn(move || transfer(&of_alice.0, &of_alice.1, &met))
        .unwrap();
    let bob = thread::Builder::new().name("bob".into());
    let bob = bob
        .spawn(move || transfer(&of_bob.1, &of_bob.0, &both_have_one))
        .unwrap();
    alice.join().unwrap();
    bob.join().unwrap();
}

fn transfer(from: &Mutex<i64>, to: &Mutex<i64>, both_have_one: &Barrier) {
    let mut from = from.lock().unwrap();
    both_have_one.wait();
    let mut to = to.lock().unwrap();
    *from -= 10;
    *to += 10;
}
