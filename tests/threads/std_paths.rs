//! What stable std has in the modules that this crate has too: every path compiles with `greenthread`
//! for `std`. The list is std's own as of Rust 1.95, and each path is tried with std first.

#![cfg(feature = "net")]
#![allow(deprecated, unused_imports)]

/// The names of a module, imported from std and from greenthread; in a scope of their own.
macro_rules! paths {
    ($($($module:ident)::+ { $($name:ident),+ $(,)? })+) => {$(
        const _: () = {
            use std::$($module)::+::{$($name),+};
        };
        const _: () = {
            use greenthread::$($module)::+::{$($name),+};
        };
    )+};
}

paths! {
    fs {
        DirBuilder, DirEntry, File, FileTimes, FileType, Metadata, OpenOptions, Permissions, ReadDir,
        canonicalize, copy, create_dir, create_dir_all, exists, hard_link, metadata, read, read_dir,
        read_link, read_to_string, remove_dir, remove_dir_all, remove_file, rename,
        set_permissions, soft_link, symlink_metadata, write,
    }
    io {
        BufRead, BufReader, BufWriter, Bytes, Chain, Cursor, Empty, Error, ErrorKind,
        IntoInnerError, IoSlice, IoSliceMut, IsTerminal, LineWriter, Lines, PipeReader, PipeWriter,
        Read, Repeat, Result, Seek, SeekFrom, Sink, Split, Stderr, StderrLock, Stdin, StdinLock,
        Stdout, StdoutLock, Take, Write, copy, empty, pipe, prelude, read_to_string, repeat, sink,
        stderr, stdin, stdout,
    }
    io::prelude { BufRead, Read, Seek, Write }
    net {
        AddrParseError, Incoming, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4,
        SocketAddrV6, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
    }
    os { fd, linux, raw, unix }
    os::fd { AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd }
    os::linux { fs, net, raw }
    os::linux::fs { MetadataExt }
    os::linux::net { SocketAddrExt, TcpStreamExt }
    os::linux::raw { blkcnt_t, blksize_t, dev_t, ino_t, mode_t, nlink_t, off_t, pthread_t, stat, time_t }
    os::raw {
        c_char, c_double, c_float, c_int, c_long, c_longlong, c_schar, c_short, c_uchar, c_uint,
        c_ulong, c_ulonglong, c_ushort, c_void,
    }
    os::unix { ffi, fs, io, net, prelude, process, raw, thread }
    os::unix::ffi { OsStrExt, OsStringExt }
    os::unix::fs {
        DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt,
        PermissionsExt, chown, chroot, fchown, lchown, symlink,
    }
    os::unix::io { AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd }
    os::unix::net { Incoming, SocketAddr, UnixDatagram, UnixListener, UnixStream }
    os::unix::prelude {
        AsFd, AsRawFd, BorrowedFd, CommandExt, DirEntryExt, ExitStatusExt, FileExt, FileTypeExt,
        FromRawFd, IntoRawFd, JoinHandleExt, MetadataExt, OpenOptionsExt, OsStrExt, OsStringExt,
        OwnedFd, PermissionsExt, RawFd,
    }
    os::unix::process { CommandExt, ExitStatusExt, parent_id }
    os::unix::raw { gid_t, pid_t, uid_t }
    os::unix::thread { JoinHandleExt, RawPthread }
    process {
        Child, ChildStderr, ChildStdin, ChildStdout, Command, CommandArgs, CommandEnvs, ExitCode,
        ExitStatus, Output, Stdio, Termination, abort, exit, id,
    }
    sync {
        Arc, Barrier, BarrierWaitResult, Condvar, LazyLock, LockResult, Mutex, MutexGuard,
        ONCE_INIT, Once, OnceLock, OnceState, PoisonError, RwLock, RwLockReadGuard,
        RwLockWriteGuard, TryLockError, TryLockResult, WaitTimeoutResult, Weak, atomic, mpsc,
    }
    sync::atomic { AtomicUsize, Ordering, compiler_fence, fence }
    sync::mpsc {
        IntoIter, Iter, Receiver, RecvError, RecvTimeoutError, SendError, Sender, SyncSender,
        TryIter, TryRecvError, TrySendError, channel, sync_channel,
    }
    thread {
        AccessError, Builder, JoinHandle, LocalKey, Result, Scope, ScopedJoinHandle, Thread,
        ThreadId, available_parallelism, current, panicking, park, park_timeout, park_timeout_ms,
        scope, sleep, sleep_ms, spawn, yield_now,
    }
    time { Duration, Instant }
}

/// One program, with the imports of either: nothing else differs.
macro_rules! program {
    ($name:ident, $std:ident) => {
        mod $name {
            use std::cell::RefCell;
            use std::io::{Read, Write};
            use std::time::Duration;
            use $std::os::unix::prelude::*;
            use $std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, RwLock, mpsc};
            use $std::{fs, io, net, process, sync::atomic, thread};

            std::thread_local! {
                static SEEN: RefCell<Vec<thread::ThreadId>> = const { RefCell::new(Vec::new()) };
            }

            fn note_me() -> usize {
                let key: &'static thread::LocalKey<RefCell<Vec<thread::ThreadId>>> = &SEEN;
                key.with(|seen| {
                    seen.borrow_mut().push(thread::current().id());
                    seen.borrow().len()
                })
            }

            #[test]
            fn compiles_and_runs() {
                let total = Arc::new((Mutex::new(0), Condvar::new()));
                let (sender, receiver) = mpsc::channel();
                let handles: Vec<thread::JoinHandle<usize>> = (0..8)
                    .map(|i| {
                        let (total, sender) = (total.clone(), sender.clone());
                        let builder = thread::Builder::new().name(format!("worker {i}"));
                        let work = move || {
                            let (total, changed) = &*total;
                            *total.lock().unwrap() += i;
                            changed.notify_all();
                            sender
                                .send(thread::current().name().map(str::to_owned))
                                .unwrap();
                            thread::yield_now();
                            note_me()
                        };
                        builder.stack_size(0).spawn(work).unwrap()
                    })
                    .collect();
                drop(sender);
                let (total, changed) = &*total;
                let sum = changed
                    .wait_while(total.lock().unwrap(), |sum| *sum < 28)
                    .unwrap();
                assert_eq!(*sum, 28);
                drop(sum); // worker 0, which adds nothing, may not have locked yet
                let mut names: Vec<_> = receiver.iter().flatten().collect();
                names.sort();
                assert_eq!((names.len(), &*names[7]), (8, "worker 7"));
                for handle in handles {
                    // SAFETY: it only asks.
                    let me = unsafe { libc::pthread_self() };
                    assert_ne!(handle.as_pthread_t() as libc::pthread_t, me);
                    handle.thread().unpark();
                    assert_eq!(handle.join().unwrap(), 1);
                }

                let result: thread::Result<()> = thread::spawn(|| panic!("on purpose")).join();
                assert!(result.is_err() && !thread::panicking());
                let words = RwLock::new(Vec::new());
                let barrier = Barrier::new(2);
                thread::scope(|s: &thread::Scope<'_, '_>| {
                    let first: thread::ScopedJoinHandle<'_, bool> = s.spawn(|| {
                        words.write().unwrap().push("green");
                        barrier.wait().is_leader()
                    });
                    let leads = barrier.wait().is_leader();
                    assert_ne!(first.join().unwrap(), leads);
                });
                assert_eq!(words.into_inner().unwrap(), ["green"]);
                let local = atomic::AtomicUsize::new(1);
                let builder = thread::Builder::new();
                let work = || local.fetch_add(1, atomic::Ordering::Relaxed);
                // SAFETY: the thread is joined while `local` is there.
                let thread = unsafe { builder.spawn_unchecked(work) };
                assert_eq!(thread.unwrap().join().unwrap(), 1);
                thread::park_timeout(Duration::from_millis(1));
                thread::sleep(Duration::from_millis(1));
                assert!(thread::available_parallelism().unwrap().get() > 0);

                static LISTENER: OnceLock<net::TcpListener> = OnceLock::new();
                let listener =
                    LISTENER.get_or_init(|| net::TcpListener::bind("127.0.0.1:0").unwrap());
                let server = thread::spawn(|| -> io::Result<()> {
                    let (mut stream, _) = LISTENER.wait_for()?.accept()?;
                    assert!(stream.as_raw_fd() > 2);
                    stream.write_all(b"hello")
                });
                let address = listener.local_addr().unwrap();
                let mut text = String::new();
                net::TcpStream::connect(address)
                    .unwrap()
                    .read_to_string(&mut text)
                    .unwrap();
                server.join().unwrap().unwrap();
                let mut command = process::Command::new("sh");
                command.arg0("me").args(["-c", "echo $0"]).process_group(0);
                let output = command.output().unwrap();
                assert_eq!((&*text, output.status.signal()), ("hello", None));
                assert_eq!(output.stdout, b"me\n");
                assert!(fs::metadata("Cargo.toml").unwrap().mode() & 0o400 != 0);
            }

            trait WaitFor<T> {
                fn wait_for(&'static self) -> io::Result<&'static T>;
            }
            impl<T> WaitFor<T> for OnceLock<T> {
                fn wait_for(&'static self) -> io::Result<&'static T> {
                    self.get().ok_or_else(|| io::ErrorKind::NotFound.into())
                }
            }
        }
    };
}

program!(with_std, std);
program!(with_ours, greenthread);
