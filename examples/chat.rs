//! A chat room for `nc`, line by line.
//!
//! The room is one green thread that owns the list of members; clients send it events through a
//! channel. A member has two threads: one reads its lines, the other writes the lines of its inbox.
//! An inbox is bounded, and the room never waits for one: it removes a member that does not read.
//!
//! ```sh
//! cargo run --release --example chat
//! nc 127.0.0.1 7009
//! ```

use greenthread::net::SocketAddr;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use greenthread::cancel::Token;
use greenthread::channel::{Receiver, Sender, bounded};

mod support;

use support::{Client, Connection, Refusal, Server};

const ABOUT: &str = "chat: a chat room for nc. The first line is your name; /who, /quit.";
const INBOX: usize = 256;
const MAX_LINE: usize = 1024;
const MAX_NAME: usize = 20;

type Line = Arc<str>;

/// An event from a client, which is known by its address.
struct Event {
    who: SocketAddr,
    what: What,
}

enum What {
    Joins(Member),
    Says(String),
    AsksWhoIsHere,
    Leaves,
}

struct Member {
    name: String,
    inbox: Sender<Line>,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct Room {
    members: HashMap<SocketAddr, Member>,
}

impl Room {
    /// Until the server stops.
    fn run(mut self, events: Receiver<Event>, stopping: &Token) {
        let _cancelled = stopping.run(|| {
            while let Ok(Event { who, what }) = events.recv()
                // Those who leave now do so because the server stops, and are still to hear of it.
                && !stopping.is_cancelled()
            {
                self.handle(who, what);
            }
        });
        self.tell_all("* the room closes".into());
    }

    fn handle(&mut self, who: SocketAddr, what: What) {
        match what {
            What::Joins(new) if self.members.values().any(|member| member.name == new.name) => {
                // Its inbox closes with `new`, and that ends its connection.
                let _ = new.inbox.try_send("* that name is taken".into());
            }
            What::Joins(new) => {
                self.tell_all(format!("* {} joins", new.name));
                self.members.insert(who, new);
                self.tell_who_is_here(who);
            }
            What::Says(text) => {
                if let Some(Member { name, .. }) = self.members.get(&who) {
                    self.tell_all(format!("{name}: {text}"));
                }
            }
            What::AsksWhoIsHere => self.tell_who_is_here(who),
            What::Leaves => {
                if let Some(Member { name, .. }) = self.members.remove(&who) {
                    self.tell_all(format!("* {name} leaves"));
                }
            }
        }
    }

    fn tell_who_is_here(&mut self, who: SocketAddr) {
        let mut names: Vec<&str> = self.members.values().map(|m| m.name.as_str()).collect();
        names.sort();
        let line = format!("* here: {}", names.join(", "));
        if let Some(member) = self.members.get(&who) {
            let _ = member.inbox.try_send(line.into());
        }
    }

    /// Puts a line into each inbox, and removes the members whose inbox is full.
    fn tell_all(&mut self, line: String) {
        let line: Line = line.into();
        let full = |_: &_, member: &mut Member| member.inbox.try_send(line.clone()).is_err();
        let slow: Vec<Member> = self
            .members
            .extract_if(full)
            .map(|(_, member)| member)
            .collect();
        for Member {
            name, connection, ..
        } in slow
        {
            connection.cut(); // wakes the threads that read or write it
            support::say(format!("{}: does not read, put out", connection.peer()));
            self.tell_all(format!("* {name} does not read, and is put out"));
        }
    }
}

/// A line without its end, and without control characters: they could do things to terminals.
fn line(bytes: &[u8]) -> Result<Option<(String, usize)>, Infallible> {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    Ok(end.map(|end| {
        let text = String::from_utf8_lossy(&bytes[..end]);
        (text.chars().filter(|c| !c.is_control()).collect(), end + 1)
    }))
}

fn next_line(client: &mut Client) -> io::Result<Option<String>> {
    match client.request(MAX_LINE, line) {
        Err(Refusal::CutShort) => Ok(None), // half a line: not said
        Err(Refusal::TooLarge) => {
            let why = b"* lines have 1024 bytes at most\n";
            client.connection().send(why).map(|()| None)
        }
        Err(refusal) => Err(refusal.into_error(|never| match never {})),
        Ok(line) => Ok(line),
    }
}

/// A member's writing thread: sends the lines of the inbox, all that are there at once.
fn write(connection: &Connection, inbox: Receiver<Line>) -> io::Result<()> {
    while let Ok(first) = inbox.recv() {
        let mut text = String::new();
        for line in [first].into_iter().chain(inbox.try_iter()) {
            text.push_str(&line);
            text.push('\n');
        }
        connection.send(text.as_bytes())?;
    }
    connection.cut(); // the room has nothing more to say to this client
    Ok(())
}

/// A member's reading thread.
fn read(client: &mut Client, room: &Sender<Event>, pause: Duration) -> io::Result<()> {
    let who = client.connection().peer();
    while let Some(line) = next_line(client)? {
        let what = match line.as_str() {
            "" => continue,
            "/quit" => break,
            "/who" => What::AsksWhoIsHere,
            _ => What::Says(line),
        };
        if room.send(Event { who, what }).is_err() {
            break;
        }
        greenthread::sleep(pause); // so that no member fills the inboxes of the others
    }
    Ok(())
}

fn attend(client: &mut Client, room: &Sender<Event>, pause: Duration) -> io::Result<()> {
    client.reply().extend(b"* your name?\n");
    let Some(name) = next_line(client)? else {
        return Ok(());
    };
    if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(char::is_alphanumeric) {
        client
            .reply()
            .extend(b"* a name has 1 to 20 letters or digits\n");
        return Ok(());
    }
    let (inbox, lines) = bounded(INBOX);
    let connection = client.connection().clone();
    let who = connection.peer();
    greenthread::scope(|scope| {
        let writer = {
            let connection = connection.clone();
            scope.spawn(move || write(&connection, lines))
        };
        let what = What::Joins(Member {
            name,
            inbox,
            connection,
        });
        let _ = room.send(Event { who, what });
        let read = read(client, room, pause);
        let _ = room.send(Event {
            who,
            what: What::Leaves,
        });
        read.and(writer.join().unwrap_or(Ok(())))
    })
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let own = &[(
        "rate",
        "N",
        "20",
        "take so many lines a second from a client",
    )];
    let args = Server::args(ABOUT, "127.0.0.1:7009", own, args);
    let pause = Duration::from_secs(1) / args.count("rate") as u32;
    let server = Server::bind(&args);
    let (room, events) = bounded(INBOX);
    let stopping = server.stopping().clone();
    greenthread::spawn(move || Room::default().run(events, &stopping));
    server.run(move |client| attend(client, &room, pause))
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
