//! Finds a request at the start of some bytes. `httparse` knows HTTP's grammar. This file finds the
//! end of a request by its fields, and refuses the requests that the server does not support.

const MAX_HEAD: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
const MAX_BODY: usize = 64 << 10;
/// Head and body.
pub(crate) const MAX: usize = MAX_HEAD + MAX_BODY;

/// An answer that is not the page: its status and a text.
pub(crate) type Problem = (u16, &'static str);

pub(crate) struct Request {
    pub(crate) method: String,
    /// As it was sent, without the query.
    pub(crate) path: String,
    pub(crate) keep_alive: bool,
}

/// The request at the start of `bytes`, and its length; `None` if some of it is missing.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Problem> {
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
