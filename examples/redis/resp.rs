//! RESP2, Redis's protocol: commands in, replies out.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use super::support::Client;

const MAX_LINE: usize = 64 << 10;
const MAX_WORDS: i64 = 64 << 10;

/// Shared by the map and the replies under way, so that no lock is held while a reply is sent.
pub(crate) type Bytes = Arc<[u8]>;
pub(crate) type Command = Vec<Bytes>;

pub(crate) enum Reply {
    Simple(&'static str),
    Error(String),
    Integer(i64),
    Bulk(Bytes),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    pub(crate) fn text(text: impl Into<String>) -> Reply {
        Reply::Bulk(text.into().into_bytes().into())
    }

    pub(crate) fn error(text: &str) -> Reply {
        Reply::Error(text.into())
    }

    pub(crate) fn send(&self, client: &mut Client) -> io::Result<()> {
        let out = client.reply();
        match self {
            Reply::Simple(text) => write!(out, "+{text}\r\n")?,
            Reply::Error(text) => write!(out, "-{}\r\n", text.replace(['\r', '\n'], " "))?,
            Reply::Integer(number) => write!(out, ":{number}\r\n")?,
            Reply::Nil => out.extend(b"$-1\r\n"),
            Reply::Bulk(bytes) => {
                write!(out, "${}\r\n", bytes.len())?;
                out.extend_from_slice(bytes);
                out.extend(b"\r\n");
            }
            Reply::Array(items) => {
                write!(out, "*{}\r\n", items.len())?;
                return items.iter().try_for_each(|item| item.send(client));
            }
        }
        client.keep_small()
    }
}

/// The bytes before the first "\r\n" (an inline command may do without the "\r") and how long the
/// line is with it.
fn line(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, &'static str> {
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => Ok(Some((
            bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]),
            end + 1,
        ))),
        None if bytes.len() > MAX_LINE => Err("too big inline request"),
        None => Ok(None),
    }
}

pub(crate) fn number<T: FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The command at the start of `bytes`, as an array or as a line of words, and its length.
pub(crate) fn parse(bytes: &[u8], max: usize) -> Result<Option<(Command, usize)>, &'static str> {
    let Some((first, mut at)) = line(bytes)? else {
        return Ok(None);
    };
    let Some(count) = first.strip_prefix(b"*") else {
        let words = first
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        return Ok(Some((words.map(Bytes::from).collect(), at)));
    };
    let count = number::<i64>(count).ok_or("invalid multibulk length")?;
    if count > MAX_WORDS {
        return Err("invalid multibulk length");
    }
    let mut words = Vec::new();
    for _ in 0..count {
        let Some((head, length)) = line(&bytes[at..])? else {
            return Ok(None);
        };
        let size = head.strip_prefix(b"$").ok_or("expected '$'")?;
        let size = number::<usize>(size)
            .filter(|&size| size <= max)
            .ok_or("invalid bulk length")?;
        at += length;
        match bytes.get(at..at + size + 2) {
            None => return Ok(None),
            Some(word) if word.ends_with(b"\r\n") => words.push(&word[..size]),
            Some(_) => return Err("a string is longer than it said"),
        }
        at += size + 2;
    }
    Ok(Some((words.into_iter().map(Bytes::from).collect(), at)))
}
