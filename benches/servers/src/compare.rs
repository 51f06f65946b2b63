//! Rounds, and the table: a row for each cell and contender, a column for each metric.

use crate::Options;
use crate::contender::Contender;
use crate::part::{Best, Cell, Metric, Part};
use crate::tsv;

/// The measurements of one row, in which the metrics follow each other.
#[derive(Clone, Default)]
struct Row {
    rounds: Vec<Vec<f64>>,
    failed: bool,
}

/// Measures a part and prints its table, or lines for `benches/compare`.
pub fn compare(part: Part, contenders: &[Contender], options: &Options) {
    let metrics = part.metrics(options);
    let cells = part.cells(options);
    let mut rows = vec![vec![Row::default(); contenders.len()]; cells.len()];
    for round in 0..options.rounds {
        eprintln!("{}: round {} of {}", part.name(), round + 1, options.rounds);
        for (cell, rows) in cells.iter().zip(&mut rows) {
            cell.prepare(options).expect("nothing to measure with");
            for turn in 0..contenders.len() {
                let i = (round + turn) % contenders.len();
                if !cell.is_for(&contenders[i]) || rows[i].failed {
                    continue;
                }
                let measured = cell.measure(&contenders[i], options);
                if options.tsv {
                    tell(
                        cell,
                        metrics,
                        &contenders[i].name,
                        round,
                        measured.as_ref().ok(),
                    );
                }
                match measured {
                    Ok(figures) => rows[i].rounds.push(figures),
                    Err(error) => {
                        eprintln!("{}, {cell}: {error}", contenders[i].name);
                        rows[i].failed = true;
                    }
                }
            }
        }
    }
    cells.iter().for_each(Cell::clean_up);
    if options.tsv {
        return;
    }
    println!("\n{}", head(metrics));
    for (cell, rows) in cells.iter().zip(&rows) {
        let taking_part: Vec<_> = contenders
            .iter()
            .zip(rows)
            .filter(|(contender, _)| cell.is_for(contender))
            .collect();
        let bests: Vec<Option<f64>> = (0..metrics.len())
            .map(|metric| best_peer(&taking_part, metric, metrics[metric].best?))
            .collect();
        for (contender, row) in taking_part {
            let figures: String = match row.failed {
                true => " failed |".repeat(metrics.len()),
                false => (0..metrics.len())
                    .map(|metric| format!(" {} |", figure(row.median(metric), bests[metric])))
                    .collect(),
            };
            println!("| {cell} | {} |{figures}", contender.name);
        }
    }
}

/// Prints a measurement's lines: one for each metric of which there is a best. The first is the row's.
fn tell(
    cell: &Cell,
    metrics: &[Metric],
    contender: &str,
    round: usize,
    figures: Option<&Vec<f64>>,
) {
    for (i, metric) in metrics.iter().enumerate() {
        let better = match metric.best {
            Some(Best::Highest) => "higher",
            Some(Best::Lowest) => "lower",
            None => continue,
        };
        let row = match i {
            0 => cell.to_string(),
            _ => format!("{cell}: {}", metric.name),
        };
        let value = figures.map_or("failed".to_string(), |figures| figures[i].to_string());
        tsv::line(&row, (metric.unit, better), contender, round, value);
    }
}

impl Row {
    fn median(&self, metric: usize) -> f64 {
        let mut figures: Vec<f64> = self.rounds.iter().map(|round| round[metric]).collect();
        figures.sort_by(f64::total_cmp);
        let half = figures.len() / 2;
        match figures.len() % 2 {
            0 => (figures[half - 1] + figures[half]) / 2.0,
            _ => figures[half],
        }
    }
}

/// The best of the peers' figures.
fn best_peer(rows: &[(&Contender, &Row)], metric: usize, best: Best) -> Option<f64> {
    let peers = rows
        .iter()
        .filter(|(contender, row)| contender.is_peer() && !row.failed)
        .map(|(_, row)| row.median(metric));
    match best {
        Best::Highest => peers.reduce(f64::max),
        Best::Lowest => peers.reduce(f64::min),
    }
}

fn head(metrics: &[Metric]) -> String {
    let names: String = metrics
        .iter()
        .map(|metric| format!(" {metric} |"))
        .collect();
    let rule = "---:|".repeat(metrics.len());
    format!("| | |{names}\n|---|---|{rule}")
}

/// A figure with three digits or all before the point, and its share of the best peer's; a dash for
/// one that is not a number.
fn figure(figure: f64, best: Option<f64>) -> String {
    let digits = match figure {
        _ if figure.is_nan() => return "–".to_string(),
        _ if figure.fract() == 0.0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    match best {
        Some(best) => format!("{figure:.digits$} ({:.2})", figure / best),
        None => format!("{figure:.digits$}"),
    }
}
