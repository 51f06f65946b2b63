//! Measurements in processes of their own. `benches/peers`, `benches/seeds` and
//! `benches/latency` use this file.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Why there is no output.
#[derive(Clone, Copy)]
pub enum Failure {
    /// It did not start, or ended with an error.
    Failed,
    /// It was not done in time.
    Hangs,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Failed => "failed",
            Failure::Hangs => "hangs",
        })
    }
}

/// What a process writes, if the process ends well within `limit`. Meanwhile this one only waits.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .or(Err(Failure::Failed))?;
    let mut pipe = child.stdout.take().expect("it is piped");
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let mut output = String::new();
        let read = pipe.read_to_string(&mut output);
        // Nobody listens after the limit.
        let _ = done.send(read.map(|_| output));
    });
    let read = is_done.recv_timeout(limit);
    if read.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    match read {
        Err(_) => Err(Failure::Hangs),
        Ok(Ok(output)) if status.is_ok_and(|status| status.success()) => Ok(output),
        Ok(_) => Err(Failure::Failed),
    }
}
