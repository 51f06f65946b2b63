//! The two sides of a question at the socket: a process that answers, and a client that asks it.

use crate::common::*;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

/// A process that is asked, and its standard output, which stays open. It is killed in the end.
pub struct Asked(pub Child, #[allow(dead_code)] BufReader<ChildStdout>);

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Asked {
    /// Starts `test` again as a process that answers at `path`, and waits until it is ready.
    pub fn start(test: &str, case: &str, path: &Path) -> Asked {
        let mut command = child_command(test, case);
        command.env("GREENTHREAD_OBSERVE", format!("unix:{}", path.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the test's own executable");
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let is_ready = out
            .by_ref()
            .lines()
            .any(|line| line.unwrap().ends_with("ready"));
        assert!(is_ready, "it does not get ready: {:?}", child.wait());
        Asked(child, out)
    }

    /// Lets it end by itself.
    pub fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// In the process that is asked: it is ready, and ends with its standard input.
pub fn ready() {
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

pub struct Client(pub BufReader<UnixStream>);

impl Client {
    pub fn connect(path: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(50)))?;
        Ok(Client(BufReader::new(stream)))
    }

    pub fn new(path: &Path) -> Client {
        Client::connect(path).expect("a connection")
    }

    pub fn send(&mut self, request: &str) -> std::io::Result<()> {
        self.0
            .get_mut()
            .write_all(format!("{request}\n").as_bytes())
    }

    /// The next line; empty at the end.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        match self.0.read_until(b'\n', &mut line) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            result => drop(result.expect("an answer")),
        }
        String::from_utf8(line).expect("text")
    }

    pub fn ask(&mut self, request: &str) -> String {
        self.send(request).expect("a request");
        let line = self.line();
        assert!(line.starts_with("{\"version\":1,"), "{request}: {line}");
        assert!(line.ends_with("}\n"), "{request}: {line}");
        line
    }
}

/// The number behind `"name":`, after `from`.
pub fn number(answer: &str, from: &str, name: &str) -> u64 {
    let rest = answer.split_once(from).map(|(_, rest)| rest);
    let rest = rest.and_then(|rest| rest.split_once(&format!("\"{name}\":")));
    let digits = |(_, rest): (&str, &str)| {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    rest.and_then(digits)
        .unwrap_or_else(|| panic!("no number {name} behind {from}: {answer}"))
}

/// The object of the thread of this name in a list.
pub fn object<'a>(answer: &'a str, list: &str, name: &str) -> Option<&'a str> {
    let list = answer.split_once(&format!("\"{list}\":["))?.1;
    let end = list.find(']').unwrap_or(list.len());
    let mut objects = list[..end].split("},{");
    objects.find(|object| object.contains(&format!("\"name\":\"{name}\"")))
}
