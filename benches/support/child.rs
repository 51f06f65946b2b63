//! Measurements in processes of their own. `benches/peers` and `benches/seeds` use this file.

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Why there is no output.
#[derive(Clone, Copy)]
pub enum Failure {
    /// It did not start, or ended with an error.
    Failed,
    /// It was not done in time.
    Hangs,
}

/// What a process writes, if it is short and the process ends well within `limit`.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .or(Err(Failure::Failed))?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().or(Err(Failure::Failed))? {
            Some(status) => break status,
            None if start.elapsed() < limit => thread::sleep(Duration::from_millis(2)),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Failure::Hangs);
            }
        }
    };
    let mut output = String::new();
    let read = child
        .stdout
        .take()
        .map(|mut pipe| pipe.read_to_string(&mut output));
    match read {
        Some(Ok(_)) if status.success() => Ok(output),
        _ => Err(Failure::Failed),
    }
}
