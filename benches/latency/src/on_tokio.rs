//! The work on tokio's multi-threaded runtime as it comes: tasks for threads, a `Notify` for a
//! thread's park.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task;

use crate::clock;
use crate::echo::BUFFER;
use crate::work::*;

/// The samples of so much time.
pub fn measure(wait: Wait, load: Load, time: Duration) -> Vec<u64> {
    let runtime = Runtime::new().expect("a runtime");
    assert!(load != Load::Computing, "nothing would preempt these");
    for _ in 0..load.threads() {
        runtime.spawn(async {
            loop {
                compute(TURN);
                task::yield_now().await;
            }
        });
    }
    let samples = match wait {
        Wait::Waiting | Wait::Computing | Wait::Outside => {
            let woken = runtime.spawn(wake(wait, time));
            runtime.block_on(woken).expect("it panicked")
        }
        Wait::Millisecond | Wait::Random => {
            let sleepers = (0..load.sleepers() as u64)
                .map(|sleeper| runtime.spawn(sleep(wait, sleeper, time)));
            let sleepers: Vec<_> = sleepers.collect();
            sleepers
                .into_iter()
                .flat_map(|sleeper| runtime.block_on(sleeper).expect("it panicked"))
                .collect()
        }
    };
    // Tasks that run for ever would keep it.
    runtime.shutdown_background();
    samples
}

/// The woken task. It starts the waker, and tells it when it has run.
async fn wake(wait: Wait, time: Duration) -> Vec<u64> {
    let turn = Arc::new(Turn::new());
    let (mine, wakers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (theirs, me, waker) = (turn.clone(), mine.clone(), wakers.clone());
    if wait == Wait::Outside {
        std::thread::spawn(move || wake_from_outside(&theirs, &me));
    } else {
        let computes = wait == Wait::Computing;
        task::spawn(async move { wake_from_inside(computes, &theirs, &me, &waker).await });
    }
    let mut samples = Samples::new(time);
    loop {
        while turn.is_wakers() {
            mine.notified().await;
        }
        let more = samples.add(turn.give_back());
        if wait != Wait::Outside {
            wakers.notify_one();
        }
        if !more {
            return samples.into_vec();
        }
    }
}

async fn wake_from_inside(computes: bool, turn: &Turn, woken: &Notify, waker: &Notify) {
    loop {
        compute(GAP);
        turn.give();
        woken.notify_one();
        if computes {
            compute(GAP);
        }
        while !turn.is_wakers() {
            waker.notified().await;
        }
    }
}

fn wake_from_outside(turn: &Turn, woken: &Notify) {
    let mut random = fastrand::Rng::with_seed(1);
    loop {
        std::thread::sleep(Duration::from_micros(random.u64(PAUSE)));
        if turn.is_wakers() {
            turn.give();
            woken.notify_one();
        }
    }
}

async fn sleep(wait: Wait, sleeper: u64, time: Duration) -> Vec<u64> {
    let mut samples = Samples::new(time);
    let mut random = fastrand::Rng::with_seed(sleeper);
    tokio::time::sleep(Duration::from_nanos(random.u64(..LONGEST))).await;
    loop {
        let nanos = wait.time(&mut random);
        let due = clock::now() + nanos;
        tokio::time::sleep(Duration::from_nanos(nanos)).await;
        if !samples.add(clock::now().saturating_sub(due)) {
            return samples.into_vec();
        }
    }
}

/// Serves echo until the process ends.
pub fn serve(announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let runtime = Runtime::new()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    runtime.spawn(async move {
        loop {
            let (connection, _) = listener.accept().await?;
            task::spawn(echo(connection));
        }
        #[allow(unreachable_code, reason = "it says what `?` returns")]
        io::Result::Ok(())
    });
    announce(address)
}

async fn echo(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut buffer = [0; BUFFER];
    loop {
        match connection.read(&mut buffer).await? {
            0 => return Ok(()),
            n => connection.write_all(&buffer[..n]).await?,
        }
    }
}
