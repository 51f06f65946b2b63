//! Tokio's multi-threaded runtime as it comes: a worker for each processor, a task a connection.

use std::convert::Infallible;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task;

use crate::http::Requests;
use crate::read::{Block, Reads, THREADS};
use crate::serve::{ANYWHERE, BUFFER, Hogs, Work};

pub fn serve(work: Work, hogs: Hogs, announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let runtime = Runtime::new()?;
    let listener = runtime.block_on(TcpListener::bind(ANYWHERE))?;
    let address = listener.local_addr()?;
    for _ in 0..hogs.count {
        runtime.spawn(hog(hogs.yielding));
    }
    runtime.spawn(accept(listener, work));
    announce(address)
}

async fn accept(listener: TcpListener, work: Work) -> io::Result<Infallible> {
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        match work {
            Work::Echo => task::spawn(echo(connection)),
            Work::Http => task::spawn(http(connection)),
        };
    }
}

async fn echo(mut connection: TcpStream) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        match connection.read(&mut buffer).await? {
            0 => return Ok(()),
            n => connection.write_all(&buffer[..n]).await?,
        }
    }
}

async fn http(mut connection: TcpStream) -> io::Result<()> {
    let (mut requests, mut replies) = (Requests::new(), Vec::new());
    loop {
        let n = connection.read(requests.room()).await?;
        if n == 0 || requests.answer(n, &mut replies).is_err() {
            return Ok(());
        }
        connection.write_all(&replies).await?;
        replies.clear();
    }
}

async fn hog(yielding: bool) {
    loop {
        match yielding {
            true => task::yield_now().await,
            false => _ = black_box(0),
        }
    }
}

/// `tokio::fs` is this, too, with a copy more, and with buffers that O_DIRECT refuses.
pub fn read(file: File, reads: Arc<Reads>) -> u64 {
    let file = Arc::new(file);
    let runtime = Runtime::new().expect("a runtime");
    let tasks = (0..THREADS).map(|task| {
        let (file, reads) = (file.clone(), reads.clone());
        runtime.spawn(async move {
            let (mut block, mut done) = (Box::new(Block::EMPTY), 0);
            for position in reads.positions(task) {
                let file = file.clone();
                let read = task::spawn_blocking(move || {
                    let n = file.read_at(block.bytes(), position.start());
                    (block, n)
                });
                let n;
                (block, n) = read.await.expect("a read panicked");
                block.check(n, position);
                done += 1;
            }
            done
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tasks
        .into_iter()
        .map(|task| runtime.block_on(task).expect("a reader panicked"))
        .sum()
}
