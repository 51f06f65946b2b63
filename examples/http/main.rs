//! A web server: HTTP/1.1 with keep-alive and pipelining; the files of a directory, and a JSON route.
//!
//! Requests are parsed by `httparse`. A file is served if it lies in the directory after symbolic
//! links were followed. Bodies of requests are skipped if they are small, and refused otherwise.
//!
//! ```sh
//! cargo run --release --example http -- --listen 127.0.0.1:8080 --dir .
//! curl http://127.0.0.1:8080/json http://127.0.0.1:8080/Cargo.toml
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use greenthread::fs::File;

mod request;
mod site;
#[path = "../support/mod.rs"]
mod support;

use request::{Problem, Request, parse};
use site::{Page, Site};
use support::{Client, Refusal, Server};

const ABOUT: &str = "http: serves the files of a directory, and /json.";
/// The number of bytes of a file that are read at once.
const CHUNK: u64 = 32 << 10;

fn answer(site: &Site, client: &mut Client, request: &Request) -> io::Result<()> {
    site.requests.fetch_add(1, Relaxed);
    match site.page(request) {
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
        let problem = match client.request(request::MAX, parse) {
            Ok(None) => return Ok(()),
            Ok(Some(mut request)) => {
                request.keep_alive &= !client.server().stopping().is_cancelled();
                answer(site, client, &request)?;
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
        // The start of the next request is not known.
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
    let site = Site::new(&dir)
        .unwrap_or_else(|error| support::wrong(format!("--dir '{}': {error}", dir.display())));
    Server::bind(&args).run(move |client| serve(client, &site))
}

pub(crate) fn main() -> ExitCode {
    run(std::env::args())
}
