//! The example `redis`, with UNIX sockets in place of Internet ones.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

#[path = "../../../examples/redis/resp.rs"]
mod resp;
#[path = "../../../examples/redis/store.rs"]
mod store;

mod support {
    #[derive(Default)]
    pub(super) struct Client(pub(super) Vec<u8>);

    impl Client {
        pub(super) fn reply(&mut self) -> &mut Vec<u8> {
            &mut self.0
        }

        pub(super) fn keep_small(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}

fn serve(mut stream: UnixStream, store: &store::Store) {
    let (mut asked, mut part, mut client) = (Vec::new(), [0; 512], support::Client::default());
    while let Ok(count @ 1..) = stream.read(&mut part) {
        asked.extend_from_slice(&part[..count]);
        while let Some((command, length)) = resp::parse(&asked, 1 << 20).unwrap() {
            asked.drain(..length);
            store.run(&command).send(&mut client).unwrap();
            stream.write_all(&client.0).unwrap();
            client.0.clear();
        }
    }
}

fn ask(stream: &mut UnixStream, number: usize) {
    let mut reply = [0; 64];
    for round in 0..50 {
        for command in [
            format!("SET key{} {round}\r\n", number % 5),
            "INCR sum\r\n".into(),
        ] {
            stream.write_all(command.as_bytes()).unwrap();
            assert_ne!(stream.read(&mut reply).unwrap(), 0);
        }
    }
}

/// Twenty clients with a hundred commands each.
pub(super) fn main() {
    let store = store::Store::new(None).unwrap();
    greenthread::scope(|scope| {
        for number in 0..20 {
            let (mut client, server) = UnixStream::pair().unwrap();
            let store = &store;
            scope.spawn(move || serve(server, store));
            scope.spawn(move || ask(&mut client, number));
        }
    });
}
