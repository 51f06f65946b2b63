//! The values of the keys, and the commands that change them.
//!
//! Keys are spread over shards, each a map behind a lock. A command on one key is atomic; one on
//! several (MGET, MSET, DEL, EXISTS, FLUSHALL) takes them one after the other. A key that has
//! expired is removed when a command comes across it.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use greenthread::fs::File;
use greenthread::sync::{Mutex, MutexGuard};

use super::resp::{Bytes, Reply, number};

const SHARDS: usize = 64;

type Result<T = Reply> = std::result::Result<T, Reply>;

enum Value {
    String(Bytes),
    List(VecDeque<Bytes>),
}

struct Entry {
    value: Value,
    expires: Option<Instant>,
}

type Shard = HashMap<Bytes, Entry>;

pub(crate) struct Store {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    log: Option<Mutex<Log>>,
}

/// Whole commands only: if the disk is full, the part of a command that was written is cut off again.
pub(crate) struct Log {
    file: File,
    size: u64,
}

fn wrong_type() -> Reply {
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

fn no_integer() -> Reply {
    Reply::error("ERR value is not an integer or out of range")
}

fn syntax() -> Reply {
    Reply::error("ERR syntax error")
}

/// The time when a key with this lifetime expires.
fn expiry(command: &str, amount: &[u8], milliseconds: bool) -> Result<Instant> {
    let invalid = || Reply::Error(format!("ERR invalid expire time in '{command}' command"));
    let amount: u64 = number::<i64>(amount)
        .ok_or_else(no_integer)?
        .try_into()
        .map_err(|_| invalid())?;
    let life = if milliseconds {
        Duration::from_millis(amount)
    } else {
        Duration::from_secs(amount)
    };
    let expires = Instant::now().checked_add(life).filter(|_| amount > 0);
    expires.ok_or_else(invalid)
}

impl Store {
    /// A store that appends what changes it to `log`.
    pub(crate) fn new(log: Option<File>) -> io::Result<Store> {
        let begin = |file: File| {
            let size = file.metadata()?.len();
            Ok::<_, io::Error>(Mutex::new(Log { file, size }))
        };
        Ok(Store {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            log: log.map(begin).transpose()?,
        })
    }

    /// The shard of a key, without the key if that has expired.
    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[index].lock().unwrap();
        let expires = shard.get(key).and_then(|entry| entry.expires);
        if expires.is_some_and(|then| then <= Instant::now()) {
            shard.remove(key);
        }
        shard
    }

    pub(crate) fn run(&self, command: &[Bytes]) -> Reply {
        let name = String::from_utf8_lossy(&command[0]).to_ascii_lowercase();
        self.execute(&name, command).unwrap_or_else(|error| error)
    }

    fn execute(&self, name: &str, command: &[Bytes]) -> Result {
        let _log = match name {
            "set" | "mset" | "del" | "incr" | "expire" | "lpush" | "rpush" | "flushall" => {
                self.record(command)?
            }
            _ => None,
        };
        match (name, &command[1..]) {
            ("ping", []) => Ok(Reply::Simple("PONG")),
            ("ping" | "echo", [text]) => Ok(Reply::Bulk(text.clone())),
            ("get", [key]) => self.get(key),
            ("set", [key, value, options @ ..]) => self.set(key, value, options),
            ("mget", keys @ [_, ..]) => {
                // A list is no string, so not there.
                let values = keys.iter().map(|key| self.get(key).unwrap_or(Reply::Nil));
                Ok(Reply::Array(values.collect()))
            }
            ("mset", pairs @ [_, ..]) if pairs.len() % 2 == 0 => {
                for pair in pairs.chunks(2) {
                    self.set(&pair[0], &pair[1], &[])?;
                }
                Ok(Reply::Simple("OK"))
            }
            ("del", keys @ [_, ..]) => {
                let gone = keys
                    .iter()
                    .filter(|key| self.shard(key).remove(&***key).is_some());
                Ok(Reply::Integer(gone.count() as i64))
            }
            ("exists", keys @ [_, ..]) => {
                let there = keys
                    .iter()
                    .filter(|key| self.shard(key).contains_key(&***key));
                Ok(Reply::Integer(there.count() as i64))
            }
            ("incr", [key]) => self.increment(key),
            ("expire", [key, seconds]) => self.expire(key, seconds),
            ("ttl", [key]) => Ok(Reply::Integer(self.time_to_live(key))),
            ("lpush" | "rpush", [key, items @ ..]) if !items.is_empty() => {
                self.push(key, items, name == "lpush")
            }
            ("lrange", [key, first, last]) => self.range(key, first, last),
            ("flushall", _) => {
                self.shards
                    .iter()
                    .for_each(|shard| shard.lock().unwrap().clear());
                Ok(Reply::Simple("OK"))
            }
            ("dbsize", []) => {
                let keys = self.shards.iter().map(|shard| shard.lock().unwrap().len());
                Ok(Reply::Integer(keys.sum::<usize>() as i64))
            }
            // Clients ask for these at their start.
            ("select", [index]) if **index == *b"0" => Ok(Reply::Simple("OK")),
            ("select", [_]) => Err(Reply::error("ERR DB index is out of range")),
            ("config", [get, names @ ..]) if get.eq_ignore_ascii_case(b"get") => {
                let pairs = names
                    .iter()
                    .flat_map(|name| [Reply::Bulk(name.clone()), Reply::text("")]);
                Ok(Reply::Array(pairs.collect()))
            }
            ("command", _) => Ok(Reply::Array(Vec::new())),
            ("info", _) => Ok(Reply::text(
                "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n",
            )),
            ("quit", _) => Ok(Reply::Simple("OK")),
            (
                "ping" | "echo" | "get" | "set" | "mget" | "mset" | "del" | "exists" | "incr"
                | "expire" | "ttl" | "lpush" | "rpush" | "lrange" | "select" | "dbsize",
                _,
            ) => Err(Reply::Error(format!(
                "ERR wrong number of arguments for '{name}' command"
            ))),
            _ => Err(Reply::Error(format!("ERR unknown command '{name:.64}'"))),
        }
    }

    /// Appends a command that writes to the log. No other gets between it and what it does.
    fn record(&self, command: &[Bytes]) -> Result<Option<MutexGuard<'_, Log>>> {
        let Some(log) = &self.log else {
            return Ok(None);
        };
        let mut text = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            text.extend(format!("${}\r\n", word.len()).into_bytes());
            text.extend_from_slice(word);
            text.extend(b"\r\n");
        }
        let mut log = log.lock().unwrap();
        if let Err(error) = log.file.write_all(&text) {
            let _ = log.file.set_len(log.size);
            return Err(Reply::Error(format!(
                "MISCONF cannot append to the log: {error}"
            )));
        }
        log.size += text.len() as u64;
        Ok(Some(log))
    }

    fn get(&self, key: &[u8]) -> Result {
        match self.shard(key).get(key) {
            None => Ok(Reply::Nil),
            Some(Entry {
                value: Value::String(bytes),
                ..
            }) => Ok(Reply::Bulk(bytes.clone())),
            Some(_) => Err(wrong_type()),
        }
    }

    fn set(&self, key: &Bytes, value: &Bytes, options: &[Bytes]) -> Result {
        let (mut expires, mut only_if) = (None, None);
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.to_ascii_lowercase().as_slice() {
                unit @ (b"ex" | b"px") if expires.is_none() => {
                    let amount = options.next().ok_or_else(syntax)?;
                    expires = Some(expiry("set", amount, unit == b"px")?);
                }
                b"nx" if only_if.is_none() => only_if = Some(false),
                b"xx" if only_if.is_none() => only_if = Some(true),
                _ => return Err(syntax()),
            }
        }
        let mut shard = self.shard(key);
        if only_if.is_some_and(|there| there != shard.contains_key(key)) {
            return Ok(Reply::Nil);
        }
        let value = Value::String(value.clone());
        shard.insert(key.clone(), Entry { value, expires });
        Ok(Reply::Simple("OK"))
    }

    fn increment(&self, key: &Bytes) -> Result {
        let mut shard = self.shard(key);
        let zero = || Entry {
            value: Value::String(Bytes::from(*b"0")),
            expires: None,
        };
        match &mut shard.entry(key.clone()).or_insert_with(zero).value {
            Value::String(bytes) => {
                let next = number::<i64>(bytes)
                    .and_then(|n| n.checked_add(1))
                    .ok_or_else(no_integer)?;
                *bytes = next.to_string().into_bytes().into();
                Ok(Reply::Integer(next))
            }
            Value::List(_) => Err(wrong_type()),
        }
    }

    fn expire(&self, key: &[u8], seconds: &[u8]) -> Result {
        let past = number::<i64>(seconds).is_some_and(|seconds| seconds <= 0);
        let then = if past {
            Instant::now()
        } else {
            expiry("expire", seconds, false)?
        };
        let mut shard = self.shard(key);
        let entry = shard.get_mut(key);
        Ok(Reply::Integer(
            entry.map(|entry| entry.expires = Some(then)).is_some() as i64,
        ))
    }

    fn time_to_live(&self, key: &[u8]) -> i64 {
        match self.shard(key).get(key) {
            None => -2,
            Some(Entry { expires: None, .. }) => -1,
            Some(Entry {
                expires: Some(then),
                ..
            }) => {
                let left = then.saturating_duration_since(Instant::now());
                (left + Duration::from_millis(500)).as_secs() as i64
            }
        }
    }

    fn push(&self, key: &Bytes, items: &[Bytes], left: bool) -> Result {
        let mut shard = self.shard(key);
        let empty = || Entry {
            value: Value::List(VecDeque::new()),
            expires: None,
        };
        match &mut shard.entry(key.clone()).or_insert_with(empty).value {
            Value::List(list) => {
                for item in items.iter().cloned() {
                    if left {
                        list.push_front(item)
                    } else {
                        list.push_back(item)
                    }
                }
                Ok(Reply::Integer(list.len() as i64))
            }
            Value::String(_) => Err(wrong_type()),
        }
    }

    fn range(&self, key: &[u8], first: &[u8], last: &[u8]) -> Result {
        let shard = self.shard(key);
        let list = match shard.get(key) {
            None => return Ok(Reply::Array(Vec::new())),
            Some(Entry {
                value: Value::List(list),
                ..
            }) => list,
            Some(_) => return Err(wrong_type()),
        };
        // Negative ones count from the end.
        let index = |bytes| {
            let index: i64 = number(bytes).ok_or_else(no_integer)?;
            let from = if index < 0 { list.len() as i64 } else { 0 };
            Ok(index.saturating_add(from))
        };
        let (first, last) = (index(first)?.max(0), index(last)?);
        let count = last.saturating_sub(first).saturating_add(1).max(0) as usize;
        let items = list.iter().skip(first as usize).take(count);
        Ok(Reply::Array(items.cloned().map(Reply::Bulk).collect()))
    }
}
