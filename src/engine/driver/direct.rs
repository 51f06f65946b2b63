//! How a kernel thread waits: it shares its kernel thread with no other, so it blocks in the
//! kernel.

use std::io;
use std::os::fd::AsRawFd;

use super::{Direction, Driver, Limit, Source, would_block};
use crate::engine::sys::clock;

/// Waits by `poll(2)`.
pub(crate) struct Direct;

impl Driver for Direct {
    fn wait(&self, source: &Source, direction: Direction, limit: Limit) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: source.as_raw_fd(),
            events: match direction {
                Direction::Read => libc::POLLIN,
                Direction::Write => libc::POLLOUT,
            },
            revents: 0,
        };
        let millis = match limit {
            Limit::Forever => -1,
            Limit::DontWait => 0,
            Limit::Until(deadline) => {
                let left = deadline.saturating_sub(clock::now());
                left.div_ceil(1_000_000).min(i32::MAX as u64) as i32
            }
        };
        if millis == 0 {
            return Err(would_block());
        }
        // SAFETY: the call gets one valid record. A failure means: try again.
        unsafe { libc::poll(&mut poll, 1, millis) };
        Ok(())
    }

    fn end_waits(&self, source: &Source) {
        // SAFETY: a system call. It wakes the threads that poll the descriptor, those of
        // unconnected sockets too.
        unsafe { libc::shutdown(source.as_raw_fd(), libc::SHUT_RDWR) };
    }
}
