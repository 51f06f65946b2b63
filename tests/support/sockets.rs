//! Pairs of sockets, and libc's calls on them as functions.

#![allow(dead_code)] // each test file uses its own part

use std::ffi::CStr;
use std::time::Duration;

use libc::{c_int, c_void};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Tcp,
    Stream,
    Seqpacket,
    Datagram,
    Udp,
}

impl Kind {
    pub const ALL: [Kind; 5] = [
        Kind::Tcp,
        Kind::Stream,
        Kind::Seqpacket,
        Kind::Datagram,
        Kind::Udp,
    ];

    pub fn is_stream(self) -> bool {
        matches!(self, Kind::Tcp | Kind::Stream)
    }

    /// Whether a peer sees the end of the other one.
    pub fn has_end(self) -> bool {
        !matches!(self, Kind::Datagram | Kind::Udp)
    }

    pub fn pair(self) -> (c_int, c_int) {
        let unix = |kind| {
            let mut pair = [0; 2];
            assert_eq!(
                // SAFETY: a place for two numbers.
                unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) },
                0
            );
            (pair[0], pair[1])
        };
        match self {
            Kind::Stream => unix(libc::SOCK_STREAM),
            Kind::Seqpacket => unix(libc::SOCK_SEQPACKET),
            Kind::Datagram => unix(libc::SOCK_DGRAM),
            Kind::Tcp => {
                let (listener, address) = listener();
                let a = connect(address);
                let b = accept(listener);
                assert!(b >= 0);
                close(listener);
                (a, b)
            }
            Kind::Udp => {
                let make = || socket(libc::AF_INET, libc::SOCK_DGRAM);
                let (a, b) = (make(), make());
                let (at_a, at_b) = (bind(a), bind(b));
                connect_to(a, at_b);
                connect_to(b, at_a);
                (a, b)
            }
        }
    }
}

pub fn socket(family: c_int, kind: c_int) -> c_int {
    // SAFETY: a plain call.
    let fd = unsafe { libc::socket(family, kind, 0) };
    assert!(fd >= 0);
    fd
}

const SIZE: libc::socklen_t = size_of::<libc::sockaddr_in>() as libc::socklen_t;

/// Binds it to some port of this worker.
pub fn bind(fd: c_int) -> libc::sockaddr_in {
    // SAFETY: zeroed addresses are valid, and the places are.
    unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let mut size = SIZE;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), SIZE), 0);
        assert_eq!(
            libc::getsockname(fd, (&raw mut address).cast(), &mut size),
            0
        );
        address
    }
}

pub fn listener() -> (c_int, libc::sockaddr_in) {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM);
    let address = bind(fd);
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::listen(fd, 128) }, 0);
    (fd, address)
}

pub fn connect_to(fd: c_int, address: libc::sockaddr_in) {
    assert_eq!(
        // SAFETY: a valid address.
        unsafe { libc::connect(fd, (&raw const address).cast(), SIZE) },
        0
    );
}

pub fn connect(address: libc::sockaddr_in) -> c_int {
    let fd = socket(libc::AF_INET, libc::SOCK_STREAM);
    connect_to(fd, address);
    fd
}

pub fn accept(fd: c_int) -> c_int {
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    unsafe { libc::accept(fd, none, none.cast()) }
}

pub fn close(fd: c_int) {
    // SAFETY: the test's descriptor.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

pub fn shut(fd: c_int, how: c_int) {
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::shutdown(fd, how) }, 0);
}

/// Closes it so that the peer hears of a reset, if there is such a thing.
pub fn reset(fd: c_int) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    option(fd, libc::SO_LINGER, &linger);
    close(fd);
}

fn option<T>(fd: c_int, name: c_int, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    let value = core::ptr::from_ref(value).cast();
    assert_eq!(
        // SAFETY: a valid place of this size.
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, value, size) },
        0
    );
}

pub fn time_out(fd: c_int, name: c_int, time: Duration) {
    let time = libc::timeval {
        tv_sec: time.as_secs() as i64,
        tv_usec: i64::from(time.subsec_micros()),
    };
    option(fd, name, &time);
}

pub fn set_nonblocking(fd: c_int, on: bool) {
    let flags = if on { libc::O_NONBLOCK } else { 0 };
    // SAFETY: a plain call; sockets and pipes have no other flags here.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }, 0);
}

pub fn open(path: &CStr) -> c_int {
    // SAFETY: a valid path.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR) };
    assert!(fd >= 0);
    fd
}

pub fn recv(fd: c_int, to: &mut [u8], flags: c_int) -> isize {
    // SAFETY: a valid buffer.
    unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) }
}

pub fn send(fd: c_int, from: &[u8], flags: c_int) -> isize {
    // SAFETY: a valid buffer.
    unsafe { libc::send(fd, from.as_ptr().cast(), from.len(), flags) }
}

pub fn read(fd: c_int, to: &mut [u8]) -> isize {
    // SAFETY: a valid buffer.
    unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) }
}

pub fn write(fd: c_int, from: &[u8]) -> isize {
    // SAFETY: a valid buffer.
    unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) }
}

/// Sends all.
pub fn put(fd: c_int, bytes: &[u8]) {
    assert_eq!(write(fd, bytes), bytes.len() as isize);
}

/// Reads up to the end, in small parts.
pub fn read_all(fd: c_int) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 10_000]);
    loop {
        match read(fd, &mut buffer) {
            0 => return all,
            got => all.extend(&buffer[..usize::try_from(got).expect("no error")]),
        }
    }
}

pub fn iovec(base: *mut c_void, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base,
        iov_len: len,
    }
}

/// Two buffers, one after the other.
fn halves(at: *mut u8, len: usize) -> [libc::iovec; 2] {
    let half = len / 2;
    [
        iovec(at.cast(), half),
        iovec(at.wrapping_add(half).cast(), len - half),
    ]
}

fn message(buffers: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: a zeroed message is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (buffers.as_mut_ptr(), buffers.len());
    message
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receive {
    Recv,
    Recvfrom,
    Recvmsg,
    Read,
    Readv,
}

impl Receive {
    pub const ALL: [Receive; 5] = [
        Receive::Recv,
        Receive::Recvfrom,
        Receive::Recvmsg,
        Receive::Read,
        Receive::Readv,
    ];

    /// An empty buffer waits in none of these ways.
    pub fn call(self, fd: c_int, to: &mut [u8]) -> isize {
        let (at, len) = (to.as_mut_ptr(), to.len());
        let mut buffers = halves(at, len);
        // SAFETY: valid buffers and places.
        unsafe {
            match self {
                Receive::Recv => libc::recv(fd, at.cast(), len, 0),
                Receive::Recvfrom => {
                    let mut address: libc::sockaddr_storage = std::mem::zeroed();
                    let mut size = size_of_val(&address) as libc::socklen_t;
                    libc::recvfrom(fd, at.cast(), len, 0, (&raw mut address).cast(), &mut size)
                }
                Receive::Recvmsg => libc::recvmsg(fd, &mut message(&mut buffers), 0),
                Receive::Read => libc::read(fd, at.cast(), len),
                Receive::Readv => libc::readv(fd, buffers.as_ptr(), 2),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(clippy::enum_variant_names)] // libc's names
pub enum Send {
    Send,
    Sendto,
    Sendmsg,
    Write,
    Writev,
}

impl Send {
    pub const ALL: [Send; 5] = [
        Send::Send,
        Send::Sendto,
        Send::Sendmsg,
        Send::Write,
        Send::Writev,
    ];

    pub fn call(self, fd: c_int, from: &[u8]) -> isize {
        let (at, len) = (from.as_ptr(), from.len());
        let mut buffers = halves(at.cast_mut(), len);
        // SAFETY: valid buffers.
        unsafe {
            match self {
                Send::Send => libc::send(fd, at.cast(), len, 0),
                Send::Sendto => libc::sendto(fd, at.cast(), len, 0, std::ptr::null(), 0),
                Send::Sendmsg => libc::sendmsg(fd, &message(&mut buffers), 0),
                Send::Write => libc::write(fd, at.cast(), len),
                Send::Writev => libc::writev(fd, buffers.as_ptr(), 2),
            }
        }
    }
}

/// A control message with one descriptor.
#[repr(C)]
struct Passed {
    head: libc::cmsghdr,
    fd: c_int,
}

const PASSED: usize = size_of::<libc::cmsghdr>() + size_of::<c_int>();

/// Sends `bytes`, and `passed` beside them.
pub fn pass(fd: c_int, bytes: &[u8], passed: c_int) {
    let mut buffers = halves(bytes.as_ptr().cast_mut(), bytes.len());
    let mut message = message(&mut buffers);
    let mut control = Passed {
        head: libc::cmsghdr {
            cmsg_len: PASSED,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        },
        fd: passed,
    };
    (message.msg_control, message.msg_controllen) =
        ((&raw mut control).cast(), size_of::<Passed>());
    assert_eq!(
        // SAFETY: a valid message.
        unsafe { libc::sendmsg(fd, &message, 0) },
        bytes.len() as isize
    );
}

/// Receives what [`pass`] sends.
pub fn receive_passed(fd: c_int, to: &mut [u8], passed: &mut c_int) -> isize {
    let mut buffers = halves(to.as_mut_ptr(), to.len());
    let mut message = message(&mut buffers);
    // SAFETY: a valid message, with room for the control message.
    unsafe {
        let mut control: Passed = std::mem::zeroed();
        (message.msg_control, message.msg_controllen) =
            ((&raw mut control).cast(), size_of::<Passed>());
        let got = libc::recvmsg(fd, &mut message, 0);
        *passed = control.fd;
        got
    }
}
