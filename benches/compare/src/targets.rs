//! What is to be reached: shares of the best peer's figure.

use std::fmt;

use crate::results::{Better, Measured, Row};

/// A target for the rows of a suite with this name, in which one `*` stands for anything.
pub struct Target {
    pub suite: &'static str,
    pub rows: &'static str,
    pub ratio: f64,
}

const fn target(suite: &'static str, rows: &'static str, ratio: f64) -> Target {
    Target { suite, rows, ratio }
}

/// The first that fits counts. Whether it is a bound from above or from below, the row says.
pub const TARGETS: [Target; 19] = [
    target("peers", "spawn and join, 2 workers", 0.6),
    target("peers", "spawn*", 0.8),
    target("peers", "yield*", 0.7),
    target("peers", "channel*", 0.7),
    target("peers", "mutex*", 0.7),
    target("seeds", "CreateGoroutines*", 0.8),
    target("seeds", "spawn storm*", 0.8),
    target("seeds", "skynet*", 1.0),
    target("seeds", "Cycle*", 0.8),
    target("seeds", "Churn*", 0.8),
    target("seeds", "Transfer, 200 threads park*", 1.0),
    target("servers", "echo, 1 connection", 2.0),
    target("servers", "echo, 100 connections", 1.15),
    target("servers", "echo, 1000 connections", 1.15),
    target("servers", "echo, 10000 connections", 1.15),
    target("servers", "file reads by 128 threads, *", 1.0),
    target("latency", "*, p50", 1.1),
    target("latency", "*, p99", 1.1),
    target("latency", "*, p99.9", 1.1),
];

impl Target {
    pub fn fits(&self, suite: &str, row: &str) -> bool {
        let named = match self.rows.split_once('*') {
            Some((begin, end)) => row
                .strip_prefix(begin)
                .is_some_and(|rest| rest.ends_with(end)),
            None => row == self.rows,
        };
        self.suite == suite && named
    }
}

/// A row's target, as it is printed and judged.
#[derive(Clone, Copy)]
pub struct Bound {
    pub ratio: f64,
    better: Better,
}

impl Bound {
    pub fn of(measured: &Measured, row: &Row) -> Option<Bound> {
        let target = TARGETS
            .iter()
            .find(|target| target.fits(&measured.suite, &row.name))
            .filter(|_| row.is_main())?;
        Some(Bound {
            ratio: target.ratio,
            better: row.better,
        })
    }

    /// Whether a row has reached its target, if it has one and there are peers. Who fails has not.
    pub fn judge(self, row: &Row) -> Option<bool> {
        match row.series("greenthread")?.figures() {
            Some(_) => Some(self.is_reached_by(row.by_medians()?.ratio)),
            None => Some(false),
        }
    }

    /// Whether a share is as good, with the two digits that are printed.
    pub fn is_reached_by(self, ratio: f64) -> bool {
        let ratio = (ratio * 100.0).round() / 100.0;
        match self.better {
            Better::Lower => ratio <= self.ratio,
            Better::Higher => ratio >= self.ratio,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.better {
            Better::Lower => '≤',
            Better::Higher => '≥',
        };
        write!(f, "{sign} {}", self.ratio)
    }
}
