//! What is made of figures, without measuring any.

use roxmltree::Document;

use crate::conditions::locked;
use crate::figures::{Share, median, quartiles};
use crate::results::{Better, Measured, Results};
use crate::suites::{SUITES, Suite};
use crate::targets::{Bound, TARGETS};
use crate::{KEPT, chart, markers, tables};

/// Lines of a suite, as it prints them: two rounds of four contenders in one row, and a row of which
/// higher is better. Lower figures than any peer's are those of what is no peer.
const LINES: [&str; 13] = [
    "yield among 2, 1 worker\tns\tlower\tgreenthread\t0\t30",
    "yield among 2, 1 worker\tns\tlower\ttokio\t0\t100",
    "yield among 2, 1 worker\tns\tlower\tmay\t0\t40",
    "yield among 2, 1 worker\tns\tlower\trayon\t0\t1",
    "yield among 2, 1 worker\tns\tlower\tgreenthread, priority\t0\t2",
    "yield among 2, 1 worker\tns\tlower\tgreenthread\t1\t50",
    "yield among 2, 1 worker\tns\tlower\ttokio\t1\t20",
    "yield among 2, 1 worker\tns\tlower\tmay\t1\t60",
    "yield among 2, 1 worker\tns\tlower\tsmol\t1\thangs",
    "echo & <more>\tthousand/s\thigher\tgreenthread\t0\t180",
    "echo & <more>\tthousand/s\thigher\ttokio\t0\t150",
    "echo & <more>\tthousand/s\thigher\tGo\t0\t100",
    "echo & <more>: p99\tµs\tlower\tGo\t0\t7",
];

fn measured(suite: &str) -> Measured {
    let mut measured = Measured::new(suite, "yesterday; 2 processors");
    for line in LINES {
        measured.add(line).unwrap();
    }
    measured
}

fn results() -> Results {
    let mut results = Results::default();
    results.put(measured("peers"));
    results
}

#[test]
fn medians_and_quartiles() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[7.0]), Some(7.0));
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    assert_eq!(quartiles(&[]), None);
    assert_eq!(quartiles(&[7.0]), Some((7.0, 7.0)));
    assert_eq!(quartiles(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some((2.0, 4.0)));
    assert_eq!(quartiles(&[1.0, 2.0]), Some((1.25, 1.75)));
}

#[test]
fn the_best_peer_is_a_peer() {
    let measured = measured("peers");
    let lower = measured.row("yield among 2, 1 worker").unwrap();
    // 40 of may's 50 and tokio's 60, and 30 of may's 40 and tokio's 20.
    let share = |of, ratio| Some(Share { of, ratio });
    assert_eq!(lower.by_medians(), share("may", 0.8));
    assert_eq!(lower.by_bests(), share("tokio", 1.5));
    // Round by round: 30/40 and 50/60.
    let (low, high) = lower.spread("may").unwrap();
    assert!(0.75 < low && low < high && high < 50.0 / 60.0);
    let higher = measured.row("echo & <more>").unwrap();
    assert_eq!(higher.by_medians(), share("tokio", 1.2));
    let alone = measured.row("echo & <more>: p99").unwrap();
    assert_eq!(alone.by_medians(), None);
}

#[test]
fn one_failure_is_a_contenders_end() {
    let mut measured = measured("peers");
    for value in ["5", "failed", "6"] {
        let line = format!("row\tns\tlower\ttokio\t0\t{value}");
        measured.add(&line).unwrap();
    }
    let series = measured.row("row").unwrap().series("tokio").unwrap();
    assert_eq!(series.rounds, Err("failed".to_string()));
}

#[test]
fn what_is_kept_is_what_was_measured() {
    let kept = results().to_string();
    let read = Results::parse(&kept).unwrap();
    assert_eq!(read.suites, results().suites);
    assert_eq!(read.to_string(), kept);
}

#[test]
fn a_suite_takes_the_place_of_its_last_run() {
    let mut results = results();
    results.put(measured("seeds"));
    results.put(Measured::new("peers", "now"));
    let suites = results.suites.iter();
    let names: Vec<_> = suites.map(|measured| &*measured.suite).collect();
    assert_eq!(names, ["peers", "seeds"]);
    assert_eq!(results.suite("peers").unwrap().conditions, "now");
}

#[test]
fn nonsense_is_an_error() {
    let lines = [
        "row\tns\tlower\ttokio\t0",
        "row\tns\tlower\ttokio\t0\t1\t2",
        "row\tns\tworse\ttokio\t0\t1",
        "row\tns\tlower\ttokio\t0\tfast",
        "row\tns\tlower\ttokio\t0\tNaN",
        "row\tns\tlower\ttokio\t0\t",
    ];
    for line in lines {
        let mut measured = Measured::new("peers", "");
        assert!(measured.add(line).is_err(), "{line}");
        assert!(measured.rows.is_empty(), "{line}");
    }
    for text in [
        "one field",
        "peers\tnow\nseeds\trow\tns\tlower\ttokio\t1",
        "peers\trow\tns\tlower\ttokio\t1",
        "peers\tnow\npeers\trow\tns\tlower\ttokio\tfast",
    ] {
        assert!(Results::parse(text).is_err(), "{text}");
    }
}

#[test]
fn tables_say_what_was_measured() {
    let measured = measured("peers");
    let table = tables::suite(&measured);
    let line = |begin| table.lines().find(|line| line.starts_with(begin)).unwrap();
    assert_eq!(
        line("| yield"),
        "| yield among 2, 1 worker | ns | 40.0 | 2.00 | 60.0 | 50.0 | 1.00 | hangs | – | 0.80 of may | 1.50 of tokio | ≤ 0.7: **missed** |"
    );
    // Figures of one row stand in one cell.
    assert_eq!(
        line("| echo"),
        "| echo & <more> | thousand/s · p99, µs | 180 · – | – | 150 · – | – | – | – | 100 · 7.00 | 1.20 of tokio · – | 1.20 of tokio · – | – |"
    );
    assert!(table.starts_with("yesterday; 2 processors.\n\n| |"));
    let targets = tables::targets(&results());
    assert!(targets.starts_with("Of 1 figures with a target, 0 reach it and 1 miss it"));
    assert!(targets.contains("yield among 2, 1 worker (0.80 of may, target ≤ 0.7)"));
}

#[test]
fn percentiles_share_a_row() {
    let mut measured = Measured::new("latency", "");
    for figure in ["p50", "p99.9", "max"] {
        let line = format!("timer, idle, {figure}\tµs\tlower\tgreenthread\t0\t5");
        measured.add(&line).unwrap();
    }
    let parts = measured.rows.iter().map(|row| row.parts());
    let same = ["p50", "p99.9", "max"].map(|figure| ("timer, idle", Some(figure)));
    assert_eq!(parts.collect::<Vec<_>>(), same);
    assert_eq!(tables::suite(&measured).matches("timer, idle").count(), 1);
    measured.add("spawn, please\tns\tlower\tGo\t0\t5").unwrap();
    assert_eq!(measured.rows[3].parts(), ("spawn, please", None));
}

#[test]
fn a_target_is_judged_by_what_is_printed() {
    let measured = measured("servers");
    let row = |better| {
        let mut measured = Measured::new("servers", "");
        let line = format!("echo, 100 connections\tns\t{better}\tgreenthread\t0\t1");
        measured.add(&line).unwrap();
        measured
    };
    let higher = row("higher");
    let bound = Bound::of(&higher, &higher.rows[0]).unwrap();
    assert_eq!(bound.to_string(), "≥ 1.15");
    assert!(bound.is_reached_by(1.146) && !bound.is_reached_by(1.144));
    assert_eq!(bound.judge(&higher.rows[0]), None);
    let mut failed = row("higher");
    failed
        .add("echo, 100 connections\tns\thigher\tgreenthread\t1\thangs")
        .unwrap();
    assert_eq!(bound.judge(&failed.rows[0]), Some(false));
    let lower = row("lower");
    let bound = Bound::of(&lower, &lower.rows[0]).unwrap();
    assert_eq!(bound.to_string(), "≤ 1.15");
    assert!(bound.is_reached_by(1.154) && !bound.is_reached_by(1.156));
    assert!(Bound::of(&measured, &measured.rows[0]).is_none());
}

const DOCUMENT: &str = "before
<!-- compare: one -->
old
<!-- /compare -->
between
<!-- compare: two -->
<!-- /compare -->
after
";

#[test]
fn markers_keep_what_is_around_them() {
    let once = markers::replace(DOCUMENT, "one", "| new |\n\n").unwrap();
    assert_eq!(once, DOCUMENT.replace("old", "| new |"));
    assert_eq!(markers::replace(&once, "one", "| new |").unwrap(), once);
    let both = markers::replace(&once, "two", "second").unwrap();
    assert!(both.ends_with("<!-- compare: two -->\nsecond\n<!-- /compare -->\nafter\n"));
    assert!(
        both.starts_with("before\n<!-- compare: one -->\n| new |\n<!-- /compare -->\nbetween\n")
    );
}

#[test]
fn a_missing_marker_is_named() {
    let error = markers::replace(DOCUMENT, "three", "").unwrap_err();
    assert_eq!(error, "no marker <!-- compare: three -->");
    let open = DOCUMENT.replacen("<!-- /compare -->", "", 1);
    let error = markers::replace(&open, "one", "").unwrap_err();
    assert_eq!(
        error,
        "no marker <!-- /compare --> after <!-- compare: one -->"
    );
    let open = "<!-- compare: one -->\n";
    assert!(markers::replace(open, "one", "").is_err());
}

/// The chart is XML; its bars lie on the right side, in the right colour.
#[test]
fn charts_are_well_formed() {
    let svg = chart::draw(&SUITES[0], &measured("peers"));
    let document = Document::parse(&svg).unwrap();
    let is = |name| {
        move |node: &roxmltree::Node| node.has_tag_name(("http://www.w3.org/2000/svg", name))
    };
    let texts: Vec<_> = document
        .descendants()
        .filter(is("text"))
        .filter_map(|node| node.text())
        .collect();
    for text in [
        "echo & <more>",
        "1.20 of tokio",
        "0.80 of may",
        "◂ lower is better",
        "higher is better ▸",
        "yesterday; 2 processors",
    ] {
        assert!(texts.contains(&text), "{text}: {texts:?}");
    }
    // Two bars, and the legend's first; nothing is behind but in the legend.
    let of_colour = |colour| {
        let bars = document.descendants().filter(is("rect"));
        bars.filter(|node| node.attribute("fill") == Some(colour))
            .count()
    };
    assert_eq!((of_colour("#0072b2"), of_colour("#e69f00")), (3, 1));
}

#[test]
fn far_figures_stay_inside_the_chart() {
    let mut measured = Measured::new("peers", "");
    for (contender, value) in [("greenthread", "1"), ("tokio", "1000")] {
        let lower = format!("far below\tns\tlower\t{contender}\t0\t{value}");
        let higher = format!("far above\tns\thigher\t{contender}\t0\t{value}");
        measured.add(&lower).unwrap();
        measured.add(&higher).unwrap();
    }
    let svg = chart::draw(&SUITES[0], &measured);
    let document = Document::parse(&svg).unwrap();
    let width: f64 = document
        .root_element()
        .attribute("width")
        .unwrap()
        .parse()
        .unwrap();
    for node in document.descendants() {
        for name in ["x", "x1", "x2"] {
            let x = node
                .attribute(name)
                .map_or(0.0, |x| x.parse::<f64>().unwrap());
            assert!((0.0..=width).contains(&x), "{node:?}");
        }
    }
    assert!(svg.contains("0.00 of tokio"));
}

#[test]
fn versions_are_the_locked_ones() {
    let lock = "[[package]]\nname = \"tokio\"\nversion = \"1.54.0\"\n\n[[package]]\nname = \"tokio-macros\"\nversion = \"2.0\"\n";
    assert_eq!(locked(lock, "tokio"), Some("1.54.0"));
    assert_eq!(locked(lock, "may"), None);
}

/// What is in the repository: every target is for a row that is measured, and documents and pictures
/// are those of the results.
#[test]
fn the_repository_is_up_to_date() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let read = |path: &str| std::fs::read_to_string(format!("{root}{path}")).unwrap();
    let results = Results::parse(&read(KEPT)).unwrap();
    for target in &TARGETS {
        let Some(measured) = results.suite(target.suite) else {
            continue;
        };
        let is_there = measured
            .rows
            .iter()
            .any(|row| target.fits(target.suite, &row.name));
        assert!(is_there, "no row {} in {}", target.rows, target.suite);
    }
    let benchmarks = read("BENCHMARKS.md");
    for measured in &results.suites {
        let table = tables::suite(measured);
        let name = &*measured.suite;
        let same = markers::replace(&benchmarks, name, &table).unwrap();
        assert!(
            same == benchmarks,
            "BENCHMARKS.md, {name}: run compare --draw"
        );
        let suite = Suite::named(name).unwrap();
        let picture = read(&format!("docs/benchmarks-{name}.svg"));
        assert!(
            chart::draw(suite, measured) == picture,
            "{name}: run compare --draw"
        );
    }
    let same = markers::replace(&benchmarks, "targets", &tables::targets(&results)).unwrap();
    assert!(
        same == benchmarks,
        "BENCHMARKS.md, targets: run compare --draw"
    );
    let readme = read("README.md");
    let same = markers::replace(&readme, "readme", &tables::readme(&results)).unwrap();
    assert!(same == readme, "README.md: run compare --draw");
}

#[test]
fn better_is_lower_or_higher() {
    let figures = [2.0, 1.0, 3.0];
    assert_eq!(Better::Lower.best(figures), Some(1.0));
    assert_eq!(Better::Higher.best(figures), Some(3.0));
    assert_eq!(Better::Lower.best([]), None);
}
