//! Memory mappings: thin wrappers from system call to `io::Result`.
//!
//! Like all of [`sys`](super) they leave `errno` alone. Nothing here allocates: an `io::Error` made
//! of a raw error number is one word.

use std::io;

/// Bytes of a page (x86-64).
pub(crate) const PAGE: usize = 4096;

/// Advice: pages that fault at every access, without splitting the mapping (Linux 6.13; libc does
/// not name it everywhere).
pub(crate) const MADV_GUARD_INSTALL: i32 = 102;

/// Maps `length` bytes of zeroed memory, readable and writable, whose pages are found only when
/// touched.
pub(crate) fn map(length: usize) -> io::Result<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let anonymous = usize::MAX;
    let arguments = [0, length, protection as usize, flags as usize, anonymous, 0];
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no existing memory.
    unsafe { call(libc::SYS_mmap, &arguments) }
}

/// Unmaps whole pages.
///
/// # Safety
/// Nobody uses that memory any more.
pub(crate) unsafe fn unmap(address: usize, length: usize) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, &[address, length]).map(drop) }
}

/// `madvise`: `advice` for whole pages.
///
/// # Safety
/// For advice that changes contents or access, nobody relies on either.
pub(crate) unsafe fn advise(address: usize, length: usize, advice: i32) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_madvise, &[address, length, advice as usize]).map(drop) }
}

/// `mprotect`: the access allowed to whole pages. Splits the mapping.
///
/// # Safety
/// Nobody relies on an access that this forbids.
pub(crate) unsafe fn protect(address: usize, length: usize, protection: i32) -> io::Result<()> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mprotect, &[address, length, protection as usize]).map(drop) }
}

/// `mincore`: for each page from `address` on, sets the lowest bit of its byte if it is in memory.
#[cfg(test)]
pub(crate) fn resident(address: usize, pages: &mut [u8]) -> io::Result<()> {
    let (length, bytes) = (pages.len() * PAGE, pages.as_mut_ptr() as usize);
    // SAFETY: the kernel writes one byte a page, which is the length of `pages`; it reads no
    // memory.
    unsafe { call(libc::SYS_mincore, &[address, length, bytes]).map(drop) }
}

/// # Safety
/// As the system call demands.
unsafe fn call(number: libc::c_long, arguments: &[usize]) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    unsafe { super::call(number, arguments).map_err(io::Error::from_raw_os_error) }
}
