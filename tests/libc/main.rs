//! Code that knows nothing of green threads: its calls of libc park the thread that makes them, and answer what libc
//! answers.

#[path = "../support/alike.rs"]
mod alike;
#[path = "../support/checking_allocator.rs"]
mod checking_allocator;
#[path = "../common/mod.rs"]
mod common;
#[path = "../support/sockets.rs"]
mod sockets;

mod children;
mod cpp;
mod faults;
mod futex;
mod futex2;
mod handlers;
mod interrupted;
mod net;
mod pipes;
mod poll;
mod process;
mod pthread;
mod pthread_answers;
mod pthread_crowds;
mod shared;
mod sleep;
mod vain;
mod waiters;
