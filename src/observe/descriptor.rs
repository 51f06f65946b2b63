//! What the system says of a descriptor: a socket's peer, or else what the number stands for.

use core::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

/// `peer 127.0.0.1:80`, or what `/proc` calls the file.
pub(super) fn describe(descriptor: RawFd) -> Option<String> {
    if let Some(peer) = peer(descriptor) {
        return Some(format!("peer {peer}"));
    }
    let link = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The address of the other end of a socket of the Internet's.
fn peer(descriptor: RawFd) -> Option<SocketAddr> {
    let mut address = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: the place is valid, and its length is right.
    let failed = unsafe { libc::getpeername(descriptor, address.as_mut_ptr().cast(), &mut length) };
    if failed != 0 {
        return None;
    }
    // SAFETY: zeroed, and written by the kernel; a storage of the family that it names.
    unsafe {
        let storage = address.assume_init();
        match i32::from(storage.ss_family) {
            libc::AF_INET => {
                let v4 = *(&raw const storage).cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = *(&raw const storage).cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
            }
            _ => None,
        }
    }
}
