//! A load: threads of every kind at work, until they are told to stop.
//!
//! Each checks what it can by itself: messages come in order, turns are taken in turn. Whoever starts
//! a load watches its steps, and compares the counts in the end.

use super::storm::burn;
use super::*;
use greenthread::sync::mpsc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// What the threads of a load share.
#[derive(Default)]
pub struct Load {
    /// Each loop of each thread is one.
    pub steps: Arc<AtomicU64>,
    pub stop: AtomicBool,
    /// Threads that have started and those that have ended, by their own count.
    pub started: AtomicU64,
    pub ended: AtomicU64,
}

impl Load {
    fn goes_on(&self) -> bool {
        self.steps.fetch_add(1, Relaxed);
        !self.stop.load(Relaxed)
    }

    fn spawn(
        self: &Arc<Self>,
        runtime: &Runtime,
        body: impl FnOnce(&Load) + Send + 'static,
    ) -> greenthread::JoinHandle<()> {
        let load = self.clone();
        runtime.spawn(move || {
            load.started.fetch_add(1, Relaxed);
            body(&load);
            load.ended.fetch_add(1, Relaxed);
        })
    }

    /// Threads that give way, sleep, park, pass messages, burn CPU time, block in the kernel with and
    /// without a word, are locked to a kernel thread, and spawn.
    pub fn start(
        self: &Arc<Self>,
        runtime: &Runtime,
        rng: &mut Rng,
    ) -> Vec<greenthread::JoinHandle<()>> {
        let mut handles = Vec::new();
        let mut spawn = |body: Box<dyn FnOnce(&Load) + Send>| {
            handles.push(self.spawn(runtime, body));
        };
        for _ in 0..8 {
            spawn(Box::new(|load| {
                while load.goes_on() {
                    greenthread::yield_now();
                }
            }));
            let mut rng = Rng::new(rng.next());
            spawn(Box::new(move |load| {
                while load.goes_on() {
                    greenthread::sleep(rng.micros_below(300));
                }
            }));
        }
        for _ in 0..4 {
            // Two that pass a number to and fro, each adding 1: both see every number.
            let (ping, pinged) = mpsc::sync_channel(0);
            let (pong, ponged) = mpsc::sync_channel(1);
            spawn(Box::new(move |load| {
                let mut next = 0u64;
                while load.goes_on() {
                    ping.send(next).unwrap();
                    assert_eq!(ponged.recv(), Ok(next + 1));
                    next += 2;
                }
            }));
            spawn(Box::new(move |_| {
                for (round, number) in pinged.iter().enumerate() {
                    assert_eq!(number, 2 * round as u64);
                    pong.send(number + 1).unwrap();
                }
            }));
            // Two that take turns, odd and even; one parks until its turn has come.
            const OVER: u64 = u64::MAX - 1;
            let turn = Arc::new(AtomicU64::new(0));
            let other = Arc::new(Mutex::new(None::<greenthread::Thread>));
            let (his, seat) = (turn.clone(), other.clone());
            spawn(Box::new(move |load| {
                *seat.lock().unwrap() = Some(greenthread::current());
                while his.load(Acquire) != OVER {
                    greenthread::park();
                    if his.load(Acquire) % 2 == 1 {
                        his.fetch_add(1, Release);
                        load.goes_on();
                    }
                }
            }));
            spawn(Box::new(move |load| {
                let parked = loop {
                    if let Some(thread) = other.lock().unwrap().clone() {
                        break thread;
                    }
                    greenthread::yield_now();
                };
                while load.goes_on() {
                    turn.fetch_add(1, Release);
                    while turn.load(Acquire) % 2 == 1 {
                        parked.unpark();
                        greenthread::sleep(Duration::from_micros(20));
                    }
                }
                turn.store(OVER, Release);
                parked.unpark();
            }));
        }
        for _ in 0..2 {
            let mut hog = Rng::new(rng.next());
            spawn(Box::new(move |load| {
                while load.goes_on() {
                    burn(hog.micros_below(3_000));
                    greenthread::sleep(hog.micros_below(1_000));
                }
            }));
            let mut announced = Rng::new(rng.next());
            spawn(Box::new(move |load| {
                while load.goes_on() {
                    greenthread::blocking(|| std::thread::sleep(announced.micros_below(500)));
                }
            }));
            let mut silent = Rng::new(rng.next());
            spawn(Box::new(move |load| {
                while load.goes_on() {
                    std::thread::sleep(silent.micros_below(2_000));
                }
            }));
            spawn(Box::new(|load| {
                let _locked = greenthread::lock_kernel_thread();
                while load.goes_on() {
                    greenthread::sleep(Duration::from_micros(200));
                }
            }));
            spawn(Box::new(|load| {
                while load.goes_on() {
                    let child = greenthread::spawn(greenthread::yield_now);
                    child.join().unwrap();
                }
            }));
        }
        handles
    }
}
