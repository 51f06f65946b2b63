//! `docs/scaling.md`: the programs write their tables into it, each between two marks.

use std::path::PathBuf;

/// A file in the folder `docs`.
#[must_use]
pub fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(file)
}

/// Writes `table` into `docs/scaling.md`, between `<!-- name -->` and `<!-- end -->`.
///
/// # Panics
/// If there are no such marks.
pub fn put(name: &str, table: &str) {
    let path = path("scaling.md");
    let text = std::fs::read_to_string(&path).expect("docs/scaling.md cannot be read");
    let begin = format!("<!-- {name} -->\n");
    let (before, rest) = text.split_once(&begin).expect(&begin);
    let (_, after) = rest
        .split_once("<!-- end -->")
        .expect("a table without an end");
    let text = format!(
        "{before}{begin}\n{}\n\n<!-- end -->{after}",
        table.trim_end()
    );
    std::fs::write(path, text).expect("docs/scaling.md cannot be written");
}

/// Three digits.
#[must_use]
pub fn round(figure: f64) -> String {
    match figure {
        10_000_000.0.. => format!("{:.0}M", figure / 1_000_000.0),
        1_000_000.0.. => format!("{:.1}M", figure / 1_000_000.0),
        10_000.0.. => format!("{:.0}k", figure / 1_000.0),
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        0.0 => "0".into(),
        _ => format!("{figure:.2}"),
    }
}

/// A table in Markdown: the first column's title, those of the others, and the rows.
#[derive(Default)]
pub struct Table(String);

impl Table {
    #[must_use]
    pub fn new(first: &str, titles: impl IntoIterator<Item = String>) -> Table {
        let mut table = Table(String::new());
        let titles: Vec<_> = titles.into_iter().collect();
        let count = titles.len();
        table.row(first, titles);
        table.0 += &format!("|---|{}\n", "---:|".repeat(count));
        table
    }

    pub fn row(&mut self, first: &str, figures: impl IntoIterator<Item = String>) {
        self.0 += &format!("| {first} |");
        figures
            .into_iter()
            .for_each(|figure| self.0 += &format!(" {figure} |"));
        self.0.push('\n');
    }

    /// Writes it into `docs/scaling.md`, and prints it.
    pub fn put(&self, name: &str) {
        eprintln!("\r{name:60}");
        println!("{}", self.0);
        put(name, &self.0);
    }
}
