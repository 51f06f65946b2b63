//! A small Redis: RESP2, as `redis-cli` and `redis-benchmark` speak it; strings, lists, expiry.
//!
//! ```sh
//! cargo run --release --example redis -- --listen 127.0.0.1:6379
//! redis-cli set greeting hello
//! ```
//!
//! With `--append FILE` each command that writes is in that file before it is done. If that fails, as on
//! a full disk, the command is refused, as by Redis. `redis-cli --pipe <FILE` repeats all commands.

use std::io;
use std::process::ExitCode;

use greenthread::fs::File;

mod resp;
mod store;
#[path = "../support/mod.rs"]
mod support;

use resp::{Reply, parse};
use store::Store;
use support::{Client, Refusal, Server};

const ABOUT: &str = "redis: a small Redis. Strings, lists, expiry.";

fn serve(client: &mut Client, store: &Store, max: usize) -> io::Result<()> {
    loop {
        let problem = match client.request(max, |bytes| parse(bytes, max)) {
            Ok(None) => return Ok(()),
            Ok(Some(command)) if command.is_empty() => continue,
            Ok(Some(command)) => {
                store.run(&command).send(client)?;
                match command[0].eq_ignore_ascii_case(b"quit") {
                    true => return Ok(()),
                    false => continue,
                }
            }
            Err(Refusal::Bad(problem)) => problem,
            Err(Refusal::TooLarge) => "the command is too large",
            Err(Refusal::TooSlow) => "the command took too long to arrive",
            Err(refusal) => return Err(refusal.into_error(str::to_string)),
        };
        return Reply::Error(format!("ERR Protocol error: {problem}")).send(client);
    }
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let own = &[
        ("max-request", "BYTES", "16777216", "the largest command"),
        (
            "append",
            "FILE",
            "",
            "append each command that writes to this file",
        ),
    ];
    let args = Server::args(ABOUT, "127.0.0.1:6379", own, args);
    let max = args.count("max-request");
    let name: String = args.get("append");
    let open = || match name.is_empty() {
        true => Ok(None),
        false => File::options()
            .append(true)
            .create(true)
            .open(&name)
            .map(Some),
    };
    let store = match open().and_then(Store::new) {
        Ok(store) => store,
        Err(error) => support::wrong(format!("--append '{name}': {error}")),
    };
    Server::bind(&args).run(move |client| serve(client, &store, max))
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
