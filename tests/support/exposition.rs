//! A strict reader of Prometheus' text format, version 0.0.4.
//!
//! Each family has one HELP, one TYPE and then its samples, all together; names, labels and numbers are what the
//! format allows; no series is there twice. Of a histogram the buckets grow, and the last one is the count.

use std::collections::{BTreeMap, HashSet};

pub type Labels = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Labels,
    pub value: f64,
}

#[derive(Debug, Default)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

pub struct Exposition(pub Vec<Family>);

impl Exposition {
    pub fn read(text: &str) -> Exposition {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut families: Vec<Family> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a name and its text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                families.push(Family {
                    name: name.into(),
                    ..Family::default()
                });
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a name and its type");
                let family = families.last_mut().expect("a HELP before");
                assert!(family.name == name && family.kind.is_empty(), "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                family.kind = kind.into();
            } else {
                let sample = sample(line);
                let family = families.last_mut().expect("a family");
                family.check(&sample);
                family.samples.push(sample);
            }
        }
        let names: HashSet<_> = families.iter().map(|family| &family.name).collect();
        assert_eq!(names.len(), families.len(), "a family is there twice");
        for family in &families {
            let series = family.samples.iter().map(|s| (&s.name, &s.labels));
            let distinct: HashSet<_> = series.collect();
            assert_eq!(distinct.len(), family.samples.len(), "{}", family.name);
            if family.kind == "histogram" {
                family.check_histogram();
            }
        }
        Exposition(families)
    }

    pub fn family(&self, name: &str) -> &Family {
        let found = self.0.iter().find(|family| family.name == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    }
}

impl Family {
    /// The sum of the samples whose labels have these values.
    pub fn sum(&self, suffix: &str, labels: &[(&str, &str)]) -> f64 {
        let name = format!("{}{suffix}", self.name);
        let fits = |sample: &&Sample| {
            let has = |(label, value): &(&str, &str)| {
                sample.labels.get(*label).is_some_and(|v| v == value)
            };
            sample.name == name && labels.iter().all(has)
        };
        self.samples
            .iter()
            .filter(fits)
            .map(|sample| sample.value)
            .sum()
    }

    fn check(&self, sample: &Sample) {
        let own = match self.kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| sample.name == format!("{}{end}", self.name)),
            _ => sample.name == self.name,
        };
        assert!(own, "{} within {}", sample.name, self.name);
        assert_eq!(
            self.kind == "counter",
            self.name.ends_with("_total"),
            "{}",
            self.name
        );
        assert_eq!(
            sample.labels.contains_key("le"),
            sample.name.ends_with("_bucket")
        );
    }

    fn check_histogram(&self) {
        let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|s| s.name.ends_with("_bucket")) {
            let mut labels = sample.labels.clone();
            let bound = number(&labels.remove("le").unwrap());
            buckets
                .entry(labels)
                .or_default()
                .push((bound, sample.value));
        }
        for (labels, buckets) in buckets {
            assert!(
                buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                "{labels:?}"
            );
            let (bound, all) = *buckets.last().unwrap();
            let of = |end: &str| {
                let name = format!("{}{end}", self.name);
                let mut found = self
                    .samples
                    .iter()
                    .filter(|s| s.name == name && s.labels == labels);
                let value = found.next().map(|sample| sample.value);
                value.unwrap_or_else(|| panic!("no {name} {labels:?}"))
            };
            assert!(bound.is_infinite());
            assert_eq!(of("_count"), all);
            assert_eq!(of("_sum") == 0.0, all == 0.0);
        }
    }
}

fn sample(line: &str) -> Sample {
    let (name, rest) = line.split_once('{').expect("labels");
    assert!(is_name(name), "{line}");
    let mut labels = Labels::new();
    let mut rest = rest;
    loop {
        let (label, behind) = rest.split_once("=\"").expect("a label");
        assert!(is_name(label) && !label.contains(':'), "{line}");
        let mut value = String::new();
        let mut characters = behind.chars();
        loop {
            match characters.next().expect("the end of a value") {
                '"' => break,
                '\\' => value.push(match characters.next() {
                    Some('n') => '\n',
                    Some(other @ ('\\' | '"')) => other,
                    other => panic!("{line}: {other:?}"),
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(label.into(), value).is_none(), "{line}");
        rest = characters.as_str();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").unwrap_or_else(|| panic!("{line}"));
    let value = number(value);
    assert!(value >= 0.0, "{line}");
    Sample {
        name: name.into(),
        labels,
        value,
    }
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        _ => text
            .parse()
            .unwrap_or_else(|_| panic!("{text} is no number")),
    }
}

fn is_name(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}
