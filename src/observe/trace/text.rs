//! Text within JSON, times as text, and base64.

use std::fmt;
use std::io::{self, Write};

/// A string within JSON, with its quotation marks. What HTML would take for the end of a script, or for a
/// comment, is escaped too.
pub(crate) struct Quoted<T>(pub(crate) T);

impl<T: AsRef<str>> fmt::Display for Quoted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.as_ref().chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1F' | '\x7F' => {
                    write!(f, "\\u{:04x}", c as u32)?;
                }
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// Nanoseconds as microseconds.
pub(super) struct Micros(pub(super) u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Writes bytes as base64.
pub(super) fn base64(out: &mut dyn Write, bytes: impl Iterator<Item = u8>) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |group: u32, at: u32| LETTERS[(group >> (18 - 6 * at)) as usize & 63];
    let mut bytes = bytes.fuse();
    while let Some(first) = bytes.next() {
        let (second, third) = (bytes.next(), bytes.next());
        let byte = |byte: Option<u8>| u32::from(byte.unwrap_or(0));
        let group = u32::from(first) << 16 | byte(second) << 8 | byte(third);
        let or_end = |is_there: bool, at| if is_there { letter(group, at) } else { b'=' };
        out.write_all(&[
            letter(group, 0),
            letter(group, 1),
            or_end(second.is_some(), 2),
            or_end(third.is_some(), 3),
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_would_end_a_string_or_a_script() {
        let text = Quoted("a\"b\\c</script>\n\u{7}é").to_string();
        assert_eq!(text, r#""a\"b\\c\u003c/script\u003e\u000a\u0007é""#);
    }

    #[test]
    fn encodes_as_others_do() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            base64(&mut out, bytes.bytes()).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }

    #[test]
    fn writes_micros() {
        assert_eq!(Micros(1_234_005).to_string(), "1234.005");
    }
}
