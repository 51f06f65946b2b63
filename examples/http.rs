//! A web server: HTTP/1.1 with keep-alive and pipelining; the files of a directory, and a JSON route.
//!
//! Requests are parsed by `httparse`. A file is served if it lies in the directory after symbolic
//! links were followed. Bodies of requests are skipped if they are small, and refused otherwise.
//!
//! ```sh
//! cargo run --release --example http -- --listen 127.0.0.1:8080 --dir .
//! curl http://127.0.0.1:8080/json http://127.0.0.1:8080/Cargo.toml
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

mod support;

use support::{Client, Refusal, Server};

const ABOUT: &str = "http: serves the files of a directory, and /json.";
const MAX_HEAD: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
const MAX_BODY: usize = 64 << 10;
const CHUNK: u64 = 32 << 10;

/// An answer that is not the page: its status, and what to say about it.
type Problem = (u16, &'static str);

struct Request {
    method: String,
    /// As it was sent, without the query.
    path: String,
    keep_alive: bool,
}

/// The request at the start of `bytes`, and its length; `None` if some of it is missing.
fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Problem> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) => return Err((431, "the head of a request has 8 KiB at most")),
        Err(httparse::Error::TooManyHeaders) => return Err((431, "64 header fields at most")),
        Err(httparse::Error::Version) if names_a_version(bytes) => {
            return Err((505, "only HTTP/1.0 and HTTP/1.1 are spoken here"));
        }
        Err(_) => return Err((400, "this is no HTTP request")),
    };
    let new = head.version == Some(1);
    let (mut keep_alive, mut body, mut hosts) = (new, None, 0);
    for header in head.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or("?").trim();
        match header.name.to_ascii_lowercase().as_str() {
            "host" => hosts += 1,
            "connection" => {
                let has = |word| {
                    value
                        .split(',')
                        .any(|w| w.trim().eq_ignore_ascii_case(word))
                };
                keep_alive = !has("close") && (new || has("keep-alive"));
            }
            "content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                match value.parse::<usize>() {
                    _ if !digits => return Err((400, "Content-Length is no number")),
                    Ok(size) if body.is_some_and(|other| other != size) => {
                        return Err((400, "Content-Length is not clear"));
                    }
                    Ok(size) if size <= MAX_BODY => body = Some(size),
                    _ => return Err((413, "the body of a request has 64 KiB at most")),
                }
            }
            "transfer-encoding" => return Err((501, "bodies in chunks are not taken")),
            "expect" => return Err((417, "send what you have to send")),
            _ => {}
        }
    }
    if hosts > 1 || (new && hosts == 0) {
        return Err((400, "exactly one Host is needed"));
    }
    let length = length + body.unwrap_or(0);
    if bytes.len() < length {
        return Ok(None);
    }
    let target = head.path.unwrap_or("/");
    // A whole URL is as good as its path.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => target,
    };
    let request = Request {
        method: head.method.unwrap_or_default().to_string(),
        path: path.split(['?', '#']).next().unwrap_or("/").to_string(),
        keep_alive,
    };
    Ok(Some((request, length)))
}

fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|&byte| byte == b'\r' || byte == b'\n')
        .find(|line| !line.is_empty());
    line.is_some_and(|line| line.windows(6).any(|part| part == b" HTTP/"))
}

struct Site {
    root: PathBuf,
    requests: AtomicU64,
}

/// What is served.
enum Page {
    Json(String),
    File {
        file: File,
        size: u64,
        kind: &'static str,
    },
    Moved(String),
}

impl Site {
    fn page(&self, request: &Request) -> Result<Page, Problem> {
        match request.path.as_str() {
            _ if !matches!(request.method.as_str(), "GET" | "HEAD") => Err((405, "GET or HEAD")),
            "/json" => {
                let served = self.requests.load(Relaxed);
                Ok(Page::Json(format!(
                    r#"{{"message":"hello","requests":{served}}}"#
                )))
            }
            path => self.file(path),
        }
    }

    fn file(&self, path: &str) -> Result<Page, Problem> {
        let mut wanted = self.root.clone();
        for part in decode(path)?.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err((400, "no way up")),
                _ if part.contains(&0) => return Err((400, "the path has a NUL")),
                _ => wanted.push(OsString::from_vec(part.to_vec())),
            }
        }
        let mut wanted = self.inside(&wanted)?;
        if wanted.is_dir() {
            if !path.ends_with('/') {
                return Ok(Page::Moved(format!("/{}/", path.trim_matches('/'))));
            }
            wanted = self.inside(&wanted.join("index.html"))?;
        }
        let known = wanted.metadata().map_err(|error| problem(&error))?;
        if !known.is_file() {
            return Err((404, "there is no such file")); // opening a pipe would wait for its writer
        }
        let file = File::open(&wanted).map_err(|error| problem(&error))?;
        let size = file.metadata().map_err(|error| problem(&error))?.len();
        let kind = kind(&wanted);
        Ok(Page::File { file, size, kind })
    }

    /// Where that really is, if it is inside the directory.
    fn inside(&self, path: &Path) -> Result<PathBuf, Problem> {
        let real = path.canonicalize().map_err(|error| problem(&error))?;
        match real.starts_with(&self.root) {
            true => Ok(real),
            false => Err((404, "there is no such file")),
        }
    }

    fn answer(&self, client: &mut Client, request: &Request) -> io::Result<()> {
        self.requests.fetch_add(1, Relaxed);
        match self.page(request) {
            Ok(Page::Json(text)) => {
                send(
                    client,
                    request,
                    200,
                    "application/json",
                    "",
                    text.as_bytes(),
                );
            }
            Ok(Page::Moved(to)) => {
                send(
                    client,
                    request,
                    301,
                    "text/plain",
                    &format!("Location: {to}\r\n"),
                    b"",
                );
            }
            Ok(Page::File { file, size, kind }) => {
                head(client.reply(), 200, kind, size, request.keep_alive, "");
                if request.method == "GET" {
                    return send_file(client, file, size);
                }
            }
            Err(problem) => refuse(client, request, problem),
        }
        Ok(())
    }
}

/// `%41` is `A`.
fn decode(path: &str) -> Result<Vec<u8>, Problem> {
    let mut bytes = path.bytes();
    let mut decoded = Vec::new();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err((400, "a % is followed by two digits")),
                }
            }
            byte => byte,
        });
    }
    Ok(decoded)
}

fn problem(error: &io::Error) -> Problem {
    match error.kind() {
        ErrorKind::PermissionDenied => (403, "this file is not for you"),
        ErrorKind::NotFound | ErrorKind::NotADirectory => (404, "there is no such file"),
        ErrorKind::InvalidFilename => (404, "there is no such file"),
        _ => {
            support::say(format!("a file: {error}"));
            (503, "not now") // out of descriptors, say
        }
    }
}

fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("svg") => "image/svg+xml",
        Some("txt" | "md" | "rs" | "toml") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Service Unavailable",
    }
}

fn head(out: &mut Vec<u8>, status: u16, kind: &str, size: u64, keep_alive: bool, more: &str) {
    let date = httpdate::HttpDate::from(SystemTime::now());
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let reason = reason(status);
    let _ = write!(
        out,
        "HTTP/1.1 {status} {reason}\r\nDate: {date}\r\nContent-Type: {kind}\r\n\
         Content-Length: {size}\r\nConnection: {connection}\r\n{more}\r\n"
    ); // a Vec takes everything
}

fn send(client: &mut Client, to: &Request, status: u16, kind: &str, more: &str, body: &[u8]) {
    let out = client.reply();
    head(out, status, kind, body.len() as u64, to.keep_alive, more);
    if to.method != "HEAD" {
        out.extend(body);
    }
}

fn refuse(client: &mut Client, to: &Request, (status, why): Problem) {
    let more = if status == 405 {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let text = format!("{status} {}: {why}\n", reason(status));
    send(
        client,
        to,
        status,
        "text/plain; charset=utf-8",
        more,
        text.as_bytes(),
    );
}

/// Exactly `size` bytes were promised. If the file has shrunk the connection must end.
fn send_file(client: &mut Client, mut file: File, size: u64) -> io::Result<()> {
    let mut left = size;
    while left > 0 {
        let read = (&mut file)
            .take(left.min(CHUNK))
            .read_to_end(client.reply())?;
        if read == 0 {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the file has shrunk",
            ));
        }
        left -= read as u64;
        client.keep_small()?;
    }
    Ok(())
}

fn serve(client: &mut Client, site: &Site) -> io::Result<()> {
    loop {
        let problem = match client.request(MAX_HEAD + MAX_BODY, parse) {
            Ok(None) => return Ok(()),
            Ok(Some(mut request)) => {
                request.keep_alive &= !client.server().is_stopping();
                site.answer(client, &request)?;
                match request.keep_alive {
                    true => continue,
                    false => return Ok(()),
                }
            }
            Err(Refusal::Bad(problem)) => problem,
            Err(Refusal::TooLarge) => (413, "too large"),
            Err(Refusal::TooSlow) => (408, "the request took too long to arrive"),
            Err(Refusal::CutShort) => (400, "the request ends early"),
            Err(Refusal::Failed(error)) => return Err(error),
        };
        // Where the next request would begin is not known.
        let unknown = Request {
            method: String::new(),
            path: String::new(),
            keep_alive: false,
        };
        refuse(client, &unknown, problem);
        return Ok(());
    }
}

pub(crate) fn run(args: impl Iterator<Item = String>) -> ExitCode {
    let own = &[("dir", "PATH", ".", "whose files to serve")];
    let args = Server::args(ABOUT, "127.0.0.1:8080", own, args);
    let dir: PathBuf = args.get("dir");
    let root = match dir.canonicalize() {
        Ok(root) if root.is_dir() => root,
        Ok(_) => support::wrong(format!("--dir '{}': not a directory", dir.display())),
        Err(error) => support::wrong(format!("--dir '{}': {error}", dir.display())),
    };
    let site = Site {
        root,
        requests: AtomicU64::new(0),
    };
    Server::bind(&args).run(move |client| serve(client, &site))
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
