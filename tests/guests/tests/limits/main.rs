//! Time limits round clients that know nothing of them: each against a server that stalls, at each stage of a call.
//!
//! A call returns soon after its limit and leaves nothing behind. The next one through the same client has its own
//! answer, or an error. `support/stalls.rs` has the servers, and what all of these tests check.

mod crowd;
#[cfg(feature = "servers")]
mod databases;
#[cfg(feature = "servers")]
mod event_loops;
mod http;
mod names;
mod tls;
mod websocket;
