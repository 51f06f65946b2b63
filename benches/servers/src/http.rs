//! HTTP as far as the servers without a library of their own need it: any request is answered with
//! its path, less the slash.

use crate::exchange::DIGITS;

/// A request must fit.
const BUFFER: usize = 1024;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\n";

/// The size of every server's reply.
pub const REPLY_BYTES: usize = HEAD.len() + DIGITS;

/// What has come on a connection and is not answered yet.
pub struct Requests {
    buffer: [u8; BUFFER],
    filled: usize,
}

/// The client sends something else than requests that are small enough.
#[derive(Debug)]
pub struct BadRequest;

impl Requests {
    pub fn new() -> Requests {
        Requests {
            buffer: [0; BUFFER],
            filled: 0,
        }
    }

    /// Where to put what comes next.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// So many more bytes are there: appends the replies to all complete requests to `replies`.
    pub fn answer(&mut self, received: usize, replies: &mut Vec<u8>) -> Result<(), BadRequest> {
        self.filled += received;
        let mut unanswered = &self.buffer[..self.filled];
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(unanswered) {
                Ok(httparse::Status::Complete(length)) => {
                    let path = request.path.ok_or(BadRequest)?;
                    let number = path.as_bytes().get(1..).ok_or(BadRequest)?;
                    if number.len() != DIGITS {
                        return Err(BadRequest);
                    }
                    replies.extend_from_slice(HEAD.as_bytes());
                    replies.extend_from_slice(number);
                    unanswered = &unanswered[length..];
                }
                Ok(httparse::Status::Partial) => break,
                Err(_) => return Err(BadRequest),
            }
        }
        let left = unanswered.len();
        self.buffer.copy_within(self.filled - left..self.filled, 0);
        self.filled = left;
        if left == BUFFER {
            return Err(BadRequest);
        }
        Ok(())
    }
}

/// The size of the head of a reply, if it is one that a server of ours may give.
pub fn head_of(reply: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(reply).ok()? else {
        return None;
    };
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("Content-Length"))?;
    let right = response.code == Some(200)
        && length.value == DIGITS.to_string().as_bytes()
        && head + DIGITS == reply.len();
    right.then_some(head)
}
