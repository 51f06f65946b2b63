//! A semaphore whose permits are never given back: they were forgotten.

use greenthread::sync::Semaphore;
use greenthread::thread;
use std::sync::Arc;

pub(crate) fn main() {
    let permits = Arc::new(Semaphore::new(2));
    for i in 0..3 {
        let permits = permits.clone();
        let worker = thread::Builder::new().name(format!("worker {i}"));
        let work = move || {
            let permit = permits.acquire();
            permit.forget(); // it should have been dropped
        };
        let worker = worker.spawn(work).unwrap();
        worker.join().unwrap();
    }
}
