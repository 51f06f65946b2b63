//! What a dump writes about threads that wait, as text and as JSON, beside what it says by the API.

use crate::common::green;
use crate::dumps::is_like;
use crate::json_schema::Schema;
use crate::rows::Table;
use greenthread::observe::{Dump, State};
use serde_json::Value;

/// The JSON keeps to the schema, and says what the API says.
pub fn check_json(table: &Table, dump: &Dump) {
    let mut json = Vec::new();
    dump.write_json(&mut json).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    let schema = Schema::new(include_str!("../../docs/dump.schema.json"));
    schema.check(&json).unwrap();
    assert_eq!(json["process"], std::process::id());
    let threads = json["threads"].as_array().unwrap();
    let stacks = json["stacks"].as_array().unwrap();
    assert_eq!(threads.len(), dump.threads().count());
    assert_eq!(stacks[0].as_array().unwrap().len(), 0, "the empty stack");
    let number = |id: &Value| format!("ThreadId({id})");
    let named = dump.threads().filter(|thread| thread.name().is_some());
    for (i, thread) in named.enumerate() {
        let name = thread.name().unwrap();
        let found = threads.iter().find(|seen| seen["name"] == name).unwrap();
        if let Some(id) = thread.id() {
            assert_eq!(number(&found["id"]), format!("{id:?}"));
        }
        let state = format!("{:?}", thread.state()).to_lowercase();
        assert_eq!(found["state"], state, "{name}");
        let place = thread.spawned_at().map(|place| place.to_string());
        assert_eq!(found["spawned_at"].as_str(), place.as_deref(), "{name}");
        assert_eq!(
            found["waits_for"].is_object(),
            thread.waits_for().is_some(),
            "{name}"
        );
        let frames = stacks[found["stack"].as_u64().unwrap() as usize]
            .as_array()
            .unwrap();
        if i % 8 != 0 {
            continue; // each backtrace looks up all its functions anew
        }
        let backtrace = thread.backtrace();
        for frame in frames {
            let function = frame["function"].as_str().unwrap();
            assert!(
                backtrace.contains(function),
                "{name}: {function} not in\n{backtrace}"
            );
        }
    }
    for row in &table.rows {
        let found = threads
            .iter()
            .find(|seen| seen["name"] == row.name.as_str())
            .unwrap();
        let other = found["waits_for"]
            .get("held_by")
            .or(found["waits_for"].get("thread"));
        let whom = other.map(|id| threads.iter().find(|seen| seen["id"] == *id).unwrap());
        assert_eq!(
            whom.map(|whom| whom["name"].as_str().unwrap()),
            row.whom,
            "{}",
            row.name
        );
        assert_eq!(
            found.get("system_call").is_some(),
            row.state == State::Blocked,
            "{found}"
        );
    }
}

/// The text says the same of each thread, in one line, and where it was spawned.
pub fn check_text(table: &Table, dump: &Dump) {
    let text = dump.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let all = dump.threads().filter(|thread| thread.is_green()).count();
    let head = format!("greenthread: {all} green thread*, at 20*Z");
    assert!(is_like(lines[0], &head), "{text}");
    for row in &table.rows {
        let quoted = format!("{:?}: ", row.name);
        let found: Vec<usize> = (0..lines.len())
            .filter(|&i| lines[i].contains(&quoted))
            .collect();
        let &[at] = found.as_slice() else {
            panic!("{quoted} {found:?}\n{text}")
        };
        let kind = if green() { "thread" } else { "kernel thread" };
        let state = format!("{:?}", row.state).to_lowercase();
        let wait = match &row.waits_for {
            Some(pattern) => format!(", waits for {pattern}"),
            None => " in the system call *".into(),
        };
        let pattern = format!("*{kind} * {quoted}{state} for * *{wait}");
        assert!(is_like(lines[at], &pattern), "{}\n{pattern}", lines[at]);
        let place = lines[at..]
            .iter()
            .find(|line| line.contains("spawned at"))
            .unwrap();
        assert!(
            is_like(place, "  spawned at *observe/waits.rs:*:*"),
            "{place}"
        );
    }
}
