//! How it is measured: a server, its load, and a figure for each column of the table.

use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::Options;
use crate::contender::Contender;
use crate::exchange::Exchange;
use crate::load::{self, Load};
use crate::process::{Holdings, Server};
use crate::read;
use crate::serve::{Hogs, Work};

/// How many connections are active beside idle ones.
const ACTIVE: usize = 100;

pub fn load(
    contender: &Contender,
    work: Work,
    connections: usize,
    hogs: Hogs,
    options: &Options,
) -> io::Result<Vec<f64>> {
    let server = Server::start(contender, work, hogs)?;
    let mut exchange = Exchange::learn(work, load::connect(server.address)?)?;
    let streams = load::open(server.address, connections, &mut exchange)?;
    let mut load = Load::new(streams, &mut exchange)?;
    load.run(options.seconds / 4)?;
    let cpu = server.cpu_time()?;
    let outcome = load.run(options.seconds)?;
    let cpu = server.cpu_time()? - cpu;
    load.pause()?;
    let mut figures = vec![
        outcome.thousands_a_second(),
        micros(outcome.p50),
        micros(outcome.p99),
        load.missed() as f64,
        micros(cpu) / outcome.requests as f64,
    ];
    if options.syscalls {
        let calls = system_calls(&server, &mut load, options.seconds / 4);
        figures.push(calls.unwrap_or_else(|error| {
            eprintln!("system calls are not counted: {error}");
            f64::NAN
        }));
    }
    Ok(figures)
}

/// System calls a request, in a stretch of so long.
fn system_calls(server: &Server, load: &mut Load, duration: Duration) -> io::Result<f64> {
    let before = load.replies();
    let trace = server.trace()?;
    load.run(duration)?;
    load.pause()?;
    Ok(trace.finish()? as f64 / (load.replies() - before) as f64)
}

pub fn idle(
    contender: &Contender,
    work: Work,
    connections: usize,
    options: &Options,
) -> io::Result<Vec<f64>> {
    let server = Server::start(contender, work, Hogs::NONE)?;
    let mut exchange = Exchange::learn(work, load::connect(server.address)?)?;
    let before = server.holdings()?.resident;
    let idle = load::open(server.address, connections, &mut exchange)?;
    let grown = server.holdings()?.resident.saturating_sub(before);
    let active = load::open(server.address, ACTIVE, &mut exchange)?;
    let mut load = Load::new(active, &mut exchange)?;
    load.run(options.seconds / 4)?;
    let outcome = load.run(options.seconds)?;
    load.pause()?;
    let missed = load.missed();
    drop(load);
    // An idle connection that has been lost is an error here.
    load::check(&idle, &mut exchange)?;
    Ok(vec![
        grown as f64 / connections as f64,
        outcome.thousands_a_second(),
        micros(outcome.p50),
        micros(outcome.p99),
        missed as f64,
    ])
}

pub fn storm(contender: &Contender, connections: usize) -> io::Result<Vec<f64>> {
    let server = Server::start(contender, Work::Echo, Hogs::NONE)?;
    let mut exchange = Exchange::learn(Work::Echo, load::connect(server.address)?)?;
    // What a server keeps for the next connections it gets now.
    load::storm(server.address, connections / 100, &mut exchange)?;
    let before = at_rest(&server)?;
    let start = Instant::now();
    load::storm(server.address, connections, &mut exchange)?;
    let elapsed = start.elapsed();
    let after = at_rest(&server)?;
    Ok(vec![
        connections as f64 / elapsed.as_secs_f64() / 1e3,
        before.descriptors as f64,
        after.descriptors as f64,
        before.kernel_threads as f64,
        after.kernel_threads as f64,
        before.resident as f64,
        after.resident as f64,
    ])
}

pub fn files(
    contender: &Contender,
    file: &Path,
    direct: bool,
    options: &Options,
) -> io::Result<Vec<f64>> {
    let output = Command::new(&contender.program)
        .args(["read", contender.runtime])
        .arg(file)
        .args([
            read::mode(direct),
            &options.seconds.as_secs_f64().to_string(),
        ])
        .envs(contender.environment.iter().cloned())
        .output()?;
    let figures = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = figures
        .split_whitespace()
        .filter_map(|figure| figure.parse().ok())
        .collect();
    let [reads, elapsed, cpu] = figures[..] else {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(error.into_owned()));
    };
    Ok(vec![reads / elapsed / 1e3, cpu / reads * 1e6])
}

/// What a server holds once that has not changed for a while.
fn at_rest(server: &Server) -> io::Result<Holdings> {
    let mut holdings = server.holdings()?;
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(250));
        let now = server.holdings()?;
        if now == holdings {
            break;
        }
        holdings = now;
    }
    Ok(holdings)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
