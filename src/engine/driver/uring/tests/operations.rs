//! Each operation does what the system call of its name does.

use std::io::{IoSlice, IoSliceMut};

use super::*;
use crate::engine::driver::source::Message;

#[test]
fn what_comes_later_is_received() {
    let _watchdog = watchdog("what_comes_later_is_received");
    if !ring() {
        return;
    }
    for green in [true, false] {
        let (here, there) = UnixStream::pair().unwrap();
        let is_in = Arc::new(AtomicBool::new(false));
        let reader = {
            let is_in = is_in.clone();
            Box::new(move || {
                let mut buffer = [0; 8];
                is_in.store(true, Release);
                assert_eq!(recv_into(&here, &mut buffer, Limit::Forever).unwrap(), 5);
                assert_eq!(&buffer, b"hello\0\0\0");
                // The stream is at its end.
                assert_eq!(recv_into(&here, &mut buffer, Limit::Forever).unwrap(), 0);
            })
        };
        let writer = Box::new(move || {
            while !is_in.load(Acquire) {
                crate::yield_now();
            }
            crate::sleep(Duration::from_millis(5));
            assert_eq!(send(there.as_fd(), b"hello", 0, Limit::Forever).unwrap(), 5);
        });
        run(green, vec![reader, writer]);
    }
}

#[test]
fn errors_are_the_system_calls() {
    let _watchdog = watchdog("errors_are_the_system_calls");
    if !ring() {
        return;
    }
    let code = |error: io::Error| error.raw_os_error().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    let broken = send(here.as_fd(), b"x", 0, Limit::Forever).unwrap_err();
    assert_eq!(code(broken), libc::EPIPE);
    let (_path, file) = temporary_file(1, 0);
    let no_socket = recv(file.as_fd(), &mut [0], 0, Limit::Forever).unwrap_err();
    assert_eq!(code(no_socket), libc::ENOTSOCK);
    let for_reading = std::fs::File::open("Cargo.toml").unwrap();
    let forbidden = write_at(for_reading.as_fd(), b"x", 0).unwrap_err();
    assert_eq!(code(forbidden), libc::EBADF);
    // SAFETY: the memory is never touched: nobody may write to this address.
    let nowhere = unsafe { std::slice::from_raw_parts_mut(16 as *mut u8, 8) };
    let fault = read_at(file.as_fd(), nowhere, 0).unwrap_err();
    assert_eq!(code(fault), libc::EFAULT);
    std::fs::remove_file(_path).unwrap();
}

#[test]
fn waits_for_readiness() {
    let _watchdog = watchdog("waits_for_readiness");
    if !ring() {
        return;
    }
    crate::spawn(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        wait_ready(here.as_fd(), Direction::Write, Limit::Forever).unwrap();
        assert!(expired(&wait_ready(
            here.as_fd(),
            Direction::Read,
            soon(1000)
        )));
        assert!(expired(&wait_ready(
            here.as_fd(),
            Direction::Read,
            Limit::Until(0)
        )));
        let waiting = crate::spawn(move || {
            wait_ready(here.as_fd(), Direction::Read, Limit::Forever).unwrap();
        });
        crate::sleep(Duration::from_millis(2));
        there.write_all(b"x").unwrap();
        waiting.join().unwrap();
    })
    .join()
    .unwrap();
}

#[test]
fn messages_carry_addresses() {
    let _watchdog = watchdog("messages_carry_addresses");
    if !ring() {
        return;
    }
    let (here, there) = UnixDatagram::pair().unwrap();
    let parts = [b"he", &b"llo"[..]].map(IoSlice::new);
    let mut into = [0u8; 4];
    let mut into_parts = [IoSliceMut::new(&mut into)];
    let send = Transfer::SendMessage(&Message::of(&parts));
    let sent = transfer(here.as_fd(), send, 0, Limit::Forever);
    assert_eq!(sent.unwrap(), 5);
    let mut message = Message::to(&mut into_parts);
    let receive = Transfer::RecvMessage(&mut message);
    let got = transfer(there.as_fd(), receive, libc::MSG_TRUNC, Limit::Forever);
    assert_eq!(got.unwrap(), 5);
    assert_eq!(&into, b"hell");
}

#[test]
fn files_are_read_and_written() {
    let _watchdog = watchdog("files_are_read_and_written");
    if !ring() {
        return;
    }
    let (path, opened) = temporary_file(10_000, 0);
    crate::spawn(move || {
        let (fd, mut position) = (opened.as_fd(), &opened);
        let mut buffer = [0; 20_000];
        let length = read_at(fd, &mut buffer, 3).unwrap();
        assert_eq!(length, 9_997);
        assert!((0..length).all(|i| buffer[i] == byte_at(i + 3)));
        assert_eq!(write_at(fd, b"green", 9_998).unwrap(), 5);
        sync(fd, true).unwrap();
        sync(fd, false).unwrap();
        assert_eq!(opened.metadata().unwrap().len(), 10_003);
        assert_eq!(position.stream_position().unwrap(), 0);
    })
    .join()
    .unwrap();
    assert!(std::fs::read(&path).unwrap().ends_with(b"green"));
    std::fs::remove_file(path).unwrap();
}
