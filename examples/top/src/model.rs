//! What the program has said, as the screen needs it: the last summary, and rates from one to the next.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// So many rates are kept for the curves.
const HISTORY: usize = 240;

/// The last summary.
#[derive(Default)]
pub struct Summary {
    pub program: String,
    pub process: u64,
    pub uptime: u64,
    pub mode: String,
    pub policy: String,
    pub runtimes: usize,
    pub processors: Vec<Processor>,
    pub global_queue: u64,
    pub kernel_threads: u64,
    pub idle_kernel_threads: u64,
    pub counts: Counts,
    pub waits: Vec<(String, u64)>,
    pub busiest: Vec<Thread>,
    pub longest: Vec<Thread>,
    totals: [u64; RATES.len()],
}

#[derive(Default)]
pub struct Counts {
    pub green: u64,
    pub kernel: u64,
    /// New, ready, running, blocked, parked.
    pub by_state: [u64; 5],
}

pub const STATES: [&str; 5] = ["running", "ready", "blocked", "parked", "new"];

pub struct Processor {
    pub label: String,
    pub state: String,
    pub busy: u64,
    pub queue: u64,
    /// The name of the thread that it runs.
    pub thread: String,
}

#[derive(Clone, Default)]
pub struct Thread {
    pub id: u64,
    pub is_green: bool,
    pub name: String,
    pub state: String,
    pub since: u64,
    /// In thousandths of a processor.
    pub busy: u64,
    /// How often it left its processor in the last second, if that is known.
    pub rate: Option<u64>,
    pub waits_for: String,
    pub spawned_at: String,
    turns: u64,
}

/// Totals whose rates are shown.
pub const RATES: [(&str, &str); 6] = [
    ("switches", "switches"),
    ("wake_ups", "wake-ups"),
    ("spawns", "spawns"),
    ("steals", "steals"),
    ("preemptions", "preemptions"),
    ("hand_offs", "hand-offs"),
];

/// All that is known.
#[derive(Default)]
pub struct Model {
    pub summary: Option<Summary>,
    /// For each of [`RATES`], per second, the newest last.
    pub history: [VecDeque<u64>; RATES.len()],
    /// Why there is no newer summary.
    pub trouble: Option<String>,
}

impl Model {
    pub fn take(&mut self, answer: &Value) {
        let mut new = Summary::read(answer);
        let same = |old: &&Summary| old.process == new.process && new.uptime > old.uptime;
        match self.summary.as_ref().filter(same) {
            Some(old) => {
                let passed = new.uptime - old.uptime;
                let rate = |now: u64, before: u64| now.saturating_sub(before) * 1000 / passed;
                for (i, history) in self.history.iter_mut().enumerate() {
                    history.push_back(rate(new.totals[i], old.totals[i]));
                    if history.len() > HISTORY {
                        history.pop_front();
                    }
                }
                let shown = old.busiest.iter().chain(&old.longest);
                let turns: HashMap<u64, u64> = shown.map(|t| (t.id, t.turns)).collect();
                for thread in new.busiest.iter_mut().chain(&mut new.longest) {
                    let before = turns.get(&thread.id);
                    thread.rate = before.map(|&before| rate(thread.turns, before));
                }
            }
            // Another program.
            None => self.history = Default::default(),
        }
        self.summary = Some(new);
        self.trouble = None;
    }
}

fn text(of: &Value) -> String {
    of.as_str().unwrap_or_default().to_string()
}

fn number(of: &Value) -> u64 {
    of.as_u64().unwrap_or_default()
}

fn list(of: &Value) -> &[Value] {
    of.as_array().map_or(&[], Vec::as_slice)
}

impl Summary {
    fn read(answer: &Value) -> Summary {
        let runtimes = list(&answer["runtimes"]);
        let sum = |name: &str| runtimes.iter().map(|runtime| number(&runtime[name])).sum();
        let first = runtimes.first().unwrap_or(&Value::Null);
        let counts = &answer["threads"];
        let waits = list(&counts["waits"]).iter();
        let mut summary = Summary {
            program: text(&answer["program"]),
            process: number(&answer["process"]),
            uptime: number(&answer["uptime_ms"]),
            mode: text(&first["mode"]),
            policy: text(&first["policy"]),
            runtimes: runtimes.len(),
            processors: Vec::new(),
            global_queue: sum("global_queue"),
            kernel_threads: sum("kernel_threads"),
            idle_kernel_threads: sum("parked_kernel_threads"),
            counts: Counts {
                green: number(&counts["green"]),
                kernel: number(&counts["kernel"]),
                by_state: STATES.map(|state| number(&counts[state])),
            },
            waits: waits
                .map(|w| (text(&w["what"]), number(&w["count"])))
                .collect(),
            busiest: list(&answer["busiest"]).iter().map(Thread::read).collect(),
            longest: list(&answer["longest"]).iter().map(Thread::read).collect(),
            totals: RATES.map(|(name, _)| sum(name)),
        };
        for (place, runtime) in runtimes.iter().enumerate() {
            for processor in list(&runtime["processors"]) {
                let index = number(&processor["index"]);
                summary.processors.push(Processor {
                    label: match runtimes.len() {
                        1 => index.to_string(),
                        _ => format!("{place}.{index}"),
                    },
                    state: text(&processor["state"]),
                    busy: number(&processor["busy"]),
                    queue: number(&processor["queue"]),
                    thread: match (text(&processor["name"]), number(&processor["thread"])) {
                        (name, 0) => name,
                        (name, id) if name.is_empty() => format!("thread {id}"),
                        (name, _) => name,
                    },
                });
            }
        }
        summary
    }
}

impl Thread {
    pub fn read(value: &Value) -> Thread {
        let call = text(&value["system_call"]);
        let mut waits_for = text(&value["waits_for"]);
        if waits_for.is_empty() && !call.is_empty() {
            waits_for = format!("system call {call}");
        }
        Thread {
            id: number(&value["id"]),
            is_green: value["kind"] == "green",
            name: text(&value["name"]),
            state: text(&value["state"]),
            since: number(&value["since_ms"]),
            busy: number(&value["busy"]),
            rate: None,
            waits_for,
            spawned_at: text(&value["spawned_at"]),
            turns: number(&value["turns"]),
        }
    }
}
