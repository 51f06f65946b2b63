//! The page: one file with all that it needs, which any browser opens without a network.
//!
//! `page.html` is its text. The data stand in place of [`MARK`], as an object of the page's language: the
//! names as they are, the items as columns of numbers in base64. Times have the unit in which the length
//! of the trace fits into 32 bits.

use std::collections::HashMap;
use std::io::{self, Write};

use super::text::{Quoted, base64};
use super::timeline::{Item, Timeline, What, Why};

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
        let mut texts = Texts::default();
        let what_for = self.items.iter().map(|item| texts.number(item));
        let what_for: Vec<u32> = what_for.collect();
        write!(
            out,
            "{{unit:{unit},length:{},lost:{},count:{},whys:[",
            self.length,
            self.lost,
            self.items.len()
        )?;
        Why::NAMES
            .iter()
            .try_for_each(|why| write!(out, "{},", Quoted(why)))?;
        write!(out, "],tracks:[")?;
        for track in &self.tracks {
            let (runtime, name) = (track.runtime, Quoted(&track.name));
            write!(out, "{{runtime:{runtime},name:{name}}},")?;
        }
        write!(out, "],texts:[")?;
        texts
            .all
            .iter()
            .try_for_each(|text| write!(out, "{},", Quoted(text)))?;
        write!(out, "],names:{{")?;
        let names = self.names.iter().filter(|(_, name)| !name.is_empty());
        for (number, name) in names {
            write!(out, "{number}:{},", Quoted(name))?;
        }
        write!(out, "}}")?;
        self.column(out, "start", |item| (item.start / unit) as u32)?;
        self.column(out, "end", |item| (item.end / unit) as u32)?;
        self.column(out, "thread", |item| item.thread)?;
        let mut what_for = what_for.into_iter();
        self.column(out, "other", |item| {
            let text = what_for.next().unwrap_or(0);
            if is_wait(item) {
                text
            } else {
                item.other as u32
            }
        })?;
        self.column(out, "kind", |item| item.track << 8 | code(item.what))?;
        write!(out, "}}")
    }

    /// A number of each item.
    fn column(
        &self,
        out: &mut dyn Write,
        name: &str,
        number: impl FnMut(&Item) -> u32,
    ) -> io::Result<()> {
        write!(out, ",{name}:\"")?;
        base64(
            out,
            self.items.iter().map(number).flat_map(u32::to_le_bytes),
        )?;
        write!(out, "\"")
    }
}

/// An item's kind, for the page. A run's is the reason why it ended.
fn code(what: What) -> u32 {
    match what {
        What::Ran(why) => why as u32,
        What::Woke => 16,
        What::Spawned => 17,
        What::Fired => 18,
        What::Arrived => 19,
        What::Stole => 20,
        What::Idle => 32,
        What::Waited => 33,
        What::Off => 34,
    }
}

fn is_wait(item: &Item) -> bool {
    matches!(item.what, What::Ran(Why::Waits | Why::WaitsUntil))
}

/// What threads wait for. The first text is empty.
struct Texts {
    all: Vec<String>,
    numbers: HashMap<u64, u32>,
}

impl Default for Texts {
    fn default() -> Texts {
        Texts {
            all: vec![String::new()],
            numbers: HashMap::from([(0, 0)]),
        }
    }
}

impl Texts {
    fn number(&mut self, item: &Item) -> u32 {
        if !is_wait(item) {
            return 0;
        }
        let all = &mut self.all;
        *self.numbers.entry(item.other).or_insert_with(|| {
            all.push(Timeline::what_for(item.other));
            all.len() as u32 - 1
        })
    }
}
