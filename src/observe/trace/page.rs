//! The page: one file with all that it needs, which any browser opens without a network.
//!
//! `page.html` is its text. The data stand in place of [`MARK`], as an object of the page's language: the
//! names as they are, the items as columns of numbers in base64. Times have the unit in which the length
//! of the trace fits into 32 bits.

use std::collections::HashMap;
use std::io::{self, Write};

use super::record::{Kind, STOPS, text_of};
use super::timeline::{Item, Timeline};
use crate::observe::json::{Object, Quoted, list};

const PAGE: &str = include_str!("page.html");
/// Where the data stand.
const MARK: &str = "/*DATA*/null";

impl Timeline {
    pub(super) fn write_html(&self, out: &mut dyn Write) -> io::Result<()> {
        let (before, after) = PAGE.split_once(MARK).unwrap_or((PAGE, ""));
        out.write_all(before.as_bytes())?;
        self.data(out)?;
        out.write_all(after.as_bytes())
    }

    fn data(&self, out: &mut dyn Write) -> io::Result<()> {
        let unit = self.length / u64::from(u32::MAX) + 1;
        // What threads wait for. The first text is empty.
        let (mut texts, mut numbers) = (vec![""], HashMap::from([(0, 0)]));
        for wait in self.items.iter().filter(|item| is_wait(item)) {
            numbers.entry(wait.other).or_insert_with(|| {
                texts.push(text_of(wait.other));
                texts.len() as u32 - 1
            });
        }
        let tracks = self.tracks.iter().map(|track| {
            let told = Object::default().with("runtime", track.runtime);
            told.with("name", Quoted(self.name_of(track)))
        });
        let mut names = Object::default();
        for (number, name) in self.names.iter().filter(|(_, name)| !name.is_empty()) {
            names = names.with(&number.to_string(), Quoted(name));
        }
        let head = Object::default()
            .with("unit", unit)
            .with("length", self.length)
            .with("lost", self.lost)
            .with("count", self.items.len())
            .with("whys", list(STOPS.iter().map(Quoted)))
            .with("tracks", list(tracks))
            .with("texts", list(texts.iter().map(Quoted)))
            .with("names", names);
        write!(out, "{{...{head}")?;
        self.column(out, "start", |item| (item.start / unit) as u32)?;
        self.column(out, "end", |item| (item.end / unit) as u32)?;
        self.column(out, "thread", |item| item.thread)?;
        self.column(out, "other", |item| match is_wait(item) {
            true => numbers[&item.other],
            false => item.other as u32,
        })?;
        self.column(out, "kind", |item| item.track << 8 | code(item.kind))?;
        write!(out, "}}")
    }

    /// A number of each item.
    fn column(
        &self,
        out: &mut dyn Write,
        name: &str,
        number: impl Fn(&Item) -> u32,
    ) -> io::Result<()> {
        let bytes: Vec<u8> = self
            .items
            .iter()
            .map(number)
            .flat_map(u32::to_le_bytes)
            .collect();
        write!(out, ",{name}:\"")?;
        base64(out, &bytes)?;
        write!(out, "\"")
    }
}

/// An item's kind, for the page. A run's is the reason why it ended.
fn code(kind: Kind) -> u32 {
    let groups = [(Kind::Idle, 32), (Kind::Woke, 16), (Kind::Yielded, 0)];
    let group = groups.into_iter().find(|&(first, _)| kind >= first);
    group.map_or(0, |(first, code)| code + kind as u32 - first as u32)
}

fn is_wait(item: &Item) -> bool {
    matches!(item.kind, Kind::Parked | Kind::ParkedUntil)
}

/// Writes bytes as base64.
fn base64(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for some in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=some.len()].copy_from_slice(some);
        let group = u32::from_be_bytes(group);
        let mut letters = [b'='; 4];
        for (at, letter) in letters.iter_mut().enumerate().take(some.len() + 1) {
            *letter = LETTERS[(group >> (18 - 6 * at)) as usize & 63];
        }
        out.write_all(&letters)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            base64(&mut out, bytes.as_bytes()).unwrap();
            assert_eq!(out, text.as_bytes());
        }
    }
}
