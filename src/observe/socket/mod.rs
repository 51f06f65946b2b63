//! The socket on which a running program answers questions about its threads: `GREENTHREAD_OBSERVE=unix:/path`.
//!
//! | file | idea |
//! |---|---|
//! | `mod` | the kernel thread that accepts clients |
//! | `place` | the socket's file |
//! | `client` | one client: its requests, its kernel thread |
//! | `ask` | a request |
//! | `answer` | the answers |
//!
//! `docs/observe-socket.md` describes requests and answers. Nothing here runs unless it is asked for, and with no client
//! the kernel thread sleeps in `accept`.
//!
//! Invariants:
//! 1. Only the process' own user and root get an answer. The file's rights say so, and the system is asked who
//!    the client is.
//! 2. A client costs a bounded amount of memory (a dump apart), and its kernel thread ends when it is slow or silent. It
//!    holds no lock of the program's meanwhile. There are [`CLIENTS`] at most.
//! 3. These kernel threads take no signals, and run no code of the program's.
//! 4. A forked child has neither the threads nor the descriptors.

mod answer;
mod ask;
mod client;
mod place;

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

pub(crate) use self::place::LONGEST_PATH;
use super::employ;
use crate::engine::door::atomic::{AtomicUsize, Ordering};
use crate::engine::door::{clock, is_forked_child};
use crate::engine::inspect::system::{OnlyHere, kernel_thread};

/// How many clients are served at once.
const CLIENTS: usize = 4;
/// How long a client may take to receive some part of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

static SERVED: AtomicUsize = AtomicUsize::new(0);

/// Serves the socket at `path` from now on; only the first call does something. If it cannot be served, a line on
/// standard error says why, and the program goes on.
pub(super) fn start(path: &Path) {
    static ONCE: Once = Once::new();
    if is_forked_child() {
        return;
    }
    ONCE.call_once(|| {
        if let Err(error) = serve(path) {
            // Nobody may read it.
            let _ = writeln!(
                io::stderr(),
                "greenthread: GREENTHREAD_OBSERVE=unix:{}: {error}",
                path.display()
            );
        }
    });
}

fn serve(path: &Path) -> io::Result<()> {
    let listener = place::listen(path)?;
    let only_here = OnlyHere::new(listener.as_raw_fd());
    let started = clock::now();
    employ("gt-observe", move || {
        accept(listener, started);
        drop(only_here);
    })
}

fn accept(listener: UnixListener, started: u64) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let only_here = OnlyHere::new(stream.as_raw_fd());
                admit(stream, only_here, started);
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EBADF | libc::ENOTSOCK | libc::EINVAL) => {
                    // The program has closed it, and the number may be another file's by now.
                    core::mem::forget(listener);
                    return;
                }
                // No descriptor is to be had, or no memory.
                _ => kernel_thread::rest(100_000_000),
            },
        }
    }
}

/// Serves a client, if it may be served.
fn admit(stream: UnixStream, only_here: OnlyHere, started: u64) {
    if stream.set_write_timeout(Some(PATIENCE)).is_err() {
        return;
    }
    // SAFETY: a plain call.
    let own = unsafe { libc::geteuid() };
    match user(&stream) {
        Some(user) if user == own || user == 0 => {}
        _ => return refuse(&stream, &format!("only user {own} and root may ask")),
    }
    // Relaxed: this thread alone adds to it.
    if SERVED.load(Ordering::Relaxed) >= CLIENTS {
        return refuse(&stream, &format!("{CLIENTS} clients are served already"));
    }
    SERVED.fetch_add(1, Ordering::Relaxed);
    let serve = move || {
        client::serve(stream, started);
        drop(only_here);
        SERVED.fetch_sub(1, Ordering::Relaxed);
    };
    if employ("gt-client", serve).is_err() {
        SERVED.fetch_sub(1, Ordering::Relaxed);
    }
}

fn refuse(mut stream: &UnixStream, reason: &str) {
    let _ = stream.write_all(answer::error(reason).as_bytes());
}

/// The user that has made the connection.
fn user(stream: &UnixStream) -> Option<libc::uid_t> {
    let mut who = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the place is valid, and its size is right.
    let failed = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut size,
        )
    };
    (failed == 0).then_some(who.uid)
}
