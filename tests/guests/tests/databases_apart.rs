//! Clients of databases in other processes, on green threads: redis, postgres, mysql.
//!
//! Each has 2,000 threads at a pool of 20 connections. First all wait: 20 for an answer that the server holds back,
//! the others for a connection. Then each does some work that is counted. `.ci/guests` starts the servers.

#![cfg(feature = "servers")]

use mysql::prelude::Queryable;
use redis::Commands;
use std::time::Duration;
use support::{Test, server, some};

/// Kernel threads while all wait.
const BOUND: usize = 40;
const CONNECTIONS: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(100);

fn crowd() -> usize {
    some(2_000, 200)
}

fn sum(n: usize) -> usize {
    n * (n - 1) / 2
}

fn pool<M: r2d2::ManageConnection>(manager: M) -> r2d2::Pool<M> {
    let pool = r2d2::Pool::builder().max_size(CONNECTIONS);
    pool.connection_timeout(PATIENCE).build(manager).unwrap()
}

#[test]
fn redis() {
    let Some(address) = server("GT_REDIS") else {
        return;
    };
    let test = Test::new("redis and r2d2", 120);
    let n = crowd();
    let client = redis::Client::open(address).unwrap();
    let mut ours = client.get_connection().unwrap();
    redis::cmd("FLUSHALL").exec(&mut ours).unwrap();
    let pool = pool(client);
    let got = test.crowd(
        n,
        BOUND,
        move |i| {
            let mut connection = pool.get().unwrap();
            // An element is pushed for each of them.
            let (_, element): (String, usize) = connection.blpop("gate", 0.0).unwrap();
            let key = format!("thread:{i}");
            let () = connection.set(&key, vec![i as u8; 1 + i]).unwrap();
            let back: Vec<u8> = connection.get(&key).unwrap();
            assert_eq!(back, vec![i as u8; 1 + i]);
            let (_, old): (i64, i64) = redis::pipe()
                .incr("visits", 1)
                .incr("sum", i)
                .query(&mut *connection)
                .unwrap();
            assert!(old >= i as i64);
            element
        },
        || {
            for i in 0..n {
                let _: usize = ours.rpush("gate", i).unwrap();
            }
        },
    );
    assert_eq!(got.into_iter().sum::<usize>(), sum(n));
    let counts: (usize, usize) = ours.mget(&["visits", "sum"]).unwrap();
    assert_eq!(counts, (n, sum(n)));
    test.report();
}

#[test]
fn postgres() {
    let Some(address) = server("GT_POSTGRES") else {
        return;
    };
    let test = Test::new("postgres and r2d2", 120);
    let n = crowd();
    let config: postgres::Config = address.parse().unwrap();
    let mut ours = config.connect(postgres::NoTls).unwrap();
    ours.batch_execute(
        "DROP TABLE IF EXISTS account; DROP TABLE IF EXISTS visit;
         CREATE TABLE account (id int PRIMARY KEY, sum int8 NOT NULL);
         INSERT INTO account VALUES (1, 0), (2, 0);
         CREATE TABLE visit (thread int PRIMARY KEY, what text);
         SELECT pg_advisory_lock(1)",
    )
    .unwrap();
    let pool = pool(r2d2_postgres::PostgresConnectionManager::new(
        config,
        postgres::NoTls,
    ));
    let seen = test.crowd(
        n,
        BOUND,
        move |i| {
            let mut connection = pool.get().unwrap();
            let lock = "SELECT pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1)";
            connection.batch_execute(lock).unwrap();
            let mut visit = connection.transaction().unwrap();
            let (thread, text) = (i as i64, format!("thread {i}"));
            visit
                .execute("UPDATE account SET sum = sum + $1 WHERE id = 1", &[&thread])
                .unwrap();
            visit
                .execute("UPDATE account SET sum = sum - $1 WHERE id = 2", &[&thread])
                .unwrap();
            visit
                .execute("INSERT INTO visit VALUES ($1, $2)", &[&(i as i32), &text])
                .unwrap();
            let row = visit
                .query_one("SELECT sum(sum)::int8 FROM account", &[])
                .unwrap();
            visit.commit().unwrap();
            row.get::<_, i64>(0)
        },
        || ours.batch_execute("SELECT pg_advisory_unlock(1)").unwrap(),
    );
    assert!(seen.iter().all(|sum| *sum == 0), "a visit was cut in two");
    let row = ours
        .query_one(
            "SELECT (SELECT sum FROM account WHERE id = 1),
                    (SELECT count(*) FROM visit WHERE what = 'thread ' || thread)",
            &[],
        )
        .unwrap();
    assert_eq!((row.get(0), row.get(1)), (sum(n) as i64, n as i64));
    test.report();
}

#[test]
fn mysql() {
    let Some(address) = server("GT_MYSQL") else {
        return;
    };
    let test = Test::new("mysql", 120);
    let n = crowd();
    let limits = mysql::PoolConstraints::new(0, CONNECTIONS as usize).unwrap();
    let options = mysql::OptsBuilder::from_opts(mysql::Opts::from_url(&address).unwrap())
        .pool_opts(mysql::PoolOpts::default().with_constraints(limits));
    let mut ours = mysql::Conn::new(options.clone()).unwrap();
    for statement in [
        "DROP TABLE IF EXISTS account, visit",
        "CREATE TABLE account (id int PRIMARY KEY, sum bigint NOT NULL) ENGINE = InnoDB",
        "INSERT INTO account VALUES (1, 0), (2, 0)",
        "CREATE TABLE visit (thread int PRIMARY KEY, what text) ENGINE = InnoDB",
        "BEGIN",
        "UPDATE account SET sum = 0 WHERE id = 1",
        "SELECT * FROM account FOR UPDATE",
    ] {
        ours.query_drop(statement).unwrap();
    }
    let pool = mysql::Pool::new(options).unwrap();
    let seen = test.crowd(
        n,
        BOUND,
        move |i| {
            let mut connection = pool.get_conn().unwrap();
            let i = i as i64; // an unsigned one would make the sum unsigned
            let mut visit = connection
                .start_transaction(mysql::TxOpts::default())
                .unwrap();
            visit
                .exec_drop("UPDATE account SET sum = sum + ? WHERE id = 1", (i,))
                .unwrap();
            visit
                .exec_drop("UPDATE account SET sum = sum - ? WHERE id = 2", (i,))
                .unwrap();
            let text = format!("thread {i}");
            visit
                .exec_drop("INSERT INTO visit VALUES (?, ?)", (i, text))
                .unwrap();
            let all = "SELECT CAST(SUM(sum) AS SIGNED) FROM account";
            let sum: Option<i64> = visit.query_first(all).unwrap();
            visit.commit().unwrap();
            sum.unwrap()
        },
        || ours.query_drop("COMMIT").unwrap(),
    );
    assert!(seen.iter().all(|sum| *sum == 0), "a visit was cut in two");
    let counts: Option<(usize, usize)> = ours
        .query_first(
            "SELECT (SELECT sum FROM account WHERE id = 1),
                    (SELECT COUNT(*) FROM visit WHERE what = CONCAT('thread ', thread))",
        )
        .unwrap();
    assert_eq!(counts, Some((sum(n), n)));
    test.report();
}
