//! Preemption is by signal, and a signal cuts transfers short. No program may notice.
//!
//! The idea: threads with time slices of 100 µs compute for about as long and then transfer much, so
//! that the signal often comes in the middle. What comes back is counted: no transfer of a blocking
//! descriptor is a part.

mod common;
#[path = "support/interruptions.rs"]
mod interruptions;
#[path = "support/unhooked.rs"]
mod unhooked;

use common::*;
use greenthread::runtime::Mode;
use interruptions::*;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

const MIB: usize = 1 << 20;

/// Lets four threads at once transfer for a while, and returns how many transfers there were and how many
/// were a part.
fn parts(transfer: fn() -> Box<dyn FnMut() -> usize + Send>) -> (usize, usize) {
    const THREADS: usize = 4;
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let end = Instant::now() + stress_time();
    let body = move || {
        let mut transfer = transfer();
        let (mut all, mut parts) = (0, 0);
        while Instant::now() < end {
            compute(all % 97 * 2_000);
            all += 1;
            parts += usize::from(transfer() != MIB);
        }
        (all, parts)
    };
    let threads: Vec<_> = (0..THREADS).map(|_| runtime.spawn(body)).collect();
    let sum = |sum: (usize, usize), add: (usize, usize)| (sum.0 + add.0, sum.1 + add.1);
    let sum = threads
        .into_iter()
        .map(|t| t.join().unwrap())
        .fold((0, 0), sum);
    drop(hogs);
    runtime.shutdown();
    println!("{sum:?}");
    sum
}

/// Reads all, and checks it: bytes of one transfer count from 0.
fn drain(mut from: impl Read + Send + 'static) {
    std::thread::spawn(move || {
        let (mut buffer, mut at) = (vec![0; 100_000], 0);
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let right = |(i, byte): (usize, &u8)| *byte == pattern((at + i) % MIB);
            assert!(
                buffer[..length].iter().enumerate().all(right),
                "lost or twice"
            );
            at += length;
        }
        assert_eq!(at % MIB, 0, "a part is missing");
    });
}

fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

fn data() -> Vec<u8> {
    (0..MIB).map(pattern).collect()
}

/// Writes that are whole, or the reader complains: a part would be followed by the beginning.
fn writer(mut to: impl Write + Send + 'static) -> Box<dyn FnMut() -> usize + Send> {
    let data = data();
    Box::new(move || to.write(&data).expect("somebody reads"))
}

#[test]
fn a_write_to_a_unix_stream_is_whole() {
    let _w = watchdog("a_write_to_a_unix_stream_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = UnixStream::pair().unwrap();
        drain(b);
        writer(a)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_write_to_a_pipe_is_whole() {
    let _w = watchdog("a_write_to_a_pipe_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (reader, writer_end) = std::io::pipe().unwrap();
        drain(reader);
        writer(writer_end)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_write_to_a_connection_is_whole() {
    let _w = watchdog("a_write_to_a_connection_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = tcp_pair();
        drain(b);
        writer(a)
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_write_from_several_buffers_is_whole() {
    let _w = watchdog("a_write_from_several_buffers_is_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (mut a, b) = UnixStream::pair().unwrap();
        drain(b);
        let data = data();
        Box::new(move || {
            let (x, rest) = data.split_at(MIB / 3);
            let (y, z) = rest.split_at(17);
            let buffers = [x, &[], y, z].map(std::io::IoSlice::new);
            a.write_vectored(&buffers).expect("somebody reads")
        })
    });
    assert_eq!(parts, 0, "of {all} writes");
}

#[test]
fn a_message_is_sent_whole() {
    let _w = watchdog("a_message_is_sent_whole");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, b) = tcp_pair();
        drain(b);
        let mut data = data();
        Box::new(move || {
            let (x, y) = data.split_at_mut(MIB / 3);
            let mut buffers = [x, y].map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            });
            // SAFETY: all zero is a message without anything; the buffers outlive the call.
            let sent = unsafe {
                let mut message: libc::msghdr = zeroed();
                (message.msg_iov, message.msg_iovlen) = (buffers.as_mut_ptr(), buffers.len());
                libc::sendmsg(a.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
            };
            usize::try_from(sent).expect("somebody reads")
        })
    });
    assert_eq!(parts, 0, "of {all} messages");
}

#[test]
fn waiting_for_all_gets_all() {
    let _w = watchdog("waiting_for_all_gets_all");
    if !is_mended() {
        return;
    }
    let (all, parts) = parts(|| {
        let (a, mut b) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let data = data();
            let mut n = 0;
            while b.write_all(&data[..MIB / 3 + n % 7]).is_ok() {
                n += 1;
            }
        });
        let mut buffer = vec![0u8; MIB];
        Box::new(move || {
            let at = buffer.as_mut_ptr().cast();
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::recv(a.as_raw_fd(), at, MIB, libc::MSG_WAITALL) };
            usize::try_from(got).expect("somebody writes")
        })
    });
    assert_eq!(parts, 0, "of {all}");
}

/// What stays: no descriptor that must not wait, and no datagram, is waited for.
#[test]
fn parts_that_are_right_stay_parts() {
    let _w = watchdog("parts_that_are_right_stay_parts");
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let body = || {
        let end = Instant::now() + stress_time();
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        let (x, y) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut buffer = vec![7u8; MIB];
        while Instant::now() < end {
            while (&a).write(&buffer).is_ok() {}
            let mut left = [0; 50_000];
            assert!((&b).read(&mut left).unwrap() > 0);
            assert_eq!(x.send(b"a datagram").unwrap(), 10);
            let at = buffer.as_mut_ptr().cast();
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::recv(y.as_raw_fd(), at, MIB, libc::MSG_WAITALL) };
            assert_eq!(got, 10);
        }
        drop(OwnedFd::from(b));
        assert!((&a).write(&buffer).is_err());
    };
    let threads: Vec<_> = (0..4).map(|_| runtime.spawn(body)).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    drop(hogs);
    runtime.shutdown();
}

#[test]
fn a_reader_that_leaves_ends_a_write() {
    let _w = watchdog("a_reader_that_leaves_ends_a_write");
    let runtime = runtime();
    let hogs = Hogs::new(&runtime);
    let body = || {
        let data = data();
        for _ in 0..100 {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            let reader = std::thread::spawn(move || b.read_exact(&mut [0; 400_000]).unwrap());
            let mut written = 0;
            while let Ok(length) = a.write(&data) {
                written += length;
            }
            reader.join().unwrap();
            assert!((400_000..2 * MIB).contains(&written), "{written}");
        }
    };
    let threads: Vec<_> = (0..4).map(|_| runtime.spawn(body)).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    if runtime.mode() == Mode::Green {
        assert!(runtime.metrics().preemptions > 0);
    }
    drop(hogs);
    runtime.shutdown();
}
