//! What may be sent to other threads, and shared with them, is what std's or crossbeam's counterpart
//! may, and nothing else; what has no counterpart is listed here. (`sync` is in `sync/traits.rs`.)
//!
//! The idea: all is compared while compiling, so a type that may cross threads and must not fails
//! to compile.

#![forbid(unsafe_code)]

#[macro_use]
#[path = "../support/implements.rs"]
mod implements;

use greenthread::policy::*;
use greenthread::*;
use std::cell::Cell;
use std::rc::Rc;

/// `$type` may be sent, and shared, or not, as said.
macro_rules! may {
    ($($type:ty: $send:literal $sync:literal,)*) => {$(
        const {
            assert!(implements!($type, Send) == $send, concat!(stringify!($type), ": Send"));
            assert!(implements!($type, Sync) == $sync, concat!(stringify!($type), ": Sync"));
        }
    )*};
}

macro_rules! same {
    ($($ours:ty = $theirs:ty,)*) => {$(
        const {
            assert!(
                implements!($ours, Send) == implements!($theirs, Send),
                concat!(stringify!($ours), ": Send")
            );
            assert!(
                implements!($ours, Sync) == implements!($theirs, Sync),
                concat!(stringify!($ours), ": Sync")
            );
        }
    )*};
}

/// `$body` for content that is both Send and Sync, only Send, only Sync, or neither.
macro_rules! for_contents {
    ($check:ident! { $($tokens:tt)* }) => {{
        { type T = Vec<u8>; $check! { $($tokens)* } }
        { type T = Cell<u8>; $check! { $($tokens)* } }
        { type T = std::sync::MutexGuard<'static, u8>; $check! { $($tokens)* } }
        { type T = Rc<u8>; $check! { $($tokens)* } }
    }};
}

#[test]
fn policies() {
    may! {
        // It is the right to a processor, whose state has one user at a time.
        Seat: false false,
        &'static Seat: false false,
        Option<&'static Seat>: false false,
        // They end with the call that lends them.
        Victims<'static>: false false,
        // A thread's only way to run goes where it likes.
        Ready: true true,
        Next: true true,
        Queue: true true,
        Heap: true true,
        Priority: true true,
        Readied: true true,
        // It counts on the thread that has it.
        Guard<'static, u8>: false false,
        WorkStealing: true true,
        RelaxedFifo: true true,
        LeastLoaded: true true,
        Priorities: true true,
        GlobalQueue: true true,
    }
    for_contents!(same! { policy::Lock<T> = std::sync::Mutex<T>, });
    may! {
        policy::Lock<Queue>: true true,
        policy::Lock<Heap>: true true,
        policy::Lock<Rc<u8>>: false false,
    }
}

#[test]
fn threads() {
    for_contents!(same! {
        JoinHandle<T> = std::thread::JoinHandle<T>,
        ScopedJoinHandle<'static, T> = std::thread::ScopedJoinHandle<'static, T>,
        LocalKey<T> = std::thread::LocalKey<T>,
    });
    same! {
        Scope<'static, 'static> = std::thread::Scope<'static, 'static>,
        Builder = std::thread::Builder,
        Thread = std::thread::Thread,
        ThreadId = std::thread::ThreadId,
    }
    may! {
        // It locks the thread that has it.
        KernelThreadLock: false false,
        runtime::Runtime: true true,
        runtime::Builder: true true,
        runtime::Metrics: true true,
    }
}

#[test]
fn channels() {
    for_contents!(same! {
        channel::Sender<T> = crossbeam_channel::Sender<T>,
        channel::Receiver<T> = crossbeam_channel::Receiver<T>,
        channel::Iter<'static, T> = crossbeam_channel::Iter<'static, T>,
        channel::TryIter<'static, T> = crossbeam_channel::TryIter<'static, T>,
        channel::IntoIter<T> = crossbeam_channel::IntoIter<T>,
        channel::SendError<T> = crossbeam_channel::SendError<T>,
        sync::mpsc::Sender<T> = std::sync::mpsc::Sender<T>,
        sync::mpsc::SyncSender<T> = std::sync::mpsc::SyncSender<T>,
        sync::mpsc::Receiver<T> = std::sync::mpsc::Receiver<T>,
        sync::mpsc::IntoIter<T> = std::sync::mpsc::IntoIter<T>,
        sync::mpsc::Iter<'static, T> = std::sync::mpsc::Iter<'static, T>,
    });
    same! {
        channel::Select<'static> = crossbeam_channel::Select<'static>,
        channel::SelectedOperation<'static> = crossbeam_channel::SelectedOperation<'static>,
    }
    may! { channel::SelectedOperation<'static>: false false, }
}

#[test]
fn once() {
    for_contents!(same! {
        sync::OnceLock<T> = std::sync::OnceLock<T>,
        sync::LazyLock<T, T> = std::sync::LazyLock<T, T>,
        sync::LazyLock<T, fn() -> T> = std::sync::LazyLock<T, fn() -> T>,
    });
    same! {
        sync::Once = std::sync::Once,
        sync::OnceState = std::sync::OnceState,
    }
}

#[test]
fn coroutines() {
    use coroutine::{Coroutine, CoroutineResult, Yielder};
    type Sent = Vec<u8>;
    may! {
        Coroutine<Sent, Sent, Sent>: true true,
        // What goes in and out is sent, and never shared.
        Coroutine<Cell<u8>, Cell<u8>, Cell<u8>>: true true,
        // These cannot be made: all that a coroutine is given is Send.
        Coroutine<Rc<u8>, Sent, Sent>: false false,
        Coroutine<Sent, Rc<u8>, Sent>: false false,
        // It stays on the coroutine's own stack.
        Yielder<Sent, Sent>: false false,
        &'static Yielder<Sent, Sent>: false false,
    }
    for_contents!(same! { CoroutineResult<T, T> = core::result::Result<T, T>, });
}

#[test]
fn dataflow_and_futures() {
    use dataflow::{Failure, Value};
    // A value has many readers, of whom the last drops it: as an `Arc`.
    for_contents!(same! { Value<T> = std::sync::Arc<T>, });
    may! { Failure: true true, }
    for_contents!(same! { future::JoinFuture<T> = std::thread::JoinHandle<T>, });
}

#[test]
fn files_and_sockets() {
    #[cfg(feature = "net")]
    same! {
        net::TcpStream = std::net::TcpStream,
        net::TcpListener = std::net::TcpListener,
        net::UdpSocket = std::net::UdpSocket,
        net::Incoming<'static> = std::net::Incoming<'static>,
        os::unix::net::UnixStream = std::os::unix::net::UnixStream,
        os::unix::net::UnixListener = std::os::unix::net::UnixListener,
        os::unix::net::UnixDatagram = std::os::unix::net::UnixDatagram,
    }
    same! {
        fs::File = std::fs::File,
        fs::OpenOptions = std::fs::OpenOptions,
        fs::ReadDir = std::fs::ReadDir,
        fs::DirEntry = std::fs::DirEntry,
        process::Command = std::process::Command,
        process::Child = std::process::Child,
        process::ChildStdin = std::process::ChildStdin,
        process::ChildStdout = std::process::ChildStdout,
        process::ChildStderr = std::process::ChildStderr,
        io::PipeReader = std::io::PipeReader,
        io::PipeWriter = std::io::PipeWriter,
        io::Stdin = std::io::Stdin,
        io::StdinLock<'static> = std::io::StdinLock<'static>,
    }
}
