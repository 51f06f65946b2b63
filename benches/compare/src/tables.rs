//! Markdown: a table of each suite; the rows that miss their target; README's comparison.

use std::fmt::Write;

use crate::figures::Share;
use crate::results::{Measured, Results, Row, Series};
use crate::targets::Bound;

/// Rows of README's comparison: what they are called there, and where they come from.
const README: [(&str, &str, &str); 11] = [
    ("spawn and join", "peers", "spawn and join, 2 workers"),
    (
        "each of 1000 spawned together",
        "peers",
        "spawn 1000, join all, 2 workers",
    ),
    ("yield among 1000", "peers", "yield among 1000, 2 workers"),
    (
        "message there and back",
        "peers",
        "channel ping-pong, capacity 1, 2 workers",
    ),
    (
        "message from 4 senders to 4 receivers",
        "peers",
        "channel 4 to 4, capacity 100, 2 workers",
    ),
    (
        "lock and unlock among 100",
        "peers",
        "mutex among 100, 2 workers",
    ),
    (
        "each of a million in skynet",
        "seeds",
        "skynet, 1000000 leaves, 2 workers",
    ),
    (
        "echo on 100 connections",
        "servers",
        "echo, 100 connections",
    ),
    (
        "echo on 10,000 connections",
        "servers",
        "echo, 10000 connections",
    ),
    (
        "echo beside 100 threads that only yield",
        "servers",
        "echo, 20 connections, 100 yielding hogs",
    ),
    (
        "memory of an idle connection",
        "servers",
        "echo, each of 10000 idle connections",
    ),
];

/// Where there is nothing.
const NONE: &str = "–";

/// Those compared in README, by their names in the results.
const IN_README: [&str; 5] = ["std", "tokio", "may", "Go", "greenthread"];

/// The conditions, and a line for each row, with all of its figures ([`Row::parts`]).
pub fn suite(measured: &Measured) -> String {
    let contenders = contenders(measured);
    let heads: String = contenders
        .iter()
        .map(|name| format!(" {} |", name.trim_start_matches("greenthread, ")))
        .collect();
    let rule = "---:|".repeat(contenders.len());
    let mut table = format!(
        "{}.\n\n| | |{heads} by medians | by bests | target |\n|---|---|{rule}---|---|---|\n",
        measured.conditions
    );
    for figures in measured.rows.chunk_by(|a, b| a.parts().0 == b.parts().0) {
        let joined = |cell: &dyn Fn(&Row) -> String| {
            let cells: Vec<String> = figures.iter().map(cell).collect();
            match cells.iter().all(|cell| cell == NONE) {
                true => NONE.to_string(),
                false => cells.join(" · "),
            }
        };
        let units = joined(&|row| match row.parts().1 {
            Some(figure) => format!("{figure}, {}", row.unit),
            None => row.unit.clone(),
        });
        let _ = write!(table, "| {} | {units} |", figures[0].parts().0);
        for contender in &contenders {
            let figures = joined(&|row| row.series(contender).map_or(NONE.to_string(), cell));
            let _ = write!(table, " {figures} |");
        }
        let medians = joined(&|row| share(row.by_medians()));
        let bests = joined(&|row| share(row.by_bests()));
        let verdict = verdict(measured, figures);
        let _ = writeln!(table, " {medians} | {bests} | {verdict} |");
    }
    table
}

/// How many rows reach their target, and those that do not.
pub fn targets(results: &Results) -> String {
    let (mut all, mut missed) = (0, 0);
    let mut list = String::new();
    for measured in &results.suites {
        let judged = measured.rows.iter().filter_map(|row| {
            let bound = Bound::of(measured, row)?;
            Some((row, bound, bound.judge(row)?))
        });
        let (reaches, misses): (Vec<_>, Vec<_>) = judged.partition(|&(.., reached)| reached);
        all += reaches.len() + misses.len();
        let misses: Vec<String> = misses
            .iter()
            .map(|(row, bound, _)| {
                format!("{} ({}, target {bound})", row.name, share(row.by_medians()))
            })
            .collect();
        missed += misses.len();
        if !misses.is_empty() {
            let _ = writeln!(list, "- `{}`: {}.", measured.suite, misses.join("; "));
        }
    }
    let reached = all - missed;
    format!("Of {all} figures with a target, {reached} reach it and {missed} miss it:\n\n{list}")
}

/// A few rows of several suites; the best figure of each is bold.
pub fn readme(results: &Results) -> String {
    let heads: String = IN_README
        .iter()
        .map(|&name| format!(" {} |", if name == "std" { "std threads" } else { name }))
        .collect();
    let mut table = format!("| |{heads}\n|---|{}\n", "---:|".repeat(IN_README.len()));
    for (name, suite, row) in README {
        let Some(row) = results.suite(suite).and_then(|measured| measured.row(row)) else {
            continue;
        };
        let medians = IN_README.map(|name| row.series(name).and_then(Series::median));
        let best = row.better.best(medians.into_iter().flatten());
        let cells: String = IN_README
            .iter()
            .zip(medians)
            .map(|(name, median)| {
                let cell = row.series(name).map_or(NONE.to_string(), cell);
                match median.is_some() && median == best {
                    true => format!(" **{cell}** |"),
                    false => format!(" {cell} |"),
                }
            })
            .collect();
        let _ = writeln!(table, "| {name}, {} |{cells}", row.unit);
    }
    table
}

/// In the order of their first appearance, ours first.
fn contenders(measured: &Measured) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &measured.rows {
        for series in &row.series {
            if !names.contains(&&*series.contender) {
                names.push(&series.contender);
            }
        }
    }
    names.sort_by_key(|name| !name.starts_with("greenthread"));
    names
}

/// The median, or how it failed.
fn cell(series: &Series) -> String {
    match (&series.rounds, series.median()) {
        (Err(how), _) => how.clone(),
        (_, Some(median)) => digits(median),
        _ => NONE.to_string(),
    }
}

fn share(share: Option<Share>) -> String {
    match share {
        Some(Share { of, ratio }) => format!("{ratio:.2} of {of}"),
        None => NONE.to_string(),
    }
}

/// Whether all of these figures reach their targets.
fn verdict(measured: &Measured, figures: &[Row]) -> String {
    let judged = figures.iter().filter_map(|row| {
        let bound = Bound::of(measured, row)?;
        Some((bound, bound.judge(row)?))
    });
    let judged: Vec<_> = judged.collect();
    match judged.first() {
        None => NONE.to_string(),
        Some((bound, _)) if judged.iter().all(|&(_, reached)| reached) => {
            format!("{bound}: reached")
        }
        Some((bound, _)) => format!("{bound}: **missed**"),
    }
}

/// Three digits, or all before the point.
fn digits(figure: f64) -> String {
    match figure {
        99.95.. => format!("{figure:.0}"),
        9.995.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}
