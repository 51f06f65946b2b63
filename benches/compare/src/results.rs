//! What the suites have measured, and the file that keeps it.
//!
//! A suite prints a line a measurement: row, unit, which is better, contender, round, value. The file
//! has a line for each contender in each row, with all rounds: suite, row, unit, which is better,
//! contender, values; and before a suite's rows a line of two fields: suite, and under which conditions it
//! was run. In both files fields are separated by tabs, and in place of the values of a contender that
//! failed stands one word that says how.

use std::fmt;

/// Of all suites that have ever run, the last run.
#[derive(Default)]
pub struct Results {
    pub suites: Vec<Measured>,
}

/// A run of a suite.
#[derive(Debug, PartialEq)]
pub struct Measured {
    pub suite: String,
    pub conditions: String,
    pub rows: Vec<Row>,
}

/// The same work, done by several.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub unit: String,
    pub better: Better,
    pub series: Vec<Series>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Better {
    Lower,
    Higher,
}

/// A contender's rounds, in order, or how it failed.
#[derive(Debug, PartialEq)]
pub struct Series {
    pub contender: String,
    pub rounds: Result<Vec<f64>, String>,
}

impl Series {
    pub fn figures(&self) -> Option<&[f64]> {
        self.rounds.as_deref().ok()
    }
}

impl Row {
    /// The row that it stands in, in a table, and what it is called there if it is not alone: names end in
    /// `: FIGURE` or in a percentile.
    pub fn parts(&self) -> (&str, Option<&str>) {
        let percentile = |(_, last): &(&str, &str)| {
            let number = last.strip_prefix('p').map(str::parse::<f64>);
            *last == "max" || number.is_some_and(|number| number.is_ok())
        };
        let colon = self.name.split_once(": ");
        match colon.or_else(|| self.name.rsplit_once(", ").filter(percentile)) {
            Some((row, figure)) => (row, Some(figure)),
            None => (&self.name, None),
        }
    }

    /// Whether it is what the work is measured for. What is behind a colon comes along.
    pub fn is_main(&self) -> bool {
        !self.name.contains(": ") && !self.name.ends_with(", max")
    }

    pub fn series(&self, contender: &str) -> Option<&Series> {
        self.series
            .iter()
            .find(|series| series.contender == contender)
    }
}

impl Better {
    fn word(self) -> &'static str {
        match self {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }

    fn parse(word: &str) -> Option<Better> {
        [Better::Lower, Better::Higher]
            .into_iter()
            .find(|better| better.word() == word)
    }
}

impl Measured {
    pub fn new(suite: &str, conditions: &str) -> Measured {
        Measured {
            suite: suite.to_string(),
            conditions: conditions.to_string(),
            rows: Vec::new(),
        }
    }

    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Takes in a line that a suite has printed.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, unit, better, contender, _round, value] = fields[..] else {
            return Err(format!("not a measurement: {line}"));
        };
        let rounds = values(value)?;
        self.extend([name, unit, better, contender], rounds)
            .ok_or_else(|| format!("lower or higher? {line}"))
    }

    /// Adds rounds to a contender's, or that it has failed.
    fn extend(
        &mut self,
        [name, unit, better, contender]: [&str; 4],
        more: Result<Vec<f64>, String>,
    ) -> Option<()> {
        let known = self.rows.iter().position(|row| row.name == name);
        if known.is_none() {
            self.rows.push(Row {
                name: name.to_string(),
                unit: unit.to_string(),
                better: Better::parse(better)?,
                series: Vec::new(),
            });
        }
        let last = self.rows.len() - 1;
        let row = &mut self.rows[known.unwrap_or(last)];
        let old = row.series.iter_mut().find(|old| old.contender == contender);
        match (old, more) {
            (None, rounds) => row.series.push(Series {
                contender: contender.to_string(),
                rounds,
            }),
            (Some(old), Err(how)) => old.rounds = Err(how),
            (Some(old), Ok(more)) => {
                if let Ok(rounds) = &mut old.rounds {
                    rounds.extend(more);
                }
            }
        }
        Some(())
    }
}

/// Numbers between spaces, or a word that says how it failed.
fn values(field: &str) -> Result<Result<Vec<f64>, String>, String> {
    if ["failed", "hangs"].contains(&field) {
        return Ok(Err(field.to_string()));
    }
    let values = field.split(' ').map(|value| match value.parse() {
        Ok(value) if f64::is_finite(value) => Ok(value),
        _ => Err(format!("not a figure: {value}")),
    });
    values.collect::<Result<_, _>>().map(Ok)
}

impl Results {
    /// In place of the suite's last results, if there are any.
    pub fn put(&mut self, measured: Measured) {
        match self
            .suites
            .iter_mut()
            .find(|old| old.suite == measured.suite)
        {
            Some(old) => *old = measured,
            None => self.suites.push(measured),
        }
    }

    pub fn suite(&self, name: &str) -> Option<&Measured> {
        self.suites.iter().find(|measured| measured.suite == name)
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Result<Results, String> {
        let mut results = Results::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                [suite, conditions] => results.suites.push(Measured::new(suite, conditions)),
                [suite, name, unit, better, contender, figures] => {
                    let measured = results.suites.last_mut();
                    measured
                        .filter(|measured| measured.suite == suite)
                        .and_then(|measured| {
                            measured.extend([name, unit, better, contender], values(figures).ok()?)
                        })
                        .ok_or_else(|| format!("not a line of results: {line}"))?;
                }
                _ => return Err(format!("not a line of results: {line}")),
            }
        }
        Ok(results)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for measured in &self.suites {
            let suite = &measured.suite;
            writeln!(f, "{suite}\t{}", measured.conditions)?;
            for row in &measured.rows {
                for series in &row.series {
                    let rounds = match &series.rounds {
                        Ok(rounds) => rounds.iter().map(four_digits).collect::<Vec<_>>().join(" "),
                        Err(how) => how.clone(),
                    };
                    let Row {
                        name, unit, better, ..
                    } = row;
                    let better = better.word();
                    writeln!(
                        f,
                        "{suite}\t{name}\t{unit}\t{better}\t{}\t{rounds}",
                        series.contender
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// More would be noise.
fn four_digits(figure: &f64) -> String {
    let before_the_point = figure.abs().log10().floor().max(-9.0) as i32 + 1;
    format!("{figure:.*}", (4 - before_the_point).clamp(0, 6) as usize)
}
