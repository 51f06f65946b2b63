//! The JSON of a schedule trace, read by a real parser: what ran where, and what else happened.

use greenthread::observe::Trace;
use serde_json::Value;
use std::collections::HashMap;

pub struct Events {
    all: Vec<Value>,
}

impl Events {
    pub fn of(trace: &Trace) -> Events {
        let mut json = Vec::new();
        trace.write_json(&mut json).unwrap();
        Events::read(&json)
    }

    pub fn read(json: &[u8]) -> Events {
        let value: Value = serde_json::from_slice(json).expect("JSON");
        let all = value["traceEvents"].as_array().expect("events").clone();
        Events { all }
    }

    pub fn phase<'a>(&'a self, phase: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all.iter().filter(move |event| event["ph"] == phase)
    }

    /// What ran: each with its name, its track, its beginning and its end in nanoseconds.
    pub fn runs(&self) -> Vec<Run> {
        let runs = self.phase("X").filter(|event| event["cat"] == "run");
        runs.map(|event| {
            let start = nanos(&event["ts"]);
            Run {
                name: event["name"].as_str().unwrap().into(),
                thread: event["args"]["thread"].as_u64().unwrap(),
                track: track(event),
                start,
                end: start + nanos(&event["dur"]),
                stopped: event["args"]["stopped"].as_str().unwrap().into(),
            }
        })
        .collect()
    }

    pub fn instants(&self, name: &str) -> usize {
        self.phase("i")
            .filter(|event| event["name"] == name)
            .count()
    }

    /// The name of the thread that runs where and when this event is.
    pub fn at(&self, event: &Value) -> Option<String> {
        let (track, at) = (track(event), nanos(&event["ts"]));
        let runs = self.runs().into_iter();
        let mut here = runs.filter(|run| run.track == track && run.start <= at && at <= run.end);
        here.next_back().map(|run| run.name)
    }

    /// Every run is over before the next one on its track begins, and no thread is in two places.
    pub fn check(&self) {
        let mut by_track: HashMap<_, Vec<Run>> = HashMap::new();
        for run in self.runs() {
            by_track.entry(run.track).or_default().push(run);
        }
        for runs in by_track.values() {
            for pair in runs.windows(2) {
                assert!(pair[0].end <= pair[1].start, "{pair:?}");
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    pub thread: u64,
    pub track: (u64, u64),
    pub start: u64,
    pub end: u64,
    pub stopped: String,
}

fn nanos(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1e3).round() as u64
}

fn track(event: &Value) -> (u64, u64) {
    let number = |name| event[name].as_u64().unwrap();
    (number("pid"), number("tid"))
}
