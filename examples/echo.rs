//! Sends every client's bytes back to it: the smallest server.
//!
//! ```sh
//! cargo run --release --example echo -- --listen 127.0.0.1:7007
//! ```

use std::io;
use std::process::ExitCode;

mod support;

use support::{Client, Server};

const ABOUT: &str = "echo: sends every client's bytes back to it.";

fn echo(client: &mut Client) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match client.read(&mut buffer)? {
            0 => return Ok(()),
            n => client.connection().send(&buffer[..n])?,
        }
    }
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let args = Server::args(ABOUT, "127.0.0.1:7007", &[], args);
    Server::bind(&args).run(echo)
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
