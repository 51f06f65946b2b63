//! Files, pipes, sockets, processes and signals by way of the crate's own types, and the driver beneath them.

#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod arrivals;
mod fs;
mod fs_full;
mod fs_shared;
mod fs_waiting;
mod io;
mod io_driver;
mod net_sharing;
mod net_tcp;
mod net_traits;
mod net_udp;
mod net_unix;
mod pipes;
mod process;
mod sends;
mod servers_bad_input;
mod signal;
