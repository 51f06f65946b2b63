//! What the documents say of the tree is so: every file, test, bench and example that they name is
//! there, and every limit that they state is the code's.

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTS: [&str; 5] = [
    "README.md",
    "HACKING.md",
    "BENCHMARKS.md",
    "docs/scaling.md",
    "benches/peers/README.md",
];

/// Names look like paths: these are other things.
const NOT_OURS: [&str; 2] = ["net/http", "/proc/self/task/TID/syscall"];

/// Where a path in a document may begin.
const ROOTS: [&str; 8] = [
    "",
    "src",
    "src/engine",
    "src/engine/sched",
    "tests",
    "benches",
    "arch",
    "docs",
];

/// Limits: the document, its words, and the constant behind the number in them.
const LIMITS: [Limit; 13] = [
    limit(
        "README.md",
        "a runtime makes at most {}",
        "src/engine/backend/start.rs",
        "DEFAULT_KERNEL_THREADS",
        Unit::Number,
    ),
    limit(
        "README.md",
        "After {} in a loop a thread is preempted",
        "src/engine/backend/start.rs",
        "DEFAULT_TIME_SLICE",
        Unit::Time,
    ),
    limit(
        "README.md",
        "a time slice, {},",
        "src/engine/backend/start.rs",
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
        "src/engine/policy/aging.rs",
        "AGING",
        Unit::Nanoseconds,
    ),
    limit(
        "HACKING.md",
        "The mutex's hand-off** is Go's, {};",
        "src/sync/raw_mutex.rs",
        "PATIENCE",
        Unit::Nanoseconds,
    ),
    limit(
        "HACKING.md",
        "One of {} yields",
        "src/engine/policy/work_stealing.rs",
        "MIXING_INTERVAL",
        Unit::Number,
    ),
    limit(
        "HACKING.md",
        "every {}th pin",
        "src/engine/sched/machine.rs",
        "PINS_BETWEEN_COLLECTIONS",
        Unit::Number,
    ),
    limit(
        "HACKING.md",
        "a hand-off still calls for {}.",
        "src/engine/sched/monitor/mod.rs",
        "SHORTEST",
        Unit::Nanoseconds,
    ),
    limit(
        "BENCHMARKS.md",
        "in fewer than {} mappings",
        "tests/scale.rs",
        "MAPPINGS",
        Unit::Number,
    ),
    limit(
        "BENCHMARKS.md",
        "parked threads, at most {} resident each",
        "tests/scale.rs",
        "PER_THREAD",
        Unit::KiB,
    ),
    limit(
        "BENCHMARKS.md",
        "(`tests/arrivals.rs`) | p50 {}, p97 40 ms |",
        "tests/arrivals.rs",
        "MEDIAN",
        Unit::Time,
    ),
    limit(
        "BENCHMARKS.md",
        "write to a pipe | p99 {} |",
        "tests/hogs.rs",
        "FRESH",
        Unit::Time,
    ),
];

/// Words before a number that make it a limit. Each such place in README and HACKING is among
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
    /// With a decimal.
    KiB,
    Nanoseconds,
    /// A `Duration`.
    Time,
}

impl Limit {
    /// The words, with the constant's value in them.
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

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_there(path: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ROOTS.iter().any(|from| {
        let path = root.join(from).join(path);
        path.exists() || path.with_extension("rs").exists()
    })
}

/// One line, for words that are broken over two.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
    let groups = groups
        .iter()
        .map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

/// The value of `const NAME: … = value;` in a source file, times in nanoseconds.
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

/// Sums, products, shifts.
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

/// `a/{b,c}.rs` is two paths.
fn expand(name: &str) -> Vec<String> {
    match name
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        Some((before, (inner, after))) => inner
            .split(',')
            .flat_map(|one| expand(&format!("{before}{}{after}", one.trim())))
            .collect(),
        None => vec![name.to_string()],
    }
}

/// What stands between backticks, without the program text between fences.
fn quoted(text: &str) -> Vec<String> {
    let prose: Vec<_> = text.split("```").step_by(2).collect();
    let quoted = prose
        .iter()
        .flat_map(|part| part.split('`').skip(1).step_by(2));
    quoted.map(flat).collect()
}

/// Whether the words are a path, as far as one can tell.
fn is_path(words: &str) -> bool {
    const FILES: [&str; 6] = [".rs", ".md", ".svg", ".toml", ".cc", ".h"];
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    let has_end = FILES.iter().any(|end| words.ends_with(end));
    words.chars().all(plain)
        && (words.contains('/') || has_end)
        && !words.starts_with(['/', '.', '-'])
        && words
            .chars()
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic())
        && !NOT_OURS.contains(&words)
}

#[test]
fn every_file_that_is_named_is_there() {
    let mut missing = BTreeSet::new();
    let mut named = 0;
    for document in DOCUMENTS {
        let text = read(document);
        for words in quoted(&text).iter().filter(|words| is_path(words)) {
            for path in expand(words) {
                named += 1;
                if !is_there(path.trim_end_matches('/')) {
                    missing.insert(format!("{document}: {path}"));
                }
            }
        }
    }
    assert!(
        named > 50,
        "only {named} names were found: are they looked for?"
    );
    assert!(missing.is_empty(), "{missing:#?}");
}

/// In commands, wherever they stand.
#[test]
fn every_test_bench_and_example_that_is_named_is_there() {
    let places = [
        ("--test", "tests"),
        ("--bench", "benches"),
        ("--example", "examples"),
    ];
    let mut named = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let words: Vec<_> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let Some((_, folder)) = places
                .iter()
                .find(|place| place.0 == pair[0].trim_start_matches('`'))
            else {
                continue;
            };
            let name =
                pair[1].trim_matches(|c: char| !c.is_ascii_alphanumeric() && !"_*".contains(c));
            if name.contains('*') {
                continue;
            }
            named += 1;
            let is_there = is_there(&format!("{folder}/{name}.rs"))
                || is_there(&format!("{folder}/{name}/main.rs"));
            assert!(is_there, "{document}: {} {name}", pair[0]);
        }
    }
    assert!(named > 5, "only {named} were found: are they looked for?");
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

/// Each row of README's comparison comes from one section of BENCHMARKS.
#[test]
fn every_figure_in_the_comparison_is_measured() {
    let is_figure = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let (readme, benchmarks) = (read("README.md"), read("BENCHMARKS.md"));
    let sections: Vec<Vec<_>> = benchmarks
        .split("\n#")
        .map(|section| {
            section
                .split(|c: char| !c.is_ascii_digit() && c != '.')
                .map(|word| word.trim_end_matches('.'))
                .collect()
        })
        .collect();
    let (_, comparison) = readme.split_once("## Beside others").unwrap();
    let (comparison, _) = comparison.split_once("\n## ").unwrap();
    let mut found = 0;
    for row in comparison.lines().filter(|line| line.starts_with("| ")) {
        let cells = row
            .split('|')
            .skip(2)
            .map(|cell| cell.trim_matches([' ', '*']));
        let figures: Vec<_> = cells.filter(is_figure).collect();
        found += figures.len();
        let measured = |section: &Vec<_>| figures.iter().all(|figure| section.contains(figure));
        assert!(sections.iter().any(measured), "not measured: {row}");
    }
    assert!(
        found > 30,
        "only {found} figures were found: are they looked for?"
    );
}

/// All but the workspace's other packages, which cargo leaves out.
#[test]
fn what_is_named_is_in_the_package() {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = std::process::Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline"])
        .current_dir(root)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let list = String::from_utf8(output.stdout).unwrap();
    let files: BTreeSet<_> = list.lines().collect();
    let is_in = |path: &str| {
        let folder = format!("{path}/");
        files.contains(path)
            || files.contains(&*format!("{path}.rs"))
            || files.iter().any(|file| file.starts_with(&folder))
    };
    let manifest = read("Cargo.toml");
    let (_, members) = manifest.split_once("\nmembers = [").unwrap();
    let members = members.split(']').next().unwrap().split('"');
    let members: Vec<_> = members.skip(1).step_by(2).collect();
    let is_of_another = |path: &str| members.iter().any(|member| path.starts_with(member));

    let mut missing = BTreeSet::new();
    for document in ["README.md", "HACKING.md"] {
        let text = read(document);
        let links = text.split("](").skip(1);
        let links = links.map(|rest| rest.split(')').next().unwrap().to_string());
        let links = links.filter(|link| !link.contains("://"));
        let scripts = text.split_whitespace().map(|word| word.trim_matches('`'));
        let scripts = scripts
            .filter(|word| word.starts_with(".ci/"))
            .map(str::to_string);
        let quoted = quoted(&text).into_iter().filter(|words| is_path(words));
        for path in links
            .chain(scripts)
            .chain(quoted)
            .flat_map(|words| expand(&words))
        {
            let path = path.trim_end_matches(['/', ',', ':', '.', ')']);
            let places =
                ROOTS.map(|from| format!("{from}/{path}").trim_start_matches('/').to_string());
            if !places.iter().any(|path| is_in(path) || is_of_another(path)) {
                missing.insert(format!("{document}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Each file of the engine is named by a word of HACKING's list.
#[test]
fn every_file_has_its_word() {
    fn files(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            match (path.is_dir(), &*name) {
                // Stand-ins have the names of what they stand in for.
                (_, "elsewhere" | "tests" | "mod") => {}
                (true, _) => {
                    found.push(name);
                    files(&path, found);
                }
                (false, _) if path.extension().is_some_and(|e| e == "rs") => found.push(name),
                (false, _) => {}
            }
        }
    }
    let text = read("HACKING.md").to_lowercase();
    let list = text.split_once("## words").expect("the list").1;
    let list = list.split_once("\n#").map_or(list, |(list, _)| list);
    let words = format!(
        " {} ",
        list.replace(|c: char| !c.is_alphanumeric() && c != '_', " ")
    );
    let has = |phrase: &str| words.contains(&format!(" {phrase} "));
    let mut names = Vec::new();
    files(Path::new("src/engine"), &mut names);
    assert!(names.len() > 80, "only {} files were found", names.len());
    names.retain(|name| {
        let phrase = name.replace('_', " ");
        let singular = phrase.strip_suffix('s').unwrap_or(&phrase);
        ![
            name,
            &*phrase,
            singular,
            &format!("{phrase}s"),
            &format!("{phrase}d"),
        ]
        .into_iter()
        .any(has)
    });
    assert!(names.is_empty(), "without a word: {names:?}");
}
