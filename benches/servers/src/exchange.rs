//! A request and the one right reply to it.
//!
//! Every exchange has a number of its own, as sixteen hexadecimal digits in the request and in the
//! reply, so that a reply to another request, or to none, is seen.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::http;
use crate::serve::Work;

/// How many digits a number has.
pub const DIGITS: usize = 16;

/// Requests of one kind, and their replies.
pub struct Exchange {
    request: Message,
    reply: Message,
}

/// Bytes, in which a number stands somewhere.
#[derive(Clone)]
struct Message {
    bytes: Vec<u8>,
    number_at: usize,
}

impl Message {
    fn around_number(before: &[u8], after: &[u8]) -> Message {
        Message {
            bytes: [before, &[b'0'; DIGITS], after].concat(),
            number_at: before.len(),
        }
    }

    fn with(&mut self, number: u64) -> &[u8] {
        for (i, byte) in self.bytes[self.number_at..][..DIGITS]
            .iter_mut()
            .enumerate()
        {
            *byte = b"0123456789abcdef"[(number >> (60 - 4 * i)) as usize & 15];
        }
        &self.bytes
    }
}

impl Exchange {
    /// The exchanges of a server's. They are learnt from one reply, on a connection of its own, as
    /// the order and the letters of HTTP's headers are for the server to choose.
    pub fn learn(work: Work, mut connection: TcpStream) -> io::Result<Exchange> {
        match work {
            Work::Echo => {
                let message = Message::around_number(b"", b" goes there, ok\n");
                Ok(Exchange {
                    request: message.clone(),
                    reply: message,
                })
            }
            Work::Http => {
                let mut request =
                    Message::around_number(b"GET /", b" HTTP/1.1\r\nHost: localhost\r\n\r\n");
                let request_bytes = request.with(0x0123_4567_89ab_cdef);
                connection.write_all(request_bytes)?;
                let mut reply = vec![0; http::REPLY_BYTES];
                connection.read_exact(&mut reply)?;
                let head = http::head_of(&reply).ok_or_else(wrong)?;
                let reply = Message::around_number(&reply[..head], b"");
                Ok(Exchange { request, reply })
            }
        }
    }

    /// The request of this number.
    pub fn request(&mut self, number: u64) -> &[u8] {
        self.request.with(number)
    }

    /// The reply to the request of this number.
    pub fn reply(&mut self, number: u64) -> &[u8] {
        self.reply.with(number)
    }

    pub fn send(&mut self, mut connection: &TcpStream, number: u64) -> io::Result<()> {
        connection.write_all(self.request(number))
    }

    /// Waits for the reply and checks it.
    pub fn receive(&mut self, mut connection: &TcpStream, number: u64) -> io::Result<()> {
        let expected = self.reply(number);
        let mut bytes = [0; http::REPLY_BYTES];
        let bytes = &mut bytes[..expected.len()];
        connection.read_exact(bytes)?;
        (bytes == expected).then_some(()).ok_or_else(wrong)
    }
}

/// A reply is not the right one.
pub fn wrong() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a wrong reply")
}
