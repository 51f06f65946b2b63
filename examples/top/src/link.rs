//! The connection to the program: a thread of its own, so that the screen never waits for an answer.
//!
//! A request goes in, and its answer or what is wrong comes out, in order. The connection is made anew with the next
//! request after it has failed.

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// A program that does not answer for so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    Summary,
    Thread(u64),
    Deadlocks,
}

impl Ask {
    fn line(self) -> String {
        let request = match self {
            Ask::Summary => json!({"version": 1, "ask": "summary", "show": 50}),
            Ask::Thread(id) => json!({"version": 1, "ask": "thread", "id": id}),
            Ask::Deadlocks => json!({"version": 1, "ask": "deadlocks"}),
        };
        format!("{request}\n")
    }
}

pub enum Answer {
    Is(Value),
    /// The program has refused the request.
    Refused(String),
    /// There is no connection.
    Gone(String),
}

pub struct Link {
    ask: Sender<Ask>,
    answers: Receiver<(Ask, Answer)>,
}

impl Link {
    pub fn new(path: PathBuf) -> Link {
        let (ask, asked) = channel::<Ask>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            let mut connection = None;
            for ask in asked {
                let result = answer_of(&path, &mut connection, ask);
                let result = result.unwrap_or_else(|error| {
                    connection = None;
                    Answer::Gone(reason(&error))
                });
                if answer.send((ask, result)).is_err() {
                    return;
                }
            }
        });
        Link { ask, answers }
    }

    pub fn ask(&self, ask: Ask) {
        // The thread lives as long as the link.
        let _ = self.ask.send(ask);
    }

    pub fn answer(&self) -> Option<(Ask, Answer)> {
        self.answers.try_recv().ok()
    }
}

type Connection = BufReader<UnixStream>;

fn answer_of(path: &Path, connection: &mut Option<Connection>, ask: Ask) -> Result<Answer> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(connect(path)?),
    };
    // A program that refuses a client says why before it hangs up.
    let sent = connection.get_mut().write_all(ask.line().as_bytes());
    let mut line = String::new();
    if connection.read_line(&mut line)? == 0 {
        sent?;
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let answer: Value = serde_json::from_str(&line).map_err(Error::other)?;
    if answer["version"] != 1 {
        return Err(Error::other("the program speaks another version"));
    }
    match answer["error"].as_str() {
        // The connection is over.
        Some(error) if sent.is_err() => Err(Error::other(error.to_string())),
        Some(error) => Ok(Answer::Refused(error.into())),
        None => Ok(Answer::Is(answer)),
    }
}

fn connect(path: &Path) -> Result<Connection> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such socket".into(),
        ErrorKind::ConnectionRefused => "nobody listens on the socket".into(),
        ErrorKind::PermissionDenied => "the socket belongs to another user".into(),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            "the program has ended".into()
        }
        ErrorKind::WouldBlock => "the program does not answer".into(),
        _ => error.to_string(),
    }
}
