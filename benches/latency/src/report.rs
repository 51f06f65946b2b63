//! Percentiles, in a table for readers or in lines for programs.

use std::io::{self, Write};

/// The figures of a row whose samples are latencies: name and quantile.
pub const TAIL: [Figure; 4] = [
    (", p50", 0.5),
    (", p99", 0.99),
    (", p99.9", 0.999),
    (", max", 1.0),
];
/// The figure of other rows.
pub const MIDDLE: [Figure; 1] = [("", 0.5)];

type Figure = (&'static str, f64);

/// What a measurement found.
pub struct Measured {
    row: String,
    unit: &'static str,
    samples: Vec<f64>,
    figures: &'static [Figure],
}

impl Measured {
    /// From nanoseconds. `None`: there are no samples.
    pub fn times(row: String, nanos: &[u64], figures: &'static [Figure]) -> Option<Measured> {
        (!nanos.is_empty()).then(|| Measured {
            row,
            unit: "µs",
            samples: nanos.iter().map(|&nanos| nanos as f64 / 1e3).collect(),
            figures,
        })
    }

    /// From bytes.
    pub fn size(row: String, bytes: u64) -> Measured {
        Measured {
            row,
            unit: "KiB",
            samples: vec![bytes as f64 / 1024.0],
            figures: &MIDDLE,
        }
    }
}

/// The output of all rows.
pub struct Report {
    tsv: bool,
    names: Vec<&'static str>,
    /// Of the present row: what was measured, and by whom; all rounds together.
    row: Vec<(usize, Measured)>,
    failed: Vec<usize>,
}

impl Report {
    pub fn new(tsv: bool, names: &[&'static str]) -> Report {
        if !tsv {
            let columns = names.join(" | ");
            let rule = "---:|".repeat(names.len() + 1);
            println!("| | unit | {columns} | of the best peer |\n|---|---|{rule}");
        }
        Report {
            tsv,
            names: names.to_vec(),
            row: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Adds what a contender has measured in a round.
    pub fn add(&mut self, name: &str, round: u64, measured: Vec<Measured>) {
        let contender = self.index(name);
        for mut measured in measured {
            if self.tsv {
                measured.samples.sort_by(f64::total_cmp);
                for (figure, quantile) in measured.figures {
                    let value = at(&measured.samples, *quantile);
                    let (row, unit) = (&measured.row, measured.unit);
                    println!("{row}{figure}\t{unit}\tlower\t{name}\t{round}\t{value:.3}");
                }
                let _ = io::stdout().flush();
            } else {
                let same = |(who, other): &&mut (usize, Measured)| {
                    *who == contender && other.row == measured.row
                };
                match self.row.iter_mut().find(same) {
                    Some((_, all)) => all.samples.append(&mut measured.samples),
                    None => self.row.push((contender, measured)),
                }
            }
        }
    }

    /// A contender has failed in a round of the present row.
    pub fn fails(&mut self, name: &str, row: &str) {
        eprintln!("{name} fails: {row}");
        self.failed.push(self.index(name));
    }

    fn index(&self, name: &str) -> usize {
        let index = self.names.iter().position(|&each| each == name);
        index.expect("a contender without a column")
    }

    /// The rounds of the present row are over.
    pub fn finish_row(&mut self) {
        let (mut row, failed) = (
            std::mem::take(&mut self.row),
            std::mem::take(&mut self.failed),
        );
        row.retain(|(who, _)| !failed.contains(who));
        for (_, measured) in &mut row {
            measured.samples.sort_by(f64::total_cmp);
        }
        let mut titles: Vec<&str> = Vec::new();
        for (_, measured) in &row {
            if !titles.contains(&measured.row.as_str()) {
                titles.push(&measured.row);
            }
        }
        for title in titles {
            let of = |who: usize| {
                let mut all = row.iter().filter(|(_, measured)| measured.row == title);
                all.find(|(each, _)| *each == who)
                    .map(|(_, measured)| measured)
            };
            let Some(any) = (0..self.names.len()).find_map(of) else {
                continue;
            };
            for &(figure, quantile) in any.figures {
                let values: Vec<Option<f64>> = (0..self.names.len())
                    .map(|who| of(who).map(|measured| at(&measured.samples, quantile)))
                    .collect();
                let columns: String = (values.iter().enumerate())
                    .map(|(who, value)| match value {
                        Some(value) => format!(" {} |", short(*value)),
                        None if failed.contains(&who) => " failed |".to_string(),
                        None => " – |".to_string(),
                    })
                    .collect();
                let share = self.share(&values);
                println!("| {title}{figure} | {} |{columns} {share} |", any.unit);
            }
        }
    }

    /// The first contender's value as a share of the lowest of the others.
    fn share(&self, values: &[Option<f64>]) -> String {
        let best = (values.iter().zip(&self.names).skip(1))
            .filter_map(|(value, name)| Some(((*value)?, name)))
            .min_by(|(a, _), (b, _)| a.total_cmp(b));
        match (values[0], best) {
            (Some(ours), Some((best, name))) => format!("{:.2} of {name}", ours / best),
            _ => "–".to_string(),
        }
    }
}

/// The smallest sample that so large a part of all samples does not exceed.
fn at(sorted: &[f64], quantile: f64) -> f64 {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted[rank.max(1) - 1]
}

/// With three digits, or all before the point.
fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
