//! A server's process: `serve RUNTIME WORK HOGS N`. It prints its address, and ends when its
//! standard input does, so that it never outlives the program that measures it.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process;

use crate::{on_greenthread, on_hyper, on_mio, on_std, on_tokio};

/// Where servers listen: on a port that is free.
pub const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// How much a server reads at a time, at most.
pub const BUFFER: usize = 1024;

/// What a server does.
#[derive(Clone, Copy)]
pub enum Work {
    Echo,
    Http,
}

/// Threads beside those of the connections, in the server's process.
#[derive(Clone, Copy)]
pub struct Hogs {
    pub count: usize,
    /// Whether they yield in their loops. If not, they do nothing but compute.
    pub yielding: bool,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Echo => "echo",
            Work::Http => "http",
        }
    }

    fn parse(word: &str) -> Option<Work> {
        [Work::Echo, Work::Http]
            .into_iter()
            .find(|work| work.name() == word)
    }
}

impl Hogs {
    pub const NONE: Hogs = Hogs {
        count: 0,
        yielding: false,
    };

    pub fn kind(self) -> &'static str {
        match self.yielding {
            true => "yielding",
            false => "computing",
        }
    }

    fn parse(kind: &str, count: &str) -> Option<Hogs> {
        let hogs = |yielding| Hogs { count: 0, yielding };
        let hogs = [hogs(false), hogs(true)]
            .into_iter()
            .find(|hogs| hogs.kind() == kind)?;
        Some(Hogs {
            count: count.parse().ok()?,
            ..hogs
        })
    }
}

/// Serves until standard input ends.
pub fn run(args: &[&str]) -> Option<()> {
    let [runtime, work, kind, count] = *args else {
        return None;
    };
    let (work, hogs) = (Work::parse(work)?, Hogs::parse(kind, count)?);
    match runtime {
        "greenthread" => on_greenthread::serve(work, hogs, announce),
        "std" => on_std::serve(work, hogs, announce),
        "tokio" => on_tokio::serve(work, hogs, announce),
        "hyper" => on_hyper::serve(announce),
        "loop" => on_mio::echo(announce),
        _ => return None,
    }
    .expect("the server failed");
    Some(())
}

/// The server listens: says where, and ends the process when it is time. To be called from a kernel
/// thread with nothing else to do.
fn announce(address: SocketAddr) -> ! {
    println!("{address}");
    let _ = io::stdin().read_to_end(&mut Vec::new());
    process::exit(0)
}
