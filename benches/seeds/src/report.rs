//! What a measurement finds, and how one process tells another.

use std::fmt;
use std::time::Duration;

/// The result of a measurement.
pub struct Report {
    pub ops: u64,
    pub elapsed: Duration,
    /// Operations of each thread, where all threads do the same.
    pub shares: Vec<u64>,
}

/// A report in a few numbers.
#[derive(Clone, Copy)]
pub struct Figures {
    /// Nanoseconds an operation; infinite if none was ever done.
    pub ns: f64,
    /// The least, the median and the most operations of a thread.
    pub shares: Option<[u64; 3]>,
}

impl Report {
    pub fn figures(mut self) -> Figures {
        self.shares.sort_unstable();
        let shares = match *self.shares {
            [] => None,
            [least, .., most] => Some([least, self.shares[self.shares.len() / 2], most]),
            [only] => Some([only; 3]),
        };
        Figures {
            ns: self.elapsed.as_nanos() as f64 / self.ops as f64,
            shares,
        }
    }
}

impl Figures {
    /// Reads what [`fmt::Display`] writes.
    pub fn parse(line: &str) -> Option<Figures> {
        let mut words = line.split_whitespace();
        let ns = words.next()?.parse().ok()?;
        let shares: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Figures {
            ns,
            shares: shares.try_into().ok(),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.ns)?;
        self.shares
            .iter()
            .flatten()
            .try_for_each(|share| write!(f, " {share}"))
    }
}
