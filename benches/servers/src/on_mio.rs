//! No runtime at all: one thread with one epoll loop. What it reaches is what the system calls leave
//! to be reached.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::serve::{ANYWHERE, BUFFER};

const LISTENER: Token = Token(usize::MAX);

/// Echoes, and tells where; `announce` is called on another thread, as it does not return.
pub fn echo(announce: fn(SocketAddr) -> !) -> io::Result<()> {
    let mut listener = TcpListener::bind(ANYWHERE.into())?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || announce(address));
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let token = Token(connections.len());
                    poll.registry()
                        .register(&mut stream, token, Interest::READABLE)?;
                    connections.push(Some(stream));
                }
            } else if let Some(place) = connections.get_mut(event.token().0)
                && place.as_mut().is_some_and(|stream| !serve(stream))
            {
                *place = None;
            }
        }
    }
}

/// Echoes what there is; false when the connection has ended. Requests are small and wait for their
/// replies, so there is always room for these.
fn serve(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; BUFFER];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(n) if stream.write_all(&buffer[..n]).is_err() => return false,
            // Less than was asked for: there is no more.
            Ok(n) if n < buffer.len() => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
