// `HACKING.md` leads readers into the source.

#![cfg_attr(feature = "net", doc = include_str!("../README.md"))]
#![cfg_attr(
    not(feature = "net"),
    doc = "Threads with the API of `std::thread`, so light that a million of them can block at once."
)]
#![warn(unreachable_pub)]
#![deny(unsafe_code)]
#![cfg_attr(
    not(all(
        green,
        hooks,
        feature = "io-uring",
        feature = "net",
        feature = "observe"
    )),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "what only green threads, or a feature, use stays where it is"
    )
)]

/// Implements `Debug` for types that show nothing of their contents, or these things alone.
macro_rules! without_details {
    ($([$($T:ident),*] $Type:ty, $name:literal $(, |$this:ident| $($thing:ident: $value:expr),+)?;)*) => {$(
        impl<$($T),*> core::fmt::Debug for $Type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $(let $this = self;)?
                f.debug_struct($name)$($(.field(stringify!($thing), &$value))+)?.finish_non_exhaustive()
            }
        }
    )*};
}

/// Implements `Default` by `new`.
macro_rules! defaults {
    ($($Type:ident $(<$T:ident>)?)*) => {$(
        impl$(<$T>)? Default for $Type$(<$T>)? {
            fn default() -> Self {
                $Type::new()
            }
        }
    )*};
}

/// Declares that handles are cloned by cloning what they wrap, whatever `T` is.
macro_rules! clones {
    ($($Type:ident)*) => {$(
        impl<T> Clone for $Type<T> {
            fn clone(&self) -> Self {
                $Type(self.0.clone())
            }
        }
    )*};
}

pub mod cancel;
pub mod channel;
pub mod coroutine;
pub mod dataflow;
#[cfg(not(green))]
#[allow(unsafe_code, reason = "a record that there is none of")]
mod elsewhere;
mod engine;
// What is not the scheduler's: any module may name it.
pub(crate) use engine::{arch, atomic, sys, wait};
#[cfg(green)]
pub mod fs;
pub mod future;
#[cfg(green)]
pub mod io;
#[cfg(interposes)]
#[allow(unsafe_code, reason = "functions with libc's names and types")]
mod libc;
#[cfg(all(green, feature = "net"))]
pub mod net;
#[cfg(feature = "observe")]
pub mod observe;
#[cfg(green)]
pub mod os;
pub use crate::engine::policy;
#[cfg(green)]
pub mod process;
pub mod runtime;
pub mod signal;
#[cfg(sim)]
#[allow(unsafe_code, reason = "processes, shared memory, the schedule's state")]
pub mod sim;
pub mod sync;
pub mod thread;
pub mod time;

#[cfg(all(not(green), feature = "net"))]
pub use crate::elsewhere::net;
#[cfg(not(green))]
pub use std::{fs, io, os, process};

pub use crate::future::block_on;
#[allow(deprecated)]
#[doc(inline)]
pub use crate::thread::{
    AccessError, Builder, JoinHandle, KernelThreadLock, LocalKey, Result, Scope, ScopedJoinHandle,
    Thread, ThreadId, available_parallelism, blocking, current, lock_kernel_thread, panicking,
    park, park_timeout, park_timeout_ms, park_until, scope, sleep, sleep_ms, sleep_until, spawn,
    unhooked, yield_now,
};

// For tests.
#[doc(hidden)]
pub use crate::engine::public::is_preemption_off as __preemption_is_off;
