//! Limits: the number in each limit that README, BENCHMARKS or docs/rejected.md states is the value of a
//! constant in the code.

use super::{flat, read};

/// The document, its words, and the constant behind the number in them.
const LIMITS: [Limit; 11] = [
    limit(
        "README.md",
        "a runtime makes at most {}",
        "src/engine/runtime/options.rs",
        "DEFAULT_KERNEL_THREADS",
        Unit::Number,
    ),
    limit(
        "README.md",
        "After {} in a loop a thread is preempted",
        "src/engine/runtime/options.rs",
        "DEFAULT_TIME_SLICE",
        Unit::Time,
    ),
    limit(
        "README.md",
        "a time slice, {},",
        "src/engine/runtime/options.rs",
        "DEFAULT_TIME_SLICE",
        Unit::Time,
    ),
    limit(
        "README.md",
        "caught by a guard of {}",
        "src/engine/stack/mod.rs",
        "GUARD",
        Unit::Bytes,
    ),
    limit(
        "README.md",
        "for {} at most while others keep arriving",
        "src/engine/policy/tuning.rs",
        "AGING",
        Unit::Nanoseconds,
    ),
    limit(
        "docs/rejected.md",
        "At one of {} yields",
        "src/engine/policy/tuning.rs",
        "MIXING_INTERVAL",
        Unit::Number,
    ),
    limit(
        "docs/rejected.md",
        "a hand-off still calls for {}.",
        "src/engine/sched/tuning.rs",
        "SHORTEST_TICK",
        Unit::Nanoseconds,
    ),
    limit(
        "BENCHMARKS.md",
        "in fewer than {} mappings",
        "tests/alone/scale.rs",
        "MAPPINGS",
        Unit::Number,
    ),
    limit(
        "BENCHMARKS.md",
        "parked threads, at most {} resident each",
        "tests/alone/scale.rs",
        "PER_THREAD",
        Unit::KiB,
    ),
    limit(
        "BENCHMARKS.md",
        "(`tests/io/arrivals.rs`) | p50 {}, p97 40 ms |",
        "tests/io/arrivals.rs",
        "MEDIAN",
        Unit::Time,
    ),
    limit(
        "BENCHMARKS.md",
        "write to a pipe | p99 {} |",
        "tests/sched/hogs.rs",
        "FRESH",
        Unit::Time,
    ),
];

/// Words that make the number after them a limit. Each such place in README and HACKING is among
/// [`LIMITS`].
const SAYS_A_LIMIT: [&str; 4] = ["at most ", "up to ", "no more than ", "a guard of "];

struct Limit {
    document: &'static str,
    words: &'static str,
    source: &'static str,
    constant: &'static str,
    unit: Unit,
}

const fn limit(
    document: &'static str,
    words: &'static str,
    source: &'static str,
    constant: &'static str,
    unit: Unit,
) -> Limit {
    Limit {
        document,
        words,
        source,
        constant,
        unit,
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Number,
    Bytes,
    /// KiB with one decimal.
    KiB,
    Nanoseconds,
    /// A `Duration`.
    Time,
}

impl Limit {
    /// Returns the words, with the constant's value in them.
    fn should_say(&self) -> String {
        let value = constant(self.source, self.constant);
        let number = match self.unit {
            Unit::Number => thousands(value),
            Unit::Bytes if value.is_multiple_of(1 << 20) => format!("{} MiB", value >> 20),
            Unit::Bytes => format!("{} KiB", value >> 10),
            Unit::KiB => format!("{:.1} KiB", value as f64 / 1024.0),
            Unit::Nanoseconds | Unit::Time if value.is_multiple_of(1_000_000) => {
                format!("{} ms", value / 1_000_000)
            }
            Unit::Nanoseconds | Unit::Time => format!("{} µs", value / 1_000),
        };
        self.words.replace("{}", &number)
    }
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    let groups = groups
        .iter()
        .map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

/// Returns the value of `const NAME: … = value;` in a source file, times in nanoseconds.
fn constant(source: &str, name: &str) -> u64 {
    let text = read(source);
    let declared = text.lines().find_map(|line| {
        let line = line
            .trim()
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ");
        let rest = line.strip_prefix("const ")?.strip_prefix(name)?;
        rest.starts_with(':')
            .then(|| rest.split_once('=').unwrap().1.trim_end_matches(';').trim())
    });
    let value = declared.unwrap_or_else(|| panic!("{source} has no constant {name}"));
    match value.strip_prefix("Duration::from_millis(") {
        Some(millis) => calculate(millis.trim_end_matches(')')) * 1_000_000,
        None => calculate(value),
    }
}

/// Calculates sums, products and shifts.
fn calculate(expression: &str) -> u64 {
    let both = |operator: &str| {
        let (left, right) = expression.split_once(operator)?;
        Some((calculate(left), calculate(right)))
    };
    if let Some((left, right)) = both("<<") {
        left << right
    } else if let Some((left, right)) = both("+") {
        left + right
    } else if let Some((left, right)) = both("*") {
        left * right
    } else {
        let digits = expression.trim().replace('_', "");
        digits
            .parse()
            .unwrap_or_else(|_| panic!("not a number: {expression}"))
    }
}

#[test]
fn every_limit_is_the_codes() {
    for limit in &LIMITS {
        let text = flat(&read(limit.document));
        let should_say = limit.should_say();
        let (source, constant) = (limit.source, limit.constant);
        assert!(
            text.contains(&should_say),
            "{}: «{should_say}» is not there: {constant} in {source}",
            limit.document
        );
    }
}

#[test]
fn every_limit_is_known() {
    for document in ["README.md", "HACKING.md"] {
        let text = flat(&read(document));
        let mut rest = text.clone();
        for limit in LIMITS.iter().filter(|limit| limit.document == document) {
            rest = rest.replace(&limit.should_say(), "");
        }
        for words in SAYS_A_LIMIT {
            for (at, _) in rest.match_indices(words) {
                let then = &rest[at + words.len()..];
                let here: String = rest[at..].chars().take(60).collect();
                assert!(
                    !then.starts_with(|c: char| c.is_ascii_digit()),
                    "{document}: «{here}…» is not among the limits"
                );
            }
        }
    }
}
