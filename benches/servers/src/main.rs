//! Servers and file readers on greenthread beside their peers, under the same load, in the same run.
//!
//! The idea: whatever is measured runs in a process of its own (`serve RUNTIME …` or
//! `read RUNTIME …`, also the command line of the Go program), and this process is the client of
//! all. Contenders take turns, round after round, starting from a different one each round, since
//! on a noisy machine numbers of different minutes cannot be compared; tables show medians.
//!
//! | file | what |
//! |---|---|
//! | `main` | the command line |
//! | `part`, `measure` | what there is to measure, and how |
//! | `compare` | rounds and the table |
//! | `contender`, `process` | who is measured; its process, and what the kernel says about it |
//! | `load`, `exchange` | the load generator; requests and the replies to expect |
//! | `plain`, `on_std`, `on_greenthread` | one program, imported twice |
//! | `on_tokio`, `on_hyper`, `../go` | the same as their users would write it |
//! | `on_mio` | no runtime: what the system calls leave to be reached |
//! | `serve`, `read`, `http` | what the contenders share: start and end, blocks, parsing |
//!
//! Invariants:
//! 1. All servers answer a request with the same number of bytes, and the generator compares every
//!    byte of every reply with the one reply that is right.
//! 2. No process runs two runtimes. A server runs for one measurement only.
//! 3. A contender that fails shows as such in its row and disturbs no other.

mod compare;
mod contender;
mod exchange;
#[path = "../../support/go.rs"]
mod go;
mod http;
mod load;
mod measure;
mod on_greenthread;
mod on_hyper;
mod on_mio;
mod on_std;
mod on_tokio;
mod part;
mod process;
mod read;
mod serve;
#[path = "../../support/tsv.rs"]
mod tsv;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::contender::Variant;
use crate::part::Part;

const USAGE: &str = "usage: greenthread-servers [OPTION]... [PART]...

PART: echo, http, hogs, idle, storm or files; all of them if none is named

  --rounds N            interleaved rounds (5)
  --seconds N           how long a measurement takes after its warm-up (2)
  --connections N,...   for echo and http (1,100,1000,10000)
  --idle N              idle connections for idle (10000)
  --storm N             connections opened and closed by storm (200000)
  --megabytes N         size of the file for files (256)
  --dir DIR             where to make that file (the directory for temporary files)
  --servers NAME,...    only these: greenthread, variants of it, tokio, hyper, Go, std, loop
  --variant NAME:VARIABLE=VALUE,...
                        greenthread once more, with these environment variables; may be repeated
  --syscalls            also count system calls a request, in a second, short run under strace
  --tsv                 no tables, but a line for each measurement, for benches/compare";

/// What the command line asks for.
pub struct Options {
    rounds: usize,
    seconds: Duration,
    connections: Vec<usize>,
    idle: usize,
    storm: usize,
    megabytes: u64,
    dir: PathBuf,
    servers: Vec<String>,
    variants: Vec<Variant>,
    syscalls: bool,
    tsv: bool,
    parts: Vec<Part>,
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match *words {
        ["--help"] => {
            println!("{USAGE}");
            Some(())
        }
        ["serve", ref rest @ ..] => serve::run(rest),
        ["read", ref rest @ ..] => read::run(rest),
        _ => parse(&args).map(|options| {
            raise_descriptor_limit();
            let contenders = contender::all(&options);
            for &part in &options.parts {
                compare::compare(part, &contenders, &options);
            }
        }),
    };
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => {
            eprintln!("{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<Options> {
    let mut options = Options {
        rounds: 5,
        seconds: Duration::from_secs(2),
        connections: vec![1, 100, 1000, 10_000],
        idle: 10_000,
        storm: 200_000,
        megabytes: 256,
        dir: env::temp_dir(),
        servers: Vec::new(),
        variants: Vec::new(),
        syscalls: false,
        tsv: false,
        parts: Vec::new(),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next();
        match arg.as_str() {
            "--rounds" => options.rounds = positive(value()?)?,
            "--seconds" => options.seconds = seconds(value()?)?,
            "--connections" => {
                options.connections = value()?.split(',').map(positive).collect::<Option<_>>()?
            }
            "--idle" => options.idle = positive(value()?)?,
            "--storm" => options.storm = positive(value()?)?,
            "--megabytes" => options.megabytes = positive(value()?)? as u64,
            "--dir" => options.dir = value()?.into(),
            "--servers" => options.servers = value()?.split(',').map(String::from).collect(),
            "--variant" => options.variants.push(Variant::parse(value()?)?),
            "--syscalls" => options.syscalls = true,
            "--tsv" => options.tsv = true,
            word => options.parts.push(Part::parse(word)?),
        }
    }
    if options.parts.is_empty() {
        options.parts = Part::ALL.to_vec();
    }
    Some(options)
}

fn positive(word: &str) -> Option<usize> {
    word.parse().ok().filter(|&n| n > 0)
}

fn seconds(word: &str) -> Option<Duration> {
    let seconds = word.parse().ok().filter(|&seconds| seconds > 0.0);
    Duration::try_from_secs_f64(seconds?).ok()
}

/// As many descriptors as this user may have, here and in the servers, which inherit the limit.
fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("a soft limit may be raised to the hard one");
}
