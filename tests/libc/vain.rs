//! Waits of unmodified code that the kernel alone understands: an event comes that is none. Then no thread
//! runs in circles until the right one comes.
//!
//! CPU time is that of the process, so the test has one of its own.

#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_env = "gnu")
    )
))]

use crate::common;
use std::time::Duration;

use crate::common::watchdog;
use crate::sockets::*;
use greenthread::runtime::Runtime;

/// The CPU time of the process.
fn cpu_time() -> Duration {
    // SAFETY: a zeroed time is valid, and so is the place.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A socket, and an address with a full queue.
fn full_queue() -> (
    i32,
    i32,
    impl Fn(i32) -> isize + Copy + std::marker::Send + 'static,
) {
    let make = || socket(libc::AF_UNIX, libc::SOCK_DGRAM);
    let (to, from) = (make(), make());
    // SAFETY: zeroed addresses are valid. The name is an abstract one, chosen by the kernel.
    let (address, size) = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        assert_eq!(libc::bind(to, (&raw const address).cast(), 2), 0);
        let mut size = size_of_val(&address) as libc::socklen_t;
        let place = (&raw mut address).cast();
        assert_eq!(libc::getsockname(to, place, &mut size), 0);
        (address, size)
    };
    let put = move |flags| {
        let at = (&raw const address).cast();
        // SAFETY: a valid address and buffer.
        unsafe { libc::sendto(from, b"x".as_ptr().cast(), 1, flags, at, size) }
    };
    while put(libc::MSG_DONTWAIT) == 1 {}
    (to, from, put)
}

#[test]
fn nothing_is_done_in_vain() {
    const NAME: &str = "vain::nothing_is_done_in_vain";
    let _w = watchdog(NAME);
    let Some(case) = common::child_case(NAME) else {
        for case in ["send", "select"] {
            common::assert_code(&common::child(NAME, case), 0);
        }
        return;
    };
    let runtime = Runtime::builder().processors(1).build().unwrap();
    let (waits, end): (_, Box<dyn FnOnce()>) = match case.as_str() {
        "send" => {
            // `poll` says that the datagram can be sent, and it cannot.
            let (to, _from, put) = full_queue();
            let end = move || assert_eq!(recv(to, &mut [0], 0), 1);
            (runtime.spawn(move || put(0)), Box::new(end))
        }
        _ => {
            // The end is nothing exceptional, but it comes unasked.
            let (a, b) = Kind::Stream.pair();
            shut(b, libc::SHUT_RDWR);
            let select = move || {
                let none = std::ptr::null_mut();
                // SAFETY: valid sets and times.
                unsafe {
                    let mut except: libc::fd_set = std::mem::zeroed();
                    libc::FD_SET(a, &mut except);
                    let mut time = libc::timeval {
                        tv_sec: 0,
                        tv_usec: 700_000,
                    };
                    libc::select(a + 1, none, none, &mut except, &mut time) as isize + 1
                }
            };
            (runtime.spawn(select), Box::new(|| {}))
        }
    };
    let before = cpu_time();
    std::thread::sleep(Duration::from_millis(500));
    let busy = cpu_time() - before;
    end();
    assert_eq!(waits.join().unwrap(), 1);
    assert!(
        busy < Duration::from_millis(200),
        "{busy:?} of CPU time in vain"
    );
}
