//! The work on greenthread, whose API is std's.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use greenthread::Thread;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::{Mode, Runtime};

use crate::clock;
use crate::echo::BUFFER;
use crate::work::*;

/// The samples of so much time.
pub fn measure(wait: Wait, load: Load, time: Duration) -> Vec<u64> {
    let mode = Runtime::global().mode();
    assert_eq!(mode, Mode::Green, "these would be kernel threads");
    for _ in 0..load.threads() {
        greenthread::spawn(move || {
            loop {
                compute(TURN);
                if load == Load::Yielding {
                    greenthread::yield_now();
                }
            }
        });
    }
    match wait {
        Wait::Waiting | Wait::Computing | Wait::Outside => {
            let woken = greenthread::spawn(move || wake(wait, time));
            woken.join().expect("it panicked")
        }
        Wait::Millisecond | Wait::Random => {
            let sleepers = (0..load.sleepers() as u64)
                .map(|sleeper| greenthread::spawn(move || sleep(wait, sleeper, time)));
            let sleepers: Vec<_> = sleepers.collect();
            sleepers
                .into_iter()
                .flat_map(|sleeper| sleeper.join().expect("it panicked"))
                .collect()
        }
    }
}

/// The woken thread. It starts the waker, and tells it when it has run.
fn wake(wait: Wait, time: Duration) -> Vec<u64> {
    let turn = Arc::new(Turn::new());
    let (theirs, me) = (turn.clone(), greenthread::current());
    let waker = match wait {
        Wait::Outside => {
            std::thread::spawn(move || wake_from_outside(&theirs, &me));
            None
        }
        _ => {
            let computes = wait == Wait::Computing;
            Some(greenthread::spawn(move || {
                wake_from_inside(computes, &theirs, &me)
            }))
        }
    };
    let mut samples = Samples::new(time);
    loop {
        while turn.is_wakers() {
            greenthread::park();
        }
        let more = samples.add(turn.give_back());
        if let Some(waker) = &waker {
            waker.thread().unpark();
        }
        if !more {
            return samples.into_vec();
        }
    }
}

fn wake_from_inside(computes: bool, turn: &Turn, woken: &Thread) {
    loop {
        compute(GAP);
        turn.give();
        woken.unpark();
        if computes {
            compute(GAP);
        }
        while !turn.is_wakers() {
            greenthread::park();
        }
    }
}

fn wake_from_outside(turn: &Turn, woken: &Thread) {
    let mut random = fastrand::Rng::with_seed(1);
    loop {
        std::thread::sleep(Duration::from_micros(random.u64(PAUSE)));
        if turn.is_wakers() {
            turn.give();
            woken.unpark();
        }
    }
}

fn sleep(wait: Wait, sleeper: u64, time: Duration) -> Vec<u64> {
    let mut samples = Samples::new(time);
    let mut random = fastrand::Rng::with_seed(sleeper);
    greenthread::sleep(Duration::from_nanos(random.u64(..LONGEST)));
    loop {
        let nanos = wait.time(&mut random);
        let due = clock::now() + nanos;
        greenthread::sleep(Duration::from_nanos(nanos));
        if !samples.add(clock::now().saturating_sub(due)) {
            return samples.into_vec();
        }
    }
}

/// Serves echo until the process ends.
pub fn serve(announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    greenthread::spawn(move || -> io::Result<()> {
        loop {
            let (connection, _) = listener.accept()?;
            greenthread::spawn(|| echo(connection));
        }
    });
    announce(address)
}

fn echo(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut buffer = [0; BUFFER];
    loop {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            n => connection.write_all(&buffer[..n])?,
        }
    }
}
