//! The markdown table: one row per work and number of workers; first contender against the rest.

/// The measurements of one row: for each contender its rounds, or `None` once one has failed. Who
/// takes no part has no rounds.
#[derive(Clone)]
pub struct Row(Vec<Option<Vec<f64>>>);

impl Row {
    /// A row of so many contenders.
    pub fn new(contenders: usize) -> Row {
        Row(vec![Some(Vec::new()); contenders])
    }

    /// Whether a contender has failed in a round.
    pub fn has_failed(&self, contender: usize) -> bool {
        self.0[contender].is_none()
    }

    /// Adds a round of a contender.
    pub fn add(&mut self, contender: usize, ns: Option<f64>) {
        match (&mut self.0[contender], ns) {
            (Some(rounds), Some(ns)) => rounds.push(ns),
            (rounds, None) => *rounds = None,
            (None, _) => {}
        }
    }

    /// The row as a line: medians and bests, and the first contender's share of its best peer's.
    pub fn show(mut self, names: &[&str], work: &str, workers: usize) -> String {
        let mut line = format!("| {work} | {workers} |");
        for rounds in &mut self.0 {
            line += &match rounds {
                Some(rounds) if rounds.is_empty() => " – |".to_string(),
                Some(rounds) => {
                    rounds.sort_by(f64::total_cmp);
                    format!(" {:.1} ({:.1}) |", median(rounds), rounds[0])
                }
                None => " failed |".to_string(),
            };
        }
        line + &self.ratio(names, median) + &self.ratio(names, |rounds| rounds[0])
    }

    /// The first contender's `figure` as a share of the lowest of its peers'.
    fn ratio(&self, names: &[&str], figure: impl Fn(&[f64]) -> f64) -> String {
        let mut figures = self.0.iter().map(|rounds| {
            let rounds = rounds.as_deref().filter(|rounds| !rounds.is_empty());
            rounds.map(&figure)
        });
        let ours = figures.next().flatten();
        let best = figures
            .zip(&names[1..])
            .filter_map(|(theirs, name)| Some((theirs?, name)))
            .min_by(|(a, _), (b, _)| a.total_cmp(b));
        match (ours, best) {
            (Some(ours), Some((theirs, name))) => format!(" {:.2} of {name} |", ours / theirs),
            _ => " – |".to_string(),
        }
    }
}

/// The first two lines of the table.
pub fn head(names: &[&str]) -> String {
    let columns = names.join(" | ");
    let rule = "---:|".repeat(names.len());
    format!("| work | workers | {columns} | by medians | by bests |\n|---|---:|{rule}---:|---:|")
}

fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[half - 1] + sorted[half]) / 2.0,
        _ => sorted[half],
    }
}
