//! Green threads beside tokio, both ways: green threads use tokio's sockets and timers through
//! `block_on`, and tokio's tasks await green threads.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use greenthread::block_on;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};

const CLIENTS: u64 = 100;

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(sum) if sum == (1..=CLIENTS).sum() => {
            println!("{CLIENTS} green threads spoke through tokio; sum {sum}");
            ExitCode::SUCCESS
        }
        Ok(sum) => {
            eprintln!("WRONG: {sum}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<u64> {
    let tokio = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let listener = tokio.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    tokio.spawn(echo(listener));

    // Each client is a green thread: plain blocking code except for one line.
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| {
            let handle = tokio.handle().clone();
            greenthread::spawn(move || client(&handle, address, number))
        })
        .collect();

    // And a task awaits them, without blocking tokio's thread.
    tokio.block_on(async {
        let mut sum = 0;
        for client in clients {
            sum += client.await.expect("a client panicked")?;
        }
        Ok(sum)
    })
}

/// Sends `number` to the server, and returns what comes back. Parks only this green thread.
fn client(tokio: &Handle, address: SocketAddr, number: u64) -> io::Result<u64> {
    let _entered = tokio.enter(); // so that tokio's sockets and timers find their runtime
    block_on(async {
        let mut stream = TcpStream::connect(address).await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        stream.write_u64(number).await?;
        stream.read_u64().await
    })
}

async fn echo(listener: TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            tokio::io::copy(&mut reader, &mut writer).await
        });
    }
}
