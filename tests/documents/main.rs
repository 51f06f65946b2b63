//! The documents are true of the tree: every file, test, bench and example that they name is there,
//! every limit that they state is the code's ([`limits`]), and every figure of a comparison is
//! measured.

mod limits;

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTS: [&str; 6] = [
    "README.md",
    "HACKING.md",
    "BENCHMARKS.md",
    "docs/rejected.md",
    "docs/scaling.md",
    "benches/peers/README.md",
];

/// These look like paths, and are other things.
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

/// Joins the lines, since a sentence may be broken over two.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Makes two paths of `a/{b,c}.rs`.
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

/// Returns the words between backticks, without the program text between fences.
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

/// The documents name them in commands, as `--test NAME`.
#[test]
fn every_test_bench_and_example_that_is_named_is_there() {
    let places: [(&str, &[&str]); 3] = [
        ("--test", &["tests", "tests/guests/tests"]),
        ("--bench", &["benches"]),
        ("--example", &["examples"]),
    ];
    let mut named = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let words: Vec<_> = text.split_whitespace().collect();
        for pair in words.windows(2) {
            let Some((_, folders)) = places
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
            let is_there = folders.iter().any(|folder| {
                is_there(&format!("{folder}/{name}.rs"))
                    || is_there(&format!("{folder}/{name}/main.rs"))
            });
            assert!(is_there, "{document}: {} {name}", pair[0]);
        }
    }
    assert!(named > 5, "only {named} were found: are they looked for?");
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

/// Returns the targets of the links, those in the list at the end included.
fn links(text: &str) -> Vec<String> {
    let inline = text.split("](").skip(1);
    let inline = inline.map(|rest| rest.split(')').next().unwrap());
    let listed = text.lines().filter(|line| line.starts_with('['));
    let listed = listed.filter_map(|line| Some(line.split_once("]: ")?.1));
    inline.chain(listed).map(str::to_string).collect()
}

/// Returns the path in the repository to which the link leads, if it leads there.
fn in_the_repository(link: &str) -> Option<&str> {
    const OURS: [&str; 2] = [
        "https://github.com/greenthread-rs/greenthread/blob/main/",
        "https://raw.githubusercontent.com/greenthread-rs/greenthread/main/",
    ];
    let ours = OURS.iter().find_map(|place| link.strip_prefix(place));
    ours.or_else(|| (!link.contains("://")).then_some(link))
}

/// The crate's page is README, too, and knows no files beside it.
#[test]
fn readme_has_no_relative_links() {
    let links = links(&read("README.md"));
    assert!(links.len() > 10, "only {} were found", links.len());
    for link in links {
        assert!(link.starts_with("https://"), "{link}");
    }
}

/// The paths in the workspace's other packages do not count: cargo leaves those out.
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
        let links = links(&text).into_iter();
        let links = links.filter_map(|link| in_the_repository(&link).map(str::to_string));
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

/// HACKING is read from top to bottom, so it stays short, and its list has each word once.
#[test]
fn hacking_is_short() {
    let text = read("HACKING.md");
    let size = text.len();
    assert!(size <= 24 << 10, "HACKING.md has {size} bytes");
    let list = text.split_once("\n## Words").expect("the list").1;
    let list = list.split_once("\n#").map_or(list, |(list, _)| list);
    let rows = list.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows: Vec<_> = rows.filter_map(|line| line.split('|').nth(1)).collect();
    assert!((50..=110).contains(&rows.len()), "{} rows", rows.len());
    let mut words = BTreeSet::new();
    for word in rows.iter().flat_map(|row| row.split(',')) {
        let word = word.split('(').next().unwrap().trim();
        assert!(words.insert(word), "twice: {word}");
    }
}
