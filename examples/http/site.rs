//! The site: the files of a directory, and a JSON route.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use greenthread::fs::{self, File, Metadata};

use super::request::{Problem, Request};
use super::support::say;

pub(crate) struct Site {
    root: PathBuf,
    pub(crate) requests: AtomicU64,
}

/// The answer to a request.
pub(crate) enum Page {
    Json(String),
    File {
        file: File,
        size: u64,
        kind: &'static str,
    },
    Moved(String),
}

impl Site {
    pub(crate) fn new(directory: &Path) -> io::Result<Site> {
        let root = directory.canonicalize()?;
        match root.is_dir() {
            true => Ok(Site {
                root,
                requests: AtomicU64::new(0),
            }),
            false => Err(ErrorKind::NotADirectory.into()),
        }
    }

    pub(crate) fn page(&self, request: &Request) -> Result<Page, Problem> {
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
        let (mut wanted, mut known) = self.inside(&wanted)?;
        if known.is_dir() {
            if !path.ends_with('/') {
                return Ok(Page::Moved(format!("/{}/", path.trim_matches('/'))));
            }
            (wanted, known) = self.inside(&wanted.join("index.html"))?;
        }
        if !known.is_file() {
            return Err((404, "there is no such file")); // opening a pipe would wait for its writer
        }
        let file = File::open(&wanted).map_err(|error| problem(&error))?;
        let size = file.metadata().map_err(|error| problem(&error))?.len();
        let kind = kind(&wanted);
        Ok(Page::File { file, size, kind })
    }

    /// Where that really is, if it is inside the directory, and what.
    fn inside(&self, path: &Path) -> Result<(PathBuf, Metadata), Problem> {
        let real = fs::canonicalize(path).map_err(|error| problem(&error))?;
        if !real.starts_with(&self.root) {
            return Err((404, "there is no such file"));
        }
        let known = fs::metadata(&real).map_err(|error| problem(&error))?;
        Ok((real, known))
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
            say(format!("a file: {error}"));
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
