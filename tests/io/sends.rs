//! Sends of several threads go to the kernel together (`driver::sends`): what a program can see of
//! it, which should be nothing.
//!
//! The idea: on one processor a gate keeps everything busy until bytes for many connections have
//! come. Their threads then run in one batch, and their sends are held back. What such a thread does
//! after its neighbours have sent is what the tests differ in. Whether sends did go together, the
//! kernel tells: it counts what its rings have completed.

#![cfg(all(feature = "net", feature = "io-uring"))]

use crate::common::*;
use greenthread as thread;
use greenthread::net::{TcpListener, TcpStream};
use greenthread::runtime::{Driver, Mode, Runtime};
use std::hint::black_box;
use std::io::{ErrorKind, PipeReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// As many as a batch of events has.
const CONNECTIONS: usize = 32;

fn pair() -> (std::net::TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nodelay(true).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

/// With the driver that is chosen when none is asked for.
fn runtime(processors: usize) -> Runtime {
    Runtime::builder().processors(processors).build().unwrap()
}

/// Whether sends of `runtime`'s threads can go together.
fn can_batch(runtime: &Runtime) -> bool {
    runtime.mode() == Mode::Green
        && runtime.driver() == Some(Driver::Epoll)
        && std::env::var_os("GREENTHREAD_DRIVER").is_none()
        && has_io_uring()
}

fn has_io_uring() -> bool {
    let mut parameters = [0u8; 120];
    // SAFETY: the record has that size. The descriptor is closed.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
        ring >= 0 && libc::close(ring as i32) == 0
    }
}

/// How many operations each small ring of this process has completed.
fn rings() -> Vec<u64> {
    let descriptors = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let ring = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path()).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        (field("SqMask:")? == "0xf").then_some(())?;
        field("CqTail:")?.parse().ok()
    };
    descriptors.filter_map(ring).collect()
}

/// Keeps the only processor of `runtime` busy until `prepare` is over.
fn gated(runtime: &Runtime, prepare: impl FnOnce()) {
    let [started, open] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let gate = runtime.spawn({
        let (started, open) = (started.clone(), open.clone());
        move || {
            started.store(true, SeqCst);
            while !open.load(SeqCst) {
                std::hint::spin_loop();
            }
        }
    });
    wait_until(|| started.load(SeqCst));
    prepare();
    open.store(true, SeqCst);
    gate.join().unwrap();
}

/// Sends each byte back, then goes on with `after`.
fn replier(mut stream: TcpStream, mut after: impl FnMut(u8)) -> std::io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte)? != 0 {
        stream.write_all(&byte)?;
        after(byte[0]);
    }
    Ok(())
}

/// All replies come, each to the one that asked, and most go by way of the ring; none if the
/// driver was asked for.
#[test]
fn many_replies_go_together() {
    const ROUNDS: usize = 50;
    let test = "sends::many_replies_go_together";
    let _w = watchdog(test);
    let Some(case) = child_case(test) else {
        for case in ["chosen", "asked for"] {
            let out = child(test, case);
            assert!(out.status.success(), "{}", said(&out));
        }
        return;
    };
    for processors in [1, 2] {
        let builder = Runtime::builder().processors(processors);
        let runtime = match case.as_str() {
            "chosen" => builder.build().unwrap(),
            _ => builder.driver(Driver::Epoll).build().unwrap(),
        };
        let (mut clients, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
        let threads: Vec<_> = servers
            .into_iter()
            .map(|server| runtime.spawn(|| replier(server, |_| ())))
            .collect();
        for round in 0..ROUNDS {
            for (i, client) in clients.iter_mut().enumerate() {
                client.write_all(&[(round + i) as u8]).unwrap();
            }
            for (i, client) in clients.iter_mut().enumerate() {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [(round + i) as u8]);
            }
        }
        let completed: u64 = rings().iter().sum();
        println!(
            "{processors} processors, {case}: {completed} of {}",
            ROUNDS * CONNECTIONS
        );
        if case != "chosen" {
            assert_eq!(completed, 0);
        } else if can_batch(&runtime) && processors == 1 {
            assert!(completed as usize > ROUNDS * CONNECTIONS / 4);
        }
        drop(clients);
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
        runtime.shutdown();
        // They end with their runtime.
        assert_eq!(rings(), []);
    }
}

/// Threads that turn out to compute for long, or to be blocked in the kernel, after others of their
/// batch have sent: those sends go out before the threads are done, which here only end after that.
#[test]
fn nobody_waits_for_what_runs_long() {
    let _w = watchdog("sends::nobody_waits_for_what_runs_long");
    /// Runs for ever unless the others' replies arrive.
    type Trouble = fn(&AtomicBool, &mut PipeReader);
    let computes: Trouble = |replied, _| {
        while !replied.load(SeqCst) {
            black_box(0);
        }
    };
    let yields: Trouble = |replied, _| {
        while !replied.load(SeqCst) {
            thread::yield_now();
        }
    };
    let blocks: Trouble = |_, pipe| assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
    let announces: Trouble =
        |_, pipe| assert_eq!(greenthread::blocking(|| pipe.read(&mut [0]).unwrap()), 0);
    let is_locked: Trouble = |replied, _| {
        let _lock = thread::lock_kernel_thread();
        while !replied.load(SeqCst) {
            black_box(0);
        }
    };
    for trouble in [computes, yields, blocks, announces, is_locked] {
        for processors in [1, 2] {
            let runtime = runtime(processors);
            let replied = Arc::new(AtomicBool::new(false));
            let (mut clients, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
            let (pipes, releases): (Vec<_>, Vec<_>) =
                (0..CONNECTIONS).map(|_| pipe().unwrap()).unzip();
            let threads: Vec<_> = servers
                .into_iter()
                .zip(pipes)
                .enumerate()
                .map(|(i, (server, mut pipe))| {
                    let replied = replied.clone();
                    // Some make trouble instead of a reply, so that the others' are not yet out.
                    runtime.spawn(move || {
                        let mut server = server;
                        let mut byte = [0];
                        while server.read(&mut byte).unwrap() != 0 {
                            if byte[0] == 1 && i % 5 == 4 {
                                trouble(&replied, &mut pipe);
                            }
                            server.write_all(&byte).unwrap();
                        }
                    })
                })
                .collect();
            // The first round registers the sockets; the second one is the test.
            for round in 0..2 {
                let ask = |clients: &mut Vec<std::net::TcpStream>| {
                    for client in clients {
                        client.write_all(&[round]).unwrap();
                    }
                };
                match (round, processors) {
                    (1, 1) => gated(&runtime, || ask(&mut clients)),
                    _ => ask(&mut clients),
                }
                for (i, client) in clients.iter_mut().enumerate() {
                    if round == 0 || i % 5 != 4 {
                        client.read_exact(&mut [0]).unwrap();
                    }
                }
            }
            replied.store(true, SeqCst);
            drop(releases);
            for (_, client) in clients.iter_mut().enumerate().filter(|(i, _)| i % 5 == 4) {
                client.read_exact(&mut [0]).unwrap();
            }
            drop(clients);
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        }
    }
}

/// Streams to peers that read when they like: sends find the socket full, or take a part. Each
/// buffer is written over as soon as its send returns, and nothing of that arrives.
#[test]
fn full_sockets_and_used_buffers() {
    const CHUNK: usize = 3000;
    const CHUNKS: usize = 200;
    let _w = watchdog("sends::full_sockets_and_used_buffers");
    for processors in [1, 2] {
        let runtime = runtime(processors);
        let (clients, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
        let threads: Vec<_> = servers
            .into_iter()
            .enumerate()
            .map(|(i, mut server)| {
                runtime.spawn(move || {
                    let small = 4096;
                    // SAFETY: an option of that type.
                    unsafe {
                        let (level, name) = (libc::SOL_SOCKET, libc::SO_SNDBUF);
                        let value = (&raw const small).cast();
                        libc::setsockopt(server.as_raw_fd(), level, name, value, 4);
                    }
                    server.read_exact(&mut [0]).unwrap();
                    for chunk in 0..CHUNKS {
                        let mut bytes = [(i + chunk) as u8 | 1; CHUNK];
                        let mut rest = &bytes[..];
                        while !rest.is_empty() {
                            let sent = server.write(rest).unwrap();
                            rest = &rest[sent..];
                        }
                        // No chunk is even.
                        bytes.fill(0);
                        black_box(&mut bytes);
                    }
                })
            })
            .collect();
        for mut client in &clients {
            client.write_all(&[1]).unwrap();
        }
        let mut received = vec![0; CONNECTIONS];
        while received.iter().any(|&n| n < CHUNK * CHUNKS) {
            for (i, mut client) in clients.iter().enumerate() {
                let left = CHUNK * CHUNKS - received[i];
                let mut bytes = vec![0; left.min(5 * CHUNK)];
                client.read_exact(&mut bytes).unwrap();
                for (at, byte) in bytes.iter().enumerate() {
                    let chunk = (received[i] + at) / CHUNK;
                    assert_eq!(
                        *byte,
                        (i + chunk) as u8 | 1,
                        "connection {i}, chunk {chunk}"
                    );
                }
                received[i] += bytes.len();
            }
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

/// Half of the peers reset their connections before the replies are sent: those threads get an
/// error, no signal comes, and the others' replies arrive.
#[test]
fn resets_concern_nobody_else() {
    let _w = watchdog("sends::resets_concern_nobody_else");
    let runtime = runtime(1);
    for _ in 0..10 {
        let (clients, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
        let failed = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = servers
            .into_iter()
            .map(|server| {
                let failed = failed.clone();
                runtime.spawn(move || {
                    let mut server = server;
                    let mut byte = [0];
                    while let Ok(1) = server.read(&mut byte) {
                        // The first says that the reset has come, the second must.
                        if let Err(error) =
                            server.write_all(&[1]).and_then(|()| server.write_all(&[2]))
                        {
                            let kind = error.kind();
                            let resets = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                            assert!(resets.contains(&kind), "{error}");
                            failed.fetch_add(1, SeqCst);
                            break;
                        }
                    }
                })
            })
            .collect();
        let mut clients: Vec<_> = clients.into_iter().map(Some).collect();
        gated(&runtime, || {
            for (i, client) in clients.iter_mut().enumerate() {
                let mut stream = client.as_ref().unwrap();
                stream.write_all(&[1]).unwrap();
                if i % 2 == 1 {
                    let linger = libc::linger {
                        l_onoff: 1,
                        l_linger: 0,
                    };
                    // SAFETY: an option of that type.
                    unsafe {
                        let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
                        let size = size_of_val(&linger) as u32;
                        let value = (&raw const linger).cast();
                        libc::setsockopt(stream.as_raw_fd(), level, name, value, size);
                    }
                    *client = None;
                }
            }
        });
        for mut client in clients.iter().flatten() {
            let mut bytes = [0; 2];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [1, 2]);
        }
        drop(clients);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        println!("{} of {CONNECTIONS} failed", failed.load(SeqCst));
    }
}

/// A child forked while others' sends are on their way makes its own, and only those.
#[test]
fn a_forked_child_sends() {
    let _w = watchdog("sends::a_forked_child_sends");
    let runtime = runtime(1);
    let (mut clients, servers): (Vec<_>, Vec<_>) = (0..CONNECTIONS).map(|_| pair()).unzip();
    let threads: Vec<_> = servers
        .into_iter()
        .map(|server| {
            runtime.spawn(move || {
                let mut sends = server.try_clone().unwrap();
                replier(server, |byte| {
                    if byte != 2 {
                        return;
                    }
                    // SAFETY: the child only uses what must work after a fork, and leaves by
                    // `_exit`.
                    let pid = unsafe { libc::fork() };
                    assert!(pid >= 0);
                    if pid == 0 {
                        // SAFETY: plain calls.
                        unsafe {
                            libc::alarm(20);
                            libc::_exit(sends.write(&[3]).map_or(1, |_| 0))
                        }
                    }
                    let mut status = 0;
                    // SAFETY: `status` outlives the call.
                    greenthread::blocking(|| unsafe { libc::waitpid(pid, &mut status, 0) });
                    assert_eq!(ExitStatus::from_raw(status).code(), Some(0), "{status}");
                })
            })
        })
        .collect();
    for round in 1..=2 {
        gated(&runtime, || {
            for (i, client) in clients.iter_mut().enumerate() {
                let forks = round == 2 && i % 8 == 5;
                client.write_all(&[1 + u8::from(forks)]).unwrap();
            }
        });
        for (i, client) in clients.iter_mut().enumerate() {
            let forks = round == 2 && i % 8 == 5;
            let expected: &[u8] = if forks { &[2, 3] } else { &[1] };
            let mut bytes = vec![0; expected.len()];
            client.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, expected);
        }
    }
    for client in &clients {
        client.shutdown(std::net::Shutdown::Write).unwrap();
    }
    for (thread, mut client) in threads.into_iter().zip(clients) {
        thread.join().unwrap().unwrap();
        // Nothing was sent twice.
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}
