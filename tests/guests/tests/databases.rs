//! SQLite, a library that sleeps until others are done, on green threads.

use rusqlite::Connection;
use std::path::PathBuf;
use std::time::Duration;
use support::{Test, some};

/// Kernel threads while all wait.
const BOUND: usize = 40;

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(folder: &Folder) -> Connection {
    let connection = Connection::open(folder.0.join("accounts.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(100)).unwrap();
    connection
        .pragma_update(None, "synchronous", "OFF")
        .unwrap();
    connection
}

/// 500 connections to one file. While one of them holds the lock, all others sleep and try again.
#[test]
fn sqlite() {
    let test = Test::new("rusqlite", 120);
    let n = some(500, 50);
    let name = format!("greenthread-guests-{}", std::process::id());
    let folder = Folder(std::env::temp_dir().join(name));
    std::fs::create_dir(&folder.0).unwrap();
    let ours = open(&folder);
    ours.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, sum INTEGER);
         INSERT INTO account VALUES (1, 0), (2, 0);
         CREATE TABLE visit (thread INTEGER PRIMARY KEY);
         BEGIN IMMEDIATE;",
    )
    .unwrap();
    let place = Folder(folder.0.clone());
    let seen = test.crowd(
        n,
        BOUND,
        move |i| {
            let mut connection = open(&place);
            let visit = connection
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                .unwrap();
            visit
                .execute("UPDATE account SET sum = sum + ?1 WHERE id = 1", [i])
                .unwrap();
            visit
                .execute("UPDATE account SET sum = sum - ?1 WHERE id = 2", [i])
                .unwrap();
            visit.execute("INSERT INTO visit VALUES (?1)", [i]).unwrap();
            let sum: i64 = visit
                .query_row("SELECT sum(sum) FROM account", [], |row| row.get(0))
                .unwrap();
            visit.commit().unwrap();
            sum
        },
        || ours.execute_batch("COMMIT").unwrap(),
    );
    assert!(seen.iter().all(|sum| *sum == 0), "a visit was cut in two");
    let sums: (usize, usize) = ours
        .query_row(
            "SELECT (SELECT sum FROM account WHERE id = 1), (SELECT count(*) FROM visit)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(sums, (n * (n - 1) / 2, n));
    test.report();
}
