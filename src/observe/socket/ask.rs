//! A request: one line of JSON, an object of numbers and strings. Anything else is refused, with the reason.

/// The version of requests and answers.
pub(super) const VERSION: u64 = 1;
/// The longest request, in bytes.
pub(super) const LONGEST: usize = 4096;
/// So many threads of each kind are shown, and at most so many.
const SHOWN: u64 = 20;
const MOST_SHOWN: u64 = 500;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Summary { show: usize },
    Thread { id: u64 },
    Dump,
    Deadlocks,
}

/// A value in a request.
#[derive(PartialEq, Eq, Debug)]
enum Value {
    Number(u64),
    Text(String),
}

/// What is asked for in this line.
pub(super) fn parse(line: &[u8]) -> Result<Ask, String> {
    let text = core::str::from_utf8(line).map_err(|_| "the request is not UTF-8")?;
    let (mut version, mut ask, mut id, mut show) = (None, None, None, SHOWN);
    for (name, value) in members(text)? {
        match (name.as_str(), value) {
            ("version", Value::Number(number)) => version = Some(number),
            ("ask", Value::Text(text)) => ask = Some(text),
            ("id", Value::Number(number)) => id = Some(number),
            ("show", Value::Number(number)) => show = number.min(MOST_SHOWN),
            (name, _) => return Err(format!("member {name:?} is not known, or has another type")),
        }
    }
    match version {
        Some(VERSION) => {}
        Some(other) => return Err(format!("version {other}: accepted is {VERSION}")),
        None => return Err(format!("the version is missing: accepted is {VERSION}")),
    }
    match (ask.as_deref(), id) {
        (Some("summary"), _) => Ok(Ask::Summary {
            show: show as usize,
        }),
        (Some("thread"), Some(id)) => Ok(Ask::Thread { id }),
        (Some("thread"), None) => Err("the thread's id is missing".into()),
        (Some("dump"), _) => Ok(Ask::Dump),
        (Some("deadlocks"), _) => Ok(Ask::Deadlocks),
        (other, _) => Err(format!(
            "ask {:?}: accepted is summary, thread, dump or deadlocks",
            other.unwrap_or("")
        )),
    }
}

/// Reads `{"name":value, ...}`.
fn members(text: &str) -> Result<Vec<(String, Value)>, String> {
    let mut rest = Rest(text.trim());
    let mut members = Vec::new();
    rest.expect('{')?;
    if rest.accept('}') {
        return rest.end(members);
    }
    loop {
        let name = rest.string()?;
        rest.expect(':')?;
        let value = match rest.0.starts_with('"') {
            true => Value::Text(rest.string()?),
            false => Value::Number(rest.number()?),
        };
        members.push((name, value));
        if rest.accept('}') {
            return rest.end(members);
        }
        rest.expect(',')?;
    }
}

/// What is left of a line.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// Takes `sign` and the blanks behind it, if it is next.
    fn accept(&mut self, sign: char) -> bool {
        let after = self.0.strip_prefix(sign);
        self.0 = after.unwrap_or(self.0).trim_start();
        after.is_some()
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        match self.accept(sign) {
            true => Ok(()),
            false => Err(format!(
                "no JSON object of numbers and strings: {sign:?} is missing"
            )),
        }
    }

    /// Takes a string without escapes: none of ours needs one.
    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        match self.0.split_once('"') {
            Some((inside, after)) if !inside.contains('\\') => {
                let inside = inside.into();
                self.0 = after.trim_start();
                Ok(inside)
            }
            _ => Err("a string has no end, or an escape".into()),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        let digits = self
            .0
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(self.0.len());
        let (number, after) = self.0.split_at(digits);
        let number = number
            .parse()
            .map_err(|_| "a value is no whole number and no string")?;
        self.0 = after.trim_start();
        Ok(number)
    }

    fn end<T>(&self, found: T) -> Result<T, String> {
        match self.0 {
            "" => Ok(found),
            _ => Err("there is something behind the object".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let read = |text: &str| parse(text.as_bytes());
        let summary = Ok(Ask::Summary { show: 20 });
        assert_eq!(read(r#"{"version":1,"ask":"summary"}"#), summary);
        assert_eq!(
            read(" { \"ask\" : \"summary\" , \"version\" : 1 } \r"),
            summary
        );
        let all = read(r#"{"version":1,"ask":"summary","show":100000}"#);
        assert_eq!(all, Ok(Ask::Summary { show: 500 }));
        let thread = read(r#"{"version":1,"ask":"thread","id":7}"#);
        assert_eq!(thread, Ok(Ask::Thread { id: 7 }));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "{",
            "{}",
            "[]",
            "null",
            "{\"",
            "{\"ask\"",
            "{\"ask\":}",
            "{\"ask\":\"",
            "\0\0\0",
            r#"{"version":1}"#,
            r#"{"version":2,"ask":"summary"}"#,
            r#"{"version":-1,"ask":"summary"}"#,
            r#"{"version":99999999999999999999,"ask":"summary"}"#,
            r#"{"version":1,"ask":"thread"}"#,
            r#"{"version":1,"ask":"everything"}"#,
            r#"{"version":1,"ask":"summary",}"#,
            r#"{"version":1,"ask":"summary"}}"#,
            r#"{"version":1,"ask":"summ\"ary"}"#,
            r#"{"version":1,"ask":"summary","size":1}"#,
            r#"{"version":1,"ask":7}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\xff{}").is_err());
    }
}
