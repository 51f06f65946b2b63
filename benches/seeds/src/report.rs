//! What a measurement finds, and how one process tells another.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The result of a measurement.
pub struct Report {
    pub ops: u64,
    pub took: Took,
    /// Operations of each thread, where all threads do the same.
    pub shares: Vec<u64>,
}

/// What it took. CPU time is the process's, all kernel threads together.
pub struct Took {
    pub elapsed: Duration,
    pub cpu: Duration,
}

/// Measures what it takes from now on.
pub struct Stopwatch {
    start: Instant,
    cpu: Duration,
}

/// A report in a few numbers.
#[derive(Clone, Copy)]
pub struct Figures {
    /// Nanoseconds an operation; infinite if none was ever done.
    pub ns: f64,
    /// CPU time of an operation: what says most on a machine that others use.
    pub cpu: f64,
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
            ns: self.took.elapsed.as_nanos() as f64 / self.ops as f64,
            cpu: self.took.cpu.as_nanos() as f64 / self.ops as f64,
            shares,
        }
    }
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch {
            start: Instant::now(),
            cpu: cpu_time(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn read(&self) -> Took {
        Took {
            elapsed: self.start.elapsed(),
            cpu: cpu_time() - self.cpu,
        }
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Figures {
    /// Reads what [`fmt::Display`] writes.
    pub fn parse(line: &str) -> Option<Figures> {
        let mut words = line.split_whitespace();
        let ns = words.next()?.parse().ok()?;
        let cpu = words.next()?.parse().ok()?;
        let shares: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Figures {
            ns,
            cpu,
            shares: shares.try_into().ok(),
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} {:.3}", self.ns, self.cpu)?;
        self.shares
            .iter()
            .flatten()
            .try_for_each(|share| write!(f, " {share}"))
    }
}
