//! JSON: its strings, objects and lists.

use core::fmt::{self, Arguments, Display, Write as _};

/// A string, with its quotation marks. What HTML would take for the end of a script, or for a
/// comment, is escaped too.
pub(super) struct Quoted<'a>(pub(super) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\x1F' | '\x7F' => {
                    write!(f, "\\u{:04x}", c as u32)?;
                }
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// An object. The names of its members need no escapes.
#[derive(Default)]
pub(super) struct Object(String);

impl Object {
    pub(super) fn with(mut self, name: &str, value: impl Display) -> Object {
        add(&mut self.0, format_args!("\"{name}\":{value}"));
        self
    }

    /// The same if there is a value.
    pub(super) fn maybe(self, name: &str, value: Option<impl Display>) -> Object {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.0)
    }
}

pub(super) fn list(items: impl Iterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for item in items {
        add(&mut text, format_args!("{item}"));
    }
    format!("[{text}]")
}

/// Adds a member or an item. Not generic: an answer has some twenty members of different types.
#[inline(never)]
fn add(text: &mut String, more: Arguments<'_>) {
    let comma = if text.is_empty() { "" } else { "," };
    // A String accepts everything.
    let _ = write!(text, "{comma}{more}");
}

#[cfg(test)]
mod tests {
    use super::Quoted;

    #[test]
    fn quotes_what_would_end_a_string_or_a_script() {
        let text = Quoted("a\"b\\c</script>\n\u{7}é").to_string();
        assert_eq!(text, r#""a\"b\\c\u003c/script\u003e\u000a\u0007é""#);
    }
}
