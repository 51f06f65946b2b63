//! The process of a server, and what the kernel says about it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::contender::Contender;
use crate::serve::{Hogs, Work};

/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that runs. It ends when this is dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

/// strace at work on a server.
pub struct Trace {
    strace: Child,
    output: BufReader<ChildStderr>,
}

/// What a process holds.
#[derive(Clone, Copy, PartialEq)]
pub struct Holdings {
    pub descriptors: usize,
    pub kernel_threads: usize,
    /// Resident memory in KiB.
    pub resident: usize,
}

impl Server {
    pub fn start(contender: &Contender, work: Work, hogs: Hogs) -> io::Result<Server> {
        let mut child = Command::new(&contender.program)
            .args(["serve", contender.runtime, work.name()])
            .args([hogs.kind(), &hogs.count.to_string()])
            .envs(contender.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let address = first_line(stdout).map(|line| line.parse());
        match address {
            Ok(Ok(address)) => Ok(Server { child, address }),
            _ => {
                end(&mut child);
                Err(io::Error::other("the server does not start"))
            }
        }
    }

    /// Counts system calls from now on.
    pub fn trace(&self) -> io::Result<Trace> {
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-p", &self.child.id().to_string()])
            .stderr(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(strace.stderr.take().expect("it is piped"));
        let mut attached = String::new();
        output.read_line(&mut attached)?;
        match attached.contains(" attached") {
            true => Ok(Trace { strace, output }),
            false => {
                strace.wait()?;
                Err(io::Error::other(attached))
            }
        }
    }

    /// The CPU time that the server has used, threads that have ended included.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let stat = self.proc("stat")?;
        // Fields are counted from after the name, which may hold anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 = fields
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().expect("a number of ticks"))
            .sum();
        let a_second = rustix::param::clock_ticks_per_second() as f64;
        Ok(Duration::from_secs_f64(ticks as f64 / a_second))
    }

    pub fn holdings(&self) -> io::Result<Holdings> {
        let status = self.proc("status")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| io::Error::other(format!("no {name} in /proc/PID/status")))
        };
        Ok(Holdings {
            descriptors: fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count(),
            kernel_threads: field("Threads:")?,
            resident: field("VmRSS:")?,
        })
    }

    fn proc(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))
    }
}

impl Trace {
    /// Ends counting: how many system calls there were.
    pub fn finish(mut self) -> io::Result<u64> {
        kill_process(Pid::from_child(&self.strace), Signal::INT)?;
        let mut report = String::new();
        self.output.read_to_string(&mut report)?;
        self.strace.wait()?;
        // % of time, seconds, microseconds a call, calls, perhaps errors, "total".
        let total = report.lines().find(|line| line.ends_with(" total"));
        let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        calls.ok_or_else(|| io::Error::other("strace reports no total"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn first_line(output: impl Read) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok(line.trim_end().to_string())
}

/// A server ends when its standard input does.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    let start = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > PATIENCE {
            eprintln!("a server does not end: it is killed");
            let _ = child.kill();
            let _ = child.wait();
        }
        thread::sleep(Duration::from_millis(2));
    }
}
